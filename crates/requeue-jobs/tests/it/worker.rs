//! What the worker over jobs promises, on a clock that moves when it is told to.

use crate::support::{Executor, Fault, World};
use requeue_jobs::{
    BoxError, JobRun, JobState, JobWorker, Next, Outcome, RunnerFuture, RunningJobs, Settings,
    SettleError, Store, StoreError,
};
use requeue_testkit::block_on;
use std::future::{Future, pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
/// A third of a lease.
const THIRD: Duration = Duration::from_secs(10);

/// What a worker said.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn say(&self, line: impl Into<String>) {
        self.0.lock().expect("no test panics under it").push(line.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().expect("no test panics under it"))
    }
}

impl World {
    /// A worker that tells the log what becomes of its jobs.
    fn worker(&self, log: &Log) -> JobWorker {
        let [failures, dead, lost, errors] = [(); 4].map(|()| log.clone());
        JobWorker::new(&self.jobs, ["k"], "w")
            .expect("it is valid")
            .lease(3 * THIRD)
            .expect("it is valid")
            .on_failure(move |failed| {
                let next = match failed.next {
                    Next::RetryIn(delay) => format!("again in {delay:?}"),
                    next => format!("{next:?}"),
                };
                failures.say(format!("{} {}: {}", failed.job.id(), failed.cause, next));
            })
            .on_dead(move |failed| dead.say(format!("{} is dead", failed.job.id())))
            .on_lost(move |job, error| {
                let error = match error {
                    SettleError::LeaseLost { .. } => "lost".to_owned(),
                    error => error.to_string(),
                };
                lost.say(format!("{} is gone: {error}", job.id()));
            })
            .on_store_error(move |error| {
                errors.say(match error {
                    StoreError::Unavailable { .. } => "unavailable",
                    StoreError::Unknown { .. } => "unknown",
                    _ => "invalid",
                });
            })
    }

    fn spawn<F, Fut>(&self, worker: JobWorker, handler: F) -> RunningJobs
    where
        F: Fn(JobRun) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Outcome, BoxError>> + Send + 'static,
    {
        let executor = self.executor.clone();
        let running = worker.spawn_with(move |task| executor.spawn(task), handler);
        self.executor.run();
        running
    }

    /// A job that a worker with this handler has worked on; what it said, and the job now.
    fn after_one<F, Fut>(&self, handler: F) -> Vec<String>
    where
        F: Fn(JobRun) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Outcome, BoxError>> + Send + 'static,
    {
        let log = Log::default();
        self.steady_backoff();
        self.put("i");
        self.spawn(self.worker(&log), handler);
        log.take()
    }

    fn steady_backoff(&self) {
        let mut settings = Settings::default();
        settings.backoff.jitter_percent = 0;
        let kind = requeue_jobs::Kind::new("k").expect("it is valid");
        block_on(self.store.inner.set(kind, settings)).expect("it is valid");
    }

    /// Claims on the world's executor, and each attempt on this one.
    fn attempts_on(&self, attempts: &Executor) -> impl Fn(RunnerFuture) + Send + Sync + use<> {
        let (claims, attempts) = (self.executor.clone(), attempts.clone());
        let is_attempt = AtomicBool::new(false);
        move |task| match is_attempt.swap(true, Ordering::Relaxed) {
            false => claims.spawn(task),
            true => attempts.spawn(task),
        }
    }

    fn fail_settlements(&self, faults: impl IntoIterator<Item = Fault>) {
        self.store
            .settle
            .lock()
            .expect("no test panics under it")
            .extend(faults.into_iter().map(Some));
    }
}

/// Says in the log when it is dropped.
struct Guard(Log);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.say("stopped");
    }
}

