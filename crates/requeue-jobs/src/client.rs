//! [`Jobs`], the handle that applications use to put, change, claim and settle jobs.

mod batcher;
mod claim;
#[cfg(feature = "serde")]
mod json;
mod list;
mod put;
mod reschedule;
#[cfg(feature = "cron")]
mod schedules;

pub use claim::ClaimJobs;
pub(crate) use claim::nonce;
pub use list::ListJobs;
pub use put::{PutFuture, PutJob};
pub use reschedule::RescheduleJob;

use crate::claim::{Change, ChangeKind, Changed, Reschedule, Settle, Settled, Settlement};
#[cfg(feature = "cron")]
use crate::cron::TickTurn;
use crate::error::{ChangeError, PutAllError, PutError, SettleError, StoreError};
use crate::job::{Body, JobView, kept_error};
use crate::limits::{MAX_BATCH, MAX_BATCH_BYTES};
use crate::names::{JobId, Kind};
use crate::put::{Placed, Put};
use crate::query::KindView;
use crate::reaper::ReapTurns;
use crate::receipt::Receipt;
use crate::settings::Settings;
use crate::store::Store;
use crate::time::WallClock;
use batcher::Batcher;
use requeue::Clock;
use std::fmt;
use std::future::poll_fn;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

/// A handle to a store: puts, changes, claims and settles jobs. Cloning it is cheap.
///
/// Concurrent calls are sent to the store in batches. While one batch is in flight, further calls
/// are collected for the next one, separately for puts, settlements and changes. Each call gets its
/// own result. There is no timer and no background task: a single call is sent immediately, and
/// the futures work on any runtime, because each waiting call drives the batch.
///
/// Calls of one sort are sent in the order in which they were first polled. A call whose future is
/// dropped before its batch is sent has no effect. If it is dropped later, the outcome is unknown;
/// the other calls of the batch are not affected.
///
/// ```
/// use requeue_jobs::{Jobs, MemoryStore, PutOutcome, Settled};
/// use std::sync::Arc;
///
/// # requeue_testkit::block_on(async {
/// let jobs = Jobs::new(Arc::new(MemoryStore::new()));
/// let placed = jobs.put("order.close", "order-42", "unpaid").await?;
/// assert_eq!(placed.outcome, PutOutcome::Created);
///
/// let claimed = jobs.claim(["order.close"], "worker-1").await?;
/// let job = &claimed.jobs[0];
/// assert_eq!((job.id().as_str(), job.body().bytes()), ("order-42", &b"unpaid"[..]));
/// assert_eq!(jobs.ack(&job.receipt).await?, Settled::Done);
/// assert_eq!(jobs.get("order.close", "order-42").await?, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct Jobs {
    shared: Arc<Shared>,
}

struct Shared {
    store: Arc<dyn Store>,
    wall_clock: WallClock,
    puts: Arc<Batcher<Put, Placed, PutError>>,
    settlements: Arc<Batcher<Settle, Settled, SettleError>>,
    changes: Arc<Batcher<Change, Changed, ChangeError>>,
    reap_turns: ReapTurns,
    #[cfg(feature = "cron")]
    tick_turn: TickTurn,
}

