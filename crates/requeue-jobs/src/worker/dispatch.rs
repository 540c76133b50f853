//! Claims as many jobs as there are free slots, and starts them. Meanwhile, reaps the store and starts the
//! runs of schedules.

use super::JobWorker;
use super::lease::{Lease, first, yield_now};
use super::slots::{Claims, FreeSlots, JobSlot};
use crate::claim::{Claim, ClaimedJob};
use crate::client::nonce;
#[cfg(feature = "cron")]
use crate::cron::{ScheduleTicker, TURN_INTERVAL};
use crate::error::StoreError;
use crate::limits::MAX_BATCH;
use crate::names::Kind;
use crate::panics::{guarded, guarded_call};
use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// How long the worker pauses after an error of the store.
const PAUSE: Duration = Duration::from_secs(1);

/// How long one call of [`Store::wait`](crate::Store::wait) may take. It returns as soon as there
/// may be a job, so this can be long.
const WAIT: Duration = Duration::from_secs(60);

/// Claims and starts jobs until the worker is shut down, and reaps.
pub(super) async fn dispatch(
    worker: Arc<JobWorker>,
    claims: Claims,
    start: impl Fn(JobSlot, ClaimedJob, Lease),
) {
    let background = first(reap(&worker), tick_schedules(&worker));
    first(claim_and_start(&worker, &claims, start), background).await;
}

/// Starts the runs of schedules as long as it is polled, unless another worker of the process does.
#[cfg(feature = "cron")]
async fn tick_schedules(worker: &Arc<JobWorker>) {
    if !guarded(|| worker.jobs.store().needs_reaping()).unwrap_or(true) {
        return pending().await;
    }
    let reporter = Arc::clone(worker);
    let ticker = ScheduleTicker::with_name(&worker.jobs, worker.name.clone());
    let ticker = ticker.on_error(move |error| reporter.report_schedule_error(error));
    loop {
        if let Some(_turn) = worker.jobs.tick_turn().take() {
            ticker.run().await;
        }
        worker.jobs.clock().sleep(TURN_INTERVAL).await;
    }
}

#[cfg(not(feature = "cron"))]
async fn tick_schedules(_: &Arc<JobWorker>) {
    pending().await
}

/// Reaps as long as it is polled, in turns with the other workers of the process.
async fn reap(worker: &JobWorker) {
    let (store, clock) = (worker.jobs.store(), worker.jobs.clock());
    // A store that panics is reaped: that only costs a call.
    if !guarded(|| store.needs_reaping()).unwrap_or(true) {
        return pending().await;
    }
    loop {
        let (pause, error) = worker.jobs.reap_turns().step(&**store, clock).await;
        error.inspect(|error| worker.report_store_error(error));
        clock.sleep(pause).await;
    }
}

async fn claim_and_start(
    worker: &JobWorker,
    claims: &Claims,
    start: impl Fn(JobSlot, ClaimedJob, Lease),
) {
    // Settlements set timers. The clock's thread ends with the last timer, and would be started again
    // for every batch: it lives as long as this one.
    let mut timer = pin!(worker.jobs.clock().sleep(Duration::MAX));
    poll_fn(|cx| Poll::Ready(timer.as_mut().poll(cx).is_ready())).await;
    while let Some(free) = claims.free_slots().await {
        // A claim is awaited to its end, even if the worker is stopped: nobody else would know of
        // the jobs it leased.
        let found = worker.claim_free(claims, &free, &start).await;
        let pause = async {
            match found {
                // If the store's futures are always ready, other tasks would starve.
                Ok(found) if found > 0 => yield_now().await,
                Ok(_) => {
                    let (store, kinds) = (worker.jobs.store(), worker.kinds_of(&free));
                    let wait = guarded_call(|| store.wait(kinds, WAIT));
                    if let Err(error) = wait.await {
                        worker.pause(&error).await;
                    }
                }
                Err(error) => worker.pause(&error).await,
            }
        };
        first(pause, claims.changed()).await;
    }
}

impl JobWorker {
    /// Claims jobs for free slots and starts them. Returns how many there were.
    async fn claim_free(
        &self,
        claims: &Claims,
        free: &FreeSlots,
        start: &impl Fn(JobSlot, ClaimedJob, Lease),
    ) -> Result<usize, StoreError> {
        let Some(groups) = &free.groups else {
            return self.claim(claims, self.kinds.clone(), free.count, start).await;
        };
        let (mut found, mut last_error) = (0, None);
        for group in groups {
            let max = group.max.min(free.count - found);
            if max == 0 {
                break;
            }
            match self.claim(claims, group.kinds.clone(), max, start).await {
                Ok(jobs) => found += jobs,
                Err(error) => {
                    last_error.replace(error).inspect(|error| self.report_store_error(error));
                }
            }
        }
        match last_error {
            Some(error) if found == 0 => Err(error),
            error => {
                error.inspect(|error| self.report_store_error(error));
                Ok(found)
            }
        }
    }

    /// Returns the kinds that have free slots.
    fn kinds_of(&self, free: &FreeSlots) -> Vec<Kind> {
        match &free.groups {
            Some(groups) => groups.iter().flat_map(|group| group.kinds.iter().cloned()).collect(),
            None => self.kinds.clone(),
        }
    }

    /// Claims at most `max` jobs of these kinds and starts them. Returns how many there were.
    async fn claim(
        &self,
        claims: &Claims,
        kinds: Vec<Kind>,
        max: usize,
        start: &impl Fn(JobSlot, ClaimedJob, Lease),
    ) -> Result<usize, StoreError> {
        let lease = Lease::from_now(self.jobs.clock(), self.lease);
        let claim = Claim {
            kinds,
            max: max.min(MAX_BATCH),
            lease: Some(self.lease),
            worker: self.name.clone(),
            nonce: nonce(),
        };
        let claimed = guarded_call(|| self.jobs.store().claim(claim)).await?;
        let found = claimed.jobs.len();
        let mut jobs = claimed.jobs.into_iter();
        // Some of the slots may become free when the store responds to settlements.
        let end = lease.third(self.lease);
        while jobs.len() > 0
            && self.jobs.clock().timeout_at(end, claims.room(jobs.len())).await.is_some()
        {
            let before = jobs.len();
            while let Some(job) = jobs.as_slice().first()
                && let Some(slot) = claims.slot(job)
                && let Some(job) = jobs.next()
            {
                if let Err(message) = guarded(|| start(slot, job, lease)) {
                    // The job is delivered again when its lease expires.
                    let reason = format!("the executor panicked: {message}");
                    self.report_store_error(&StoreError::Unavailable { reason });
                }
            }
            if jobs.len() == before {
                break;
            }
        }
        // The release is repeated on errors: an expired lease would count as a failure.
        for job in jobs {
            self.release(&job, None).await;
        }
        let mut errors = claimed.errors.into_iter().map(|(_, error)| error);
        // If no job was found, the caller reports the last error and pauses.
        let last = if found > 0 { None } else { errors.next_back() };
        errors.for_each(|error| self.report_store_error(&error));
        last.map_or(Ok(found), Err)
    }

    async fn pause(&self, error: &StoreError) {
        self.report_store_error(error);
        self.jobs.clock().sleep(PAUSE).await;
    }
}