/// A handler that runs until it is let go.
fn until(go: &Arc<AtomicBool>) -> impl Future<Output = ()> + Send + use<> {
    let go = Arc::clone(go);
    // It is polled whenever its worker extends the lease.
    poll_fn(move |_| if go.load(Ordering::Relaxed) { Poll::Ready(()) } else { Poll::Pending })
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn done_is_the_end_of_a_job() {
    let world = World::new();
    let said = world.after_one(|run| async move {
        assert_eq!(
            (run.job.id().as_str(), run.job.body.bytes(), run.attempt),
            ("i", &b"body"[..], 1)
        );
        Ok(Outcome::Done)
    });
    assert_eq!((said, world.view("i")), (vec![], None));
}

#[test]
fn a_handler_may_return_unit() {
    let world = World::new();
    world.put("i");
    let executor = world.executor.clone();
    let worker = world.worker(&Log::default());
    worker.spawn_with(move |task| executor.spawn(task), |_run| async { Ok(()) });
    world.executor.run();
    assert_eq!(world.view("i"), None);
}

#[test]
fn a_failure_reports_how_long_the_handler_ran() {
    let world = World::new();
    world.put("i");
    let (log, clock, executor) = (Log::default(), world.clock.clone(), world.executor.clone());
    let took = log.clone();
    let worker = JobWorker::new(&world.jobs, ["k"], "w").expect("it is valid");
    worker.on_failure(move |failure| took.say(format!("{:?}", failure.took))).spawn_with(
        move |task| executor.spawn(task),
        move |_run| {
            clock.advance(3 * SECOND);
            std::future::ready(Ok(Outcome::give_up("no such order")))
        },
    );
    world.executor.run();
    assert_eq!(log.take(), ["3s"]);
}

#[test]
fn a_retry_comes_back_as_the_backoff_says() {
    let world = World::new();
    let said = world.after_one(|run| async move {
        Ok(if run.attempt < 3 { Outcome::Retry } else { Outcome::Done })
    });
    assert_eq!(said, ["i the handler requested a retry: again in 1s"]);
    let job = world.view("i").unwrap();
    assert_eq!((job.state, job.attempts), (JobState::Waiting, 1));
    assert_eq!(job.failures[0].worker.as_str(), "w");
    world.pass(SECOND, 3);
    assert_eq!(world.view("i"), None);
}

#[test]
fn an_error_is_a_retry_that_says_why() {
    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Because(&'static str, #[source] Option<Box<Because>>);
    let world = World::new();
    let said = world.after_one(|_| async {
        let bank = Because("the bank", Some(Box::new(Because("is busy", None))));
        Err(Because("no money", Some(Box::new(bank))).into())
    });
    assert_eq!(said, ["i no money: again in 1s"]);
    let error = world.view("i").unwrap().failures[0].error.clone();
    assert_eq!(error.as_deref(), Some("no money: the bank: is busy"));
}

#[test]
fn a_panic_is_a_failed_attempt() {
    type Handled = Pin<Box<dyn Future<Output = Result<Outcome, BoxError>> + Send>>;
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }
    for (when, message) in [(0, "called"), (1, "polled"), (2, "dropped")] {
        let world = World::new();
        let said = world.after_one(move |_| -> Handled {
            assert_ne!(when, 0, "called");
            let bomb = (when == 2).then(|| Bomb);
            Box::pin(poll_fn(move |_| {
                assert_ne!(when, 1, "polled");
                let _alive = &bomb;
                Poll::Ready(Ok(Outcome::Done))
            }))
        });
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("panicked") && said[0].contains(message), "{said:?}");
        assert_eq!(world.view("i").unwrap().attempts, 1);
    }
}

#[test]
fn a_handler_that_blocks_for_longer_than_it_may_has_failed_whatever_it_answers() {
    let world = World::new();
    let log = Log::default();
    world.steady_backoff();
    world.put("i");
    let clock = world.clock.clone();
    world.spawn(world.worker(&log).timeout(5 * SECOND), move |_| {
        let clock = clock.clone();
        async move {
            clock.advance(5 * SECOND);
            Ok(Outcome::Done)
        }
    });
    assert_eq!(log.take(), ["i timed out: again in 1s"]);
}

#[test]
fn a_handler_whose_time_is_over_is_not_polled_any_more() {
    let world = World::new();
    let log = Log::default();
    world.put("i");
    let polls = log.clone();
    world.spawn(world.worker(&log).timeout(5 * SECOND), move |_| {
        let polls = polls.clone();
        poll_fn(move |_| {
            polls.say("polled");
            Poll::Pending
        })
    });
    assert_eq!(log.take(), ["polled"]);
    world.pass(5 * SECOND, 1);
    assert!(!log.take().contains(&"polled".to_owned()));
}

