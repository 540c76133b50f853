//! What [`RunningJobs::stop`](requeue_jobs::RunningJobs::stop) does to running handlers.

use crate::support::{Fault, TestEnv};
use crate::worker::{DropRecorder, Log, SECOND, poll, wait_until};
use requeue_jobs::{JobState, Outcome};
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

impl TestEnv {
    /// Puts a job, and runs a worker whose handler does not end by itself.
    fn hanging_worker(&self, log: &Log) -> requeue_jobs::RunningJobs {
        self.put("i");
        let drops = log.clone();
        self.spawn(self.worker(log), move |_| {
            let drops = DropRecorder(drops.clone());
            async move {
                let _drops = drops;
                pending().await
            }
        })
    }
}

#[test]
fn at_its_limit_stop_drops_the_handlers_and_retries_their_jobs_immediately() {
    let (env, log) = (TestEnv::new(), Log::default());
    let running = env.hanging_worker(&log);
    env.put("j");
    let mut stop = pin!(running.stop(10 * SECOND));
    env.advance(SECOND, 9);
    assert!(poll(stop.as_mut()).is_pending() && log.take().is_empty());
    env.advance(SECOND, 1);
    assert!(poll(stop.as_mut()).is_pending());
    env.executor.run();
    let Poll::Ready(stopped) = poll(stop.as_mut()) else { panic!("the worker has ended") };
    assert_eq!(log.take(), ["stopped", "i the worker was shut down: again in 0ns"]);
    assert_eq!((stopped.len(), stopped[0].running_for), (1, 10 * SECOND));
    let job = env.view("i").unwrap();
    assert_eq!((job.state, job.attempts), (JobState::Ready, 1));
    assert_eq!(job.failures[0].error.as_deref(), Some("the worker was shut down"));
    assert_eq!(env.view("j").unwrap().attempts, 0, "it was not claimed");
}

#[test]
fn a_handler_that_ends_before_the_limit_is_settled_as_usual() {
    let (env, go) = (TestEnv::new(), Arc::new(AtomicBool::new(false)));
    env.put("i");
    let wait = Arc::clone(&go);
    let running = env.spawn(env.worker(&Log::default()), move |_| {
        let wait = wait_until(&wait);
        async move {
            wait.await;
            Ok(Outcome::Done)
        }
    });
    let mut stop = pin!(running.stop(20 * SECOND));
    assert!(poll(stop.as_mut()).is_pending());
    go.store(true, Ordering::Relaxed);
    // The lease is extended, and the handler polled.
    env.advance(SECOND, 10);
    assert_eq!(poll(stop.as_mut()), Poll::Ready(vec![]));
    assert_eq!(env.view("i"), None);
}

#[test]
fn a_handler_that_ends_when_it_is_stopped_is_settled_as_usual() {
    let (env, go) = (TestEnv::new(), Arc::new(AtomicBool::new(false)));
    env.put("i");
    let wait = Arc::clone(&go);
    let running = env.spawn(env.worker(&Log::default()), move |_| {
        let wait = wait_until(&wait);
        async move {
            wait.await;
            Ok(Outcome::Done)
        }
    });
    let mut stop = pin!(running.stop(SECOND));
    env.advance(SECOND, 1);
    go.store(true, Ordering::Relaxed);
    assert!(poll(stop.as_mut()).is_pending());
    env.executor.run();
    assert_eq!(poll(stop.as_mut()), Poll::Ready(vec![]));
    assert_eq!(env.view("i"), None);
}

#[test]
fn stop_does_not_wait_for_a_store_that_does_not_respond() {
    let (env, log) = (TestEnv::new(), Log::default());
    let running = env.hanging_worker(&log);
    env.fail_settlements([Fault::Hang]);
    let mut stop = pin!(running.stop(SECOND));
    env.advance(SECOND, 1);
    assert!(poll(stop.as_mut()).is_pending());
    env.advance(SECOND, 5);
    let Poll::Ready(stopped) = poll(stop.as_mut()) else { panic!("five seconds have passed") };
    assert_eq!((stopped.len(), log.take()), (1, vec!["stopped".to_owned()]));
    assert_eq!(env.view("i").unwrap().state, JobState::Leased);
}

#[test]
fn a_job_that_dies_because_the_worker_was_stopped_is_reported_as_dead() {
    let (env, log) = (TestEnv::new(), Log::default());
    let change = env.jobs.change_settings("k", |settings| settings.max_attempts = 1);
    requeue_testkit::block_on(change).unwrap();
    let running = env.hanging_worker(&log);
    let mut stop = pin!(running.stop(Duration::ZERO));
    assert!(poll(stop.as_mut()).is_pending());
    env.executor.run();
    assert!(poll(stop.as_mut()).is_ready());
    let expected = ["stopped", "i the worker was shut down: Dead", "i is dead"];
    assert_eq!(log.take(), expected);
}
