//! The guarantees of [`JobWorker`], on a manual clock.

use crate::support::{Executor, Fault, TestEnv};
use requeue_jobs::limits::MAX_DELAY;
use requeue_jobs::{
    BoxError, JobOutcome, JobRun, JobState, JobWorker, Next, Outcome, RunnerFuture, RunningJobs,
    Settings, SettleError, Store, StoreError,
};
use requeue_testkit::block_on;
use std::future::{Future, pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

pub(crate) const SECOND: Duration = Duration::from_secs(1);
/// A third of a lease.
pub(crate) const THIRD: Duration = Duration::from_secs(10);

/// What callbacks and handlers of a worker recorded.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(crate) fn record(&self, line: impl Into<String>) {
        self.0.lock().expect("no panic while it is locked").push(line.into());
    }

    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().expect("no panic while it is locked"))
    }
}

impl TestEnv {
    /// A worker whose callbacks record in the log what happens to its jobs.
    pub(crate) fn worker(&self, log: &Log) -> JobWorker {
        let [failures, dead, lost, errors] = [(); 4].map(|()| log.clone());
        JobWorker::new(&self.jobs, ["k"], "w")
            .expect("the argument is valid")
            .lease(3 * THIRD)
            .expect("the argument is valid")
            .on_failure(move |failed| {
                let next = match failed.next {
                    Next::RetryIn(delay) => format!("again in {delay:?}"),
                    next => format!("{next:?}"),
                };
                failures.record(format!("{} {}: {}", failed.job.id(), failed.cause, next));
            })
            .on_dead(move |failed| dead.record(format!("{} is dead", failed.job.id())))
            .on_lost(move |job, error| {
                let error = match error {
                    SettleError::LeaseLost { .. } => "lost".to_owned(),
                    error => error.to_string(),
                };
                lost.record(format!("{} is gone: {error}", job.id()));
            })
            .on_store_error(move |error| {
                errors.record(match error {
                    StoreError::Unavailable { .. } => "unavailable",
                    StoreError::Unknown { .. } => "unknown",
                    _ => "invalid",
                });
            })
    }

    pub(crate) fn spawn<F, Fut>(&self, worker: JobWorker, handler: F) -> RunningJobs
    where
        F: Fn(JobRun) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Outcome, BoxError>> + Send + 'static,
    {
        let executor = self.executor.clone();
        let running = worker.spawn_with(move |task| executor.spawn(task), handler);
        self.executor.run();
        running
    }

    /// Puts a job, and runs a worker with this handler until it waits. Returns what its callbacks
    /// recorded.
    fn process_one<F, Fut>(&self, handler: F) -> Vec<String>
    where
        F: Fn(JobRun) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Outcome, BoxError>> + Send + 'static,
    {
        let log = Log::default();
        self.backoff_without_jitter();
        self.put("i");
        self.spawn(self.worker(&log), handler);
        log.take()
    }

    pub(crate) fn backoff_without_jitter(&self) {
        let mut settings = Settings::default();
        settings.backoff.jitter_percent = 0;
        let kind = requeue_jobs::Kind::new("k").expect("the argument is valid");
        block_on(self.store.inner.set(kind, settings)).expect("the argument is valid");
    }

    /// Spawns the task that claims on the executor of the environment, and each attempt on this one.
    fn attempts_on(&self, attempts: &Executor) -> impl Fn(RunnerFuture) + Send + Sync + use<> {
        let (claims, attempts) = (self.executor.clone(), attempts.clone());
        let is_attempt = AtomicBool::new(false);
        move |task| match is_attempt.swap(true, Ordering::Relaxed) {
            false => claims.spawn(task),
            true => attempts.spawn(task),
        }
    }

    pub(crate) fn fail_settlements(&self, faults: impl IntoIterator<Item = Fault>) {
        self.store
            .settle
            .lock()
            .expect("no panic while it is locked")
            .extend(faults.into_iter().map(Some));
    }
}

/// Records in the log when it is dropped.
pub(crate) struct DropRecorder(pub(crate) Log);

impl Drop for DropRecorder {
    fn drop(&mut self) {
        self.0.record("stopped");
    }
}

