//! A store that fails when it is told to.
//!
//! [`Faulty`] stands before another store and does to its calls what networks and processes
//! do: refuses them, loses their answers, holds them up, dies with them in hand. Which call, is
//! said by its number or left to a seed; what the store behind it does is not touched.

use crate::random::Random;
use requeue_jobs::{
    BatchResults, Change, ChangeError, Changed, Claim, Claimed, JobId, JobView, Kind, KindView,
    Page, Placed, Put, PutError, Query, Reaped, Restore, Restored, Schedule, Settings, Settle,
    SettleError, Settled, Spans, Store, StoreError, StoreFuture, Tick, Ticked,
};
use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// It is not done, and the caller knows.
    Refused,
    /// It is done, and the caller does not know.
    LostReply,
    /// It is not done until [`Faulty::let_go`].
    SlowCall,
    /// It is done, and not answered until [`Faulty::let_go`].
    SlowReply,
    /// It is not done, the caller does not know, and all later calls are refused until
    /// [`Faulty::restart`].
    CrashBefore,
    /// The same, but it is done.
    CrashAfter,
}

/// A store with faults.
///
/// ```
/// use requeue_jobs::{Store, StoreError};
/// use requeue_testkit::{Fault, Faulty, Fixture, MemoryFixture, block_on};
///
/// let store = Faulty::new(MemoryFixture::new().store());
/// store.at(2, Fault::Refused);
/// assert!(block_on(store.reap(1)).is_ok());
/// assert!(matches!(block_on(store.reap(1)), Err(StoreError::Unavailable { .. })));
/// assert!(block_on(store.reap(1)).is_ok());
/// ```
pub struct Faulty {
    store: Arc<dyn Store>,
    plan: Mutex<Plan>,
}

/// What is to happen, and what has.
#[derive(Default)]
struct Plan {
    calls: u64,
    at: BTreeMap<u64, Fault>,
    chance: Option<Chance>,
    crashed: bool,
    /// How often it crashed.
    crashes: u64,
    /// How often slow calls were let go.
    let_go: u64,
    held_up: Vec<Waker>,
}

struct Chance {
    random: Random,
    percent: usize,
    faults: Vec<Fault>,
}

impl Plan {
    fn next_fault(&mut self) -> Option<Fault> {
        self.calls += 1;
        if self.crashed {
            return Some(Fault::Refused);
        }
        let fault = self.at.remove(&self.calls).or_else(|| {
            let Chance { random, percent, faults } = self.chance.as_mut()?;
            random.chance(*percent).then(|| *random.pick(faults))
        });
        self.crashed = matches!(fault, Some(Fault::CrashBefore | Fault::CrashAfter));
        self.crashes += u64::from(self.crashed);
        fault
    }
}

impl Faulty {
    /// No faults yet.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Faulty { store, plan: Mutex::default() }
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The `n`-th call from now on, 1 being the next, has this fault.
    pub fn at(&self, n: u64, fault: Fault) {
        let mut plan = self.plan();
        let call = plan.calls + n;
        plan.at.insert(call, fault);
    }

    /// So many of a hundred calls have one of these faults; which, the seed says.
    pub fn by_chance(&self, seed: u64, percent: usize, faults: &[Fault]) {
        let (random, faults) = (Random::new(seed), faults.to_vec());
        self.plan().chance = Some(Chance { random, percent, faults });
    }

    /// No more faults, and those that there are end.
    pub fn heal(&self) {
        let mut plan = self.plan();
        plan.chance = None;
        plan.at.clear();
        plan.crashed = false;
        drop(plan);
        self.let_go();
    }

    /// Slow calls go on.
    pub fn let_go(&self) {
        let mut plan = self.plan();
        plan.let_go += 1;
        let held_up = std::mem::take(&mut plan.held_up);
        drop(plan);
        held_up.into_iter().for_each(Waker::wake);
    }

    /// The store is there again after a crash. Calls that were held up have lost their answers.
    pub fn restart(&self) {
        self.plan().crashed = false;
        self.let_go();
    }

    /// Whether it has crashed.
    pub fn is_crashed(&self) -> bool {
        self.plan().crashed
    }

