//! Starting the runs of schedules.
//!
//! ```text
//!   timer is due ──claim──▶ read the schedule ──▶ plan ──tick──▶ job put, schedule advanced
//!        ▲                                                              │
//!        └──────────────── requeue, due at the next time ───────────────┘
//! ```
//!
//! A tick is atomic and names the time that it expects the schedule to have, so of any number of nodes one
//! puts the job. If a node stops between the tick and the requeue, the lease of the timer expires, another
//! node claims it and finds that the schedule has advanced.

use super::runs::{ScheduleError, until};
use super::spec::ScheduleSpec;
use super::timers::{schedule_of, timer_kind, timer_put};
use super::{Missed, Schedule, Tick, Ticked};
use crate::claim::{Claim, ClaimedJob, Settle, Settlement};
use crate::client::{Jobs, nonce};
use crate::error::{Invalid, PutError, StoreError};
use crate::job::{JobState, JobView};
use crate::limits::MAX_BATCH;
use crate::names::{JobId, Kind, WorkerName};
use crate::panics::guarded_call;
use crate::put::{Condition, Mode, Placed, PutOutcome};
use crate::query::Query;
use crate::store::Store;
use crate::time::Timestamp;
use requeue::Moment;
use std::collections::HashMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

/// How many timers one step claims. They are ticked concurrently.
const BATCH: usize = 64;

/// The lease of a timer. If a node stops during a tick, the schedule's next run is this much later.
const LEASE: Duration = Duration::from_secs(10);

/// How many runs of one schedule are started before other schedules have their turn.
const RUNS_PER_TURN: usize = 20;

/// When a schedule whose runs are made up for one by one is looked at again while one of them goes on.
const POLL: Duration = Duration::from_secs(1);

/// The pause after an error of the store.
const PAUSE: Duration = Duration::from_secs(1);

/// How long one wait for timers may take.
const WAIT: Duration = Duration::from_secs(60);

/// How often a worker looks whether another one of the process still starts the runs.
pub(crate) const TURN_INTERVAL: Duration = Duration::from_secs(10);

type OnError = Box<dyn Fn(&ScheduleError) + Send + Sync>;

/// Starts the runs of all schedules of a store when they are due. Any number of processes may do that:
/// each run is started once. Requires the feature `cron`.
///
/// A [`JobWorker`](crate::JobWorker) and the service contain one, so only programs that have neither need
/// it.
///
/// ```
/// use requeue_jobs::{Jobs, ManualClock, MemoryStore, ScheduleSpec, ScheduleTicker, Timestamp, WallClock};
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// # requeue_testkit::block_on(async {
/// let clock = ManualClock::new();
/// let wall_clock = WallClock::manual(&clock, Timestamp::from_millis(1_800_000_000_000));
/// let jobs = Jobs::with_wall_clock(Arc::new(MemoryStore::with(wall_clock.clone())), wall_clock);
/// jobs.set_schedule("report", "r", ScheduleSpec::every(Duration::from_secs(60))).await?;
///
/// let ticker = ScheduleTicker::new(&jobs, "node-1")?;
/// assert_eq!(ticker.step().await?, 0);
/// clock.advance(Duration::from_secs(60));
/// assert_eq!(ticker.step().await?, 1);
/// assert!(jobs.get("report", "r").await?.is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
pub struct ScheduleTicker {
    jobs: Jobs,
    name: WorkerName,
    on_error: Option<OnError>,
}

impl ScheduleTicker {
    /// How often [`run`](Self::run) sets timers that are missing: a schedule without a timer runs again
    /// within a minute.
    pub const REPAIR_INTERVAL: Duration = Duration::from_secs(50);

    /// Returns a ticker. `name` shows people which node holds a timer.
    pub fn new(jobs: &Jobs, name: &str) -> Result<Self, Invalid> {
        Ok(ScheduleTicker::with_name(jobs, WorkerName::new(name)?))
    }

