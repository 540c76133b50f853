//! The calls of conformance cases, with defaults for everything that a case is not about.

mod put_builder;
mod waiting;

use crate::fixture::Fixture;
pub(crate) use put_builder::{PutBuilder, job};
use requeue_jobs::{
    Body, Change, ChangeError, ChangeKind, Changed, Claim, Claimed, ClaimedJob, Counts, Fence,
    Generation, JobId, JobView, Kind, KindView, Placed, Put, PutError, Query, Reaped, Restore,
    Restored, Settings, Settle, SettleError, Settled, Settlement, Store, StoreError, Timestamp,
    WorkerName,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How many waits in a row may end although no job can be claimed.
const MAX_EARLY_ENDS: usize = 2;
pub(crate) use waiting::Waiting;

/// The default length of a lease.
pub(crate) const LEASE: Duration = secs(30);

/// A store under test. All jobs are of the kind `mail`, unless a case specifies another.
pub(crate) struct Harness {
    fixture: Box<dyn Fixture>,
    pub(crate) store: Arc<dyn Store>,
    nonce: AtomicU64,
}

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(crate) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn kind(name: &str) -> Kind {
    Kind::new(name).expect("cases use valid kinds")
}

pub(crate) fn mail() -> Kind {
    kind("mail")
}

pub(crate) fn id(name: &str) -> JobId {
    JobId::new(name).expect("cases use valid ids")
}

pub(crate) fn text(text: &str) -> Body {
    Body::new(text.as_bytes(), "text/plain").expect("cases use short bodies")
}

pub(crate) fn ids(jobs: &[ClaimedJob]) -> Vec<&str> {
    jobs.iter().map(|job| job.id().as_str()).collect()
}

impl Harness {
    pub(crate) fn new(fixture: impl Fixture + 'static) -> Self {
        let store = fixture.store();
        Harness { fixture: Box::new(fixture), store, nonce: AtomicU64::new(1) }
    }

    /// Lets the store check itself after a call, and returns the result of the call.
    fn checked<T>(&self, result: T) -> T {
        self.fixture.check();
        result
    }

    // Time.

    pub(crate) fn now(&self) -> Timestamp {
        self.fixture.now()
    }

    pub(crate) fn advance(&self, by: Duration) {
        self.fixture.advance(by);
    }

    /// Returns the time `delay` from now.
    pub(crate) fn after(&self, delay: Duration) -> Timestamp {
        self.now().saturating_add(delay)
    }

    pub(crate) fn orders_ties(&self) -> bool {
        self.fixture.orders_ties()
    }

    // Put.

    pub(crate) async fn put(&self, put: impl Into<PutBuilder>) -> Placed {
        self.try_put(put).await.expect("the put succeeds")
    }

    pub(crate) async fn try_put(&self, put: impl Into<PutBuilder>) -> Result<Placed, PutError> {
        self.put_all([put.into()]).await.remove(0)
    }

    pub(crate) async fn put_all(
        &self,
        puts: impl IntoIterator<Item = PutBuilder>,
    ) -> Vec<Result<Placed, PutError>> {
        let puts: Vec<Put> = puts.into_iter().map(|PutBuilder(put)| put).collect();
        let count = puts.len();
        let results = self.checked(self.store.put(puts).await).expect("the batch is accepted");
        assert_eq!(results.len(), count, "one result per put");
        results
    }

    // Restore.

    /// Restores jobs of kind `mail`. The latest generation and fence of the other store are 10.
    pub(crate) async fn restore_all(
        &self,
        jobs: impl IntoIterator<Item = JobView>,
    ) -> Vec<Result<Restored, StoreError>> {
        let (generation, fence) = (Generation(10), Fence(10));
        let jobs: Vec<JobView> = jobs.into_iter().collect();
        let count = jobs.len();
        let restore = Restore { kind: mail(), generation, fence, jobs };
        let results = self.checked(self.store.restore(restore).await).expect("the call succeeds");
        assert_eq!(results.len(), count, "one result per job");
        results
    }

    pub(crate) async fn restore(&self, job: JobView) -> Restored {
        self.restore_all([job]).await.remove(0).expect("the job is valid")
    }

    /// Puts jobs that are due now, a millisecond apart, so that there are no ties.
    pub(crate) async fn put_in_order<const N: usize>(&self, names: [&str; N]) {
        for name in names {
            self.put(name).await;
            self.advance(millis(1));
        }
    }

    // Claim.

    /// Claims the first job that can be claimed.
    pub(crate) async fn claim(&self) -> ClaimedJob {
        let mut jobs = self.claim_up_to(1).await;
        assert_eq!(jobs.len(), 1, "a job can be claimed");
        jobs.remove(0)
    }

    pub(crate) async fn claim_up_to(&self, max: usize) -> Vec<ClaimedJob> {
        let claimed = self.claim_with(|claim| claim.max = max).await;
        assert_eq!(claimed.errors, []);
        assert!(claimed.jobs.len() <= max, "no more jobs than `max`");
        claimed.jobs
    }

    /// Claims up to ten jobs for [`LEASE`], after `change` has changed the claim.
    pub(crate) async fn claim_with(&self, change: impl FnOnce(&mut Claim)) -> Claimed {
        let mut claim = Claim {
            kinds: vec![mail()],
            max: 10,
            lease: Some(LEASE),
            worker: WorkerName::new("worker-1").expect("a valid name"),
            nonce: self.nonce.fetch_add(1, Ordering::Relaxed),
        };
        change(&mut claim);
        self.checked(self.store.claim(claim).await).expect("the claim succeeds")
    }

    pub(crate) async fn claims_nothing(&self) {
        let jobs = self.claim_up_to(10).await;
        assert_eq!(ids(&jobs), Vec::<&str>::new(), "no job can be claimed");
    }

    // Settle.

    pub(crate) async fn settle(
        &self,
        job: &ClaimedJob,
        action: Settlement,
    ) -> Result<Settled, SettleError> {
        self.settle_all([(job, action)]).await.remove(0)
    }

    pub(crate) async fn settle_all<'a>(
        &self,
        settlements: impl IntoIterator<Item = (&'a ClaimedJob, Settlement)>,
    ) -> Vec<Result<Settled, SettleError>> {
        let settle = |(job, action): (&ClaimedJob, Settlement)| Settle {
            receipt: job.receipt.clone(),
            action,
        };
        let settlements: Vec<Settle> = settlements.into_iter().map(settle).collect();
        let count = settlements.len();
        let results =
            self.checked(self.store.settle(settlements).await).expect("the call succeeds");
        assert_eq!(results.len(), count, "one result per settlement");
        results
    }

    pub(crate) async fn ack(&self, job: &ClaimedJob) -> Settled {
        self.settle(job, Settlement::Ack).await.expect("the lease is current")
    }

    pub(crate) async fn retry(&self, job: &ClaimedJob, delay: Duration) -> Settled {
        let action = Settlement::Retry { delay: Some(delay), error: "it broke".into() };
        self.settle(job, action).await.expect("the lease is current")
    }

    /// Retries the job after the backoff of its kind.
    pub(crate) async fn fail(&self, job: &ClaimedJob, error: &str) -> Settled {
        let action = Settlement::Retry { delay: None, error: error.into() };
        self.settle(job, action).await.expect("the lease is current")
    }

    pub(crate) async fn release(&self, job: &ClaimedJob) -> Settled {
        self.settle(job, Settlement::Release).await.expect("the lease is current")
    }

    pub(crate) async fn extend(&self, job: &ClaimedJob, lease: Duration) -> Settled {
        self.settle(job, Settlement::Extend(Some(lease))).await.expect("the lease is current")
    }

    /// Asserts that every settlement with this receipt fails with `LeaseLost` and changes nothing.
    pub(crate) async fn assert_lost(&self, job: &ClaimedJob) {
        let get = || self.store.get(job.kind().clone(), job.id().clone());
        let before = get().await.expect("the call succeeds");
        let retry = Settlement::Retry { delay: None, error: "too late".into() };
        for action in
            [Settlement::Extend(Some(secs(3600))), Settlement::Release, retry, Settlement::Ack]
        {
            let result = self.settle(job, action.clone()).await;
            let lost = SettleError::LeaseLost { receipt: job.receipt.clone() };
            assert_eq!(result, Err(lost), "{action:?} with a stale receipt");
            assert_eq!(
                get().await.expect("the call succeeds"),
                before,
                "{action:?} changed something"
            );
        }
    }

    // Change.

    pub(crate) async fn change(
        &self,
        name: &str,
        action: ChangeKind,
    ) -> Result<Changed, ChangeError> {
        let change = Change { kind: mail(), id: id(name), action };
        let mut results =
            self.checked(self.store.change(vec![change]).await).expect("the call succeeds");
        assert_eq!(results.len(), 1, "one result per change");
        results.remove(0)
    }

    pub(crate) async fn cancel(&self, name: &str) -> Changed {
        self.change(name, ChangeKind::Cancel).await.expect("the job exists")
    }

    pub(crate) async fn run_now(&self, name: &str) -> Changed {
        self.change(name, ChangeKind::RunNow).await.expect("the job can run")
    }

    /// Puts a job and fails its only attempt, with the error `it broke`.
    pub(crate) async fn die(&self, put: impl Into<PutBuilder>) {
        let attempts = self.settings().await.max_attempts;
        self.set(|settings| settings.max_attempts = 1).await;
        let generation = self.put(put).await.generation;
        let job = self.claim().await;
        assert_eq!(job.version.generation, generation, "no other job is ready");
        assert_eq!(self.retry(&job, secs(0)).await, Settled::Dead);
        self.set(|settings| settings.max_attempts = attempts).await;
    }

    // Reads.

    pub(crate) async fn get(&self, name: &str) -> Option<JobView> {
        self.store.get(mail(), id(name)).await.expect("the call succeeds")
    }

    pub(crate) async fn view(&self, name: &str) -> JobView {
        self.get(name).await.expect("the job exists")
    }

    /// Lists the ids of jobs of kind `mail`, after `change` has changed the query.
    pub(crate) async fn list(&self, change: impl FnOnce(&mut Query)) -> Vec<String> {
        let mut query = Query::new(mail());
        change(&mut query);
        let page = self.store.list(query).await.expect("the call succeeds");
        page.jobs.iter().map(|job| job.id.to_string()).collect()
    }

    pub(crate) async fn kinds(&self) -> Vec<KindView> {
        self.store.kinds().await.expect("the call succeeds")
    }

    pub(crate) async fn kind(&self) -> KindView {
        self.store.kind(mail()).await.expect("the call succeeds")
    }

    /// Returns the numbers of pending, leased, dead and ready jobs of kind `mail`.
    pub(crate) async fn counts(&self) -> [u64; 4] {
        let views = self.kinds().await;
        let mail = views.iter().find(|view| view.kind == mail());
        let Counts { pending, leased, dead, ready, .. } =
            mail.map_or_else(Counts::default, |view| view.counts);
        [pending, leased, dead, ready]
    }

    // Settings.

    pub(crate) async fn settings(&self) -> Settings {
        self.store.settings(mail()).await.expect("the call succeeds")
    }

    pub(crate) async fn set(&self, change: impl FnOnce(&mut Settings)) {
        self.set_of("mail", change).await;
    }

    pub(crate) async fn set_of(&self, name: &str, change: impl FnOnce(&mut Settings)) {
        let mut settings = self.store.settings(kind(name)).await.expect("the call succeeds");
        change(&mut settings);
        self.checked(self.store.set(kind(name), settings).await).expect("the settings are valid");
    }

    pub(crate) async fn reap(&self) -> usize {
        self.reap_all().await.count
    }

    pub(crate) async fn reap_all(&self) -> Reaped {
        self.checked(self.store.reap(100).await).expect("the call succeeds")
    }

    /// Returns whether claims and reaps of this store report expired leases.
    pub(crate) fn reports_expired_leases(&self) -> bool {
        self.fixture.reports_expired_leases()
    }

    // Waiting.

    /// Begins to wait for a job with a long limit. No job can be claimed.
    pub(crate) fn wait(&self) -> Waiting<'_> {
        self.wait_for(secs(3600))
    }

    pub(crate) fn wait_for(&self, limit: Duration) -> Waiting<'_> {
        // A wait may end early, for example because a notification about a job that is gone comes late. It
        // may not do so again and again: callers would claim in a busy loop.
        for _ in 0..=MAX_EARLY_ENDS {
            let mut waiting = self.begin_wait(limit);
            if !waiting.is_over() {
                return waiting;
            }
        }
        panic!("no job can be claimed, but waits end");
    }

    /// Begins to wait, whether or not a job can be claimed.
    pub(crate) fn begin_wait(&self, limit: Duration) -> Waiting<'_> {
        Waiting::new(self.store.wait(vec![mail()], limit), self.fixture.patience())
    }
}
