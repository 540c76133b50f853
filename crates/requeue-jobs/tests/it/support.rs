//! An executor that polls woken tasks, and a store whose calls a test can make fail.

use requeue_jobs::*;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

/// An executor that polls its tasks only in [`run`](Self::run), in the order in which they were
/// spawned.
#[derive(Clone, Default)]
pub(crate) struct Executor {
    spawned: Arc<Mutex<Vec<RunnerFuture>>>,
    tasks: Arc<Mutex<Vec<Task>>>,
}

type Task = (RunnerFuture, Arc<TaskWaker>);

struct TaskWaker(AtomicBool);

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Executor {
    pub(crate) fn spawn(&self, task: RunnerFuture) {
        self.spawned.lock().expect("no panic while it is locked").push(task);
    }

    /// Polls woken tasks until none is left.
    pub(crate) fn run(&self) {
        loop {
            let mut tasks = self.tasks.lock().expect("no panic while it is locked");
            let spawned =
                std::mem::take(&mut *self.spawned.lock().expect("no panic while it is locked"));
            let woken = |task| (task, Arc::new(TaskWaker(AtomicBool::new(true))));
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

    /// Drops all tasks, as a runtime that is shut down does.
    pub(crate) fn kill(&self) {
        let tasks = std::mem::take(&mut *self.tasks.lock().expect("no panic while it is locked"));
        drop(tasks);
    }
}

/// How the store fails one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Does nothing, and fails with [`StoreError::Unavailable`].
    Refuse,
    /// Performs the call, and fails with [`StoreError::Unknown`].
    LoseReply,
    /// Performs the call, and returns a second later.
    Slow,
    /// Never returns, and does nothing.
    Hang,
    /// Panics.
    Panic,
    /// For a claim: reports an error for the first kind, and returns no jobs.
    RefuseKind,
}

/// A memory store whose next settlements and claims fail as the test specifies.
#[derive(Clone)]
pub(crate) struct FaultyStore {
    pub(crate) inner: MemoryStore,
    clock: Clock,
    /// What happens to the next settlements. `None` is no fault.
    pub(crate) settle: Arc<Mutex<VecDeque<Option<Fault>>>>,
    /// What happens to the next claims. `None` is no fault.
    pub(crate) claim: Arc<Mutex<VecDeque<Option<Fault>>>>,
    /// The maximum number of jobs of each claim.
    pub(crate) claim_sizes: Arc<Mutex<Vec<usize>>>,
    /// The number of settlements in each call.
    pub(crate) settle_sizes: Arc<Mutex<Vec<usize>>>,
    /// What happens to the next reaps. `None` is no fault.
    pub(crate) reap: Arc<Mutex<VecDeque<Option<Fault>>>>,
    /// The number of reaps.
    pub(crate) reaps: Arc<AtomicUsize>,
    /// Whether the store says that it needs no reaping.
    pub(crate) is_reaped_elsewhere: Arc<AtomicBool>,
}

impl FaultyStore {
    pub(crate) fn new(inner: MemoryStore, clock: Clock) -> Self {
        FaultyStore {
            inner,
            clock,
            settle: Arc::default(),
            claim: Arc::default(),
            claim_sizes: Arc::default(),
            settle_sizes: Arc::default(),
            reap: Arc::default(),
            reaps: Arc::default(),
            is_reaped_elsewhere: Arc::default(),
        }
    }

    fn fail<'a, T: Send + 'a>(
        &self,
        faults: &Mutex<VecDeque<Option<Fault>>>,
        call: StoreFuture<'a, T>,
    ) -> StoreFuture<'a, T> {
        let reason = || "fault of the test".to_owned();
        match faults.lock().expect("no panic while it is locked").pop_front().flatten() {
            None => call,
            Some(Fault::Refuse) => {
                Box::pin(async move { Err(StoreError::Unavailable { reason: reason() }) })
            }
            Some(Fault::LoseReply) => Box::pin(async move {
                let _lost = call.await;
                Err(StoreError::Unknown { reason: reason() })
            }),
            Some(Fault::Slow) => {
                let clock = self.clock.clone();
                Box::pin(async move {
                    let result = call.await;
                    clock.sleep(Duration::from_secs(1)).await;
                    result
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
        // The worker looks for schedules, too. Only its jobs are counted and fail.
        if claim.kinds[0].as_str() == "requeue.schedules" {
            return self.inner.claim(claim);
        }
        self.claim_sizes.lock().expect("no panic while it is locked").push(claim.max);
        let mut faults = self.claim.lock().expect("no panic while it is locked");
        if faults.front() == Some(&Some(Fault::RefuseKind)) {
            faults.pop_front();
            let error = StoreError::Unavailable { reason: "fault of the test".to_owned() };
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
        let size = settlements.len();
        self.settle_sizes.lock().expect("no panic while it is locked").push(size);
        self.fail(&self.settle, self.inner.settle(settlements))
    }

    fn reap(&self, max: usize) -> StoreFuture<'_, Reaped> {
        self.reaps.fetch_add(1, Ordering::Relaxed);
        self.fail(&self.reap, self.inner.reap(max))
    }

    fn needs_reaping(&self) -> bool {
        !self.is_reaped_elsewhere.load(Ordering::Relaxed)
    }
}

/// What every test of the worker needs: a store, its clock and an executor.
pub(crate) struct TestEnv {
    pub(crate) jobs: Jobs,
    pub(crate) store: FaultyStore,
    pub(crate) clock: ManualClock,
    pub(crate) executor: Executor,
}

impl TestEnv {
    pub(crate) fn new() -> Self {
        let clock = ManualClock::new();
        let wall_clock = WallClock::manual(&clock, Timestamp::from_millis(1_000_000));
        let store = FaultyStore::new(MemoryStore::with(wall_clock.clone()), Clock::from(&clock));
        let jobs = Jobs::with_wall_clock(Arc::new(store.clone()), wall_clock);
        TestEnv { jobs, store, clock, executor: Executor::default() }
    }

    /// Advances the clock `times` times by `step`, and runs the executor after each step.
    pub(crate) fn advance(&self, step: Duration, times: u32) {
        for _ in 0..times {
            self.clock.advance(step);
            self.executor.run();
        }
    }

    pub(crate) fn put(&self, id: &str) {
        requeue_testkit::block_on(self.jobs.put("k", id, "body").into_future())
            .expect("the memory store does not fail");
    }

    pub(crate) fn view(&self, id: &str) -> Option<JobView> {
        requeue_testkit::block_on(self.jobs.get("k", id)).expect("the memory store does not fail")
    }
}