    pub(crate) fn with_name(jobs: &Jobs, name: WorkerName) -> Self {
        ScheduleTicker { jobs: jobs.clone(), name, on_error: None }
    }

    /// Sets a callback for errors of the store, after which the ticker tries again, for schedules that
    /// cannot run, and for timers that were missing.
    #[must_use]
    pub fn on_error(mut self, callback: impl Fn(&ScheduleError) + Send + Sync + 'static) -> Self {
        self.on_error = Some(Box::new(callback));
        self
    }

    /// Starts runs as they fall due, as long as the future is polled.
    ///
    /// If it is dropped during a [step](Self::step), the timers of that step are claimed again when their
    /// leases end, after ten seconds.
    pub async fn run(&self) {
        // Beside each other: with thousands of kinds, it takes seconds to look for missing timers.
        let both: Vec<Pin<Box<dyn Future<Output = ()> + Send + '_>>> =
            vec![Box::pin(self.repair_periodically()), Box::pin(self.start_runs())];
        join_all(both).await;
    }

    async fn start_runs(&self) {
        loop {
            match self.step().await {
                Ok(0) => {
                    let wait = guarded_call(|| self.store().wait(vec![timer_kind()], WAIT));
                    if let Err(error) = wait.await {
                        self.pause(error).await;
                    }
                }
                Ok(_) => {}
                Err(error) => self.pause(error).await,
            }
        }
    }

    async fn repair_periodically(&self) {
        // When it starts, it also sets those of schedules that were imported.
        let mut is_first = true;
        loop {
            match self.set_missing_timers().await {
                Ok(count) => {
                    if count > 0 && !is_first {
                        self.report(&ScheduleError::TimersMissing { count });
                    }
                    is_first = false;
                    self.jobs.clock().sleep(Self::REPAIR_INTERVAL).await;
                }
                Err(error) => self.pause(error).await,
            }
        }
    }

    /// Starts the runs that are due now: up to 64 schedules, up to 20 runs of each. Returns how many
    /// timers were due.
    pub async fn step(&self) -> Result<usize, StoreError> {
        let claim = Claim {
            kinds: vec![timer_kind()],
            max: BATCH,
            lease: Some(LEASE),
            worker: self.name.clone(),
            nonce: nonce(),
        };
        let claimed_at = self.jobs.clock().now();
        let claimed = guarded_call(|| self.store().claim(claim)).await?;
        let count = claimed.jobs.len();
        let ticks = claimed.jobs.iter().map(|timer| self.tick(timer, claimed_at));
        let settlements = join_all(ticks.collect()).await;
        let timers = claimed.jobs.into_iter().zip(settlements);
        let settlements: Vec<Settle> =
            timers.map(|(timer, action)| Settle { receipt: timer.receipt, action }).collect();
        if !settlements.is_empty() {
            // If a settlement fails, the lease of the timer ends.
            guarded_call(|| self.store().settle(settlements)).await?;
        }
        match claimed.errors.into_iter().next() {
            Some((_, error)) if count == 0 => Err(error),
            _ => Ok(count),
        }
    }

