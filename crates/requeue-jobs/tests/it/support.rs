//! An executor that polls what was woken, and a store that fails when it is told to.

use requeue_jobs::*;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

/// Tasks, polled by whoever calls [`run`](Self::run), in the order in which they were spawned.
#[derive(Clone, Default)]
pub(crate) struct Executor {
    spawned: Arc<Mutex<Vec<RunnerFuture>>>,
    tasks: Arc<Mutex<Vec<Task>>>,
}

type Task = (RunnerFuture, Arc<Flag>);

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Executor {
    pub(crate) fn spawn(&self, task: RunnerFuture) {
        self.spawned.lock().expect("no test panics under it").push(task);
    }

    /// Until nobody has anything to do.
    pub(crate) fn run(&self) {
        loop {
            let mut tasks = self.tasks.lock().expect("no test panics under it");
            let spawned =
                std::mem::take(&mut *self.spawned.lock().expect("no test panics under it"));
            let woken = |task| (task, Arc::new(Flag(AtomicBool::new(true))));
            tasks.extend(spawned.into_iter().map(woken));
            let mut polled = false;
            tasks.retain_mut(|(task, flag)| {
                if !flag.0.swap(false, Ordering::Relaxed) {
                    return true;
                }
                polled = true;
                let waker = Waker::from(Arc::clone(flag));
                task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending()
            });
            if !polled {
                return;
            }
        }
    }

    /// Ends: all tasks are dropped.
    pub(crate) fn kill(&self) {
        let tasks = std::mem::take(&mut *self.tasks.lock().expect("no test panics under it"));
        drop(tasks);
    }
}

/// What a store does with one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Does it not, and says so.
    Refuse,
    /// Does it, and the reply is lost.
    LoseReply,
    /// Does it, and answers a second later.
    Slow,
    /// Never answers, and does nothing.
    Hang,
    /// Panics instead of answering.
    Panic,
    /// Of a claim: says of a kind that it could not be asked.
    RefuseKind,
}

/// A memory store that fails calls as it is told to: the next settlements, and the next claims.
#[derive(Clone)]
pub(crate) struct FaultyStore {
    pub(crate) inner: MemoryStore,
    clock: Clock,
    pub(crate) settle: Arc<Mutex<VecDeque<Option<Fault>>>>,
    pub(crate) claim: Arc<Mutex<VecDeque<Option<Fault>>>>,
    /// How many jobs each claim asked for.
    pub(crate) asked_for: Arc<Mutex<Vec<usize>>>,
}

impl FaultyStore {
    pub(crate) fn new(inner: MemoryStore, clock: Clock) -> Self {
        FaultyStore {
            inner,
            clock,
            settle: Arc::default(),
            claim: Arc::default(),
            asked_for: Arc::default(),
        }
    }

    fn fail<'a, T: Send + 'a>(
        &self,
        faults: &Mutex<VecDeque<Option<Fault>>>,
        answer: StoreFuture<'a, T>,
    ) -> StoreFuture<'a, T> {
        let reason = || "told to".to_owned();
        match faults.lock().expect("no test panics under it").pop_front().flatten() {
            None => answer,
            Some(Fault::Refuse) => {
                Box::pin(async move { Err(StoreError::Unavailable { reason: reason() }) })
            }
            Some(Fault::LoseReply) => Box::pin(async move {
                let _lost = answer.await;
                Err(StoreError::Unknown { reason: reason() })
            }),
            Some(Fault::Slow) => {
                let clock = self.clock.clone();
                Box::pin(async move {
                    let answer = answer.await;
                    clock.sleep(Duration::from_secs(1)).await;
                    answer
                })
            }
            Some(Fault::Panic) => Box::pin(async move { panic!("the store panics") }),
            Some(Fault::Hang | Fault::RefuseKind) => Box::pin(std::future::pending()),
        }
    }
}

impl Layered for FaultyStore {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    fn claim(&self, claim: Claim) -> StoreFuture<'_, Claimed> {
        self.asked_for.lock().expect("no test panics under it").push(claim.max);
        let mut faults = self.claim.lock().expect("no test panics under it");
        if faults.front() == Some(&Some(Fault::RefuseKind)) {
            faults.pop_front();
            let error = StoreError::Unavailable { reason: "told to".to_owned() };
            let errors = vec![(claim.kinds[0].clone(), error)];
            return Box::pin(async move { Ok(Claimed { errors, ..Claimed::default() }) });
        }
        drop(faults);
        self.fail(&self.claim, self.inner.claim(claim))
    }

    fn settle(
        &self,
        settlements: Vec<Settle>,
    ) -> StoreFuture<'_, BatchResults<Settled, SettleError>> {
        self.fail(&self.settle, self.inner.settle(settlements))
    }
}

/// A store, its clock, and an executor.
pub(crate) struct World {
    pub(crate) jobs: Jobs,
    pub(crate) store: FaultyStore,
    pub(crate) clock: ManualClock,
    pub(crate) executor: Executor,
}

impl World {
    pub(crate) fn new() -> Self {
        let clock = ManualClock::new();
        let wall_clock = WallClock::manual(&clock, Timestamp::from_millis(1_000_000));
        let store = FaultyStore::new(MemoryStore::with(wall_clock), Clock::from(&clock));
        let jobs = Jobs::with_clock(Arc::new(store.clone()), &clock);
        World { jobs, store, clock, executor: Executor::default() }
    }

    /// Moves time on by `times` steps, and lets everybody do their work after each.
    pub(crate) fn pass(&self, step: Duration, times: u32) {
        for _ in 0..times {
            self.clock.advance(step);
            self.executor.run();
        }
    }

    pub(crate) fn put(&self, id: &str) {
        requeue_testkit::block_on(self.jobs.put("k", id, "body").into_future())
            .expect("the store in memory does it");
    }

    pub(crate) fn view(&self, id: &str) -> Option<JobView> {
        requeue_testkit::block_on(self.jobs.get("k", id)).expect("the store in memory does it")
    }
}
