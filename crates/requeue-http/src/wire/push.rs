//! The push setting of a kind.

use super::parse::nullable;
use super::text::{DurationText, TimeText};
use requeue_jobs::{PushSetting, SecretText};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with::skip_serializing_none;
use std::collections::BTreeMap;
use std::fmt;

/// Where the server sends the jobs of a kind by HTTP request, instead of letting workers claim them.
///
/// In a request, fields that are missing stay as they are with `PATCH`, and get their default with `PUT`;
/// `null` resets a field. In a response, the values of headers are `…`, and secrets show only their end:
/// such values cannot be sent back, but left out to keep them.
#[skip_serializing_none]
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Push))]
#[serde(default, deny_unknown_fields)]
pub struct PushJson {
    /// Where the jobs are sent: `http` or `https`, or the URL of a message broker, such as `amqp` or `kafka`. A password is
    /// shown as `…`; a URL with `…` keeps it. Required, unless the kind has one.
    pub url: Option<String>,
    /// Additional headers of each request, at most 32. With `PATCH`, `null` as the value of a header
    /// removes it. Default: none.
    #[serde(deserialize_with = "nullable")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<BTreeMap<String, Option<String>>>))]
    pub headers: Option<Option<BTreeMap<String, Option<String>>>>,
    /// How long a delivery may take, from `100ms` to `1h`. Default: `10s`.
    #[serde(deserialize_with = "nullable")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<DurationText>))]
    pub timeout: Option<Option<DurationText>>,
    /// How many requests of the kind a node has in flight, 1 to 10,000. Default: 10.
    #[serde(deserialize_with = "nullable")]
    #[cfg_attr(
        feature = "openapi",
        schema(value_type = Option<u32>, format = "uint32", minimum = 1, maximum = 10_000)
    )]
    pub concurrency: Option<Option<u32>>,
    /// The secrets with which requests are signed, at most two. Default: none.
    #[serde(deserialize_with = "nullable")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Vec<String>>))]
    pub secrets: Option<Option<Vec<String>>>,
    /// How a job is represented in the request: `plain` or `cloudevents`. Default: `plain`.
    #[serde(deserialize_with = "nullable")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub format: Option<Option<String>>,
}

/// Shows neither secrets nor the values of headers, so that they get into no log.
impl fmt::Debug for PushJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers = self.headers.iter().flatten().flat_map(BTreeMap::keys);
        f.debug_struct("PushJson")
            .field("url", &self.url)
            .field("headers", &headers.collect::<Vec<_>>())
            .field("secrets", &self.secrets.iter().flatten().map(Vec::len).sum::<usize>())
            .finish_non_exhaustive()
    }
}

impl PushJson {
    /// What a response shows instead of a secret, or of a part of it.
    pub const MASK: char = '…';

    /// Returns whether a secret or the value of a header is [masked](Self::MASK).
    pub fn is_masked(&self) -> bool {
        self.has_masked_header() || self.has_masked_secret()
    }

    /// Returns whether the value of a header is [masked](Self::MASK).
    pub fn has_masked_header(&self) -> bool {
        let mut values = self.headers.iter().flatten().flat_map(BTreeMap::values).flatten();
        values.any(|value| value.contains(Self::MASK))
    }

    /// Returns whether a secret is [masked](Self::MASK).
    pub fn has_masked_secret(&self) -> bool {
        let mut secrets = self.secrets.iter().flatten().flatten();
        secrets.any(|secret| secret.contains(Self::MASK))
    }

    /// Reads the config text of a push setting, if it has the form of the API, or that of a store without
    /// headers and secrets.
    pub(crate) fn from_config(setting: &PushSetting) -> Option<Self> {
        let mut config: Map<String, Value> = serde_json::from_str(&setting.config).ok()?;
        // What a store adds: the names of headers as a list, and the number of secrets.
        if config.get("headers").and_then(Value::as_array).is_some_and(Vec::is_empty) {
            config.remove("headers");
        }
        if config.get("signed").and_then(Value::as_u64) == Some(0) {
            config.remove("signed");
        }
        serde_json::from_value(Value::Object(config)).ok()
    }

    /// Returns a push setting with this JSON as its config text, and without secrets.
    pub(crate) fn to_setting(&self) -> PushSetting {
        let config = serde_json::to_string(self).unwrap_or_default();
        PushSetting { config, secrets: SecretText::default() }
    }
}

/// The deliveries of a kind with a push setting, by the node that responds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = PushState))]
pub struct PushStateJson {
    /// Why no job of the kind is delivered, for example because its secrets are missing after an import;
    /// `null` if there is no such reason.
    pub problem: Option<String>,
    /// Scheme, host and port of the URL, such as `https://example.com:443`. Kinds with the same target share
    /// `circuit`, `until` and `limit`. `null` if nothing is delivered.
    pub target: Option<String>,
    /// Whether the target works: `closed`, `slowed`, `open` or `half_open`. `null` if nothing is delivered.
    pub circuit: Option<String>,
    /// Until when the target gets no requests, in RFC 3339.
    pub until: Option<TimeText>,
    /// The number of requests of the kind in flight.
    pub in_flight: u64,
    /// How many requests the target may have in flight; `null` if only `concurrency` limits them.
    #[cfg_attr(feature = "openapi", schema(format = "uint32"))]
    pub limit: Option<u32>,
    /// The latest delivery of the kind that failed.
    pub last_error: Option<PushErrorJson>,
}

/// A delivery that failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = PushError))]
pub struct PushErrorJson {
    /// When it ended, in RFC 3339.
    pub at: TimeText,
    /// Why it failed.
    pub error: String,
}
