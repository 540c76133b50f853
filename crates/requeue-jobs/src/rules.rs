//! The rules of jobs, for those who write a store whose jobs pass through this process.
//!
//! [`Kinds`] does what a [`Store`](crate::Store) is asked to, one call or one entry of a batch
//! at a time; it takes `now`, and never reads a clock, waits, or wakes anybody. Where jobs are,
//! a [`JobTable`] says, one for each kind. Around it a store puts a lock or a thread, a clock, and
//! a [`ChangeNotifier`] for those who [`wait`].
//!
//! ```
//! use requeue_jobs::rules::{List, Place, Record};
//! use requeue_jobs::{Body, Generation, Timestamp};
//!
//! let (now, due) = (Timestamp::from_millis(1000), Timestamp::from_millis(5000));
//! let record = Record::new(Body::default(), due, Generation(1), 7, now);
//! assert_eq!(record.place(), (List::Pending, Place { at: due, seq: 7 }));
//! ```

mod claim;
mod job_table;
mod kind;
mod kinds;
mod record;
mod restore;
mod settle;
#[cfg(test)]
mod tests;
mod turns;

pub use crate::change_notifier::ChangeNotifier;
pub use job_table::{JobTable, List, Place};
pub use kind::{Counters, KindState};
pub use kinds::Kinds;
pub use record::{Lease, Next, Record, Status};
pub use turns::Turns;

use crate::error::{Invalid, StoreError};
use crate::limits::{MAX_BATCH, WAIT_SLICE};
use requeue::Clock;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// Whether so many are not too many for one call.
pub fn check_count(what: &'static str, count: usize) -> Result<(), Invalid> {
    let limit = MAX_BATCH;
    if count > limit { Err(Invalid::TooMany { what, count, limit }) } else { Ok(()) }
}

/// [`Store::wait`](crate::Store::wait): until `look` answers that there is something, but at most
/// `limit`, and at most [`WAIT_SLICE`].
///
/// `look` answers in how long there is, if nobody changes anything; it is asked now, whenever
/// `changes` was rung, and when that time has passed. Its error ends the wait. Dropping it only
/// stops waiting.
pub async fn wait(
    clock: &Clock,
    changes: &ChangeNotifier,
    limit: Duration,
    mut look: impl FnMut() -> Result<Option<Duration>, StoreError>,
) -> Result<(), StoreError> {
    let mut end = pin!(clock.sleep(limit.min(WAIT_SLICE)));
    let mut listener = changes.listener();
    let mut due = None;
    poll_fn(|cx| {
        // Before it looks: what changes in between wakes it.
        listener.listen(cx.waker());
        let next = match look() {
            Ok(next) => next,
            Err(error) => return Poll::Ready(Err(error)),
        };
        if next.is_some_and(|next| next.is_zero()) || end.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        due = next.map(|next| Box::pin(clock.sleep(next)));
        match due.as_mut().map(|due| due.as_mut().poll(&mut Context::from_waker(cx.waker()))) {
            Some(Poll::Ready(())) => Poll::Ready(Ok(())),
            Some(Poll::Pending) | None => Poll::Pending,
        }
    })
    .await
}