    /// Sets the timers that are missing: of schedules that were imported, whose process stopped between
    /// storing the schedule and setting its timer, or whose timer was removed. Moves those that are due
    /// later than their schedule. Returns how many were missing.
    pub async fn set_missing_timers(&self) -> Result<usize, StoreError> {
        let store = self.store();
        let kinds = guarded_call(|| store.kinds()).await?;
        // Before the schedules: a timer that is set in the meantime is not due later than its schedule.
        let due = self.timers().await?;
        let mut count = 0;
        for kind in kinds {
            let schedules = guarded_call(|| store.schedules(kind.kind.clone())).await?;
            let now = self.jobs.wall_clock().now();
            let missing = schedules.iter().filter(|schedule| schedule.next < Schedule::NEVER);
            let missing =
                missing.map(|schedule| timer_put(&kind.kind, &schedule.id, schedule.next, now));
            let missing = missing.filter_map(|mut put| match (due.get(&put.id), put.due.at(now)) {
                // It is being ticked.
                (Some(None), _) => None,
                (Some(Some(present)), Ok(at)) if *present <= at => None,
                (Some(_), _) => {
                    put.mode = Mode::Earliest;
                    Some(put)
                }
                (None, _) => {
                    put.condition = Some(Condition::IfAbsent);
                    Some(put)
                }
            });
            let missing: Vec<_> = missing.collect();
            for batch in missing.chunks(MAX_BATCH) {
                // A timer that another node has just set stays.
                let placed = guarded_call(|| store.put(batch.to_vec())).await?;
                let was_missing = |placed: &&Result<Placed, PutError>| {
                    let outcome = placed.as_ref().map(|placed| placed.outcome);
                    !matches!(outcome, Err(_) | Ok(PutOutcome::Updated))
                };
                count += placed.iter().filter(was_missing).count();
            }
        }
        Ok(count)
    }

    /// Returns when the timers are due; `None` if one is leased. Those that are dead, or end with their
    /// lease, are missing: a put revives or follows them.
    async fn timers(&self) -> Result<HashMap<JobId, Option<Timestamp>>, StoreError> {
        let mut timers = HashMap::new();
        let mut query = Query { limit: MAX_BATCH, ..Query::new(timer_kind()) };
        loop {
            let page = guarded_call(|| self.store().list(query.clone())).await?;
            let ends = |job: &JobView| {
                job.next.is_none() && job.lease.as_ref().is_some_and(|lease| lease.cancelled)
            };
            let due = page.jobs.into_iter().map(|job| match job.state {
                JobState::Leased if ends(&job) => (job.id, Some(Schedule::NEVER)),
                JobState::Leased => (job.id, None),
                JobState::Dead => (job.id, Some(Schedule::NEVER)),
                _ => (job.id, Some(job.version.due)),
            });
            timers.extend(due);
            match page.cursor {
                Some(cursor) => query.after = Some(cursor),
                None => return Ok(timers),
            }
        }
    }

    /// Starts the runs of the schedule of a timer that are due. Returns how the timer is settled.
    async fn tick(&self, timer: &ClaimedJob, claimed_at: Moment) -> Settlement {
        let Some((kind, id)) = schedule_of(timer.body()) else {
            return Settlement::Ack;
        };
        // By the clock of the store, which decides when jobs are due.
        let lease = LEASE.as_millis() as u64;
        let begin = Timestamp::from_millis(timer.lease_ends_at.as_millis().saturating_sub(lease));
        let now = || {
            let passed = self.jobs.clock().now().saturating_since(claimed_at);
            Timestamp::from_millis(begin.as_millis() + passed.as_millis() as u64)
        };
        for _ in 0..RUNS_PER_TURN {
            match self.tick_once(&kind, &id, begin).await {
                Ok(Some(next)) if next > begin => {
                    return Settlement::RequeueAfter(until(next, now()));
                }
                Ok(Some(_)) => {}
                Ok(None) => return Settlement::Ack,
                Err(error @ ScheduleError::Store(_)) => {
                    self.report(&error);
                    return Settlement::RequeueAfter(PAUSE);
                }
                Err(error) => {
                    // Until it is set again.
                    let (kind, id, reason) = (kind.clone(), id.clone(), Box::new(error));
                    self.report(&ScheduleError::CannotRun { kind, id, reason });
                    return Settlement::Ack;
                }
            }
        }
        Settlement::RequeueAfter(Duration::ZERO)
    }