#[test]
fn an_attempt_that_takes_too_long_has_failed() {
    let world = World::new();
    let log = Log::default();
    world.steady_backoff();
    world.put("i");
    let guard = log.clone();
    world.spawn(world.worker(&log).timeout(5 * SECOND), move |run| {
        let guard = Guard(guard.clone());
        async move {
            assert_eq!(run.remaining(), Some(5 * SECOND));
            let _guard = guard;
            pending().await
        }
    });
    world.pass(SECOND, 4);
    assert!(log.take().is_empty());
    world.pass(SECOND, 1);
    assert_eq!(log.take(), ["stopped", "i timed out: again in 1s"]);
    assert_eq!(world.view("i").unwrap().attempts, 1);
}

#[test]
fn whoever_gives_up_has_a_dead_job() {
    let world = World::new();
    let said = world.after_one(|_| async { Ok(Outcome::give_up("no such order")) });
    assert_eq!(said, ["i no such order: Dead", "i is dead"]);
    let job = world.view("i").unwrap();
    assert_eq!(job.failures[0].error.as_deref(), Some("no such order"));
    assert_eq!((job.state, job.attempts), (JobState::Dead, 1));
}

#[test]
fn a_job_whose_attempts_are_used_up_is_dead() {
    let world = World::new();
    let log = Log::default();
    let mut settings = Settings::default();
    settings.max_attempts = 2;
    settings.backoff.base = Duration::ZERO;
    let kind = requeue_jobs::Kind::new("k").unwrap();
    block_on(world.store.inner.set(kind, settings)).unwrap();
    world.put("i");
    world.spawn(world.worker(&log), |_| async { Ok(Outcome::Retry) });
    let said = log.take();
    assert_eq!(said[1..], ["i the handler requested a retry: Dead", "i is dead"]);
}

#[test]
fn a_job_that_is_requeued_comes_back_and_no_failure_is_counted() {
    let world = World::new();
    let runs = Log::default();
    let log = runs.clone();
    world.after_one(move |run| {
        log.say(format!("{} {}", run.job.id(), run.attempt));
        async { Ok(Outcome::RequeueAfter(5 * SECOND)) }
    });
    world.pass(SECOND, 4);
    assert_eq!(runs.take(), ["i 1"]);
    world.pass(SECOND, 1);
    assert_eq!(runs.take(), ["i 1"]);
    assert_eq!(world.view("i").unwrap().attempts, 0);
}

#[test]
fn even_a_very_long_requeue_is_obeyed_as_far_as_may_be() {
    let world = World::new();
    let said = world.after_one(|_| async { Ok(Outcome::RequeueAfter(Duration::MAX)) });
    assert!(said.is_empty());
    assert_eq!(world.view("i").unwrap().state, JobState::Waiting);
}

#[test]
fn a_long_run_keeps_its_lease() {
    let world = World::new();
    let go = Arc::new(AtomicBool::new(false));
    let handler = Arc::clone(&go);
    let said = world.after_one(move |_| {
        let run = until(&handler);
        async {
            run.await;
            Ok(Outcome::Done)
        }
    });
    // Another worker finds nothing to claim, ten leases long.
    for _ in 0..100 {
        world.pass(THIRD / 3, 1);
        let claimed = block_on(world.jobs.claim(["k"], "other").into_future()).unwrap();
        assert!(claimed.jobs.is_empty());
    }
    go.store(true, Ordering::Relaxed);
    world.pass(THIRD, 1);
    assert_eq!((said, world.view("i")), (vec![], None));
}

#[test]
fn a_lost_lease_stops_the_handler_and_is_told() {
    let world = World::new();
    let log = Log::default();
    world.put("i");
    let guard = log.clone();
    world.spawn(world.worker(&log), move |_| {
        let guard = Guard(guard.clone());
        async move {
            let _guard = guard;
            pending().await
        }
    });
    // Nobody polls the worker for so long that another takes the job.
    world.clock.advance(4 * THIRD);
    let other = block_on(world.jobs.claim(["k"], "other").into_future()).unwrap();
    assert_eq!(other.jobs[0].attempt, 2);
    world.executor.run();
    assert_eq!(log.take(), ["stopped", "i is gone: lost"]);
    assert!(block_on(world.jobs.ack(&other.jobs[0].receipt)).is_ok());
}

