//! The guarantees of [`Router`], on a manual clock.

use crate::support::TestEnv;
use crate::worker::{Log, SECOND};
use requeue_jobs::{
    BoxError, Invalid, JobOutcome, JobState, JobWorker, NextHandler, Outcome, Router, RouterError,
    RunningJobs, Task, TaskContext, TaskResult,
};
use requeue_testkit::block_on;
use serde::{Deserialize, Serialize};
use std::future::pending;
use std::sync::Mutex;
use std::task::{Poll, Waker};

#[derive(Serialize, Deserialize)]
struct Remind {
    order: u64,
}

impl Task for Remind {
    const KIND: &'static str = "remind";

    fn id(&self) -> String {
        format!("order-{}", self.order)
    }
}

#[derive(Serialize, Deserialize)]
struct Close {
    order: u64,
    reason: String,
}

impl Task for Close {
    const KIND: &'static str = "close";

    fn id(&self) -> String {
        format!("order-{}", self.order)
    }
}

async fn remind(task: Remind, context: TaskContext<Log>) -> Result<(), BoxError> {
    context.state.record(format!("remind {} of attempt {}", task.order, context.run.attempt));
    Ok(())
}

async fn close(task: Close, context: TaskContext<Log>) -> Result<Outcome, BoxError> {
    context.state.record(format!("close {}: {}", task.order, task.reason));
    Ok(Outcome::Done)
}

impl TestEnv {
    fn put_task(&self, task: &impl Task) {
        block_on(self.jobs.put_task(task).into_future()).expect("the task is valid");
    }

    fn put_reminders(&self, orders: impl IntoIterator<Item = u64>) {
        orders.into_iter().for_each(|order| self.put_task(&Remind { order }));
    }

    fn put_closings(&self, orders: impl IntoIterator<Item = u64>) {
        let reason = String::new;
        orders.into_iter().for_each(|order| self.put_task(&Close { order, reason: reason() }));
    }

    fn put_body(&self, kind: &str, body: &str) {
        block_on(self.jobs.put(kind, "i", body).into_future()).expect("the job is valid");
    }

    fn route<S: Send + Sync + 'static>(
        &self,
        worker: JobWorker,
        router: Router<S>,
    ) -> Result<RunningJobs, RouterError> {
        let executor = self.executor.clone();
        let running = worker.spawn_router_with(move |task| executor.spawn(task), router)?;
        self.executor.run();
        Ok(running)
    }

    /// A worker that claims only what its router handles.
    fn routed_worker(&self, concurrency: usize) -> JobWorker {
        let worker = JobWorker::new(&self.jobs, [], "w").expect("the arguments are valid");
        worker.concurrency(concurrency)
    }

    fn count(&self, kind: &str) -> (u64, u64) {
        let counts = block_on(self.jobs.kind(kind)).expect("the store works").counts;
        (counts.leased, counts.pending)
    }

    fn error(&self, kind: &str) -> (JobState, String) {
        let job = block_on(self.jobs.get(kind, "i")).expect("the store works");
        let job = job.expect("it is kept");
        (job.state, job.failures[0].error.as_deref().expect("it has a reason").to_owned())
    }
}

/// A handler that ends when the test wants it to.
#[derive(Default)]
struct Gate(Mutex<GateState>);

#[derive(Default)]
struct GateState {
    /// How many handlers may end.
    open: usize,
    wakers: Vec<Waker>,
}

impl Gate {
    fn open(&self, count: usize) {
        let mut state = self.0.lock().expect("no panic while it is locked");
        state.open += count;
        state.wakers.drain(..).for_each(Waker::wake);
    }

