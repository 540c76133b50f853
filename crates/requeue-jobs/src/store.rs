//! What every store does.

use crate::claim::{Change, Changed, Claim, Claimed, Reaped, Settle, Settled};
use crate::cron::{Schedule, Ticked};
use crate::error::{ChangeError, PutError, SettleError, StoreError};
use crate::job::JobView;
use crate::names::{JobId, Kind};
use crate::put::{Placed, Put};
use crate::query::{KindView, Page, Query, Spans};
use crate::restore::{Restore, Restored};
use crate::settings::Settings;
use crate::time::Timestamp;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// What a store answers, later.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// One answer per entry of a batch, in its order.
pub type BatchResults<T, E> = Vec<Result<T, E>>;

/// Where jobs live.
///
/// Its contract is `docs/jobs.md`, and the suite in `requeue-testkit` proves it. Entries of a
/// batch are done in order, each atomic by itself. An answer that is dropped before it is
/// there leaves its outcome unknown: it may have been done.
pub trait Store: Send + Sync + 'static {
    /// Puts jobs.
    fn put(&self, puts: Vec<Put>) -> StoreFuture<'_, BatchResults<Placed, PutError>>;

    /// Leases jobs that are due, and those whose lease expired. Does not wait.
    fn claim(&self, claim: Claim) -> StoreFuture<'_, Claimed>;

    /// Acks, retries, releases and extends leases.
    fn settle(
        &self,
        settlements: Vec<Settle>,
    ) -> StoreFuture<'_, BatchResults<Settled, SettleError>>;

    /// Cancels, runs now and revives.
    fn change(&self, changes: Vec<Change>) -> StoreFuture<'_, BatchResults<Changed, ChangeError>>;

    /// Keeps jobs that another store had, as they were, and gives out higher generations and
    /// fences from now on.
    ///
    /// A job that is here already is not touched: doing it twice is doing it once, until
    /// somebody works on what has arrived. A leased job arrives pending, since its receipt is the
    /// other store's: due when its lease ends, and whatever is put, not before. Its successor takes
    /// its place, as after a release. One that was cancelled does not arrive, and its successor does, as a new
    /// job. [`Arrival`](crate::Arrival) is this rule in code.
    ///
    /// What [views](JobView) do not tell is not kept: a job that has failed cannot be put to a
    /// sooner time than it is due; debounce counts from its creation; jobs that are due at the
    /// same millisecond come in the order in which they are restored.
    fn restore(&self, restore: Restore) -> StoreFuture<'_, BatchResults<Restored, StoreError>>;

    /// Waits until a claim of these kinds may get something, but at most `limit`. Whether it will,
    /// a claim tells: it may end sooner, for no reason. What others change is noticed at the latest
    /// after a [`WAIT_SLICE`](crate::limits::WAIT_SLICE).
    fn wait(&self, kinds: Vec<Kind>, limit: Duration) -> StoreFuture<'_, ()>;

    /// Ends leases that expired and that no claim has met, and drops dead jobs that are not to
    /// be kept, at most `max` of each kind, and at most [`MAX_BATCH`](crate::limits::MAX_BATCH).
    /// Returns how many there were, and the expired leases. Where there is much to do, a store may leave some kinds for
    /// the next call, which begins with them.
    fn reap(&self, max: usize) -> StoreFuture<'_, Reaped>;

    /// What is known of a job.
    fn get(&self, kind: Kind, id: JobId) -> StoreFuture<'_, Option<JobView>>;

    /// Jobs of a kind, by id.
    fn list(&self, query: Query) -> StoreFuture<'_, Page>;

    /// All kinds that have jobs, settings or schedules, by name.
    fn kinds(&self) -> StoreFuture<'_, Vec<KindView>>;

    /// How many pending jobs of a kind fall due in each span.
    fn upcoming(&self, kind: Kind, spans: Spans) -> StoreFuture<'_, Vec<u64>>;

    /// What is set for a kind; the default where nothing is.
    fn settings(&self, kind: Kind) -> StoreFuture<'_, Settings>;

    /// Sets it. Jobs that are pending or leased are not touched.
    fn set(&self, kind: Kind, settings: Settings) -> StoreFuture<'_, ()>;

    /// Keeps a schedule, in place of one of the same id.
    fn set_schedule(&self, kind: Kind, schedule: Schedule) -> StoreFuture<'_, ()>;

    /// Removes a schedule. Answers whether there was one. Its jobs stay.
    fn remove_schedule(&self, kind: Kind, id: JobId) -> StoreFuture<'_, bool>;

    /// The schedules of a kind, by id.
    fn schedules(&self, kind: Kind) -> StoreFuture<'_, Vec<Schedule>>;

    /// If the schedule's next time is still `expected`: puts its job, due then, and makes
    /// `next` its next time, in one step. Any number of nodes may try: one succeeds.
    fn tick(&self, tick: Tick) -> StoreFuture<'_, Ticked>;
}

/// A step of a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tick {
    /// Of which kind.
    pub kind: Kind,
    /// Which schedule.
    pub id: JobId,
    /// What its next time should be.
    pub expected: Timestamp,
    /// What its next time shall be.
    pub next: Timestamp,
    /// Whether a job is put; not where what was missed is skipped.
    pub put: bool,
}