#[test]
fn a_lease_that_cannot_be_extended_before_it_ends_is_lost() {
    for fault in [Fault::Refuse, Fault::Hang] {
        let world = World::new();
        let log = Log::default();
        world.put("i");
        let guard = log.clone();
        world.spawn(world.worker(&log), move |_| {
            let guard = Guard(guard.clone());
            async move {
                let _guard = guard;
                pending().await
            }
        });
        world.fail_settlements([fault; 20]);
        world.pass(SECOND, 29);
        assert!(!log.take().contains(&"stopped".to_owned()), "{fault:?}");
        world.pass(SECOND, 1);
        let said = log.take();
        assert!(said.contains(&"stopped".to_owned()), "{fault:?}: {said:?}");
        assert!(said.last().unwrap().starts_with("i is gone: "), "{fault:?}: {said:?}");
    }
}

#[test]
fn an_extension_that_fails_is_tried_again() {
    let world = World::new();
    let log = Log::default();
    world.put("i");
    world.spawn(world.worker(&log), |_| pending());
    world.fail_settlements([Fault::Refuse, Fault::LoseReply]);
    world.pass(SECOND, 100);
    assert_eq!(log.take(), ["unavailable", "unknown"]);
    assert_eq!(world.view("i").unwrap().attempts, 0);
}

#[test]
fn an_extension_counts_from_when_it_was_asked_for() {
    let world = World::new();
    let log = Log::default();
    world.put("i");
    world.spawn(world.worker(&log), |_| pending());
    world.pass(SECOND, 39);
    world.fail_settlements([Fault::Slow; 100]);
    world.pass(SECOND, 100);
    assert!(log.take().is_empty());
}

#[test]
fn a_cancelled_job_is_stopped_and_gone() {
    let world = World::new();
    let log = Log::default();
    world.put("i");
    let guard = log.clone();
    world.spawn(world.worker(&log), move |_| {
        let guard = Guard(guard.clone());
        async move {
            let _guard = guard;
            pending().await
        }
    });
    block_on(world.jobs.cancel("k", "i")).unwrap();
    world.pass(THIRD, 1);
    assert_eq!(log.take(), ["stopped"]);
    assert_eq!(world.view("i"), None);
}

#[test]
fn an_ack_whose_reply_is_lost_is_tried_again_and_is_no_loss() {
    let world = World::new();
    world.fail_settlements([Fault::LoseReply]);
    let log = Log::default();
    world.put("i");
    let running = world.spawn(world.worker(&log), |_| async { Ok(Outcome::Done) });
    assert_eq!(running.jobs().len(), 1);
    world.pass(SECOND, 1);
    assert_eq!(log.take(), ["unknown"]);
    assert!(running.jobs().is_empty() && world.view("i").is_none());
}

#[test]
fn an_ack_that_is_refused_is_tried_again_until_it_is_done() {
    let world = World::new();
    world.fail_settlements([Fault::Refuse; 5]);
    let log = Log::default();
    world.put("i");
    world.spawn(world.worker(&log), |_| async { Ok(Outcome::Done) });
    assert!(world.view("i").is_some());
    world.pass(SECOND, 10);
    assert_eq!((log.take(), world.view("i")), (vec!["unavailable".to_owned(); 5], None));
}

#[test]
fn an_ack_that_was_refused_before_the_lease_was_lost_is_told_as_lost() {
    let world = World::new();
    world.fail_settlements([Fault::Refuse]);
    let log = Log::default();
    world.put("i");
    world.spawn(world.worker(&log), |_| async { Ok(Outcome::Done) });
    world.clock.advance(4 * THIRD);
    assert_eq!(block_on(world.jobs.claim(["k"], "other").into_future()).unwrap().jobs.len(), 1);
    world.executor.run();
    assert_eq!(log.take(), ["unavailable", "i is gone: lost"]);
}

#[test]
fn an_ack_that_cannot_be_had_for_a_lease_long_is_told() {
    for fault in [Fault::Refuse, Fault::Hang] {
        let world = World::new();
        world.fail_settlements([fault; 1000]);
        let log = Log::default();
        world.put("i");
        let running = world.spawn(world.worker(&log), |_| async { Ok(Outcome::Done) });
        world.pass(SECOND, 60);
        let said = log.take();
        assert!(said.iter().any(|line| line.starts_with("i is gone: ")), "{fault:?}: {said:?}");
        world.store.settle.lock().unwrap().clear();
        world.pass(SECOND, 60);
        assert!(running.jobs().is_empty());
        assert_eq!(world.view("i"), None, "it expired, and was done again");
    }
}