impl Jobs {
    /// Returns a handle to this store. Clone it instead of creating a second one: only clones share
    /// batches.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Jobs::with_clock(store, Clock::system())
    }

    /// Returns a handle that measures waiting times on `clock`. Use it in tests, with the manual
    /// clock of the store.
    ///
    /// ```
    /// use requeue_jobs::{Jobs, ManualClock, MemoryStore, Timestamp, WallClock};
    /// use std::sync::Arc;
    ///
    /// let clock = ManualClock::new();
    /// let store = MemoryStore::with(WallClock::manual(&clock, Timestamp::from_millis(0)));
    /// let jobs = Jobs::with_clock(Arc::new(store), &clock);
    /// ```
    pub fn with_clock(store: Arc<dyn Store>, clock: impl Into<Clock>) -> Self {
        Jobs::with_wall_clock(store, WallClock::on(clock.into()))
    }

    /// Returns a handle that takes the date from `wall_clock`, too, which schedules need. Use it in tests,
    /// with the wall clock of the store.
    pub fn with_wall_clock(store: Arc<dyn Store>, wall_clock: WallClock) -> Self {
        let to = Arc::clone(&store);
        let puts = Batcher::new(
            move |puts| {
                let store = Arc::clone(&to);
                Box::pin(async move { store.put(puts).await })
            },
            |put: &Put| put.content.len(),
        );
        let to = Arc::clone(&store);
        let settlements = Batcher::new(
            move |settlements| {
                let store = Arc::clone(&to);
                Box::pin(async move { store.settle(settlements).await })
            },
            |settle: &Settle| settle.action.result_len(),
        );
        let to = Arc::clone(&store);
        let changes = Batcher::new(
            move |changes| {
                let store = Arc::clone(&to);
                Box::pin(async move { store.change(changes).await })
            },
            |change: &Change| change.action.body_len(),
        );
        let reap_turns = ReapTurns::default();
        let shared = Shared {
            store,
            wall_clock,
            puts,
            settlements,
            changes,
            reap_turns,
            #[cfg(feature = "cron")]
            tick_turn: TickTurn::default(),
        };
        Jobs { shared: Arc::new(shared) }
    }

    /// Returns the store, for operations that this handle does not offer.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    /// Returns the turns in which the workers of this handle reap.
    pub(crate) fn reap_turns(&self) -> &ReapTurns {
        &self.shared.reap_turns
    }

    /// Returns the turn in which one of the workers of this handle starts the runs of schedules.
    #[cfg(feature = "cron")]
    pub(crate) fn tick_turn(&self) -> &TickTurn {
        &self.shared.tick_turn
    }

    /// Returns the clock for waiting times.
    pub(crate) fn clock(&self) -> &Clock {
        self.shared.wall_clock.clock()
    }

    /// Returns the clock for dates.
    #[cfg(feature = "cron")]
    pub(crate) fn wall_clock(&self) -> &WallClock {
        &self.shared.wall_clock
    }

    /// Puts a job: creates it, or replaces its body, due time and priority if it exists. It is due now,
    /// unless a method of [`PutJob`] specifies another time. Nothing happens before the result is
    /// awaited. To change only some of these, use [`reschedule`](Self::reschedule).
    ///
    /// ```
    /// use requeue_jobs::{Jobs, MemoryStore, PutError};
    /// use std::sync::Arc;
    /// use std::time::Duration;
    ///
    /// # requeue_testkit::block_on(async {
    /// let jobs = Jobs::new(Arc::new(MemoryStore::new()));
    /// jobs.put("order.close", "order-42", "unpaid").after(Duration::from_secs(300)).await?;
    /// let again = jobs.put("order.close", "order-42", "unpaid").if_absent().await;
    /// assert!(matches!(again, Err(PutError::Exists { .. })));
    /// let unnamed = jobs.put("order.close", "", "unpaid").await;
    /// assert_eq!(unnamed.unwrap_err().to_string(), "the id must not be empty");
    /// # Ok::<(), PutError>(())
    /// # }).unwrap();
    /// ```
    pub fn put(&self, kind: &str, id: &str, body: impl AsRef<[u8]>) -> PutJob {
        PutJob::new(&self.shared.puts, kind, id, body.as_ref())
    }

    /// Puts a job that is given as a [`Put`], for example because it was read from a file.
    ///
    /// ```
    /// use requeue_jobs::{Body, JobId, Jobs, Kind, MemoryStore, Put, PutOutcome};
    /// use std::sync::Arc;
    ///
    /// # requeue_testkit::block_on(async {
    /// let jobs = Jobs::new(Arc::new(MemoryStore::new()));
    /// let (kind, id) = (Kind::new("order.close")?, JobId::new("order-42")?);
    /// let placed = jobs.place(Put::new(kind, id, Body::default())).await?;
    /// assert_eq!(placed.outcome, PutOutcome::Created);
    /// # Ok::<(), requeue_jobs::PutError>(())
    /// # }).unwrap();
    /// ```
    pub fn place(&self, put: Put) -> PutFuture {
        PutFuture::new(&self.shared.puts, put)
    }

    /// Puts many jobs, in as few calls of the store as its [limits](crate::limits) allow. Returns what
    /// became of each, in the same order.
    ///
    /// Fails if some of them were not put. The error has the result of each, and the others were put.
    ///
    /// ```
    /// use requeue_jobs::{Jobs, MemoryStore};
    /// use std::sync::Arc;
    /// use std::time::Duration;
    ///
    /// # requeue_testkit::block_on(async {
    /// let jobs = Jobs::new(Arc::new(MemoryStore::new()));
    /// let orders = ["order-1", "order-2"];
    /// let after = Duration::from_secs(300);
    /// let puts = orders.map(|order| jobs.put("order.remind", order, "unpaid").after(after));
    /// let placed = jobs.put_all(puts).await?;
    /// assert_eq!(placed.len(), 2);
    /// assert_eq!(jobs.kind("order.remind").await?.counts.pending, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub async fn put_all(
        &self,
        puts: impl IntoIterator<Item = PutJob>,
    ) -> Result<Vec<Placed>, PutAllError> {
        let mut results: Vec<Option<Result<Placed, PutError>>> = Vec::new();
        let (mut batch, mut positions, mut bytes) = (Vec::new(), Vec::new(), 0);
        for put in puts {
            match put.into_put() {
                Err(invalid) => results.push(Some(Err(invalid.into()))),
                Ok(put) => {
                    let len = put.content.len();
                    if batch.len() == MAX_BATCH || bytes + len > MAX_BATCH_BYTES {
                        self.put_batch(&mut batch, &mut positions, &mut results).await;
                        bytes = 0;
                    }
                    bytes += len;
                    batch.push(put);
                    positions.push(results.len());
                    results.push(None);
                }
            }
        }
        self.put_batch(&mut batch, &mut positions, &mut results).await;
        let results: Vec<_> = results.into_iter().flatten().collect();
        if results.iter().any(Result::is_err) {
            return Err(PutAllError { results });
        }
        Ok(results.into_iter().flatten().collect())
    }

    /// Puts a batch. Its results belong to these positions of `results`.
    async fn put_batch(
        &self,
        batch: &mut Vec<Put>,
        positions: &mut Vec<usize>,
        results: &mut [Option<Result<Placed, PutError>>],
    ) {
        if batch.is_empty() {
            return;
        }
        let placed = self.shared.store.put(mem::take(batch)).await;
        match placed {
            Ok(placed) => {
                let positions = positions.drain(..).zip(placed);
                positions.for_each(|(position, placed)| results[position] = Some(placed));
            }
            Err(error) => {
                let failed = || Some(Err(PutError::Store(error.clone())));
                positions.drain(..).for_each(|position| results[position] = failed());
            }
        }
    }

    /// Claims jobs of these kinds for a worker of this name. Other systems call it receive, reserve
    /// or dequeue.
    ///
    /// By default it returns at most one job, and none if there is none. The methods of
    /// [`ClaimJobs`] change that. Nothing happens before the result is awaited.
    pub fn claim<'a>(&self, kinds: impl IntoIterator<Item = &'a str>, worker: &str) -> ClaimJobs {
        ClaimJobs::new(self, kinds, worker)
    }

    /// Returns a job, or `None` if there is no such job.
    pub async fn get(&self, kind: &str, id: &str) -> Result<Option<JobView>, StoreError> {
        self.shared.store.get(Kind::with_reserved(kind)?, JobId::new(id)?).await
    }

    /// Lists jobs of a kind, ordered by id, one page at a time.
    pub fn list(&self, kind: &str) -> ListJobs {
        ListJobs::new(self, kind)
    }

    /// Returns a kind: the counts of its jobs, and whether it is paused or throttled.
    pub async fn kind(&self, kind: &str) -> Result<KindView, StoreError> {
        self.shared.store.kind(Kind::with_reserved(kind)?).await
    }

    /// Returns all kinds, ordered by name.
    pub async fn kinds(&self) -> Result<Vec<KindView>, StoreError> {
        self.shared.store.kinds().await
    }

    /// Returns the settings of a kind.
    pub async fn settings(&self, kind: &str) -> Result<Settings, StoreError> {
        self.shared.store.settings(Kind::with_reserved(kind)?).await
    }

    /// Changes the settings of a kind. Returns the new ones.
    ///
    /// It reads them, calls `change` and writes them. If someone else changes them at the same time,
    /// the last write wins.
    ///
    /// ```
    /// use requeue_jobs::{Jobs, MemoryStore, Rate};
    /// use std::sync::Arc;
    /// use std::time::Duration;
    ///
    /// # requeue_testkit::block_on(async {
    /// let jobs = Jobs::new(Arc::new(MemoryStore::new()));
    /// // The provider accepts 100 messages a minute.
    /// let rate = Rate::new(100, Duration::from_secs(60));
    /// jobs.change_settings("sms", |settings| settings.rate = Some(rate)).await?;
    /// assert_eq!(jobs.settings("sms").await?.rate, Some(rate));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub async fn change_settings(
        &self,
        kind: &str,
        change: impl FnOnce(&mut Settings),
    ) -> Result<Settings, StoreError> {
        let kind = Kind::new(kind)?;
        let mut settings = self.shared.store.settings(kind.clone()).await?;
        change(&mut settings);
        self.shared.store.set(kind, settings.clone()).await?;
        Ok(settings)
    }

    /// Removes a job. A leased job is removed when its lease ends; its worker learns of it when it
    /// settles or extends the lease.
    ///
    /// Fails with [`ChangeError::Absent`] if there is no such job.
    ///
    /// ```
    /// use requeue_jobs::{ChangeError, Changed, Jobs, MemoryStore};
    /// use std::sync::Arc;
    ///
    /// # requeue_testkit::block_on(async {
    /// let jobs = Jobs::new(Arc::new(MemoryStore::new()));
    /// jobs.put("order.close", "order-42", "unpaid").await?;
    /// assert_eq!(jobs.cancel("order.close", "order-42").await?, Changed::Removed);
    /// let again = jobs.cancel("order.close", "order-42").await;
    /// assert!(matches!(again, Err(ChangeError::Absent { .. })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub async fn cancel(&self, kind: &str, id: &str) -> Result<Changed, ChangeError> {
        self.change(kind, id, ChangeKind::Cancel).await
    }

    /// Makes a job due now, even if its backoff is not over. Makes the successor of a leased job
    /// due now, and revives a dead job.
    ///
    /// Fails with [`ChangeError::Absent`] if there is no such job, and with
    /// [`ChangeError::Leased`] if it is leased and has no successor.
    pub async fn run_now(&self, kind: &str, id: &str) -> Result<Changed, ChangeError> {
        self.change(kind, id, ChangeKind::RunNow).await
    }

    /// Makes a dead job due now and resets its attempts.
    ///
    /// Fails with [`ChangeError::Absent`] if there is no such job, and with
    /// [`ChangeError::NotDead`] if it is not dead.
    pub async fn revive(&self, kind: &str, id: &str) -> Result<Changed, ChangeError> {
        self.change(kind, id, ChangeKind::Revive).await
    }

    /// Changes the due time, the priority or the body of a job, and leaves the rest as it is. The
    /// methods of [`RescheduleJob`] specify what changes. Nothing happens before the result is awaited.
    ///
    /// A leased job is not disturbed: its successor is changed, or made from its current content. With
    /// a due time, a dead job is revived.
    ///
    /// ```
    /// use requeue_jobs::{ChangeError, Jobs, MemoryStore};
    /// use std::sync::Arc;
    /// use std::time::Duration;
    ///
    /// # requeue_testkit::block_on(async {
    /// let jobs = Jobs::new(Arc::new(MemoryStore::new()));
    /// jobs.put("order.remind", "order-42", "unpaid").after(Duration::from_secs(300)).await?;
    /// jobs.reschedule("order.remind", "order-42").after(Duration::from_secs(3600)).await?;
    /// let job = jobs.get("order.remind", "order-42").await?.expect("it waits");
    /// assert_eq!(job.body().bytes(), b"unpaid");
    ///
    /// let absent = jobs.reschedule("order.remind", "order-43").priority(9).await;
    /// assert!(matches!(absent, Err(ChangeError::Absent { .. })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub fn reschedule(&self, kind: &str, id: &str) -> RescheduleJob {
        RescheduleJob::new(self, kind, id)
    }

    /// Reschedules a job in the way that is given as a [`Reschedule`], for example because it was read
    /// from a request.
    pub async fn reschedule_as(
        &self,
        kind: Kind,
        id: JobId,
        set: Reschedule,
    ) -> Result<Placed, ChangeError> {
        // Here, because the store would reject the whole batch.
        set.check()?;
        let action = ChangeKind::Reschedule(set);
        match self.shared.changes.call(Change { kind, id, action }).await? {
            Changed::Rescheduled(placed) => Ok(placed),
            other => {
                let reason = format!("the store returned {other:?} for a reschedule");
                Err(StoreError::Unknown { reason }.into())
            }
        }
    }

    async fn change(
        &self,
        kind: &str,
        id: &str,
        action: ChangeKind,
    ) -> Result<Changed, ChangeError> {
        let (kind, id) = (Kind::new(kind)?, JobId::new(id)?);
        self.shared.changes.call(Change { kind, id, action }).await
    }

    /// Reports that a job is done: removes it. Its successor, if there is one, becomes pending.
    ///
    /// Fails with [`SettleError::LeaseLost`] if the receipt is no longer valid. You can repeat an
    /// ack whose outcome is unknown: if the first one succeeded, the second fails with
    /// `LeaseLost`. Never undo finished work because of that.
    pub async fn ack(&self, receipt: &Receipt) -> Result<Settled, SettleError> {
        self.settle(receipt, Settlement::Ack).await
    }

    /// Reports that a job is done, with a result, which is kept if the kind
    /// [keeps done jobs](Settings::keep_done).
    ///
    /// ```
    /// use requeue_jobs::{Body, Jobs, MemoryStore, Retention};
    /// use std::sync::Arc;
    ///
    /// # requeue_testkit::block_on(async {
    /// let jobs = Jobs::new(Arc::new(MemoryStore::new()));
    /// let keep = Retention::default();
    /// jobs.change_settings("order.remind", |settings| settings.keep_done = Some(keep)).await?;
    /// jobs.put("order.remind", "order-42", "unpaid").await?;
    /// let claimed = jobs.claim(["order.remind"], "worker-1").await?;
    /// jobs.ack_with(&claimed.jobs[0].receipt, Body::new(*b"sent", "text/plain")?).await?;
    ///
    /// let job = jobs.get("order.remind", "order-42").await?.expect("it is kept");
    /// let done = job.done.expect("it is done");
    /// assert_eq!(done.result.expect("it has a result").bytes(), b"sent");
    /// // A put that is repeated does not run the job again.
    /// assert!(jobs.put("order.remind", "order-42", "unpaid").if_new().await.is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    ///
    /// Fails with [`SettleError::LeaseLost`] if the receipt is no longer valid.
    pub async fn ack_with(&self, receipt: &Receipt, result: Body) -> Result<Settled, SettleError> {
        self.settle(receipt, Settlement::AckWith(result)).await
    }

    /// Reports that an attempt failed and that further ones are useless: the job is dead, even if
    /// attempts are left.
    ///
    /// Fails with [`SettleError::LeaseLost`] if the receipt is no longer valid.
    pub async fn bury(&self, receipt: &Receipt, error: &str) -> Result<Settled, SettleError> {
        self.settle(receipt, Settlement::Bury { error: error.to_owned() }).await
    }

    /// Reports that an attempt failed: the job is tried again after the kind's backoff, or is dead
    /// if this was the last attempt. For another delay, use [`settle`](Self::settle).
    ///
    /// Fails with [`SettleError::LeaseLost`] if the receipt is no longer valid.
    ///
    /// ```
    /// use requeue_jobs::{Jobs, MemoryStore, Settled};
    /// use std::sync::Arc;
    ///
    /// # requeue_testkit::block_on(async {
    /// let jobs = Jobs::new(Arc::new(MemoryStore::new()));
    /// jobs.put("order.close", "order-42", "unpaid").await?;
    /// let claimed = jobs.claim(["order.close"], "worker-1").await?;
    /// let settled = jobs.retry(&claimed.jobs[0].receipt, "the bank is busy").await?;
    /// assert!(matches!(settled, Settled::RetryAt(_)));
    /// let job = jobs.get("order.close", "order-42").await?.expect("it waits");
    /// assert_eq!(job.failures[0].error.as_deref(), Some("the bank is busy"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub async fn retry(&self, receipt: &Receipt, error: &str) -> Result<Settled, SettleError> {
        self.settle(receipt, Settlement::Retry { delay: None, error: error.to_owned() }).await
    }

    /// Returns a job that was not started to its old position. No attempt is counted.
    ///
    /// Fails with [`SettleError::LeaseLost`] if the receipt is no longer valid.
    pub async fn release(&self, receipt: &Receipt) -> Result<Settled, SettleError> {
        self.settle(receipt, Settlement::Release).await
    }

    /// Extends a lease: it ends `lease` after now, unless it already ends later. Also called a
    /// heartbeat.
    ///
    /// Returns [`Settled::Cancelled`] if the job was cancelled meanwhile. Fails with
    /// [`SettleError::LeaseLost`] if the receipt is no longer valid.
    pub async fn extend(&self, receipt: &Receipt, lease: Duration) -> Result<Settled, SettleError> {
        self.settle(receipt, Settlement::Extend(Some(lease))).await
    }

    /// Settles a lease in any of the ways that [`Settlement`] lists.
    ///
    /// Fails with [`SettleError::LeaseLost`] if the receipt is no longer valid.
    ///
    /// ```
    /// use requeue_jobs::{JobState, Jobs, MemoryStore, Settled, Settlement};
    /// use std::sync::Arc;
    ///
    /// # requeue_testkit::block_on(async {
    /// let jobs = Jobs::new(Arc::new(MemoryStore::new()));
    /// jobs.put("order.close", "order-42", "unpaid").await?;
    /// let claimed = jobs.claim(["order.close"], "worker-1").await?;
    /// let bury = Settlement::Bury { error: "there is no such order".to_owned() };
    /// assert_eq!(jobs.settle(&claimed.jobs[0].receipt, bury).await?, Settled::Dead);
    /// let job = jobs.get("order.close", "order-42").await?.expect("it is kept");
    /// assert_eq!(job.state, JobState::Dead);
    /// jobs.revive("order.close", "order-42").await?; // it was a mistake
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub async fn settle(
        &self,
        receipt: &Receipt,
        action: Settlement,
    ) -> Result<Settled, SettleError> {
        self.shared.settlements.call(settlement(receipt, action)).await
    }

    /// Settles a lease as [`settle`](Self::settle) does, together with others: the settlement is not
    /// sent while `expects_others` returns `true`. The executor has to poll the future whenever it is
    /// woken.
    pub(crate) async fn settle_gathering(
        &self,
        receipt: &Receipt,
        action: Settlement,
        mut expects_others: impl FnMut() -> bool,
    ) -> Result<Settled, SettleError> {
        let mut call = self.shared.settlements.call(settlement(receipt, action));
        poll_fn(|cx| call.poll_gathering(cx, &mut expects_others)).await
    }
}

fn settlement(receipt: &Receipt, action: Settlement) -> Settle {
    // The store truncates errors, so the rest need not be sent.
    let kept = |error: String| kept_error(&error).to_string();
    let action = match action {
        Settlement::Retry { delay, error } => Settlement::Retry { delay, error: kept(error) },
        Settlement::Bury { error } => Settlement::Bury { error: kept(error) },
        action => action,
    };
    Settle { receipt: receipt.clone(), action }
}

impl fmt::Debug for Jobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jobs").finish_non_exhaustive()
    }
}
