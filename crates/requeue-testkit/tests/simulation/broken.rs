//! The memory store with one thing wrong.

use requeue_jobs::{
    BatchResults, Body, Change, ChangeError, ChangeKind, Changed, Claim, Claimed, Condition, Due,
    Fence, JobId, JobState, JobView, Kind, KindView, Mode, Page, Placed, Put, PutError, PutOutcome,
    Query, Reaped, Receipt, Restore, Restored, Schedule, Settings, Settle, SettleError, Settled,
    Settlement, Spans, Store, StoreError, StoreFuture, Tick, Ticked, Timestamp,
};
use requeue_testkit::{Fixture, MemoryFixture};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What is wrong.
#[allow(dead_code, reason = "not every test has a store that is broken in every way")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    LeasesTwice,
    TakesAnyReceipt,
    DeletesBeforeTheAck,
    LosesPuts,
    DeliversEarly,
    EndsBackoffWithAPut,
    RunsTheSuccessorTwice,
    CountsReleases,
    ResetsAttemptsWithAPut,
    ForgetsCancels,
    ExtendsTheEnd,
    SkipsTheFirst,
    PrefersAKind,
    LosesThePlace,
    NeverWakes,
    Miscounts,
    RepeatsOnPages,
    TicksTwice,
    RepeatsFences,
    LowersFences,
    AcksTwice,
    ForgetsAcks,
    RefusesReceipts,
    DeliversOldGenerations,
    NeverBuries,
}

pub(crate) struct BrokenFixture {
    memory: Arc<MemoryFixture>,
    store: Arc<Broken>,
}

impl BrokenFixture {
    pub(crate) fn new(way: Way) -> Self {
        let memory = Arc::new(MemoryFixture::new());
        let now = memory.clone();
        let store = Arc::new(Broken::new(way, memory.store(), move || now.now()));
        BrokenFixture { memory, store }
    }
}

impl Fixture for BrokenFixture {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    fn now(&self) -> Timestamp {
        self.memory.now()
    }

    fn advance(&self, by: Duration) {
        self.memory.advance(by);
    }
}

pub(crate) struct Broken {
    way: Way,
    store: Arc<dyn Store>,
    now: Box<dyn Fn() -> Timestamp + Send + Sync>,
    /// The latest of each job.
    receipts: Mutex<BTreeMap<(Kind, JobId), Receipt>>,
}

type One<'a, T, E> = std::pin::Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'a>>;

impl Broken {
    pub(crate) fn new(
        way: Way,
        store: Arc<dyn Store>,
        now: impl Fn() -> Timestamp + Send + Sync + 'static,
    ) -> Self {
        Broken { way, store, now: Box::new(now), receipts: Mutex::default() }
    }

    fn is(&self, way: Way) -> bool {
        self.way == way
    }

    async fn job(&self, kind: &Kind, id: &JobId) -> Option<JobView> {
        self.store.get(kind.clone(), id.clone()).await.ok().flatten()
    }

    async fn cancel(&self, kind: &Kind, id: &JobId) {
        let change = Change { kind: kind.clone(), id: id.clone(), action: ChangeKind::Cancel };
        let _ = self.store.change(vec![change]).await;
    }