#[test]
fn an_ack_by_who_overran_its_lease_is_told_as_lost() {
    let world = World::new();
    let log = Log::default();
    world.put("i");
    let clock = world.clock.clone();
    let jobs = world.jobs.clone();
    world.spawn(world.worker(&log), move |run| {
        let (clock, jobs) = (clock.clone(), jobs.clone());
        async move {
            if run.attempt == 1 {
                clock.advance(4 * THIRD); // it blocks its thread
                jobs.claim(["k"], "other").await?;
            }
            Ok(Outcome::Done)
        }
    });
    assert_eq!(log.take(), ["i is gone: lost"]);
    assert_eq!(world.view("i").unwrap().lease.unwrap().worker.as_str(), "other");
}

#[test]
fn no_more_jobs_are_worked_on_than_may_be() {
    let world = World::new();
    (0..10).for_each(|id| world.put(&id.to_string()));
    let running = world.spawn(world.worker(&Log::default()).concurrency(3), |_| pending());
    assert_eq!(running.jobs().len(), 3);
    let leased =
        || (0..10).filter(|id| world.view(&id.to_string()).unwrap().lease.is_some()).count();
    assert_eq!(leased(), 3);
    let asked_for = || std::mem::take(&mut *world.store.asked_for.lock().unwrap());
    assert_eq!(asked_for(), [3], "no job is held that nobody works on");
    running.set_concurrency(5);
    world.executor.run();
    assert_eq!((running.concurrency(), running.jobs().len(), leased()), (5, 5, 5));
    assert_eq!(asked_for(), [2]);
    running.set_concurrency(0);
    world.pass(SECOND, 1);
    assert_eq!(running.jobs().len(), 5);
}

#[test]
fn a_job_that_is_put_later_is_claimed_when_it_is_due() {
    let world = World::new();
    world.spawn(world.worker(&Log::default()), |_| async { Ok(Outcome::Done) });
    world.put("now");
    world.executor.run();
    assert_eq!(world.view("now"), None);
    block_on(world.jobs.put("k", "later", "").after(SECOND / 2).into_future()).unwrap();
    world.executor.run();
    assert!(world.view("later").is_some());
    world.pass(SECOND / 2, 1);
    assert_eq!(world.view("later"), None);
}

#[test]
fn a_store_that_fails_is_asked_again_after_a_while() {
    for fault in [Fault::Refuse, Fault::RefuseKind] {
        let world = World::new();
        let log = Log::default();
        world.store.claim.lock().unwrap().extend([Some(fault), Some(fault)]);
        world.put("i");
        world.spawn(world.worker(&log), |_| async { Ok(Outcome::Done) });
        for _ in 0..2 {
            assert_eq!(log.take(), ["unavailable"], "{fault:?}");
            assert!(world.view("i").is_some());
            world.pass(SECOND, 1);
        }
        assert!(log.take().is_empty() && world.view("i").is_none());
    }
}

#[test]
fn a_worker_that_waits_for_work_ends_as_soon_as_it_is_shut_down() {
    let world = World::new();
    let running = world.spawn(world.worker(&Log::default()), |_| async { Ok(Outcome::Done) });
    let mut shut_down = pin!(running.shut_down(SECOND));
    world.executor.run();
    assert_eq!(poll(shut_down.as_mut()), Poll::Ready(vec![]));
}

#[test]
fn shut_down_waits_for_what_is_worked_on_and_claims_no_more() {
    let world = World::new();
    let go = Arc::new(AtomicBool::new(false));
    let handler = Arc::clone(&go);
    world.put("i");
    world.put("j");
    let running = world.spawn(world.worker(&Log::default()), move |_| {
        let run = until(&handler);
        async {
            run.await;
            Ok(Outcome::Done)
        }
    });
    let mut shut_down = pin!(running.shut_down(100 * SECOND));
    assert!(poll(shut_down.as_mut()).is_pending());
    go.store(true, Ordering::Relaxed);
    world.pass(THIRD, 1);
    assert_eq!(poll(shut_down.as_mut()), Poll::Ready(vec![]));
    assert!(poll(pin!(running.join())).is_ready());
    assert_eq!(world.view("j").unwrap().state, JobState::Ready);
}

