//! A store that injects faults.
//!
//! [`Faulty`] wraps another store and does to its calls what networks and processes do: it refuses
//! them, loses their responses, delays them, or crashes during them. A test chooses the call by its
//! number, or leaves the choice to a seed. The wrapped store itself is not changed.

use crate::random::Random;
use requeue_jobs::{Layered, Store, StoreError, StoreFuture, StoreMethod};
use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// A fault that happens to one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The call is not executed. It fails with [`StoreError::Unavailable`].
    Refused,
    /// The call is executed, and fails with [`StoreError::Unknown`].
    LostReply,
    /// The call is not executed until [`Faulty::let_go`].
    SlowCall,
    /// The call is executed, and does not return until [`Faulty::let_go`].
    SlowReply,
    /// The call is not executed and fails with [`StoreError::Unknown`]. All later calls are refused
    /// until [`Faulty::restart`].
    CrashBefore,
    /// Like [`CrashBefore`](Self::CrashBefore), but the call is executed.
    CrashAfter,
}

/// A store that wraps another one and injects faults into its calls.
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

/// The planned faults, and the state of the simulated connection.
#[derive(Default)]
struct Plan {
    calls: u64,
    at: BTreeMap<u64, Fault>,
    chance: Option<Chance>,
    crashed: bool,
    /// The number of crashes so far.
    crashes: u64,
    /// How many times slow calls were resumed.
    resumed: u64,
    slow_calls: Vec<Waker>,
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
    /// Wraps `store`. No faults are planned yet.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Faulty { store, plan: Mutex::default() }
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Injects `fault` into the `n`-th call from now on. The next call is number 1.
    pub fn at(&self, n: u64, fault: Fault) {
        let mut plan = self.plan();
        let call = plan.calls + n;
        plan.at.insert(call, fault);
    }

    /// Injects one of `faults` into `percent` of all calls. The seed decides which calls and faults.
    pub fn by_chance(&self, seed: u64, percent: usize, faults: &[Fault]) {
        let (random, faults) = (Random::new(seed), faults.to_vec());
        self.plan().chance = Some(Chance { random, percent, faults });
    }

    /// Cancels all planned faults, restarts the store and resumes slow calls.
    pub fn heal(&self) {
        let mut plan = self.plan();
        plan.chance = None;
        plan.at.clear();
        plan.crashed = false;
        drop(plan);
        self.let_go();
    }

    /// Resumes all slow calls.
    pub fn let_go(&self) {
        let mut plan = self.plan();
        plan.resumed += 1;
        let slow_calls = std::mem::take(&mut plan.slow_calls);
        drop(plan);
        slow_calls.into_iter().for_each(Waker::wake);
    }

    /// Makes the store available again after a crash. Calls that were slow during the crash fail
    /// with [`StoreError::Unknown`].
    pub fn restart(&self) {
        self.plan().crashed = false;
        self.let_go();
    }

    /// Returns whether the store has crashed and was not restarted.
    pub fn is_crashed(&self) -> bool {
        self.plan().crashed
    }

    /// Returns the number of calls so far, including those with faults.
    pub fn calls(&self) -> u64 {
        self.plan().calls
    }

    /// Waits until slow calls are resumed. Fails if the store crashed in the meantime.
    async fn delay(&self) -> Result<(), StoreError> {
        let (before, crashes) = {
            let plan = self.plan();
            (plan.resumed, plan.crashes)
        };
        poll_fn(|cx| {
            let mut plan = self.plan();
            if plan.resumed > before {
                return Poll::Ready(());
            }
            plan.slow_calls.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
        if self.plan().crashes == crashes { Ok(()) } else { Err(unknown()) }
    }
}

fn unknown() -> StoreError {
    StoreError::Unknown { reason: "a fault was injected".to_owned() }
}

impl Layered for Faulty {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    fn around<'a, T: Send + 'a>(
        &'a self,
        _: StoreMethod,
        call: impl for<'s> FnOnce(&'s dyn Store) -> StoreFuture<'s, T> + Send + 'a,
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
                    self.delay().await?;
                    call(&*self.store).await
                }
                Some(Fault::SlowReply) => {
                    let result = call(&*self.store).await;
                    self.delay().await?;
                    result
                }
            }
        })
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
    use super::{Fault, Faulty};
    use crate::fixture::{Fixture, MemoryFixture, block_on};
    use requeue_jobs::{
        BatchResults, Body, JobId, Kind, Placed, Put, PutError, Store, StoreError, StoreFuture,
    };
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

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

    /// Reads from the wrapped store, without faults.
    fn was_put(store: &Faulty) -> bool {
        block_on(store.store.get(kind(), id())).unwrap().is_some()
    }

    fn polled<T>(call: &mut Pin<Box<dyn Future<Output = T> + Send + '_>>) -> Option<T> {
        match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => Some(result),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_refused_call_is_not_executed() {
        let store = faulty();
        store.at(1, Fault::Refused);
        assert!(matches!(block_on(put(&store)), Err(StoreError::Unavailable { .. })));
        assert!(!was_put(&store));
        assert!(block_on(put(&store)).is_ok());
    }

    #[test]
    fn a_call_with_a_lost_reply_is_executed() {
        let store = faulty();
        store.at(1, Fault::LostReply);
        assert!(matches!(block_on(put(&store)), Err(StoreError::Unknown { .. })));
        assert!(was_put(&store));
    }

    #[test]
    fn a_slow_call_is_executed_when_it_is_resumed() {
        let store = faulty();
        store.at(1, Fault::SlowCall);
        let mut slow = put(&store);
        assert!(polled(&mut slow).is_none());
        assert!(!was_put(&store));
        store.let_go();
        assert!(polled(&mut slow).is_some_and(|result| result.is_ok()));
    }

    #[test]
    fn a_call_with_a_slow_reply_is_executed_immediately() {
        let store = faulty();
        store.at(1, Fault::SlowReply);
        let mut slow = put(&store);
        assert!(polled(&mut slow).is_none());
        assert!(was_put(&store));
        assert!(polled(&mut slow).is_none());
        store.let_go();
        assert!(polled(&mut slow).is_some_and(|result| result.is_ok()));
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
    fn a_crash_makes_the_outcome_of_slow_calls_unknown() {
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
    fn random_faults_repeat_for_the_same_seed_and_end_when_healed() {
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