/// Waits until the test sets `go`.
pub(crate) fn wait_until(go: &Arc<AtomicBool>) -> impl Future<Output = ()> + Send + use<> {
    let go = Arc::clone(go);
    // No waker is needed: the worker polls it whenever it extends the lease.
    poll_fn(move |_| if go.load(Ordering::Relaxed) { Poll::Ready(()) } else { Poll::Pending })
}

pub(crate) fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn done_deletes_the_job() {
    let env = TestEnv::new();
    let recorded = env.process_one(|run| async move {
        assert_eq!(
            (run.job.id().as_str(), run.job.body().bytes(), run.attempt),
            ("i", &b"body"[..], 1)
        );
        Ok(Outcome::Done)
    });
    assert_eq!((recorded, env.view("i")), (vec![], None));
}

#[test]
fn a_handler_may_return_unit() {
    let env = TestEnv::new();
    env.put("i");
    let executor = env.executor.clone();
    let worker = env.worker(&Log::default());
    worker.spawn_with(move |task| executor.spawn(task), |_run| async { Ok(()) });
    env.executor.run();
    assert_eq!(env.view("i"), None);
}

#[test]
fn a_failure_reports_how_long_the_handler_ran() {
    let env = TestEnv::new();
    env.put("i");
    let (log, clock, executor) = (Log::default(), env.clock.clone(), env.executor.clone());
    let took = log.clone();
    let worker = JobWorker::new(&env.jobs, ["k"], "w").expect("the argument is valid");
    worker.on_failure(move |failure| took.record(format!("{:?}", failure.took))).spawn_with(
        move |task| executor.spawn(task),
        move |_run| {
            clock.advance(3 * SECOND);
            std::future::ready(Ok(Outcome::give_up("no such order")))
        },
    );
    env.executor.run();
    assert_eq!(log.take(), ["3s"]);
}

#[test]
fn a_retry_is_due_after_the_backoff() {
    let env = TestEnv::new();
    let recorded = env.process_one(|run| async move {
        Ok(if run.attempt < 3 { Outcome::Retry } else { Outcome::Done })
    });
    assert_eq!(recorded, ["i the handler requested a retry: again in 1s"]);
    let job = env.view("i").unwrap();
    assert_eq!((job.state, job.attempts), (JobState::Waiting, 1));
    assert_eq!(job.failures[0].worker.as_str(), "w");
    env.advance(SECOND, 3);
    assert_eq!(env.view("i"), None);
}

#[test]
fn a_retry_with_a_delay_of_its_own_is_due_after_that_and_counts_as_a_failure() {
    let (env, log) = (TestEnv::new(), Log::default());
    env.put("i");
    let executor = env.executor.clone();
    env.worker(&log).spawn_with(
        move |task| executor.spawn(task),
        |run| async move {
            Ok(match run.attempt {
                1 => JobOutcome::retry_after(7 * SECOND, "the bank is busy"),
                2 => JobOutcome::retry_after(Duration::MAX, "the bank is closed"),
                _ => JobOutcome::from(()),
            })
        },
    );
    env.executor.run();
    assert_eq!(log.take(), ["i the bank is busy: again in 7s"]);
    let job = env.view("i").unwrap();
    assert_eq!((job.state, job.attempts), (JobState::Waiting, 1));
    assert_eq!(job.failures[0].error.as_deref(), Some("the bank is busy"));
    env.advance(SECOND, 7);
    assert_eq!(log.take(), [format!("i the bank is closed: again in {MAX_DELAY:?}")]);
}

