//! Events of the live stream, as a client reads them.

use super::text::TimeText;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with::skip_serializing_none;

/// Something that happened to a job or a kind. Fields that do not apply are `None`.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EventJson {
    /// The type of the event, such as `claimed`. A newer server may send others.
    pub event: String,
    /// The kind.
    pub kind: String,
    /// The id of the job or schedule.
    pub id: Option<String>,
    /// When it happened, in RFC 3339.
    pub at: TimeText,
    /// The generation of the job.
    pub generation: Option<u64>,
    /// The number of the attempt.
    pub attempt: Option<u32>,
    /// The worker that holds or held the lease.
    pub worker: Option<String>,
    /// The outcome, for events that have several.
    pub outcome: Option<String>,
    /// When the lease ends; for `retried`, when the job is due again. In RFC 3339.
    pub until: Option<TimeText>,
    /// Whether the kind is paused. Only for `settings`.
    pub paused: Option<bool>,
    /// Fields that only a newer server knows.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}
