//! Timers: for each schedule a job of a reserved kind, due at the schedule's next time.
//!
//! So a process does not search for the schedules that are due: it claims their timers, as it would claim
//! any job. This takes as long with ten thousand schedules as with ten, wakes the process in time, and
//! shares the schedules between nodes, also if one of them stops.

use super::runs::until;
use crate::job::Body;
use crate::limits::MAX_ID_LEN;
use crate::names::{JobId, Kind};
use crate::put::{Mode, Put};
use crate::time::{Due, Timestamp};

/// The kind of the timers of schedules. Applications do not put or claim its jobs.
pub const SCHEDULE_TIMERS: &str = "requeue.schedules";

/// Returns [`SCHEDULE_TIMERS`] as a kind.
pub(crate) fn timer_kind() -> Kind {
    Kind::with_reserved(SCHEDULE_TIMERS).expect("the name is valid")
}

/// Returns the put that sets the timer of a schedule.
pub(crate) fn timer_put(kind: &Kind, id: &JobId, next: Timestamp, now: Timestamp) -> Put {
    let name = format!("{}/{}", kind.as_str(), id.as_str());
    let timer_id = timer_id(&name);
    let body = Body::new(name.into_bytes(), "text/plain").expect("two names are short");
    let due = Due::At(now.saturating_add(until(next, now)));
    Put { due, mode: Mode::Replace, ..Put::new(timer_kind(), timer_id, body) }
}

/// Returns the kind and id of the schedule that a timer belongs to.
pub(crate) fn schedule_of(timer: &Body) -> Option<(Kind, JobId)> {
    let (kind, id) = std::str::from_utf8(timer.bytes()).ok()?.split_once('/')?;
    Some((Kind::new(kind).ok()?, JobId::new(id).ok()?))
}

/// Returns the id of a timer: the name of its schedule, or if that is too long for an id, its beginning
/// and a hash.
fn timer_id(name: &str) -> JobId {
    if let Ok(id) = JobId::new(name) {
        return id;
    }
    let suffix = format!("~{:016x}", super::occurrences::hash(name.as_bytes()));
    let mut end = MAX_ID_LEN - suffix.len();
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    JobId::new(format!("{}{suffix}", &name[..end])).expect("it is short enough")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use super::*;
    use crate::limits::MAX_KIND_LEN;
    use std::collections::HashSet;

    #[test]
    fn every_schedule_has_a_timer_of_its_own_that_names_it() {
        let now = Timestamp::default();
        let kinds = ["a".to_owned(), "b".to_owned(), "k".repeat(MAX_KIND_LEN)];
        let ids = ["a".to_owned(), "a/b".to_owned(), "ü".repeat(250) + "x", "ü".repeat(250) + "y"];
        let mut timers = HashSet::new();
        for kind in &kinds {
            for id in &ids {
                let (kind, id) =
                    (Kind::new(kind.as_str()).unwrap(), JobId::new(id.as_str()).unwrap());
                let put = timer_put(&kind, &id, now, now);
                assert_eq!(schedule_of(&put.content.body), Some((kind, id)));
                assert!(timers.insert(put.id.clone()), "{}", put.id.as_str());
            }
        }
        assert_eq!(schedule_of(&Body::octets(*b"a").unwrap()), None);
    }
}
