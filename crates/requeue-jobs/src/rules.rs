//! The contract in code, for authors of stores whose jobs pass through this process.
//!
//! [`Kinds`] performs the calls of a [`Store`](crate::Store), one call or one entry of a batch at a
//! time. It takes `now` as an argument, and never reads a clock, waits, or wakes a task. A
//! [`JobTable`] per kind holds the jobs. The store adds a lock or a thread, a clock, and a
//! [`ChangeNotifier`] for calls of [`wait`].
//!
//! ```
//! use requeue_jobs::rules::{List, Position, Record};
//! use requeue_jobs::{Timestamp, Version};
//!
//! let (now, due) = (Timestamp::from_millis(1000), Timestamp::from_millis(5000));
//! let record = Record::new(Version { due, ..Version::default() }, 7, now);
//! let list = List::Pending(record.version.priority);
//! assert_eq!(record.position(), (list, Position { at: due, seq: 7 }));
//! ```

mod claim;
mod job_table;
mod kind;
mod kinds;
mod merge;
mod numbers;
mod page;
mod rate;
mod record;
mod restore;
mod result_size;
mod settle;
#[cfg(test)]
mod tests;
mod time_page;
mod turns;

pub use crate::change_notifier::ChangeNotifier;
pub use claim::ClaimRoom;
pub use job_table::{JobTable, List, Position};
pub use kind::KindState;
pub use kinds::Kinds;
pub use numbers::{Counters, ReservedNumbers};
pub use page::PageBuilder;
pub use rate::RateUse;
pub use record::{Lease, Record, Status, Successor};
pub use result_size::ResultSize;
pub use settle::{check_result, check_settlements};
pub use time_page::{TimePageBuilder, TimeRange};
pub use turns::Turns;

use crate::error::{Invalid, StoreError};
use crate::limits::{MAX_BATCH, WAIT_SLICE};
use requeue::Clock;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// Fails if `count` is more than [`MAX_BATCH`]. `what` names the things in the error.
pub fn check_count(what: &'static str, count: usize) -> Result<(), Invalid> {
    let limit = MAX_BATCH;
    if count > limit { Err(Invalid::TooMany { what, count, limit }) } else { Ok(()) }
}

/// Implements [`Store::wait`](crate::Store::wait): waits until there may be a job to claim, but at
/// most `limit` and at most [`WAIT_SLICE`].
///
/// `look` returns in how long there will be a job to claim if nothing changes, or `None` if there
/// will be none. It is called now, after every notification of `changes`, and when that time has
/// passed. If it fails, the wait ends with that error. Dropping the future only stops waiting.
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
        // Registered before the call of `look`, so that a change in between wakes the task.
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