    fn put_one(&self, mut put: Put) -> One<'_, Placed, PutError> {
        Box::pin(async move {
            let job = self.job(&put.kind, &put.id).await;
            let is_pending = job
                .as_ref()
                .is_some_and(|job| matches!(job.state, JobState::Waiting | JobState::Ready));
            let has_failed = is_pending && job.as_ref().is_some_and(|job| job.attempts > 0);
            let replaces = put.condition.is_none() && put.mode == Mode::Replace;
            let mut outcome = None;
            match self.way {
                Way::DeliversEarly => {
                    if let Due::After(delay) = &mut put.due {
                        *delay /= 2;
                    }
                }
                Way::ResetsAttemptsWithAPut if has_failed && replaces => {
                    self.cancel(&put.kind, &put.id).await;
                    outcome = Some(PutOutcome::Updated);
                }
                Way::LosesThePlace
                    if put.due == Due::Now
                        && job.as_ref().is_some_and(|job| job.state == JobState::Ready) =>
                {
                    put.due = Due::After(Duration::from_millis(1));
                }
                _ => {}
            }
            let (kind, id) = (put.kind.clone(), put.id.clone());
            let answer = self.store.put(vec![put]).await?.pop().expect("one answer")?;
            if self.is(Way::EndsBackoffWithAPut) && has_failed {
                let change =
                    Change { kind: kind.clone(), id: id.clone(), action: ChangeKind::RunNow };
                let _ = self.store.change(vec![change]).await;
            }
            if self.is(Way::LosesPuts) && answer.generation.0.is_multiple_of(20) {
                self.cancel(&kind, &id).await;
            }
            Ok(Placed { outcome: outcome.unwrap_or(answer.outcome), ..answer })
        })
    }

    fn settle_one(&self, mut settle: Settle) -> One<'_, Settled, SettleError> {
        Box::pin(async move {
            let (kind, id) = (settle.receipt.kind().clone(), settle.receipt.id().clone());
            let job = self.job(&kind, &id).await;
            let mut released = false;
            if let Way::TakesAnyReceipt | Way::RepeatsFences | Way::LowersFences = self.way {
                let receipts = self.receipts.lock().expect("nobody panics");
                if let Some(receipt) = receipts.get(&(kind.clone(), id.clone())) {
                    settle.receipt = receipt.clone();
                }
            }
            if self.is(Way::ForgetsAcks) && settle.action == Settlement::Ack {
                return Ok(Settled::Done);
            }
            if self.is(Way::RefusesReceipts) && settle.receipt.nonce().is_multiple_of(3) {
                return Err(SettleError::LeaseLost { receipt: settle.receipt });
            }
            if self.is(Way::CountsReleases) && settle.action == Settlement::Release {
                (released, settle.action) =
                    (true, Settlement::Retry { delay: Some(Duration::ZERO), error: String::new() });
            }
            if self.is(Way::ExtendsTheEnd)
                && let Settlement::Extend(length) = &mut settle.action
                && let Some(lease) = job.as_ref().and_then(|job| job.lease.as_ref())
            {
                let left = lease.ends_at.saturating_since((self.now)());
                *length = Some(left + Duration::from_secs(1));
            }
            let action = settle.action.clone();
            let settled = self.store.settle(vec![settle]).await?.pop().expect("one answer");
            let settled = match settled {
                Err(SettleError::LeaseLost { .. })
                    if self.is(Way::AcksTwice) && action == Settlement::Ack =>
                {
                    return Ok(Settled::Done);
                }
                settled => settled?,
            };
            if self.is(Way::RunsTheSuccessorTwice)
                && settled == Settled::Done
                && let Some(next) = job.and_then(|job| job.next)
            {
                let mut put = Put::new(kind, id, next.body);
                put.condition = Some(Condition::IfGeneration(next.generation));
                let _ = self.store.put(vec![put]).await;
            }
            Ok(match settled {
                Settled::RetryAt(_) if released => Settled::Released,
                settled => settled,
            })
        })
    }

    async fn settle_quietly(&self, receipt: &Receipt, action: Settlement) {
        let _ = self.store.settle(vec![Settle { receipt: receipt.clone(), action }]).await;
    }
}

