//! Responses of a server that only `top` reads. Missing fields have their default, because the server may be
//! older or newer.

use serde::Deserialize;

/// `GET /v1/stats`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct ServerStats {
    pub(crate) version: String,
    pub(crate) uptime_seconds: u64,
    pub(crate) waiting_claims: u64,
    pub(crate) problems: Vec<NodeProblem>,
}

/// A problem of the server, such as a full disk.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct NodeProblem {
    pub(crate) name: String,
    pub(crate) detail: Option<String>,
    pub(crate) since: String,
}

/// `GET /v1/series`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct SeriesList {
    pub(crate) kinds: Vec<Series>,
}

/// What happened to the jobs of a kind in the last hour.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Series {
    pub(crate) kind: String,
    /// Jobs done per minute, oldest first.
    pub(crate) acked: Vec<u64>,
    pub(crate) recent: Recent,
}

/// The sums of a sliding window that ends now.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Recent {
    /// Length of the window.
    pub(crate) seconds: u64,
    pub(crate) put: u64,
    pub(crate) acked: u64,
    pub(crate) failed: u64,
    pub(crate) lateness_p50_ms: Option<u64>,
    pub(crate) lateness_p99_ms: Option<u64>,
}

/// `GET /v1/upcoming`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct UpcomingList {
    pub(crate) horizons: Vec<HorizonCounts>,
    pub(crate) later: Option<u64>,
}

/// The number of jobs that become due in each span of a horizon.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct HorizonCounts {
    pub(crate) name: String,
    pub(crate) counts: Vec<u64>,
}
