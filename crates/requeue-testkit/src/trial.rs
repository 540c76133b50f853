//! The verbs of a case: each reads like a story, and says no more than it is about.

mod waiting;
mod wish;

use crate::fixture::Fixture;
use requeue_jobs::{
    Body, Change, ChangeError, ChangeKind, Changed, Claim, Claimed, ClaimedJob, Counts, Fence,
    Generation, JobId, JobView, Kind, KindView, Placed, Put, PutError, Query, Reaped, Restore,
    Restored, Settings, Settle, SettleError, Settled, Settlement, Store, StoreError, Timestamp,
    WorkerName,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
pub(crate) use waiting::Waiting;
pub(crate) use wish::{Wish, job};

/// How long a claim's lease is where the case is not about it.
pub(crate) const LEASE: Duration = secs(30);

/// A store on trial. All jobs are of the kind `mail`, unless a case says otherwise.
pub(crate) struct Trial {
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
    Kind::new(name).expect("cases name kinds well")
}

pub(crate) fn mail() -> Kind {
    kind("mail")
}

pub(crate) fn id(name: &str) -> JobId {
    JobId::new(name).expect("cases name jobs well")
}

pub(crate) fn text(text: &str) -> Body {
    Body::new(text.as_bytes(), "text/plain").expect("cases write short bodies")
}

pub(crate) fn ids(jobs: &[ClaimedJob]) -> Vec<&str> {
    jobs.iter().map(|job| job.id().as_str()).collect()
}

impl Trial {
    pub(crate) fn new(fixture: impl Fixture + 'static) -> Self {
        let store = fixture.store();
        Trial { fixture: Box::new(fixture), store, nonce: AtomicU64::new(1) }
    }

    /// After every answer the store is asked to check itself.
    fn checked<T>(&self, answer: T) -> T {
        self.fixture.check();
        answer
    }

    // Time.

    pub(crate) fn now(&self) -> Timestamp {
        self.fixture.now()
    }

    pub(crate) fn advance(&self, by: Duration) {
        self.fixture.advance(by);
    }

    /// So long from now.
    pub(crate) fn after(&self, delay: Duration) -> Timestamp {
        self.now().saturating_add(delay)
    }

    pub(crate) fn orders_ties(&self) -> bool {
        self.fixture.orders_ties()
    }

    // Put.

    pub(crate) async fn put(&self, wish: impl Into<Wish>) -> Placed {
        self.try_put(wish).await.expect("the put is done")
    }

    pub(crate) async fn try_put(&self, wish: impl Into<Wish>) -> Result<Placed, PutError> {
        self.put_all([wish.into()]).await.remove(0)
    }

    pub(crate) async fn put_all(
        &self,
        wishes: impl IntoIterator<Item = Wish>,
    ) -> Vec<Result<Placed, PutError>> {
        let puts: Vec<Put> = wishes.into_iter().map(|Wish(put)| put).collect();
        let count = puts.len();
        let answers = self.checked(self.store.put(puts).await).expect("the batch is taken");
        assert_eq!(answers.len(), count, "one answer per put");
        answers
    }

    // Restore.

    /// Restores jobs of kind `mail`, whose latest generation and fence were 10.
    pub(crate) async fn restore_all(
        &self,
        jobs: impl IntoIterator<Item = JobView>,
    ) -> Vec<Result<Restored, StoreError>> {
        let (generation, fence) = (Generation(10), Fence(10));
        let jobs: Vec<JobView> = jobs.into_iter().collect();
        let count = jobs.len();
        let restore = Restore { kind: mail(), generation, fence, jobs };
        let answers = self.checked(self.store.restore(restore).await).expect("it is taken");
        assert_eq!(answers.len(), count, "one answer per job");
        answers
    }

    pub(crate) async fn restore(&self, job: JobView) -> Restored {
        self.restore_all([job]).await.remove(0).expect("the job can be")
    }

    /// Puts jobs that are due now, a millisecond apart: which is first is no matter of ties.
    pub(crate) async fn put_in_line<const N: usize>(&self, names: [&str; N]) {
        for name in names {
            self.put(name).await;
            self.advance(millis(1));
        }
    }

    // Claim.

    /// Claims the one job that there is to claim first.
    pub(crate) async fn claim(&self) -> ClaimedJob {
        let mut jobs = self.claim_up_to(1).await;
        assert_eq!(jobs.len(), 1, "there is a job to claim");
        jobs.remove(0)
    }

    pub(crate) async fn claim_up_to(&self, max: usize) -> Vec<ClaimedJob> {
        let claimed = self.claim_with(|claim| claim.max = max).await;
        assert_eq!(claimed.errors, []);
        assert!(claimed.jobs.len() <= max, "no more than were asked for");
        claimed.jobs
    }

    /// A claim of ten, for [`LEASE`], unless it is changed.
    pub(crate) async fn claim_with(&self, change: impl FnOnce(&mut Claim)) -> Claimed {
        let mut claim = Claim {
            kinds: vec![mail()],
            max: 10,
            lease: Some(LEASE),
            worker: WorkerName::new("worker-1").expect("a valid name"),
            nonce: self.nonce.fetch_add(1, Ordering::Relaxed),
        };
        change(&mut claim);
        self.checked(self.store.claim(claim).await).expect("the claim is answered")
    }

    pub(crate) async fn claims_nothing(&self) {
        let jobs = self.claim_up_to(10).await;
        assert_eq!(ids(&jobs), Vec::<&str>::new(), "there is nothing to claim");
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
        let answers = self.checked(self.store.settle(settlements).await).expect("it is taken");
        assert_eq!(answers.len(), count, "one answer per settlement");
        answers
    }

    pub(crate) async fn ack(&self, job: &ClaimedJob) -> Settled {
        self.settle(job, Settlement::Ack).await.expect("the lease is current")
    }

    pub(crate) async fn retry(&self, job: &ClaimedJob, delay: Duration) -> Settled {
        let action = Settlement::Retry { delay: Some(delay), error: "it broke".into() };
        self.settle(job, action).await.expect("the lease is current")
    }

    /// A retry after the kind's own backoff.
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

    /// Whatever is tried with this receipt, the lease is lost and nothing changes.
    pub(crate) async fn assert_lost(&self, job: &ClaimedJob) {
        let look = || self.store.get(job.kind().clone(), job.id().clone());
        let before = look().await.expect("it is answered");
        let retry = Settlement::Retry { delay: None, error: "too late".into() };
        for action in
            [Settlement::Extend(Some(secs(3600))), Settlement::Release, retry, Settlement::Ack]
        {
            let answer = self.settle(job, action.clone()).await;
            let lost = SettleError::LeaseLost { receipt: job.receipt.clone() };
            assert_eq!(answer, Err(lost), "{action:?} with a receipt that is no more");
            assert_eq!(
                look().await.expect("it is answered"),
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
        let mut answers = self.checked(self.store.change(vec![change]).await).expect("it is taken");
        assert_eq!(answers.len(), 1, "one answer per change");
        answers.remove(0)
    }

    pub(crate) async fn cancel(&self, name: &str) -> Changed {
        self.change(name, ChangeKind::Cancel).await.expect("there is such a job")
    }

    pub(crate) async fn run_now(&self, name: &str) -> Changed {
        self.change(name, ChangeKind::RunNow).await.expect("it can run")
    }

    /// Puts a job and lets its only attempt fail, with the error `it broke`.
    pub(crate) async fn die(&self, wish: impl Into<Wish>) {
        let attempts = self.settings().await.max_attempts;
        self.set(|settings| settings.max_attempts = 1).await;
        let generation = self.put(wish).await.generation;
        let job = self.claim().await;
        assert_eq!(job.generation, generation, "it is the only one that is ready");
        assert_eq!(self.retry(&job, secs(0)).await, Settled::Dead);
        self.set(|settings| settings.max_attempts = attempts).await;
    }

    // Questions.

    pub(crate) async fn get(&self, name: &str) -> Option<JobView> {
        self.store.get(mail(), id(name)).await.expect("it is answered")
    }

    pub(crate) async fn view(&self, name: &str) -> JobView {
        self.get(name).await.expect("there is such a job")
    }

    /// Jobs of kind `mail`, after changing what is asked for.
    pub(crate) async fn list(&self, change: impl FnOnce(&mut Query)) -> Vec<String> {
        let mut query = Query::new(mail());
        change(&mut query);
        let page = self.store.list(query).await.expect("it is answered");
        page.jobs.iter().map(|job| job.id.to_string()).collect()
    }

    pub(crate) async fn kinds(&self) -> Vec<KindView> {
        self.store.kinds().await.expect("it is answered")
    }

    /// Pending, leased, dead and ready jobs of kind `mail`.
    pub(crate) async fn counts(&self) -> [u64; 4] {
        let views = self.kinds().await;
        let mail = views.iter().find(|view| view.kind == mail());
        let Counts { pending, leased, dead, ready } =
            mail.map_or_else(Counts::default, |view| view.counts);
        [pending, leased, dead, ready]
    }

    // Settings.

    pub(crate) async fn settings(&self) -> Settings {
        self.store.settings(mail()).await.expect("it is answered")
    }

    pub(crate) async fn set(&self, change: impl FnOnce(&mut Settings)) {
        self.set_of("mail", change).await;
    }

    pub(crate) async fn set_of(&self, name: &str, change: impl FnOnce(&mut Settings)) {
        let mut settings = self.store.settings(kind(name)).await.expect("it is answered");
        change(&mut settings);
        self.checked(self.store.set(kind(name), settings).await).expect("they can be set");
    }

    pub(crate) async fn reap(&self) -> usize {
        self.reap_all().await.count
    }

    pub(crate) async fn reap_all(&self) -> Reaped {
        self.checked(self.store.reap(100).await).expect("the reap succeeds")
    }

    /// Whether claims and reaps of this store report expired leases.
    pub(crate) fn reports_expired_leases(&self) -> bool {
        self.fixture.reports_expired_leases()
    }

    // Waiting.

    /// Begins to wait for work, as long as a wait may last, where there is none.
    pub(crate) fn wait(&self) -> Waiting<'_> {
        self.wait_for(secs(3600))
    }

    pub(crate) fn wait_for(&self, limit: Duration) -> Waiting<'_> {
        let mut waiting = self.look_for_work(limit);
        assert!(!waiting.is_over(), "there is nothing to claim, and the wait is over");
        waiting
    }

    /// The same, whether or not there is work.
    pub(crate) fn look_for_work(&self, limit: Duration) -> Waiting<'_> {
        Waiting::new(self.store.wait(vec![mail()], limit), self.fixture.patience())
    }
}