#[test]
fn shut_down_waits_no_longer_than_it_may_and_tells_what_is_left() {
    let world = World::new();
    world.put("i");
    let running = world.spawn(world.worker(&Log::default()), |_| pending());
    world.pass(SECOND, 1);
    let mut shut_down = pin!(running.shut_down(20 * SECOND));
    assert!(poll(shut_down.as_mut()).is_pending());
    world.pass(SECOND, 19);
    assert!(poll(shut_down.as_mut()).is_pending());
    world.pass(SECOND, 1);
    let Poll::Ready(left) = poll(shut_down.as_mut()) else { panic!("its time is over") };
    assert_eq!((left[0].job.id().as_str(), left[0].running_for), ("i", 21 * SECOND));
    world.pass(THIRD, 10);
    assert_eq!(world.view("i").unwrap().attempts, 0, "its lease is kept");
}

#[test]
fn what_was_claimed_and_not_begun_is_given_back() {
    let world = World::new();
    ["i", "j", "l"].iter().for_each(|id| world.put(id));
    world.store.claim.lock().unwrap().push_back(Some(Fault::Slow));
    let worker = world.worker(&Log::default()).concurrency(3);
    let running = world.spawn(worker, |_| pending());
    running.set_concurrency(1);
    world.pass(SECOND, 1);
    assert_eq!(running.jobs().len(), 1);
    let jobs = ["j", "l"].map(|id| world.view(id).unwrap());
    assert!(jobs.iter().all(|job| (job.state, job.attempts) == (JobState::Ready, 0)));
}

#[test]
fn a_worker_that_is_shut_down_while_it_claims_gives_all_back_before_it_ends() {
    let world = World::new();
    world.put("i");
    world.store.claim.lock().unwrap().push_back(Some(Fault::Slow));
    let running = world.spawn(world.worker(&Log::default()), |_| async { Ok(Outcome::Done) });
    let mut shut_down = pin!(running.shut_down(100 * SECOND));
    world.executor.run();
    assert!(poll(shut_down.as_mut()).is_pending());
    world.pass(SECOND, 1);
    assert_eq!(poll(shut_down.as_mut()), Poll::Ready(vec![]));
    assert_eq!(world.view("i").unwrap().state, JobState::Ready);
}

#[test]
fn a_job_is_not_begun_when_its_lease_is_over() {
    let world = World::new();
    let (log, attempts) = (Log::default(), Executor::default());
    world.put("i");
    let spawn = world.attempts_on(&attempts);
    let runs = log.clone();
    let running = world.worker(&log).spawn_with(spawn, move |_| {
        runs.say("run");
        async { Ok(Outcome::Done) }
    });
    world.executor.run();
    running.set_concurrency(0);
    world.clock.advance(3 * THIRD);
    attempts.run();
    assert!(log.take().is_empty() && running.jobs().is_empty());
    let job = world.view("i").unwrap();
    assert_eq!((job.state, job.attempts), (JobState::Ready, 0));
}

#[test]
fn an_attempt_that_begins_late_extends_its_lease_in_time() {
    let world = World::new();
    let (log, attempts) = (Log::default(), Executor::default());
    world.put("i");
    let spawn = world.attempts_on(&attempts);
    world.worker(&log).spawn_with(spawn, |_| pending::<Result<(), _>>());
    world.executor.run();
    world.clock.advance(3 * THIRD - SECOND);
    attempts.run();
    world.clock.advance(SECOND);
    let claimed = block_on(world.jobs.claim(["k"], "other").into_future()).unwrap();
    assert!(claimed.jobs.is_empty());
}

#[test]
fn when_its_executor_dies_a_worker_has_ended_and_its_jobs_come_back() {
    let world = World::new();
    world.put("i");
    let running = world.spawn(world.worker(&Log::default()), |_| pending());
    world.executor.kill();
    assert!(poll(pin!(running.join())).is_ready());
    world.clock.advance(3 * THIRD);
    let claimed = block_on(world.jobs.claim(["k"], "other").into_future()).unwrap();
    assert_eq!(claimed.jobs[0].attempt, 2);
}