    /// Starts one run, if one is due. Returns when to look again, or `None` if the schedule has no more
    /// runs.
    async fn tick_once(
        &self,
        kind: &Kind,
        id: &JobId,
        now: Timestamp,
    ) -> Result<Option<Timestamp>, ScheduleError> {
        let read = guarded_call(|| self.store().schedule(kind.clone(), id.clone()));
        let schedule = match read.await? {
            Some(schedule) if schedule.next < Schedule::NEVER => schedule,
            _ => return Ok(None),
        };
        if schedule.next > now {
            return Ok(Some(schedule.next));
        }
        let spec = ScheduleSpec::from_schedule(&schedule)?;
        if spec.missed == Missed::All && !spec.allow_overlap && self.is_running(kind, id).await? {
            return Ok(Some(now.saturating_add(POLL)));
        }
        let (tick, next) = plan(kind, &schedule, &spec, now)?;
        Ok(match guarded_call(|| self.store().tick(tick)).await? {
            Ticked::Put(_) | Ticked::Skipped => next,
            // Another node was faster, or the schedule was changed: look again.
            Ticked::Moved(next) => Some(next),
            Ticked::Absent => None,
        })
    }

    /// Returns whether the job of a schedule is pending or leased.
    async fn is_running(&self, kind: &Kind, id: &JobId) -> Result<bool, StoreError> {
        let job = guarded_call(|| self.store().get(kind.clone(), id.clone())).await?;
        Ok(job.is_some_and(|job| !matches!(job.state, JobState::Dead | JobState::Done)))
    }

    async fn pause(&self, error: StoreError) {
        self.report(&error.into());
        self.jobs.clock().sleep(PAUSE).await;
    }

    fn report(&self, error: &ScheduleError) {
        if let Some(callback) = &self.on_error {
            callback(error);
        }
    }

    fn store(&self) -> &dyn Store {
        &**self.jobs.store()
    }
}

impl fmt::Debug for ScheduleTicker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScheduleTicker").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Returns the tick of a schedule that is due, and its next time.
fn plan(
    kind: &Kind,
    schedule: &Schedule,
    spec: &ScheduleSpec,
    now: Timestamp,
) -> Result<(Tick, Option<Timestamp>), ScheduleError> {
    let id = &schedule.id;
    let occurrences = spec.occurrences(kind, id)?;
    let plan = occurrences.plan(schedule.next, spec.missed, spec.catch_up_window(), now);
    let time = plan.run.map(|run| occurrences.time_of(run));
    let put = time.map(|time| spec.job_at(id, time)).transpose()?;
    let tick = Tick {
        kind: kind.clone(),
        id: id.clone(),
        expected: schedule.next,
        next: plan.next.unwrap_or(Schedule::NEVER),
        put,
    };
    Ok((tick, plan.next))
}

/// Lets one of the workers that share a [`Jobs`] start the runs of schedules.
#[derive(Debug, Default)]
pub(crate) struct TickTurn(AtomicBool);

impl TickTurn {
    /// Returns the turn, unless another worker has it.
    pub(crate) fn take(&self) -> Option<impl Drop + '_> {
        struct Taken<'a>(&'a AtomicBool);
        impl Drop for Taken<'_> {
            fn drop(&mut self) {
                self.0.store(false, Ordering::Release);
            }
        }
        (!self.0.swap(true, Ordering::Acquire)).then(|| Taken(&self.0))
    }
}

/// Polls futures concurrently. For a few dozen: each wake polls all that are not ready.
async fn join_all<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    enum Slot<F: Future> {
        Running(Pin<Box<F>>),
        Ready(F::Output),
    }
    let mut slots: Vec<Slot<F>> =
        futures.into_iter().map(|future| Slot::Running(Box::pin(future))).collect();
    poll_fn(|cx| {
        let mut is_ready = true;
        for slot in &mut slots {
            if let Slot::Running(future) = slot {
                match future.as_mut().poll(cx) {
                    Poll::Ready(output) => *slot = Slot::Ready(output),
                    Poll::Pending => is_ready = false,
                }
            }
        }
        if is_ready { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    let output = |slot| match slot {
        Slot::Ready(output) => Some(output),
        Slot::Running(_) => None,
    };
    slots.into_iter().filter_map(output).collect()
}
