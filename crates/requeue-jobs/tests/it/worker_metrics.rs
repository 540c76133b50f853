//! What a worker counts.

use crate::support::{Fault, TestEnv};
use crate::worker::{Log, SECOND, poll};
use requeue_jobs::{BoxError, JobOutcome, JobRun, JobWorker, Metrics, NameError, Outcome};
use requeue_testkit::block_on;
use std::future::pending;
use std::pin::pin;

/// Ends as the id of the job requests.
async fn handle(run: JobRun) -> Result<JobOutcome, BoxError> {
    match run.job.id().as_str() {
        "done" => Ok(().into()),
        "requeue after" => Ok(Outcome::RequeueAfter(100 * SECOND).into()),
        "retry" => Ok(Outcome::Retry.into()),
        "retry after" => Ok(JobOutcome::retry_after(100 * SECOND, "busy")),
        "give up" => Ok(Outcome::give_up("no such order").into()),
        "fail" => Err("the bank is busy".into()),
        "panic" => panic!("a bug"),
        _ => pending().await,
    }
}

impl TestEnv {
    fn counted_worker(&self, metrics: &Metrics) -> JobWorker {
        let worker = self.worker(&Log::default()).metrics(metrics, "orders");
        worker.expect("no other worker has the name").concurrency(20)
    }
}

#[test]
fn every_attempt_is_counted_once_by_how_it_ended() {
    let (env, metrics) = (TestEnv::new(), Metrics::new());
    let ids = ["done", "requeue after", "retry", "retry after", "give up", "fail", "panic", "hang"];
    ids.iter().for_each(|id| env.put(id));
    let worker = env.counted_worker(&metrics).timeout(500 * SECOND);
    let executor = env.executor.clone();
    let running = worker.spawn_with(move |task| executor.spawn(task), handle);
    running.set_concurrency(30);
    env.executor.run();
    let count = &metrics.gather_workers()[0];
    assert_eq!((count.name.as_str(), count.active, count.concurrency), ("orders", 1, 30));
    assert_eq!((count.success, count.requeue, count.requeue_after), (1, 1, 1));
    assert_eq!((count.error, count.panics, count.given_up, count.timeouts), (4, 1, 1, 0));
    assert_eq!(count.run_duration.count(), 7);
}

#[test]
fn a_timeout_is_an_error_and_its_duration_is_that_of_the_handler() {
    let (env, metrics) = (TestEnv::new(), Metrics::new());
    env.put("hang");
    let worker = env.counted_worker(&metrics).timeout(5 * SECOND);
    let executor = env.executor.clone();
    worker.spawn_with(move |task| executor.spawn(task), handle);
    env.executor.run();
    env.store.settle.lock().expect("no panic while it is locked").push_back(Some(Fault::Slow));
    env.advance(5 * SECOND, 1);
    assert_eq!(metrics.gather_workers()[0].error, 0, "it is not settled yet");
    env.advance(SECOND, 1);
    let count = &metrics.gather_workers()[0];
    assert_eq!((count.error, count.timeouts), (1, 1));
    assert_eq!(count.run_duration.sum(), 5 * SECOND);
}

#[test]
fn a_job_that_dies_after_its_last_attempt_is_given_up() {
    let (env, metrics) = (TestEnv::new(), Metrics::new());
    let change = env.jobs.change_settings("k", |settings| settings.max_attempts = 1);
    block_on(change).expect("the settings are valid");
    env.put("retry");
    let executor = env.executor.clone();
    env.counted_worker(&metrics).spawn_with(move |task| executor.spawn(task), handle);
    env.executor.run();
    let count = &metrics.gather_workers()[0];
    assert_eq!((count.error, count.requeue, count.given_up), (1, 0, 1));
}

#[test]
fn an_attempt_that_was_stopped_is_not_counted_unless_the_worker_was_stopped() {
    let (env, metrics) = (TestEnv::new(), Metrics::new());
    ["cancelled", "stopped"].iter().for_each(|id| env.put(id));
    let executor = env.executor.clone();
    let running = env.counted_worker(&metrics).spawn_with(move |task| executor.spawn(task), handle);
    env.executor.run();
    block_on(env.jobs.cancel("k", "cancelled")).expect("it exists");
    env.advance(10 * SECOND, 1);
    let count = &metrics.gather_workers()[0];
    assert_eq!((count.active, count.run_duration.count()), (1, 0));
    let mut stop = pin!(running.stop(SECOND));
    env.advance(SECOND, 1);
    assert!(poll(stop.as_mut()).is_pending());
    env.executor.run();
    assert!(poll(stop.as_mut()).is_ready());
    let count = &metrics.gather_workers()[0];
    assert_eq!((count.active, count.error), (0, 1));
}

#[test]
fn if_the_executor_ends_no_attempt_is_active() {
    let (env, metrics) = (TestEnv::new(), Metrics::new());
    env.put("hang");
    let executor = env.executor.clone();
    let _running =
        env.counted_worker(&metrics).spawn_with(move |task| executor.spawn(task), handle);
    env.executor.run();
    env.executor.kill();
    assert_eq!(metrics.gather_workers()[0].active, 0);
}

#[test]
fn a_name_is_in_use_until_the_worker_has_ended() {
    let (env, metrics) = (TestEnv::new(), Metrics::new());
    let executor = env.executor.clone();
    let worker = env.counted_worker(&metrics);
    let running = worker.spawn_with(move |task| executor.spawn(task), handle);
    env.executor.run();
    let taken = env.worker(&Log::default()).metrics(&metrics, "orders").expect_err("it is taken");
    assert_eq!(taken, NameError::WorkerTaken { name: "orders".to_owned() });
    drop(running.shut_down(SECOND));
    env.executor.run();
    drop(running);
    assert!(env.worker(&Log::default()).metrics(&metrics, "orders").is_ok());
}
