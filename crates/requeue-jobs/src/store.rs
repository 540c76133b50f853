//! The [`Store`] trait.

use crate::claim::{Change, Changed, Claim, Claimed, Reaped, Settle, Settled};
use crate::cron::{Schedule, ScheduleCondition, Tick, Ticked};
use crate::error::{ChangeError, PutError, SettleError, StoreError};
use crate::job::JobView;
use crate::names::{JobId, Kind};
use crate::put::{Placed, Put};
use crate::query::{KindView, Page, Query, Spans, TimePage, TimeQuery};
use crate::restore::{Restore, Restored};
use crate::settings::Settings;
use crate::status::StoreStatus;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// The boxed future that every method of [`Store`] returns.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// The results of a batch: one per entry, in the order of the entries.
pub type BatchResults<T, E> = Vec<Result<T, E>>;

/// A place where jobs are stored: in memory, on disk, on Redis, or behind an HTTP service.
///
/// Applications usually call a store through [`Jobs`](crate::Jobs) and
/// [`JobWorker`](crate::JobWorker). Implement this trait to add a store.
///
/// `docs/jobs.md` is the contract that every store keeps, and the conformance suite in
/// `requeue-testkit` tests it. These rules apply to every method:
///
/// - **Batches.** A store applies the entries of a batch in order. Each entry is atomic by itself,
///   and one that fails does not affect the others. The outer `Result` is an error only if no
///   entry was applied ([`Unavailable`](StoreError::Unavailable), [`Invalid`](StoreError::Invalid))
///   or if that is not known ([`Unknown`](StoreError::Unknown)).
/// - **Limits.** A store checks [`limits`](crate::limits) before it changes anything.
///   [`check_batch`](crate::check_batch), [`check_lease`](crate::check_lease) and the `check`
///   methods of the arguments do that.
/// - **Cancellation.** If the caller drops a future before it completes, the outcome is unknown:
///   the store may have applied the call.
/// - **Time.** A store reads its own clock. Nothing happens in the background: a job changes state
///   only as part of a call.
///
/// To write a store whose jobs pass through this process, start with [`rules`](crate::rules),
/// which implements the contract without a lock, a clock or storage. To wrap an existing store,
/// implement [`Layered`](crate::Layered).
pub trait Store: Send + Sync + 'static {
    /// Creates or changes jobs. See [`Put`], and [`Mode`](crate::Mode) for what happens to a job
    /// that already exists.
    ///
    /// An entry fails with [`PutError::Exists`] or [`PutError::Generation`] if its
    /// [condition](crate::Condition) does not hold; it then changes nothing.
    fn put(&self, puts: Vec<Put>) -> StoreFuture<'_, BatchResults<Placed, PutError>>;

    /// Leases up to [`max`](Claim::max) jobs that are due or whose lease has expired, and returns
    /// them in the order of priority and due time per kind. Returns immediately, also if there are none.
    ///
    /// A store that finds an expired lease counts it as a failed attempt. If one kind cannot be
    /// read, [`Claimed::errors`] reports that, and the jobs of the other kinds are still returned.
    fn claim(&self, claim: Claim) -> StoreFuture<'_, Claimed>;

    /// Ends or extends leases: acks, retries, buries, requeues, releases or extends. See
    /// [`Settlement`](crate::Settlement).
    ///
    /// An entry whose receipt is not the job's current one fails with
    /// [`SettleError::LeaseLost`] and changes nothing. A receipt stays valid until a claim or
    /// [`reap`](Self::reap) has taken the job, even if the lease has expired.
    fn settle(
        &self,
        settlements: Vec<Settle>,
    ) -> StoreFuture<'_, BatchResults<Settled, SettleError>>;

    /// Cancels jobs, makes them due now, revives dead ones, or reschedules them, without a receipt.
    /// See [`ChangeKind`](crate::ChangeKind).
    ///
    /// An entry fails with [`ChangeError::Absent`], [`ChangeError::Leased`],
    /// [`ChangeError::Done`] or [`ChangeError::NotDead`] if the job's state does not allow the
    /// change, and with [`ChangeError::Generation`] if the job has another generation than the
    /// reschedule expects; it then changes nothing.
    fn change(&self, changes: Vec<Change>) -> StoreFuture<'_, BatchResults<Changed, ChangeError>>;

    /// Imports jobs from another store as they were, and assigns higher generations and fences
    /// than the other store's from now on.
    ///
    /// A job that already exists here is not changed, so the call is idempotent until a worker
    /// processes an imported job. [`Arrival`](crate::Arrival) implements these rules:
    ///
    /// - A leased job becomes pending, because its receipt belongs to the other store. It is due
    ///   when its lease ends, and no put makes it due earlier. Its successor replaces it, as after
    ///   a release.
    /// - A leased job that was cancelled is not imported. Its successor is, as a new job.
    ///
    /// A [view](JobView) does not contain everything, and what it lacks is approximated: no put
    /// makes a job that has failed due earlier than it is, debounce counts from the job's creation,
    /// and jobs that are due at the same millisecond keep the order in which they are restored.
    fn restore(&self, restore: Restore) -> StoreFuture<'_, BatchResults<Restored, StoreError>>;

    /// Waits until a claim of these kinds may return a job, but at most `limit`.
    ///
    /// It may return early without a reason; only a claim shows whether there is a job. A store
    /// notices changes by other processes after at most a
    /// [`WAIT_SLICE`](crate::limits::WAIT_SLICE). Dropping the future only stops waiting.
    fn wait(&self, kinds: Vec<Kind>, limit: Duration) -> StoreFuture<'_, ()>;

    /// Ends expired leases that no claim has found, and deletes dead and done jobs beyond the kind's
    /// [retention](crate::Retention). Returns the number of jobs it changed, and the expired leases.
    ///
    /// It handles at most `max` leases, `max` dead and `max` done jobs per kind, and never more than
    /// [`MAX_BATCH`](crate::limits::MAX_BATCH) of each. If there is much to do, a store may leave some
    /// kinds for the next call, which starts with them.
    ///
    /// [`JobWorker`](crate::JobWorker) and the service call it periodically. Without them, use
    /// [`PeriodicReap`](crate::PeriodicReap).
    fn reap(&self, max: usize) -> StoreFuture<'_, Reaped>;

    /// Returns a job, or `None` if there is no such job.
    fn get(&self, kind: Kind, id: JobId) -> StoreFuture<'_, Option<JobView>>;

    /// Returns one page of the jobs of a kind, ordered by id.
    fn list(&self, query: Query) -> StoreFuture<'_, Page>;

    /// Returns one page of the jobs of a kind in one state, ordered by time: waiting and ready jobs by
    /// their due time, leased jobs by the end of the lease, dead jobs by the time of death, done jobs
    /// by the time of the ack. Priorities do not matter.
    ///
    /// The cost of a page depends on its size, and not on the number of jobs.
    ///
    /// Fails with [`Invalid::MalformedCursor`](crate::Invalid::MalformedCursor) if
    /// [`after`](TimeQuery::after) is not a cursor of such a list.
    fn list_by_time(&self, query: TimeQuery) -> StoreFuture<'_, TimePage>;

    /// Returns all kinds that have jobs, settings or schedules, ordered by name.
    fn kinds(&self) -> StoreFuture<'_, Vec<KindView>>;

    /// Returns the counts and counters of one kind.
    ///
    /// If the kind has no jobs, settings or schedules any more, the counts are 0, and the counters
    /// are still the latest that the kind has assigned. If it was never used, everything is 0.
    fn kind(&self, kind: Kind) -> StoreFuture<'_, KindView>;

    /// Returns the number of pending jobs of a kind that become due in each of `spans`.
    fn upcoming(&self, kind: Kind, spans: Spans) -> StoreFuture<'_, Vec<u64>>;

    /// Returns the settings of a kind, or the default ones if none were set.
    fn settings(&self, kind: Kind) -> StoreFuture<'_, Settings>;

    /// Replaces the settings of a kind. Existing pending and leased jobs do not change.
    fn set(&self, kind: Kind, settings: Settings) -> StoreFuture<'_, ()>;

    /// Stores a schedule. It replaces the schedule of the same id, if there is one. Returns `false`,
    /// and changes nothing, if the condition does not hold.
    fn set_schedule(
        &self,
        kind: Kind,
        schedule: Schedule,
        condition: ScheduleCondition,
    ) -> StoreFuture<'_, bool>;

    /// Removes a schedule. Returns `false` if there is no such schedule. Its jobs stay.
    fn remove_schedule(&self, kind: Kind, id: JobId) -> StoreFuture<'_, bool>;

    /// Returns a schedule, or `None` if there is no such schedule.
    fn schedule(&self, kind: Kind, id: JobId) -> StoreFuture<'_, Option<Schedule>>;

    /// Returns the schedules of a kind, ordered by id.
    fn schedules(&self, kind: Kind) -> StoreFuture<'_, Vec<Schedule>>;

    /// If the schedule's next time is still the expected one, puts the job of that time, if there is
    /// one, and sets the new next time, in one atomic step. Any number of nodes may call this:
    /// exactly one puts the job.
    fn tick(&self, tick: Tick) -> StoreFuture<'_, Ticked>;

    /// Returns whether a process that uses this store should call [`reap`](Self::reap) now and then.
    /// `false` if something else does that: behind an HTTP service, the service.
    ///
    /// By default `true`.
    fn needs_reaping(&self) -> bool {
        true
    }

    /// Returns the current problems and measurements of this store, as far as this process knows
    /// them. It neither waits nor does any I/O, so it can be called at any time.
    ///
    /// By default there are none.
    fn status(&self) -> StoreStatus {
        StoreStatus::default()
    }
}