    /// How many calls there were, those with faults included.
    pub fn calls(&self) -> u64 {
        self.plan().calls
    }

    /// Until slow calls are let go. What a crash met meanwhile is lost.
    async fn hold_up(&self) -> Result<(), StoreError> {
        let (before, crashes) = {
            let plan = self.plan();
            (plan.let_go, plan.crashes)
        };
        poll_fn(|cx| {
            let mut plan = self.plan();
            if plan.let_go > before {
                return Poll::Ready(());
            }
            plan.held_up.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
        if self.plan().crashes == crashes { Ok(()) } else { Err(unknown()) }
    }

    fn call<'a, T: Send + 'a>(
        &'a self,
        call: impl FnOnce(&'a dyn Store) -> StoreFuture<'a, T> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        Box::pin(async move {
            let fault = self.plan().next_fault();
            match fault {
                None => call(&*self.store).await,
                Some(Fault::Refused) => {
                    Err(StoreError::Unavailable { reason: "a fault was injected".to_owned() })
                }
                Some(Fault::LostReply | Fault::CrashAfter) => {
                    call(&*self.store).await?;
                    Err(unknown())
                }
                Some(Fault::CrashBefore) => Err(unknown()),
                Some(Fault::SlowCall) => {
                    self.hold_up().await?;
                    call(&*self.store).await
                }
                Some(Fault::SlowReply) => {
                    let answer = call(&*self.store).await;
                    self.hold_up().await?;
                    answer
                }
            }
        })
    }
}

fn unknown() -> StoreError {
    StoreError::Unknown { reason: "a fault was injected".to_owned() }
}

impl Store for Faulty {
    fn put(&self, puts: Vec<Put>) -> StoreFuture<'_, BatchResults<Placed, PutError>> {
        self.call(|store| store.put(puts))
    }

    fn claim(&self, claim: Claim) -> StoreFuture<'_, Claimed> {
        self.call(|store| store.claim(claim))
    }

    fn settle(
        &self,
        settlements: Vec<Settle>,
    ) -> StoreFuture<'_, BatchResults<Settled, SettleError>> {
        self.call(|store| store.settle(settlements))
    }

