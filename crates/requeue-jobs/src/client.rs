//! The handle by which programs put, change, claim and settle jobs.

mod batcher;
mod claim;
#[cfg(feature = "serde")]
mod json;
mod put;

pub use claim::ClaimJobs;
pub(crate) use claim::nonce;
pub use put::{Placing, PutJob};

use crate::claim::{Change, ChangeKind, Changed, Settle, Settled, Settlement};
use crate::error::{ChangeError, PutError, SettleError, StoreError};
use crate::job::{JobView, kept_error};
use crate::names::{JobId, Kind};
use crate::put::{Placed, Put};
use crate::receipt::Receipt;
use crate::store::Store;
use batcher::Batcher;
use requeue::Clock;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A handle to a store of jobs. Clones share one.
///
/// Calls that are made at the same time go to the store together: while one batch is under way,
/// the next one forms, separately for puts, for settlements and for changes. Each call gets its
/// own answer. There is no timer and no background task, so a call that is alone is sent at once,
/// and any runtime will do: whoever waits for an answer moves the batch on.
///
/// Calls of one sort are sent in the order in which they were first polled. A call that is
/// dropped before its batch was sent is not done; one that is dropped later may be done or not,
/// and harms no other.
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
/// assert_eq!((job.id().as_str(), job.body.bytes()), ("order-42", &b"unpaid"[..]));
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
    clock: Clock,
    puts: Arc<Batcher<Put, Placed, PutError>>,
    settlements: Arc<Batcher<Settle, Settled, SettleError>>,
    changes: Arc<Batcher<Change, Changed, ChangeError>>,
}

impl Jobs {
    /// A handle to this store. Handles that are made apart share no batches: make one, and
    /// clone it.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Jobs::with_clock(store, Clock::system())
    }

    /// The same, with waits measured on `clock`: the store's, where that is a manual one.
    ///
    /// ```
    /// use requeue::ManualClock;
    /// use requeue_jobs::{WallClock, Jobs, MemoryStore, Timestamp};
    /// use std::sync::Arc;
    ///
    /// let clock = ManualClock::new();
    /// let store = MemoryStore::with(WallClock::manual(&clock, Timestamp::from_millis(0)));
    /// let jobs = Jobs::with_clock(Arc::new(store), &clock);
    /// ```
    pub fn with_clock(store: Arc<dyn Store>, clock: impl Into<Clock>) -> Self {
        let clock = clock.into();
        let to = Arc::clone(&store);
        let puts = Batcher::new(
            move |puts| {
                let store = Arc::clone(&to);
                Box::pin(async move { store.put(puts).await })
            },
            |put: &Put| put.body.len(),
        );
        let to = Arc::clone(&store);
        let settlements = Batcher::new(
            move |settlements| {
                let store = Arc::clone(&to);
                Box::pin(async move { store.settle(settlements).await })
            },
            |_: &Settle| 0,
        );
        let to = Arc::clone(&store);
        let changes = Batcher::new(
            move |changes| {
                let store = Arc::clone(&to);
                Box::pin(async move { store.change(changes).await })
            },
            |_: &Change| 0,
        );
        Jobs { shared: Arc::new(Shared { store, clock, puts, settlements, changes }) }
    }

    /// The store itself, for what this handle has no word for: settings, lists, schedules.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    /// What waits are measured on.
    pub(crate) fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// Puts a job, due now unless it is said otherwise: `.await` it.
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

    /// The same with a put that is made already: by a program that has read it from elsewhere.
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
    pub fn place(&self, put: Put) -> Placing {
        Placing::new(&self.shared.puts, put)
    }

    /// Claims jobs of these kinds, for a worker of this name: `.await` it.
    ///
    /// One at most, without waiting for it, unless it is said otherwise. See [`ClaimJobs`].
    pub fn claim<'a>(&self, kinds: impl IntoIterator<Item = &'a str>, worker: &str) -> ClaimJobs {
        ClaimJobs::new(self, kinds, worker)
    }

    /// What is known of a job.
    pub async fn get(&self, kind: &str, id: &str) -> Result<Option<JobView>, StoreError> {
        self.shared.store.get(Kind::new(kind)?, JobId::new(id)?).await
    }

    /// Removes a job. One that is leased ends with its lease.
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

    /// Makes a job due now, whatever its backoff; the successor of a leased one; revives a dead
    /// one.
    pub async fn run_now(&self, kind: &str, id: &str) -> Result<Changed, ChangeError> {
        self.change(kind, id, ChangeKind::RunNow).await
    }

    /// Lets a dead job start again: due now, with no attempts counted.
    pub async fn revive(&self, kind: &str, id: &str) -> Result<Changed, ChangeError> {
        self.change(kind, id, ChangeKind::Revive).await
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

    /// It is done: the job is gone, or its successor comes next.
    ///
    /// Safe to repeat after an unknown outcome: the second time it answers *lease lost*, as it
    /// does where another worker took over. Never undo finished work because of that.
    pub async fn ack(&self, receipt: &Receipt) -> Result<Settled, SettleError> {
        self.settle(receipt, Settlement::Ack).await
    }

    /// It failed, and comes back as the kind's backoff says, or is dead. For another delay, see
    /// [`settle`](Self::settle).
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

    /// It was not begun: it goes back to its place, and no attempt is counted.
    pub async fn release(&self, receipt: &Receipt) -> Result<Settled, SettleError> {
        self.settle(receipt, Settlement::Release).await
    }

    /// It takes longer: the lease ends this long after now, or when it did, if that is later.
    pub async fn extend(&self, receipt: &Receipt, lease: Duration) -> Result<Settled, SettleError> {
        self.settle(receipt, Settlement::Extend(Some(lease))).await
    }

    /// What is to become of a lease, in full.
    ///
    /// ```
    /// use requeue_jobs::{How, JobState, Jobs, MemoryStore, Settled};
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
        // Only as much as is kept is sent.
        let kept = |error: String| kept_error(&error).to_string();
        let action = match action {
            Settlement::Retry { delay, error } => Settlement::Retry { delay, error: kept(error) },
            Settlement::Bury { error } => Settlement::Bury { error: kept(error) },
            action => action,
        };
        self.shared.settlements.call(Settle { receipt: receipt.clone(), action }).await
    }
}

impl fmt::Debug for Jobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jobs").finish_non_exhaustive()
    }
}
