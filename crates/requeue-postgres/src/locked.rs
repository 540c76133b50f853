//! Jobs that open transactions of applications have locked.
//!
//! A statement waits only a moment for them (`lock_timeout`), so that a call that has to wait keeps no connection from others.
//! The call then does the rest of its batch, and tries again. After a second, it reports the entries about jobs that are
//! still locked as unavailable: nothing was done, and the caller can repeat them.

use crate::database::Failure;
use crate::jobs_table::JobsTable;
use crate::rules_call::{Load, RulesError};
use crate::store::{KindRef, Shared};
use crate::text::escape;
use requeue_jobs::rules::KindState;
use requeue_jobs::{JobId, Kind, StoreError, Timestamp};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How long a call waits for locked jobs in all. Most transactions are shorter.
const PATIENCE: Duration = Duration::from_secs(1);

/// The pause before the next attempt.
const PAUSE: Duration = Duration::from_millis(20);

/// How long a call still waits for jobs that other transactions have locked. All parts of the call share one.
pub(crate) struct Patience {
    until: Instant,
    has_met_lock: AtomicBool,
}

impl Patience {
    pub(crate) fn new() -> Self {
        Patience { until: Instant::now() + PATIENCE, has_met_lock: AtomicBool::new(false) }
    }

    /// Remembers that a job of the call is locked. From then on, the others are done first.
    pub(crate) fn meet_lock(&self) {
        self.has_met_lock.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_met_lock(&self) -> bool {
        self.has_met_lock.load(Ordering::Relaxed)
    }

    /// Pauses before the next attempt, or returns `false` if the call has waited long enough.
    pub(crate) async fn pause(&self) -> bool {
        self.meet_lock();
        let left = self.until.saturating_duration_since(Instant::now());
        sleep(left.min(PAUSE)).await;
        !left.is_zero()
    }
}

/// The error of an entry that was not done, because another transaction has locked its job.
pub(crate) fn is_locked(kind: &Kind, id: &JobId) -> StoreError {
    let reason = format!("another transaction has locked job {id} of kind {kind}");
    StoreError::Unavailable { reason }
}

impl Shared {
    /// Runs rules for the entries of a batch, in order. `ids` are their jobs, and `act` is called with the position of each.
    /// An error means that none was done, or that this is not known.
    pub(crate) async fn with_rules_each<T: Send, X: From<StoreError> + Send>(
        &self,
        kind: &KindRef,
        ids: &[&JobId],
        load: &Load,
        patience: &Patience,
        mut act: impl FnMut(&mut KindState<JobsTable>, usize, Timestamp) -> Result<T, X> + Send,
    ) -> Result<Vec<Result<T, X>>, StoreError> {
        let mut results: Vec<Option<Result<T, X>>> = ids.iter().map(|_| None).collect();
        let mut left: Vec<usize> = (0..ids.len()).collect();
        loop {
            let locked = match patience.has_met_lock() {
                true => self.locked_of(kind, left.iter().map(|n| ids[*n])).await,
                false => Ok(HashSet::new()),
            };
            let done = match locked {
                Ok(locked) => {
                    let free = |n: &usize| !locked.contains(&*escape(ids[*n].as_str()));
                    let now: Vec<usize> = left.iter().copied().filter(free).collect();
                    let of_now = now.iter().map(|n| ids[*n].clone()).collect();
                    let load = Load { ids: of_now, ..load.clone() };
                    let each = |state: &mut KindState<JobsTable>, time| {
                        now.iter().map(|n| act(state, *n, time)).collect::<Vec<_>>()
                    };
                    let done = match now.is_empty() {
                        true => Ok(Vec::new()),
                        false => self.try_with_rules(kind, &load, each).await,
                    };
                    done.map(|done| {
                        for (n, result) in now.into_iter().zip(done) {
                            results[n] = Some(result);
                        }
                    })
                }
                Err(failure) => Err(failure.for_read().into()),
            };
            left.retain(|n| results[*n].is_none());
            let error = match done {
                Ok(()) if left.is_empty() => break,
                Ok(()) => None,
                Err(RulesError::Locked(_)) => None,
                Err(RulesError::Store(error)) => Some(error),
            };
            if error.is_none() && patience.pause().await {
                continue;
            }
            if let Some(error) = &error
                && left.len() == ids.len()
            {
                return Err(error.clone());
            }
            for n in left {
                let locked = || is_locked(&kind.name, ids[n]);
                results[n] = Some(Err(error.clone().unwrap_or_else(locked).into()));
            }
            break;
        }
        Ok(results.into_iter().map(|result| result.expect("each entry has a result")).collect())
    }

    /// Returns the stored ids of those of these jobs that other transactions have locked.
    async fn locked_of(
        &self,
        kind: &KindRef,
        ids: impl Iterator<Item = &JobId> + Send,
    ) -> Result<HashSet<String>, Failure> {
        let ids: Vec<_> = ids.map(|id| escape(id.as_str())).collect();
        let rows = self.database.query(&self.statements.locked_jobs, &[&kind.number, &ids]).await?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }
}