impl Store for Broken {
    fn put(&self, puts: Vec<Put>) -> StoreFuture<'_, BatchResults<Placed, PutError>> {
        Box::pin(async move {
            let mut placed = Vec::new();
            for put in puts {
                placed.push(self.put_one(put).await);
            }
            Ok(placed)
        })
    }

    fn claim(&self, mut claim: Claim) -> StoreFuture<'_, Claimed> {
        Box::pin(async move {
            if self.is(Way::SkipsTheFirst) {
                claim.max += 1;
            }
            let max = claim.max;
            let mut claimed = Claimed::default();
            if self.is(Way::PrefersAKind) {
                let kinds = claim.kinds.split_off(claim.kinds.len() - 1);
                claimed = self.store.claim(Claim { kinds, ..claim.clone() }).await?;
                claim.max -= claimed.jobs.len();
            }
            let rest = self.store.claim(claim).await?;
            claimed.jobs.extend(rest.jobs);
            claimed.expired.extend(rest.expired);
            for job in &claimed.jobs {
                let name = (job.kind().clone(), job.id().clone());
                self.receipts.lock().expect("nobody panics").insert(name, job.receipt.clone());
            }
            match self.way {
                Way::LeasesTwice => {
                    for job in &claimed.jobs {
                        self.settle_quietly(&job.receipt, Settlement::Release).await;
                    }
                }
                Way::DeletesBeforeTheAck => {
                    for job in &claimed.jobs {
                        self.settle_quietly(&job.receipt, Settlement::Ack).await;
                    }
                }
                Way::RepeatsFences | Way::LowersFences => {
                    for job in &mut claimed.jobs {
                        let (kind, id) = (job.kind().clone(), job.id().clone());
                        let rising = job.receipt.fence().0;
                        let fence = if self.is(Way::RepeatsFences) { 7 } else { u64::MAX - rising };
                        job.receipt = Receipt::new(kind, id, Fence(fence), job.receipt.nonce());
                    }
                }
                Way::DeliversOldGenerations => {
                    for job in &mut claimed.jobs {
                        job.generation.0 -= 1;
                    }
                }
                Way::SkipsTheFirst if claimed.jobs.len() == max => {
                    let first = claimed.jobs.remove(0);
                    self.settle_quietly(&first.receipt, Settlement::Release).await;
                }
                _ => {}
            }
            Ok(claimed)
        })
    }

    fn settle(
        &self,
        settlements: Vec<Settle>,
    ) -> StoreFuture<'_, BatchResults<Settled, SettleError>> {
        Box::pin(async move {
            let mut settled = Vec::new();
            for settle in settlements {
                settled.push(self.settle_one(settle).await);
            }
            Ok(settled)
        })
    }

    fn change(&self, changes: Vec<Change>) -> StoreFuture<'_, BatchResults<Changed, ChangeError>> {
        Box::pin(async move {
            let is_cancel = |change: &Change| change.action == ChangeKind::Cancel;
            if self.is(Way::ForgetsCancels) && changes.iter().all(is_cancel) {
                return Ok(changes.into_iter().map(|_| Ok(Changed::Removed)).collect());
            }
            self.store.change(changes).await
        })
    }

    fn wait(&self, kinds: Vec<Kind>, limit: Duration) -> StoreFuture<'_, ()> {
        match self.way {
            Way::NeverWakes => Box::pin(std::future::pending()),
            _ => self.store.wait(kinds, limit),
        }
    }

    fn restore(&self, restore: Restore) -> StoreFuture<'_, BatchResults<Restored, StoreError>> {
        self.store.restore(restore)
    }

    fn reap(&self, max: usize) -> StoreFuture<'_, Reaped> {
        self.store.reap(max)
    }

    fn get(&self, kind: Kind, id: JobId) -> StoreFuture<'_, Option<JobView>> {
        self.store.get(kind, id)
    }

    fn list(&self, mut query: Query) -> StoreFuture<'_, Page> {
        Box::pin(async move {
            let again = query.after.take_if(|_| self.is(Way::RepeatsOnPages));
            let Some(after) = again else { return self.store.list(query).await };
            let repeated = self.store.get(query.kind.clone(), after.clone()).await?;
            query.after = Some(after);
            let mut page = self.store.list(query).await?;
            page.jobs.splice(0..0, repeated);
            Ok(page)
        })
    }

    fn kinds(&self) -> StoreFuture<'_, Vec<KindView>> {
        Box::pin(async move {
            let mut kinds = self.store.kinds().await?;
            if self.is(Way::Miscounts) {
                kinds.iter_mut().for_each(|kind| kind.counts.leased += kind.counts.dead);
            }
            Ok(kinds)
        })
    }

    fn upcoming(&self, kind: Kind, spans: Spans) -> StoreFuture<'_, Vec<u64>> {
        self.store.upcoming(kind, spans)
    }

    fn settings(&self, kind: Kind) -> StoreFuture<'_, Settings> {
        self.store.settings(kind)
    }

    fn set(&self, kind: Kind, mut settings: Settings) -> StoreFuture<'_, ()> {
        if self.is(Way::NeverBuries) {
            settings.max_attempts = u32::MAX;
        }
        self.store.set(kind, settings)
    }

    fn set_schedule(&self, kind: Kind, schedule: Schedule) -> StoreFuture<'_, ()> {
        self.store.set_schedule(kind, schedule)
    }

    fn remove_schedule(&self, kind: Kind, id: JobId) -> StoreFuture<'_, bool> {
        self.store.remove_schedule(kind, id)
    }

    fn schedules(&self, kind: Kind) -> StoreFuture<'_, Vec<Schedule>> {
        self.store.schedules(kind)
    }

    fn tick(&self, tick: Tick) -> StoreFuture<'_, Ticked> {
        Box::pin(async move {
            let ticked = self.store.tick(tick.clone()).await?;
            if !matches!((self.way, ticked), (Way::TicksTwice, Ticked::Moved(_))) {
                return Ok(ticked);
            }
            let put = Put::new(tick.kind, tick.id, Body::default());
            let mut placed = self.store.put(vec![put]).await?;
            Ok(placed.pop().and_then(Result::ok).map_or(ticked, Ticked::Put))
        })
    }
}
