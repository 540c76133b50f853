//! Reaping a store periodically.
//!
//! Claims end the expired leases of the kinds that they name. Everything else that depends on time
//! alone is done by [`Store::reap`]: expired leases of kinds that no worker claims, and dead and done
//! jobs beyond their retention. [`PeriodicReap`] decides how much is reaped at a time and when to
//! reap again; the service and [`JobWorker`](crate::JobWorker) use it.

use crate::error::StoreError;
use crate::panics::guarded_call;
use crate::store::Store;
use requeue::{Clock, Moment};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Maximum number of jobs per kind and call, so that other calls are not delayed for long.
const BATCH_SIZE: usize = 1000;

/// Maximum number of batches without a pause in between.
const MAX_BATCHES: usize = 20;

/// Pause if there may be more to reap, and first pause after a failure.
const SHORT_PAUSE: Duration = Duration::from_secs(1);

/// Longest pause between attempts while the store fails.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How often the workers of a process reap together. Expired leases of the kinds that they claim do
/// not wait for this, and many processes may work on one store.
const WORKER_INTERVAL: Duration = Duration::from_secs(10);

/// Reaps a store in steps: each ends expired leases and drops dead and done jobs, up to 20,000 per
/// kind. For programs that use a store without a [`JobWorker`](crate::JobWorker) and without the
/// service, which both reap by themselves.
///
/// Call [`step`](Self::step), sleep for [`pause`](Self::pause), and repeat.
///
/// ```
/// use requeue_jobs::{Jobs, ManualClock, MemoryStore, PeriodicReap, Timestamp, WallClock};
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// # requeue_testkit::block_on(async {
/// let clock = ManualClock::new();
/// let store = MemoryStore::with(WallClock::manual(&clock, Timestamp::from_millis(0)));
/// let jobs = Jobs::new(Arc::new(store.clone()));
/// jobs.put("order.close", "order-42", "unpaid").await?;
/// let claimed = jobs.claim(["order.close"], "worker-1").await?;
/// jobs.bury(&claimed.jobs[0].receipt, "no such order").await?;
///
/// clock.advance(Duration::from_secs(8 * 86_400)); // a dead job is kept for seven days
/// let mut reap = PeriodicReap::every(Duration::from_secs(1));
/// reap.step(&store).await?;
/// assert_eq!(jobs.get("order.close", "order-42").await?, None);
/// assert_eq!(reap.pause(), Duration::from_secs(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct PeriodicReap {
    interval: Duration,
    failures: u32,
    /// Whether the last step ended before it found nothing to reap.
    has_more: bool,
}

impl PeriodicReap {
    /// Returns a reap whose steps are this long apart.
    pub fn every(interval: Duration) -> Self {
        PeriodicReap { interval, failures: 0, has_more: false }
    }

    /// Reaps up to 20 batches of 1000 jobs per kind. Several processes may do that at the same time.
    ///
    /// Fails with the first error of the store; what was reaped before it stays reaped.
    pub async fn step(&mut self, store: &dyn Store) -> Result<(), StoreError> {
        self.has_more = true;
        for _ in 0..MAX_BATCHES {
            match guarded_call(|| store.reap(BATCH_SIZE)).await {
                // A batch may be smaller than asked for, and not be the last: it ends after a
                // number of bytes, too.
                Ok(reaped) => {
                    self.failures = 0;
                    self.has_more = reaped.count > 0;
                }
                Err(error) => {
                    self.failures = self.failures.saturating_add(1);
                    return Err(error);
                }
            }
            if !self.has_more {
                break;
            }
        }
        Ok(())
    }

    /// Returns how long to pause before the next step: the interval, at most a second if there may be
    /// more to reap, and growing pauses of up to 30 seconds while the store fails.
    pub fn pause(&self) -> Duration {
        match self.failures.checked_sub(1) {
            Some(doubled) => {
                SHORT_PAUSE.saturating_mul(2u32.saturating_pow(doubled)).min(LONGEST_PAUSE)
            }
            None if self.has_more => self.interval.min(SHORT_PAUSE),
            None => self.interval,
        }
    }

    /// Returns the number of steps that have failed since the last one that succeeded.
    pub fn failures(&self) -> u32 {
        self.failures
    }
}

/// Lets the workers that share a [`Jobs`](crate::Jobs) reap in turns, so that many of them reap no
/// more often than one.
#[derive(Debug)]
pub(crate) struct ReapTurns(Mutex<Turns>);

#[derive(Debug)]
struct Turns {
    /// `None` while a worker reaps.
    reap: Option<PeriodicReap>,
    /// When the next step begins. `None` if there was none yet.
    next_at: Option<Moment>,
}

impl Default for ReapTurns {
    fn default() -> Self {
        let reap = Some(PeriodicReap::every(WORKER_INTERVAL));
        ReapTurns(Mutex::new(Turns { reap, next_at: None }))
    }
}

impl ReapTurns {
    fn lock(&self) -> MutexGuard<'_, Turns> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the next step if it is due and no other worker makes it. Returns the pause before the next
    /// call, and the error of the step.
    pub(crate) async fn step(
        &self,
        store: &dyn Store,
        clock: &Clock,
    ) -> (Duration, Option<StoreError>) {
        let mut turn = match self.begin(clock.now()) {
            Ok(turn) => turn,
            Err(pause) => return (pause, None),
        };
        let error = turn.reap.step(store).await.err();
        let pause = turn.reap.pause();
        self.lock().next_at = Some(clock.now().saturating_add(pause));
        (pause, error)
    }

    /// Returns the turn, or how long to pause before asking again.
    fn begin(&self, now: Moment) -> Result<Turn<'_>, Duration> {
        let mut turns = self.lock();
        if let Some(next_at) = turns.next_at
            && now < next_at
        {
            return Err(next_at.saturating_since(now));
        }
        let reap = turns.reap.take().ok_or(WORKER_INTERVAL)?;
        Ok(Turn { turns: self, reap })
    }
}

/// A step of one worker. If its future is dropped, another worker can take the turn.
struct Turn<'a> {
    turns: &'a ReapTurns,
    reap: PeriodicReap,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.turns.lock().reap = Some(self.reap.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use requeue::ManualClock;

    #[test]
    fn only_one_worker_reaps_at_a_time_and_none_before_the_next_step_is_due() {
        let (clock, turns) = (ManualClock::new(), ReapTurns::default());
        let begin = || turns.begin(Clock::from(&clock).now());
        let turn = begin().unwrap_or_else(|pause| panic!("to pause for {pause:?}"));
        assert_eq!(begin().err(), Some(WORKER_INTERVAL));
        drop(turn);
        drop(begin().unwrap_or_else(|pause| panic!("to pause for {pause:?}")));
        turns.lock().next_at = Some(Clock::from(&clock).now().saturating_add(WORKER_INTERVAL));
        clock.advance(Duration::from_secs(3));
        assert_eq!(begin().err(), Some(Duration::from_secs(7)));
        clock.advance(Duration::from_secs(7));
        assert!(begin().is_ok());
    }

    #[test]
    fn the_pause_is_short_if_there_is_more_to_reap_and_grows_while_the_store_fails() {
        let mut reap = PeriodicReap::every(WORKER_INTERVAL);
        assert_eq!(reap.pause(), WORKER_INTERVAL);
        reap.has_more = true;
        assert_eq!(reap.pause(), SHORT_PAUSE);
        let pauses = [1, 2, 3, 5, 6, u32::MAX].map(|failures| {
            reap.failures = failures;
            reap.pause().as_secs()
        });
        assert_eq!(pauses, [1, 2, 4, 16, 30, 30]);
    }
}
