//! Events of the live stream, as a client reads them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Something that happened to a job or a kind. Fields that do not apply are `None`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EventJson {
    /// The type of the event, such as `claimed`. A newer server may send others.
    pub event: String,
    /// The kind.
    pub kind: String,
    /// The id of the job or schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// When it happened, in RFC 3339.
    pub at: String,
    /// The generation of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// The number of the attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The worker that holds or held the lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// The outcome, for events that have several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// When the lease ends; for `retried`, when the job is due again. In RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// Whether the kind is paused. Only for `settings`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// Fields that only a newer server knows.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}