#[test]
fn an_error_is_a_retry_and_the_job_keeps_its_text() {
    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct ChainedError(&'static str, #[source] Option<Box<ChainedError>>);
    let env = TestEnv::new();
    let recorded = env.process_one(|_| async {
        let bank = ChainedError("the bank", Some(Box::new(ChainedError("is busy", None))));
        Err(ChainedError("no money", Some(Box::new(bank))).into())
    });
    assert_eq!(recorded, ["i no money: again in 1s"]);
    let error = env.view("i").unwrap().failures[0].error.clone();
    assert_eq!(error.as_deref(), Some("no money: the bank: is busy"));
}

#[test]
fn a_panic_is_a_failed_attempt() {
    type Handled = Pin<Box<dyn Future<Output = Result<Outcome, BoxError>> + Send>>;
    struct PanicOnDrop;
    impl Drop for PanicOnDrop {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }
    for (when, message) in [(0, "called"), (1, "polled"), (2, "dropped")] {
        let env = TestEnv::new();
        let recorded = env.process_one(move |_| -> Handled {
            assert_ne!(when, 0, "called");
            let guard = (when == 2).then(|| PanicOnDrop);
            Box::pin(poll_fn(move |_| {
                assert_ne!(when, 1, "polled");
                let _guard = &guard;
                Poll::Ready(Ok(Outcome::Done))
            }))
        });
        assert_eq!(recorded.len(), 1, "{recorded:?}");
        assert!(recorded[0].contains("panicked") && recorded[0].contains(message), "{recorded:?}");
        assert_eq!(env.view("i").unwrap().attempts, 1);
    }
}

#[test]
fn a_handler_that_blocks_beyond_the_timeout_has_failed_whatever_it_returns() {
    let env = TestEnv::new();
    let log = Log::default();
    env.backoff_without_jitter();
    env.put("i");
    let clock = env.clock.clone();
    env.spawn(env.worker(&log).timeout(5 * SECOND), move |_| {
        let clock = clock.clone();
        async move {
            clock.advance(5 * SECOND);
            Ok(Outcome::Done)
        }
    });
    assert_eq!(log.take(), ["i timed out: again in 1s"]);
}

#[test]
fn a_handler_is_not_polled_after_the_timeout() {
    let env = TestEnv::new();
    let log = Log::default();
    env.put("i");
    let polls = log.clone();
    env.spawn(env.worker(&log).timeout(5 * SECOND), move |_| {
        let polls = polls.clone();
        poll_fn(move |_| {
            polls.record("polled");
            Poll::Pending
        })
    });
    assert_eq!(log.take(), ["polled"]);
    env.advance(5 * SECOND, 1);
    assert!(!log.take().contains(&"polled".to_owned()));
}

#[test]
fn an_attempt_that_takes_longer_than_the_timeout_has_failed() {
    let env = TestEnv::new();
    let log = Log::default();
    env.backoff_without_jitter();
    env.put("i");
    let guard = log.clone();
    env.spawn(env.worker(&log).timeout(5 * SECOND), move |run| {
        let guard = DropRecorder(guard.clone());
        async move {
            assert_eq!(run.remaining(), Some(5 * SECOND));
            let _guard = guard;
            pending().await
        }
    });
    env.advance(SECOND, 4);
    assert!(log.take().is_empty());
    env.advance(SECOND, 1);
    assert_eq!(log.take(), ["stopped", "i timed out: again in 1s"]);
    assert_eq!(env.view("i").unwrap().attempts, 1);
}

#[test]
fn after_give_up_the_job_is_dead() {
    let env = TestEnv::new();
    let recorded = env.process_one(|_| async { Ok(Outcome::give_up("no such order")) });
    assert_eq!(recorded, ["i no such order: Dead", "i is dead"]);
    let job = env.view("i").unwrap();
    assert_eq!(job.failures[0].error.as_deref(), Some("no such order"));
    assert_eq!((job.state, job.attempts), (JobState::Dead, 1));
}

#[test]
fn a_job_whose_attempts_are_used_up_is_dead() {
    let env = TestEnv::new();
    let log = Log::default();
    let mut settings = Settings::default();
    settings.max_attempts = 2;
    settings.backoff.base = Duration::ZERO;
    let kind = requeue_jobs::Kind::new("k").unwrap();
    block_on(env.store.inner.set(kind, settings)).unwrap();
    env.put("i");
    env.spawn(env.worker(&log), |_| async { Ok(Outcome::Retry) });
    let recorded = log.take();
    assert_eq!(recorded[1..], ["i the handler requested a retry: Dead", "i is dead"]);
}

#[test]
fn a_requeued_job_is_due_after_the_delay_and_no_failure_is_counted() {
    let env = TestEnv::new();
    let runs = Log::default();
    let log = runs.clone();
    env.process_one(move |run| {
        log.record(format!("{} {}", run.job.id(), run.attempt));
        async { Ok(Outcome::RequeueAfter(5 * SECOND)) }
    });
    env.advance(SECOND, 4);
    assert_eq!(runs.take(), ["i 1"]);
    env.advance(SECOND, 1);
    assert_eq!(runs.take(), ["i 1"]);
    assert_eq!(env.view("i").unwrap().attempts, 0);
}

#[test]
fn a_requeue_delay_above_the_maximum_is_reduced() {
    let env = TestEnv::new();
    let recorded = env.process_one(|_| async { Ok(Outcome::RequeueAfter(Duration::MAX)) });
    assert!(recorded.is_empty());
    assert_eq!(env.view("i").unwrap().state, JobState::Waiting);
}

#[test]
fn a_long_attempt_keeps_its_lease() {
    let env = TestEnv::new();
    let go = Arc::new(AtomicBool::new(false));
    let handler = Arc::clone(&go);
    let recorded = env.process_one(move |_| {
        let run = wait_until(&handler);
        async {
            run.await;
            Ok(Outcome::Done)
        }
    });
    // Another worker finds nothing to claim, for the time of more than ten leases.
    for _ in 0..100 {
        env.advance(THIRD / 3, 1);
        let claimed = block_on(env.jobs.claim(["k"], "other").into_future()).unwrap();
        assert!(claimed.jobs.is_empty());
    }
    go.store(true, Ordering::Relaxed);
    env.advance(THIRD, 1);
    assert_eq!((recorded, env.view("i")), (vec![], None));
}

#[test]
fn a_lost_lease_stops_the_handler_and_is_reported() {
    let env = TestEnv::new();
    let log = Log::default();
    env.put("i");
    let guard = log.clone();
    env.spawn(env.worker(&log), move |_| {
        let guard = DropRecorder(guard.clone());
        async move {
            let _guard = guard;
            pending().await
        }
    });
    // The worker is not polled for so long that another worker claims the job.
    env.clock.advance(4 * THIRD);
    let other = block_on(env.jobs.claim(["k"], "other").into_future()).unwrap();
    assert_eq!(other.jobs[0].attempt, 2);
    env.executor.run();
    assert_eq!(log.take(), ["stopped", "i is gone: lost"]);
    assert!(block_on(env.jobs.ack(&other.jobs[0].receipt)).is_ok());
}

#[test]
fn a_lease_that_cannot_be_extended_before_it_ends_is_lost() {
    for fault in [Fault::Refuse, Fault::Hang] {
        let env = TestEnv::new();
        let log = Log::default();
        env.put("i");
        let guard = log.clone();
        env.spawn(env.worker(&log), move |_| {
            let guard = DropRecorder(guard.clone());
            async move {
                let _guard = guard;
                pending().await
            }
        });
        env.fail_settlements([fault; 20]);
        env.advance(SECOND, 29);
        assert!(!log.take().contains(&"stopped".to_owned()), "{fault:?}");
        env.advance(SECOND, 1);
        let recorded = log.take();
        assert!(recorded.contains(&"stopped".to_owned()), "{fault:?}: {recorded:?}");
        assert!(recorded.last().unwrap().starts_with("i is gone: "), "{fault:?}: {recorded:?}");
    }
}

#[test]
fn an_extension_that_fails_is_retried() {
    let env = TestEnv::new();
    let log = Log::default();
    env.put("i");
    env.spawn(env.worker(&log), |_| pending());
    env.fail_settlements([Fault::Refuse, Fault::LoseReply]);
    env.advance(SECOND, 100);
    assert_eq!(log.take(), ["unavailable", "unknown"]);
    assert_eq!(env.view("i").unwrap().attempts, 0);
}

#[test]
fn an_extension_counts_from_the_time_of_the_request() {
    let env = TestEnv::new();
    let log = Log::default();
    env.put("i");
    env.spawn(env.worker(&log), |_| pending());
    env.advance(SECOND, 39);
    env.fail_settlements([Fault::Slow; 100]);
    env.advance(SECOND, 100);
    assert!(log.take().is_empty());
}

#[test]
fn the_handler_of_a_cancelled_job_is_stopped_and_the_job_is_deleted() {
    let env = TestEnv::new();
    let log = Log::default();
    env.put("i");
    let guard = log.clone();
    env.spawn(env.worker(&log), move |_| {
        let guard = DropRecorder(guard.clone());
        async move {
            let _guard = guard;
            pending().await
        }
    });
    block_on(env.jobs.cancel("k", "i")).unwrap();
    env.advance(THIRD, 1);
    assert_eq!(log.take(), ["stopped"]);
    assert_eq!(env.view("i"), None);
}

#[test]
fn an_ack_whose_response_is_lost_is_retried_and_not_reported_as_a_lost_lease() {
    let env = TestEnv::new();
    env.fail_settlements([Fault::LoseReply]);
    let log = Log::default();
    env.put("i");
    let running = env.spawn(env.worker(&log), |_| async { Ok(Outcome::Done) });
    assert_eq!(running.jobs().len(), 1);
    env.advance(SECOND, 1);
    assert_eq!(log.take(), ["unknown"]);
    assert!(running.jobs().is_empty() && env.view("i").is_none());
}

#[test]
fn an_ack_that_fails_is_retried_until_it_succeeds() {
    let env = TestEnv::new();
    env.fail_settlements([Fault::Refuse; 5]);
    let log = Log::default();
    env.put("i");
    env.spawn(env.worker(&log), |_| async { Ok(Outcome::Done) });
    assert!(env.view("i").is_some());
    env.advance(SECOND, 10);
    assert_eq!((log.take(), env.view("i")), (vec!["unavailable".to_owned(); 5], None));
}

#[test]
fn a_failed_ack_whose_lease_is_lost_meanwhile_is_reported_as_lost() {
    let env = TestEnv::new();
    env.fail_settlements([Fault::Refuse]);
    let log = Log::default();
    env.put("i");
    env.spawn(env.worker(&log), |_| async { Ok(Outcome::Done) });
    env.clock.advance(4 * THIRD);
    assert_eq!(block_on(env.jobs.claim(["k"], "other").into_future()).unwrap().jobs.len(), 1);
    env.executor.run();
    assert_eq!(log.take(), ["unavailable", "i is gone: lost"]);
}

#[test]
fn an_ack_that_fails_for_the_length_of_a_lease_is_reported() {
    for fault in [Fault::Refuse, Fault::Hang] {
        let env = TestEnv::new();
        env.fail_settlements([fault; 1000]);
        let log = Log::default();
        env.put("i");
        let running = env.spawn(env.worker(&log), |_| async { Ok(Outcome::Done) });
        env.advance(SECOND, 60);
        let recorded = log.take();
        assert!(
            recorded.iter().any(|line| line.starts_with("i is gone: ")),
            "{fault:?}: {recorded:?}"
        );
        env.store.settle.lock().unwrap().clear();
        env.advance(SECOND, 60);
        assert!(running.jobs().is_empty());
        assert_eq!(env.view("i"), None, "the lease expired, and the job was processed again");
    }
}

#[test]
fn an_ack_after_the_lease_expired_is_reported_as_lost() {
    let env = TestEnv::new();
    let log = Log::default();
    env.put("i");
    let clock = env.clock.clone();
    let jobs = env.jobs.clone();
    env.spawn(env.worker(&log), move |run| {
        let (clock, jobs) = (clock.clone(), jobs.clone());
        async move {
            if run.attempt == 1 {
                clock.advance(4 * THIRD); // the handler blocks its thread
                jobs.claim(["k"], "other").await?;
            }
            Ok(Outcome::Done)
        }
    });
    assert_eq!(log.take(), ["i is gone: lost"]);
    assert_eq!(env.view("i").unwrap().lease.unwrap().worker.as_str(), "other");
}

#[test]
fn no_more_jobs_are_claimed_than_the_concurrency_allows() {
    let env = TestEnv::new();
    (0..10).for_each(|id| env.put(&id.to_string()));
    let running = env.spawn(env.worker(&Log::default()).concurrency(3), |_| pending());
    assert_eq!(running.jobs().len(), 3);
    let leased = || (0..10).filter(|id| env.view(&id.to_string()).unwrap().lease.is_some()).count();
    assert_eq!(leased(), 3);
    let claim_sizes = || std::mem::take(&mut *env.store.claim_sizes.lock().unwrap());
    assert_eq!(claim_sizes(), [3], "every claimed job is processed immediately");
    running.set_concurrency(5);
    env.executor.run();
    assert_eq!((running.concurrency(), running.jobs().len(), leased()), (5, 5, 5));
    assert_eq!(claim_sizes(), [2]);
    running.set_concurrency(0);
    env.advance(SECOND, 1);
    assert_eq!(running.jobs().len(), 5);
}

#[test]
fn a_job_that_is_put_later_is_claimed_when_it_is_due() {
    let env = TestEnv::new();
    env.spawn(env.worker(&Log::default()), |_| async { Ok(Outcome::Done) });
    env.put("now");
    env.executor.run();
    assert_eq!(env.view("now"), None);
    block_on(env.jobs.put("k", "later", "").after(SECOND / 2).into_future()).unwrap();
    env.executor.run();
    assert!(env.view("later").is_some());
    env.advance(SECOND / 2, 1);
    assert_eq!(env.view("later"), None);
}

#[test]
fn a_failed_claim_is_retried_after_a_pause() {
    for fault in [Fault::Refuse, Fault::RefuseKind] {
        let env = TestEnv::new();
        let log = Log::default();
        env.store.claim.lock().unwrap().extend([Some(fault), Some(fault)]);
        env.put("i");
        env.spawn(env.worker(&log), |_| async { Ok(Outcome::Done) });
        for _ in 0..2 {
            assert_eq!(log.take(), ["unavailable"], "{fault:?}");
            assert!(env.view("i").is_some());
            env.advance(SECOND, 1);
        }
        assert!(log.take().is_empty() && env.view("i").is_none());
    }
}

#[test]
fn an_idle_worker_ends_as_soon_as_it_is_shut_down() {
    let env = TestEnv::new();
    let running = env.spawn(env.worker(&Log::default()), |_| async { Ok(Outcome::Done) });
    let mut shut_down = pin!(running.shut_down(SECOND));
    env.executor.run();
    assert_eq!(poll(shut_down.as_mut()), Poll::Ready(vec![]));
}

#[test]
fn shut_down_waits_for_running_jobs_and_claims_no_more() {
    let env = TestEnv::new();
    let go = Arc::new(AtomicBool::new(false));
    let handler = Arc::clone(&go);
    env.put("i");
    env.put("j");
    let running = env.spawn(env.worker(&Log::default()), move |_| {
        let run = wait_until(&handler);
        async {
            run.await;
            Ok(Outcome::Done)
        }
    });
    let mut shut_down = pin!(running.shut_down(100 * SECOND));
    assert!(poll(shut_down.as_mut()).is_pending());
    go.store(true, Ordering::Relaxed);
    env.advance(THIRD, 1);
    assert_eq!(poll(shut_down.as_mut()), Poll::Ready(vec![]));
    assert!(poll(pin!(running.join())).is_ready());
    assert_eq!(env.view("j").unwrap().state, JobState::Ready);
}

#[test]
fn shut_down_returns_the_running_jobs_at_its_limit() {
    let env = TestEnv::new();
    env.put("i");
    let running = env.spawn(env.worker(&Log::default()), |_| pending());
    env.advance(SECOND, 1);
    let mut shut_down = pin!(running.shut_down(20 * SECOND));
    assert!(poll(shut_down.as_mut()).is_pending());
    env.advance(SECOND, 19);
    assert!(poll(shut_down.as_mut()).is_pending());
    env.advance(SECOND, 1);
    let Poll::Ready(left) = poll(shut_down.as_mut()) else { panic!("the limit has passed") };
    assert_eq!((left[0].job.id().as_str(), left[0].running_for), ("i", 21 * SECOND));
    env.advance(THIRD, 10);
    assert_eq!(env.view("i").unwrap().attempts, 0, "the worker still extends the lease");
}

#[test]
fn claimed_jobs_that_were_not_started_are_released_when_the_concurrency_is_lowered() {
    let env = TestEnv::new();
    ["i", "j", "l"].iter().for_each(|id| env.put(id));
    env.store.claim.lock().unwrap().push_back(Some(Fault::Slow));
    let worker = env.worker(&Log::default()).concurrency(3);
    let running = env.spawn(worker, |_| pending());
    running.set_concurrency(1);
    env.advance(SECOND, 1);
    assert_eq!(running.jobs().len(), 1);
    let jobs = ["j", "l"].map(|id| env.view(id).unwrap());
    assert!(jobs.iter().all(|job| (job.state, job.attempts) == (JobState::Ready, 0)));
}

#[test]
fn a_worker_that_is_shut_down_while_it_claims_releases_the_jobs_before_it_ends() {
    let env = TestEnv::new();
    env.put("i");
    env.store.claim.lock().unwrap().push_back(Some(Fault::Slow));
    let running = env.spawn(env.worker(&Log::default()), |_| async { Ok(Outcome::Done) });
    let mut shut_down = pin!(running.shut_down(100 * SECOND));
    env.executor.run();
    assert!(poll(shut_down.as_mut()).is_pending());
    env.advance(SECOND, 1);
    assert_eq!(poll(shut_down.as_mut()), Poll::Ready(vec![]));
    assert_eq!(env.view("i").unwrap().state, JobState::Ready);
}

#[test]
fn a_job_whose_lease_has_expired_is_not_started() {
    let env = TestEnv::new();
    let (log, attempts) = (Log::default(), Executor::default());
    env.put("i");
    let spawn = env.attempts_on(&attempts);
    let runs = log.clone();
    let running = env.worker(&log).spawn_with(spawn, move |_| {
        runs.record("run");
        async { Ok(Outcome::Done) }
    });
    env.executor.run();
    running.set_concurrency(0);
    env.clock.advance(3 * THIRD);
    attempts.run();
    assert!(log.take().is_empty() && running.jobs().is_empty());
    let job = env.view("i").unwrap();
    assert_eq!((job.state, job.attempts), (JobState::Ready, 0));
}

#[test]
fn an_attempt_that_starts_late_extends_its_lease_in_time() {
    let env = TestEnv::new();
    let (log, attempts) = (Log::default(), Executor::default());
    env.put("i");
    let spawn = env.attempts_on(&attempts);
    env.worker(&log).spawn_with(spawn, |_| pending::<Result<(), _>>());
    env.executor.run();
    env.clock.advance(3 * THIRD - SECOND);
    attempts.run();
    env.clock.advance(SECOND);
    let claimed = block_on(env.jobs.claim(["k"], "other").into_future()).unwrap();
    assert!(claimed.jobs.is_empty());
}

#[test]
fn if_its_executor_ends_a_worker_has_ended_and_the_leases_of_its_jobs_expire() {
    let env = TestEnv::new();
    env.put("i");
    let running = env.spawn(env.worker(&Log::default()), |_| pending());
    env.executor.kill();
    assert!(poll(pin!(running.join())).is_ready());
    env.clock.advance(3 * THIRD);
    let claimed = block_on(env.jobs.claim(["k"], "other").into_future()).unwrap();
    assert_eq!(claimed.jobs[0].attempt, 2);
}

#[test]
fn a_callback_that_panics_has_no_effect() {
    let env = TestEnv::new();
    env.put("i");
    env.put("j");
    let worker = JobWorker::new(&env.jobs, ["k"], "w").unwrap();
    let worker = worker.on_failure(|_| panic!("a callback")).on_dead(|_| panic!("another"));
    let running = env.spawn(worker, |_| async { Ok(Outcome::give_up("")) });
    assert!(running.jobs().is_empty());
    assert_eq!(env.view("j").unwrap().state, JobState::Dead);
}

#[test]
fn a_store_that_panics_in_a_claim_does_not_end_the_worker() {
    let (env, log) = (TestEnv::new(), Log::default());
    env.store.claim.lock().expect("no panic while it is locked").push_back(Some(Fault::Panic));
    env.put("i");
    env.spawn(env.worker(&log), |_run| async { Ok(Outcome::Done) });
    assert_eq!(log.take(), ["unknown"]);
    env.advance(SECOND, 1);
    assert_eq!(env.view("i"), None);
}

#[test]
fn an_executor_that_panics_does_not_end_the_worker() {
    let (env, log) = (TestEnv::new(), Log::default());
    env.put("i");
    let (executor, tasks) = (env.executor.clone(), Arc::new(Mutex::new(0)));
    let spawn = move |task| {
        let mut tasks = tasks.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        *tasks += 1;
        assert_ne!(*tasks, 2, "the executor panics");
        executor.spawn(task);
    };
    env.worker(&log).spawn_with(spawn, |_run| async { Ok(Outcome::Done) });
    env.executor.run();
    assert_eq!(log.take(), ["unavailable"]);
    env.advance(THIRD, 4); // the lease of the job expires
    assert_eq!(env.view("i"), None);
}

#[test]
fn an_error_whose_display_panics_is_a_failure_like_any_other() {
    #[derive(Debug)]
    struct PanickingError;
    impl std::fmt::Display for PanickingError {
        fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            panic!("no words")
        }
    }
    impl std::error::Error for PanickingError {}
    let env = TestEnv::new();
    env.process_one(|_run| async { Err(PanickingError.into()) });
    let job = env.view("i").expect("the job is retried");
    assert_eq!((job.state, job.attempts), (JobState::Waiting, 1));
    let error = job.failures[0].error.as_deref().expect("the error is recorded");
    assert_eq!(error, "formatting the error panicked: no words");
}

