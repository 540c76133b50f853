//! Kinds that the server uses for itself.

use requeue_http::{Problem, ProblemType};
use requeue_jobs::{Kind, SCHEDULE_TIMERS};

/// Fails if the server uses the kind for itself. The problem names `field`.
///
/// A client that puts or claims timers would start runs at other times, or hold them back. To read and
/// to cancel them is harmless: the server sets a missing timer again within ten minutes.
pub(super) fn check_kind(field: &str, kind: &Kind) -> Result<(), Problem> {
    if kind.as_str() != SCHEDULE_TIMERS {
        return Ok(());
    }
    let detail = format!("the kind {kind} contains the timers of schedules; use another kind");
    Err(Problem::new(ProblemType::Reserved, detail).at(field))
}