    async fn pass(&self) {
        std::future::poll_fn(|cx| {
            let mut state = self.0.lock().expect("no panic while it is locked");
            if state.open > 0 {
                state.open -= 1;
                return Poll::Ready(());
            }
            state.wakers.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// The gates of both kinds.
#[derive(Default)]
struct Gates {
    remind: Gate,
    close: Gate,
}

fn gated(state: &'static Gates) -> Router<&'static Gates> {
    Router::new(state)
        .on::<Remind>(|_, context: TaskContext<&Gates>| async move {
            context.state.remind.pass().await;
            Ok(())
        })
        .on::<Close>(|_, context: TaskContext<&Gates>| async move {
            context.state.close.pass().await;
            Ok(())
        })
}

#[test]
fn each_task_is_passed_to_its_handler_with_the_shared_state() {
    let (env, log) = (TestEnv::new(), Log::default());
    env.put_reminders([7]);
    env.put_task(&Close { order: 8, reason: "not paid".to_owned() });
    let router = Router::new(log.clone()).on::<Remind>(remind).on::<Close>(close);
    env.route(env.routed_worker(1), router).unwrap();
    let mut recorded = log.take();
    recorded.sort();
    assert_eq!(recorded, ["close 8: not paid", "remind 7 of attempt 1"]);
    assert_eq!((env.count("remind"), env.count("close")), ((0, 0), (0, 0)));
}

#[test]
fn a_handler_may_return_any_outcome() {
    let env = TestEnv::new();
    env.put_reminders([7]);
    let router = Router::new(()).on::<Remind>(|_, _| async {
        Ok(JobOutcome::retry_after(7 * SECOND, "the gateway is busy"))
    });
    env.route(env.routed_worker(1), router).unwrap();
    let job = block_on(env.jobs.get("remind", "order-7")).unwrap().unwrap();
    assert_eq!((job.state, job.attempts), (JobState::Waiting, 1));
}

#[test]
fn a_job_whose_body_does_not_decode_is_buried_and_the_reason_names_kind_and_problem() {
    let (env, log) = (TestEnv::new(), Log::default());
    let router = Router::new(log.clone()).on::<Remind>(remind).on::<Close>(close);
    env.put_body("remind", r#"{"order":"seven"}"#);
    env.put_body("close", "\n{");
    env.route(env.routed_worker(1), router).unwrap();
    let wrong_type = "kind remind: the body is not the expected JSON: invalid type: string \"seven\", \
                      expected u64 at line 1 column 16";
    assert_eq!(env.error("remind"), (JobState::Dead, wrong_type.to_owned()));
    let no_json = "kind close: the body is not the expected JSON: EOF while parsing an object at line \
                   2 column 1";
    assert_eq!(env.error("close"), (JobState::Dead, no_json.to_owned()));
    assert!(log.take().is_empty());

    env.put_body("remind", r#"{"order":7}"#);
    env.executor.run();
    assert_eq!(log.take(), ["remind 7 of attempt 1"], "a put revives it");
}

#[test]
fn a_job_of_a_kind_without_a_handler_is_buried_and_the_reason_names_the_kind() {
    let (env, log) = (TestEnv::new(), Log::default());
    env.put("i");
    let router = Router::new(Log::default()).on::<Remind>(remind);
    env.route(env.worker(&log), router).unwrap();
    assert_eq!(env.error("k"), (JobState::Dead, "no handler for kind k".to_owned()));
    assert_eq!(log.take(), ["i no handler for kind k: Dead", "i is dead"]);
}

#[test]
fn a_router_that_cannot_work_is_rejected_and_nothing_is_started() {
    let env = TestEnv::new();
    let start = |router| env.route(env.routed_worker(1), router).expect_err("it cannot work");
    let twice = Router::new(Log::default()).on::<Remind>(remind).on_kind("remind", remind);
    assert_eq!(start(twice), RouterError::Duplicate { kind: "remind".to_owned() });
    let limits = Router::new(Log::default()).on::<Remind>(remind).timeout::<Close>(SECOND);
    assert_eq!(start(limits), RouterError::NoHandler { kind: "close".to_owned() });
    let invalid = Router::new(Log::default()).on_kind("order/remind", remind);
    assert!(matches!(start(invalid), RouterError::Invalid(Invalid::KindCharacter { .. })));
    let many = (0..1001).fold(Router::new(Log::default()), |router, number| {
        router.on_kind(&format!("remind.{number}"), remind)
    });
    let error = start(many).to_string();
    assert_eq!(error, "1001 kinds of a worker are too many; the limit is 1000");
}

#[test]
fn functions_around_handlers_are_called_in_order_and_see_what_the_handler_returns() {
    async fn outer(next: NextHandler<Log>, context: TaskContext<Log>) -> TaskResult {
        let (log, kind) = (context.state.clone(), context.run.job.kind().clone());
        log.record(format!("outer of {kind}"));
        let result = next.run(context).await;
        let Ok(outcome) = &result else { panic!("the handlers do not fail") };
        log.record(match outcome {
            JobOutcome::Plain(Outcome::GiveUp { reason }) => reason.clone(),
            outcome => format!("{outcome:?}"),
        });
        result
    }
    let (env, log) = (TestEnv::new(), Log::default());
    env.put_reminders([7]);
    let inner = |next: NextHandler<Log>, context: TaskContext<Log>| {
        context.state.record("inner");
        next.run(context)
    };
    let router = Router::new(log.clone()).on::<Remind>(remind).around(outer).around(inner);
    env.route(JobWorker::new(&env.jobs, ["k"], "w").unwrap(), router).unwrap();
    let expected = ["outer of remind", "inner", "remind 7 of attempt 1", "Plain(Done)"];
    assert_eq!(log.take(), expected);
    env.put("i");
    env.executor.run();
    assert_eq!(log.take(), ["outer of k", "inner", "no handler for kind k"]);
}

#[test]
fn a_function_around_handlers_may_end_the_attempt_without_calling_them() {
    let (env, log) = (TestEnv::new(), Log::default());
    env.put_reminders([7]);
    let router = Router::new(log.clone()).on::<Remind>(remind);
    let router = router.around(|_, _| async { Err("not today".into()) });
    env.route(env.routed_worker(1), router).unwrap();
    let job = block_on(env.jobs.get("remind", "order-7")).unwrap().unwrap();
    assert_eq!(job.failures[0].error.as_deref(), Some("not today"));
    assert!(log.take().is_empty());
}

#[test]
fn a_panic_while_the_body_is_decoded_is_a_failed_attempt() {
    struct Panics;
    impl<'de> Deserialize<'de> for Panics {
        fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
            panic!("the body panics")
        }
    }
    let (env, log) = (TestEnv::new(), Log::default());
    env.backoff_without_jitter();
    env.put("i");
    let router = Router::new(()).on_kind("k", |_: Panics, _| async { Ok(()) });
    env.route(env.worker(&log), router).unwrap();
    assert_eq!(log.take(), ["i panicked: the body panics: again in 1s"]);
}

#[test]
fn a_kind_may_have_a_timeout_of_its_own() {
    let (env, log) = (TestEnv::new(), Log::default());
    env.put_reminders([7]);
    env.put_closings([8]);
    let router = Router::new(())
        .on::<Remind>(|_, _| pending::<Result<(), _>>())
        .on::<Close>(|_, _| pending::<Result<(), _>>())
        .timeout::<Close>(2 * SECOND);
    env.route(env.worker(&log).concurrency(2).timeout(5 * SECOND), router).unwrap();
    env.advance(SECOND, 2);
    let failed = log.take();
    assert!(failed.len() == 1 && failed[0].starts_with("order-8 timed out"), "{failed:?}");
    env.advance(SECOND, 3);
    assert!(log.take().iter().any(|line| line.starts_with("order-7 timed out")));
}

#[test]
fn no_more_jobs_of_a_kind_are_claimed_than_can_start() {
    let (env, gates) = (TestEnv::new(), Box::leak(Box::<Gates>::default()));
    env.put_closings(0..5);
    env.put_reminders(0..10);
    let router = gated(gates).concurrency::<Close>(2);
    let running = env.route(env.routed_worker(6), router).unwrap();
    assert_eq!((env.count("close"), env.count("remind")), ((2, 3), (4, 6)));
    gates.remind.open(3);
    env.executor.run();
    assert_eq!((env.count("close"), env.count("remind")), ((2, 3), (4, 3)));
    gates.close.open(1);
    env.executor.run();
    assert_eq!((env.count("close"), running.jobs().len()), ((2, 2), 6));
    gates.remind.open(10);
    env.executor.run();
    assert_eq!((env.count("close"), env.count("remind")), ((2, 2), (0, 0)));
    // The worker waits with free slots, and not for this kind: it has none.
    gates.close.open(1);
    env.executor.run();
    assert_eq!(env.count("close"), (2, 1));
    gates.close.open(10);
    env.executor.run();
    assert_eq!((env.count("close"), running.jobs().len()), ((0, 0), 0));
}

#[test]
fn if_all_kinds_are_at_their_limit_the_worker_waits_for_a_slot() {
    let (env, gates) = (TestEnv::new(), Box::leak(Box::<Gates>::default()));
    env.put_closings(0..3);
    env.put_reminders(0..3);
    let router = gated(gates).concurrency::<Close>(1).concurrency::<Remind>(0);
    let running = env.route(env.routed_worker(10), router).unwrap();
    assert_eq!((env.count("close"), env.count("remind")), ((1, 2), (0, 3)));
    for left in (0..2).rev() {
        gates.close.open(1);
        env.executor.run();
        assert_eq!(env.count("close"), (1, left));
    }
    let mut shut_down = std::pin::pin!(running.shut_down(SECOND));
    gates.close.open(1);
    env.executor.run();
    assert_eq!(crate::worker::poll(shut_down.as_mut()), Poll::Ready(vec![]));
    assert_eq!(env.count("remind"), (0, 3));
}

#[test]
fn kinds_with_and_without_a_limit_do_not_starve_each_other() {
    let (env, gates) = (TestEnv::new(), Box::leak(Box::<Gates>::default()));
    env.put_closings(0..40);
    env.put_reminders(0..40);
    let router = gated(gates).concurrency::<Close>(1);
    env.route(env.routed_worker(2), router).unwrap();
    for _ in 0..20 {
        gates.remind.open(1);
        gates.close.open(1);
        env.executor.run();
    }
    let (closings, reminders) = (env.count("close").1, env.count("remind").1);
    assert!(closings < 35 && reminders < 35, "{closings} and {reminders} have not run");
}