    fn change(&self, changes: Vec<Change>) -> StoreFuture<'_, BatchResults<Changed, ChangeError>> {
        self.call(|store| store.change(changes))
    }

    fn restore(&self, restore: Restore) -> StoreFuture<'_, BatchResults<Restored, StoreError>> {
        self.call(|store| store.restore(restore))
    }

    fn wait(&self, kinds: Vec<Kind>, limit: Duration) -> StoreFuture<'_, ()> {
        self.call(move |store| store.wait(kinds, limit))
    }

    fn reap(&self, max: usize) -> StoreFuture<'_, Reaped> {
        self.call(move |store| store.reap(max))
    }

    fn get(&self, kind: Kind, id: JobId) -> StoreFuture<'_, Option<JobView>> {
        self.call(|store| store.get(kind, id))
    }

    fn list(&self, query: Query) -> StoreFuture<'_, Page> {
        self.call(|store| store.list(query))
    }

    fn kinds(&self) -> StoreFuture<'_, Vec<KindView>> {
        self.call(|store| store.kinds())
    }

    fn upcoming(&self, kind: Kind, spans: Spans) -> StoreFuture<'_, Vec<u64>> {
        self.call(move |store| store.upcoming(kind, spans))
    }

    fn settings(&self, kind: Kind) -> StoreFuture<'_, Settings> {
        self.call(|store| store.settings(kind))
    }

    fn set(&self, kind: Kind, settings: Settings) -> StoreFuture<'_, ()> {
        self.call(|store| store.set(kind, settings))
    }

    fn set_schedule(&self, kind: Kind, schedule: Schedule) -> StoreFuture<'_, ()> {
        self.call(|store| store.set_schedule(kind, schedule))
    }

    fn remove_schedule(&self, kind: Kind, id: JobId) -> StoreFuture<'_, bool> {
        self.call(|store| store.remove_schedule(kind, id))
    }

    fn schedules(&self, kind: Kind) -> StoreFuture<'_, Vec<Schedule>> {
        self.call(|store| store.schedules(kind))
    }

    fn tick(&self, tick: Tick) -> StoreFuture<'_, Ticked> {
        self.call(|store| store.tick(tick))
    }
}

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plan = self.plan();
        f.debug_struct("Faulty")
            .field("calls", &plan.calls)
            .field("crashed", &plan.crashed)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Fixture, MemoryFixture, block_on};
    use requeue_jobs::Body;
    use std::pin::Pin;
    use std::task::Context;

    fn kind() -> Kind {
        Kind::new("k").unwrap()
    }

    fn id() -> JobId {
        JobId::new("a").unwrap()
    }

    fn put(store: &Faulty) -> StoreFuture<'_, BatchResults<Placed, PutError>> {
        store.put(vec![Put::new(kind(), id(), Body::default())])
    }

    fn faulty() -> Faulty {
        Faulty::new(MemoryFixture::new().store())
    }

    /// Asks the store behind, where there are no faults.
    fn was_put(store: &Faulty) -> bool {
        block_on(store.store.get(kind(), id())).unwrap().is_some()
    }

    fn polled<T>(answer: &mut Pin<Box<dyn Future<Output = T> + Send + '_>>) -> Option<T> {
        match answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_refused_call_is_not_done() {
        let store = faulty();
        store.at(1, Fault::Refused);
        assert!(matches!(block_on(put(&store)), Err(StoreError::Unavailable { .. })));
        assert!(!was_put(&store));
        assert!(block_on(put(&store)).is_ok());
    }

    #[test]
    fn a_call_whose_reply_is_lost_is_done() {
        let store = faulty();
        store.at(1, Fault::LostReply);
        assert!(matches!(block_on(put(&store)), Err(StoreError::Unknown { .. })));
        assert!(was_put(&store));
    }

    #[test]
    fn a_slow_call_is_done_when_it_is_let_go() {
        let store = faulty();
        store.at(1, Fault::SlowCall);
        let mut slow = put(&store);
        assert!(polled(&mut slow).is_none());
        assert!(!was_put(&store));
        store.let_go();
        assert!(polled(&mut slow).is_some_and(|answer| answer.is_ok()));
    }

    #[test]
    fn a_slow_reply_is_of_a_call_that_was_done() {
        let store = faulty();
        store.at(1, Fault::SlowReply);
        let mut slow = put(&store);
        assert!(polled(&mut slow).is_none());
        assert!(was_put(&store));
        assert!(polled(&mut slow).is_none());
        store.let_go();
        assert!(polled(&mut slow).is_some_and(|answer| answer.is_ok()));
    }

    #[test]
    fn after_a_crash_all_calls_are_refused_until_the_restart() {
        for (fault, done) in [(Fault::CrashBefore, false), (Fault::CrashAfter, true)] {
            let store = faulty();
            store.at(1, fault);
            assert!(matches!(block_on(put(&store)), Err(StoreError::Unknown { .. })));
            assert_eq!(was_put(&store), done);
            assert!(matches!(block_on(store.kinds()), Err(StoreError::Unavailable { .. })));
            store.restart();
            assert!(block_on(store.kinds()).is_ok());
        }
    }

    #[test]
    fn what_a_crash_meets_on_its_way_is_unknown() {
        let store = faulty();
        store.at(1, Fault::SlowReply);
        store.at(2, Fault::CrashBefore);
        let mut slow = put(&store);
        assert!(polled(&mut slow).is_none());
        assert!(block_on(store.reap(1)).is_err());
        store.restart();
        assert!(matches!(polled(&mut slow), Some(Err(StoreError::Unknown { .. }))));
    }

    #[test]
    fn chance_does_the_same_for_the_same_seed_and_ends_when_healed() {
        let outcomes = || {
            let store = faulty();
            store.by_chance(7, 50, &[Fault::Refused, Fault::LostReply]);
            let outcomes: Vec<bool> = (0..100).map(|_| block_on(put(&store)).is_ok()).collect();
            store.heal();
            assert!((0..100).all(|_| block_on(put(&store)).is_ok()));
            outcomes
        };
        let first = outcomes();
        assert_eq!(first, outcomes());
        assert!(first.contains(&true) && first.contains(&false));
    }
}