#[test]
fn a_callback_that_panics_changes_nothing() {
    let world = World::new();
    world.put("i");
    world.put("j");
    let worker = JobWorker::new(&world.jobs, ["k"], "w").unwrap();
    let worker = worker.on_failure(|_| panic!("a callback")).on_dead(|_| panic!("another"));
    let running = world.spawn(worker, |_| async { Ok(Outcome::give_up("")) });
    assert!(running.jobs().is_empty());
    assert_eq!(world.view("j").unwrap().state, JobState::Dead);
}

#[test]
fn a_store_that_panics_as_it_is_asked_for_jobs_does_not_end_the_worker() {
    let (world, log) = (World::new(), Log::default());
    world.store.claim.lock().expect("no test panics under it").push_back(Some(Fault::Panic));
    world.put("i");
    world.spawn(world.worker(&log), |_run| async { Ok(Outcome::Done) });
    assert_eq!(log.take(), ["unknown"]);
    world.pass(SECOND, 1);
    assert_eq!(world.view("i"), None);
}

#[test]
fn an_executor_that_panics_does_not_end_the_worker() {
    let (world, log) = (World::new(), Log::default());
    world.put("i");
    let (executor, tasks) = (world.executor.clone(), Arc::new(Mutex::new(0)));
    let spawn = move |task| {
        let mut tasks = tasks.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        *tasks += 1;
        assert_ne!(*tasks, 2, "the executor panics");
        executor.spawn(task);
    };
    world.worker(&log).spawn_with(spawn, |_run| async { Ok(Outcome::Done) });
    world.executor.run();
    assert_eq!(log.take(), ["unavailable"]);
    world.pass(THIRD, 4); // its lease expires
    assert_eq!(world.view("i"), None);
}

#[test]
fn an_error_that_panics_as_it_is_told_is_a_failure_like_any_other() {
    #[derive(Debug)]
    struct Bad;
    impl std::fmt::Display for Bad {
        fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            panic!("no words")
        }
    }
    impl std::error::Error for Bad {}
    let world = World::new();
    world.after_one(|_run| async { Err(Bad.into()) });
    let job = world.view("i").expect("it comes back");
    assert_eq!((job.state, job.attempts), (JobState::Waiting, 1));
    let error = job.failures[0].error.as_deref().expect("it is told");
    assert_eq!(error, "formatting the error panicked: no words");
}

#[test]
fn jobs_that_were_claimed_and_not_begun_are_given_back_at_shutdown() {
    let (world, log) = (World::new(), Log::default());
    world.put("i");
    let attempts = Executor::default();
    let begun = log.clone();
    let running = world.worker(&log).spawn_with(world.attempts_on(&attempts), move |_run| {
        begun.say("begun");
        async { Ok(Outcome::Done) }
    });
    world.executor.run();
    let mut left = pin!(running.shut_down(SECOND));
    assert!(poll(left.as_mut()).is_pending());
    attempts.run();
    world.executor.run();
    assert!(matches!(poll(left), Poll::Ready(left) if left.is_empty()));
    assert_eq!(log.take(), [""; 0]);
    let job = world.view("i").expect("it was given back");
    assert_eq!((job.state, job.attempts), (JobState::Ready, 0));
}

#[test]
fn a_release_that_fails_is_tried_again() {
    let (world, log) = (World::new(), Log::default());
    world.put("i");
    world.store.claim.lock().expect("no test panics under it").push_back(Some(Fault::Slow));
    world.fail_settlements([Fault::Refuse]);
    let running = world.spawn(world.worker(&log), |_run| async { Ok(Outcome::Done) });
    let mut left = pin!(running.shut_down(THIRD)); // while it claims
    world.pass(SECOND, 5);
    assert!(matches!(poll(left.as_mut()), Poll::Ready(left) if left.is_empty()));
    assert_eq!(log.take(), ["unavailable"]);
    let job = world.view("i").expect("it was given back");
    assert_eq!((job.state, job.attempts), (JobState::Ready, 0));
}

#[test]
fn a_worker_of_too_many_kinds_is_refused() {
    let kinds: Vec<String> = (0..1001).map(|n| format!("k{n}")).collect();
    let worker = JobWorker::new(&World::new().jobs, kinds.iter().map(String::as_str), "w");
    let error = worker.expect_err("there are too many");
    assert_eq!(error.to_string(), "1001 kinds of a worker are too many; the limit is 1000");
}
