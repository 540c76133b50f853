//! [`JobWorker`] reaps its store, and acks with results, on a manual clock.

use crate::support::{Fault, TestEnv};
use requeue_jobs::limits::MAX_ACK_RESULT_LEN;
use requeue_jobs::{
    Body, JobOutcome, JobState, JobWorker, Jobs, Outcome, Retention, RunningJobs, StoreError,
};
use requeue_testkit::block_on;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);

impl TestEnv {
    /// Starts a worker of the kind `other`, of which there are no jobs.
    fn idle_worker(&self, jobs: &Jobs) -> RunningJobs {
        let executor = self.executor.clone();
        let worker = JobWorker::new(jobs, ["other"], "idle").expect("the argument is valid");
        let running = worker
            .spawn_with(move |task| executor.spawn(task), |_run| async { Ok(Outcome::Retry) });
        self.executor.run();
        running
    }

    fn claim(&self) -> requeue_jobs::ClaimedJob {
        let claimed = block_on(self.jobs.claim(["k"], "w").into_future());
        claimed.expect("the memory store does not fail").jobs.remove(0)
    }

    fn keep_done(&self) {
        let keep = Retention { age: 7 * DAY, count: 10 };
        block_on(self.jobs.change_settings("k", |settings| settings.keep_done = Some(keep)))
            .expect("the settings are valid");
    }

    fn reaps(&self) -> usize {
        self.store.reaps.swap(0, Ordering::Relaxed)
    }
}

#[test]
fn a_dead_job_is_dropped_when_its_retention_is_over() {
    let env = TestEnv::new();
    env.put("i");
    block_on(env.jobs.bury(&env.claim().receipt, "no such order")).expect("the lease is current");
    env.idle_worker(&env.jobs);
    env.advance(DAY, 7);
    assert_eq!(env.view("i").map(|job| job.state), Some(JobState::Dead));
    env.advance(DAY, 23);
    assert_eq!(env.view("i"), None);
}

#[test]
fn a_done_job_is_dropped_when_it_is_too_old() {
    let env = TestEnv::new();
    env.keep_done();
    env.put("i");
    block_on(env.jobs.ack(&env.claim().receipt)).expect("the lease is current");
    env.idle_worker(&env.jobs);
    env.advance(DAY, 7);
    assert_eq!(env.view("i").map(|job| job.state), Some(JobState::Done));
    env.advance(DAY, 1);
    assert_eq!(env.view("i"), None);
}

#[test]
fn an_expired_lease_of_a_kind_that_no_worker_claims_is_ended() {
    let env = TestEnv::new();
    env.put("i");
    env.claim();
    env.idle_worker(&env.jobs);
    env.advance(10 * SECOND, 2);
    assert_eq!(env.view("i").map(|job| job.state), Some(JobState::Leased));
    env.advance(10 * SECOND, 1);
    let job = env.view("i").expect("it failed once");
    assert_eq!((job.state, job.attempts), (JobState::Ready, 1));
}

#[test]
fn the_workers_of_a_handle_take_turns_and_one_that_stops_is_replaced() {
    let env = TestEnv::new();
    let workers: Vec<_> = (0..5).map(|_| env.idle_worker(&env.jobs.clone())).collect();
    assert_eq!(env.reaps(), 1);
    env.advance(SECOND, 9);
    assert_eq!(env.reaps(), 0);
    env.advance(SECOND, 100);
    assert_eq!(env.reaps(), 10);
    for running in &workers[..4] {
        drop(running.shut_down(Duration::ZERO));
    }
    env.advance(SECOND, 100);
    assert_eq!(env.reaps(), 10);
    drop(workers[4].shut_down(Duration::ZERO));
    env.advance(SECOND, 100);
    assert_eq!(env.reaps(), 0);
}