#[test]
fn claimed_jobs_that_were_not_started_are_released_at_shutdown() {
    let (env, log) = (TestEnv::new(), Log::default());
    env.put("i");
    let attempts = Executor::default();
    let started = log.clone();
    let running = env.worker(&log).spawn_with(env.attempts_on(&attempts), move |_run| {
        started.record("started");
        async { Ok(Outcome::Done) }
    });
    env.executor.run();
    let mut left = pin!(running.shut_down(SECOND));
    assert!(poll(left.as_mut()).is_pending());
    attempts.run();
    env.executor.run();
    assert!(matches!(poll(left), Poll::Ready(left) if left.is_empty()));
    assert_eq!(log.take(), [""; 0]);
    let job = env.view("i").expect("the job was released");
    assert_eq!((job.state, job.attempts), (JobState::Ready, 0));
}

#[test]
fn a_release_that_fails_is_retried() {
    let (env, log) = (TestEnv::new(), Log::default());
    env.put("i");
    env.store.claim.lock().expect("no panic while it is locked").push_back(Some(Fault::Slow));
    env.fail_settlements([Fault::Refuse]);
    let running = env.spawn(env.worker(&log), |_run| async { Ok(Outcome::Done) });
    let mut left = pin!(running.shut_down(THIRD)); // called while the worker claims
    env.advance(SECOND, 5);
    assert!(matches!(poll(left.as_mut()), Poll::Ready(left) if left.is_empty()));
    assert_eq!(log.take(), ["unavailable"]);
    let job = env.view("i").expect("the job was released");
    assert_eq!((job.state, job.attempts), (JobState::Ready, 0));
}

#[test]
fn a_worker_of_too_many_kinds_is_rejected() {
    let kinds: Vec<String> = (0..1001).map(|n| format!("k{n}")).collect();
    let worker = JobWorker::new(&TestEnv::new().jobs, kinds.iter().map(String::as_str), "w");
    let error = worker.expect_err("there are too many kinds");
    assert_eq!(error.to_string(), "1001 kinds of a worker are too many; the limit is 1000");
}

fn sizes(calls: &Mutex<Vec<usize>>) -> Vec<usize> {
    std::mem::take(&mut calls.lock().expect("no panic while it is locked"))
}

#[test]
fn jobs_that_end_together_are_settled_in_one_call_and_replaced_in_one_call() {
    let env = TestEnv::new();
    (0..500).for_each(|n| env.put(&n.to_string()));
    let worker = env.worker(&Log::default()).concurrency(50);
    let _running = env.spawn(worker, |_| async { Ok(Outcome::Done) });
    assert_eq!(sizes(&env.store.settle_sizes), [50; 10]);
    assert_eq!(sizes(&env.store.claim_sizes), [50; 11], "the last one finds no job");
}