#[test]
fn if_a_worker_stops_while_it_reaps_another_one_continues() {
    let env = TestEnv::new();
    env.store.reap.lock().expect("no panic while it is locked").push_back(Some(Fault::Hang));
    let first = env.idle_worker(&env.jobs);
    env.idle_worker(&env.jobs);
    env.advance(SECOND, 30);
    assert_eq!(env.reaps(), 1, "one at a time");
    drop(first.shut_down(Duration::ZERO));
    env.advance(SECOND, 10);
    assert_eq!(env.reaps(), 1);
}

#[test]
fn a_store_that_is_reaped_elsewhere_is_not_reaped() {
    let env = TestEnv::new();
    env.store.is_reaped_elsewhere.store(true, Ordering::Relaxed);
    env.idle_worker(&env.jobs);
    env.advance(DAY, 30);
    assert_eq!(env.reaps(), 0);
}

#[test]
fn a_reap_that_fails_is_reported_and_repeated_with_growing_pauses() {
    let env = TestEnv::new();
    let faults = [Fault::Refuse, Fault::Panic, Fault::LoseReply].map(Some);
    env.store.reap.lock().expect("no panic while it is locked").extend(faults);
    let errors = Arc::new(Mutex::new(Vec::new()));
    let (log, executor) = (errors.clone(), env.executor.clone());
    let worker = JobWorker::new(&env.jobs, ["other"], "idle").expect("the argument is valid");
    let report = move |error: &StoreError| {
        log.lock().expect("no panic while it is locked").push(error.to_string());
    };
    worker
        .on_store_error(report)
        .spawn_with(move |task| executor.spawn(task), |_run| async { Ok(Outcome::Done) });
    env.executor.run();
    let reaps = [1, 2, 4, 10].map(|seconds| {
        let before = env.reaps();
        env.advance(SECOND, seconds - 1);
        assert_eq!(env.reaps(), 0, "in a pause of {seconds} s");
        env.advance(SECOND, 1);
        before
    });
    assert_eq!((reaps, env.reaps()), ([1; 4], 1));
    assert_eq!(errors.lock().expect("no panic while it is locked").len(), 3);
}

/// Runs a worker whose handler returns this, on one job.
fn process(env: &TestEnv, outcome: impl Fn() -> JobOutcome + Send + Sync + 'static) {
    env.put("i");
    let executor = env.executor.clone();
    let worker = JobWorker::new(&env.jobs, ["k"], "w").expect("the argument is valid");
    let running = worker.spawn_with(
        move |task| executor.spawn(task),
        move |_run| std::future::ready(Ok(outcome())),
    );
    env.executor.run();
    drop(running.shut_down(Duration::ZERO));
    env.executor.run();
}

#[test]
fn a_job_is_acked_with_the_result_of_its_handler() {
    let env = TestEnv::new();
    env.keep_done();
    let result = Body::new(*b"sent", "text/plain").expect("a valid body");
    let returned = result.clone();
    process(&env, move || JobOutcome::DoneWith(returned.clone()));
    let done = env.view("i").and_then(|job| job.done).expect("it is done");
    assert_eq!((done.worker.as_str(), done.result), ("w", Some(result)));
}

#[test]
#[cfg(feature = "serde")]
fn a_result_may_be_json() {
    let env = TestEnv::new();
    env.keep_done();
    process(&env, || JobOutcome::done_with_json(&[1, 2]).expect("it can be serialized"));
    let done = env.view("i").and_then(|job| job.done).expect("it is done");
    assert_eq!(done.result_json::<Vec<u8>>(), Ok(Some(vec![1, 2])));
    assert!(done.result_json::<String>().is_err());
}

#[test]
fn a_result_that_is_too_long_is_a_failure() {
    let env = TestEnv::new();
    env.keep_done();
    let result = Body::octets(vec![0; MAX_ACK_RESULT_LEN + 1]).expect("a valid body");
    process(&env, move || JobOutcome::DoneWith(result.clone()));
    let job = env.view("i").expect("it is tried again");
    assert_eq!((job.state, job.attempts), (JobState::Waiting, 1));
    let error = job.failures[0].error.as_deref();
    assert_eq!(error, Some("the result has 65537 bytes; the limit is 65536"));
}
