//! The worker of the Rust client that the scenarios drive: runs the jobs of one kind, whose bodies say
//! how they end, and prints what happens as JSON Lines.
//!
//! `REQUEUE_SERVER` is the URL of the server, and `REQUEUE_TOKEN` the token, if it needs one. The argument
//! is JSON: see [`Args`].

use requeue_http::HttpStore;
use requeue_http::client::{Options, Secret};
use requeue_http::times::parse_duration;
use requeue_jobs::{
    BoxError, ChangeError, JobId, JobOutcome, JobWorker, Jobs, Next, Outcome, Placed, Router,
    TaskContext,
};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::env;
use std::future::pending;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[derive(Deserialize)]
struct Args {
    kind: String,
    #[serde(default = "default_name")]
    name: String,
    #[serde(default = "default_concurrency")]
    concurrency: usize,
    #[serde(default = "default_duration", deserialize_with = "duration")]
    lease: Duration,
    #[serde(default = "default_duration", deserialize_with = "duration")]
    grace: Duration,
    #[serde(default, deserialize_with = "some_duration")]
    timeout: Option<Duration>,
}

fn default_name() -> String {
    "rust".to_owned()
}

fn default_concurrency() -> usize {
    10
}

fn default_duration() -> Duration {
    Duration::from_secs(30)
}

fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(from)?;
    parse_duration(&text).map_err(serde::de::Error::custom)
}

fn some_duration<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    duration(from).map(Some)
}

/// The body of a job: how its handler ends.
#[derive(Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
enum Action {
    Return {
        result: Option<Value>,
    },
    Fail {
        error: String,
    },
    /// Fails before this attempt, and then returns.
    FailBefore {
        attempt: u32,
    },
    Panic,
    GiveUp {
        reason: String,
    },
    /// The first time in this process, and then returns.
    RequeueAfter {
        #[serde(deserialize_with = "duration")]
        delay: Duration,
    },
    /// At the first attempt, and then returns.
    RetryAfter {
        #[serde(deserialize_with = "duration")]
        delay: Duration,
        error: String,
    },
    #[serde(alias = "stubborn")]
    Sleep {
        #[serde(rename = "for", deserialize_with = "duration")]
        time: Duration,
    },
    Block,
    /// Reschedules another job, and then returns.
    Reschedule {
        id: String,
        #[serde(default, deserialize_with = "some_duration")]
        delay: Option<Duration>,
        priority: Option<u8>,
        body: Option<Value>,
        #[serde(default)]
        if_own_generation: bool,
    },
}

struct State {
    jobs: Jobs,
    /// The ids of the jobs that were requeued.
    requeued: Mutex<HashSet<JobId>>,
}

async fn handle(action: Action, context: TaskContext<State>) -> Result<JobOutcome, BoxError> {
    let job = &context.run.job;
    print(&json!({
        "event": "start",
        "id": job.id().as_str(),
        "attempt": context.run.attempt,
        "generation": job.version.generation.0,
        "fence": job.receipt.fence().0,
    }));
    let running = StopReporter(job.id().clone());
    let (how, result) = match action {
        Action::Return { result: None } => ("return", Ok(Outcome::Done.into())),
        Action::Return { result: Some(result) } => {
            ("return", JobOutcome::done_with_json(&result).map_err(BoxError::from))
        }
        Action::Fail { error } => ("fail", Err(error.into())),
        Action::FailBefore { attempt } if context.run.attempt < attempt => {
            ("fail", Err(format!("attempt {} fails", context.run.attempt).into()))
        }
        Action::FailBefore { .. } => ("return", Ok(Outcome::Done.into())),
        Action::Panic => {
            running.end("fail");
            panic!("the body requests a panic")
        }
        Action::GiveUp { reason } => ("give_up", Ok(Outcome::give_up(reason).into())),
        Action::RequeueAfter { delay } if is_first(&context) => {
            ("requeue_after", Ok(Outcome::RequeueAfter(delay).into()))
        }
        Action::RequeueAfter { .. } => ("return", Ok(Outcome::Done.into())),
        Action::RetryAfter { delay, error } if context.run.attempt == 1 => {
            ("retry_after", Ok(JobOutcome::retry_after(delay, error)))
        }
        Action::RetryAfter { .. } => ("return", Ok(Outcome::Done.into())),
        Action::Sleep { time } => {
            tokio::time::sleep(time).await;
            ("return", Ok(Outcome::Done.into()))
        }
        Action::Block => pending().await,
        Action::Reschedule { id, delay, priority, body, if_own_generation } => {
            let mut change = context.state.jobs.reschedule(job.kind().as_str(), &id);
            if let Some(delay) = delay {
                change = change.after(delay);
            }
            if let Some(priority) = priority {
                change = change.priority(priority);
            }
            if let Some(body) = body {
                change = change.body(body.to_string()).content_type("application/json");
            }
            if if_own_generation {
                change = change.if_generation(job.version.generation);
            }
            let result = rescheduled(change.await)?;
            print(&json!({"event": "rescheduled", "id": id, "result": result}));
            ("return", Ok(Outcome::Done.into()))
        }
    };
    running.end(how);
    result
}

/// Returns the outcome of a reschedule, or the name of its problem.
fn rescheduled(result: Result<Placed, ChangeError>) -> Result<String, ChangeError> {
    match result {
        Ok(placed) => Ok(format!("{:?}", placed.outcome).to_lowercase()),
        Err(ChangeError::Absent { .. }) => Ok("absent".to_owned()),
        Err(ChangeError::Done { .. }) => Ok("done".to_owned()),
        Err(ChangeError::Generation { .. }) => Ok("other-generation".to_owned()),
        Err(error) => Err(error),
    }
}

fn is_first(context: &TaskContext<State>) -> bool {
    let mut requeued = context.state.requeued.lock().expect("no panic while it is locked");
    requeued.insert(context.run.job.id().clone())
}

/// Reports that the handler was stopped, if it is dropped before the handler ends by itself.
struct StopReporter(JobId);

impl StopReporter {
    fn end(self, how: &str) {
        print(&json!({"event": "end", "id": self.0.as_str(), "how": how}));
        std::mem::forget(self);
    }
}

impl Drop for StopReporter {
    fn drop(&mut self) {
        print(&json!({"event": "stopped", "id": self.0.as_str()}));
    }
}

/// Prints an event. An error means that the reader has ended, and is ignored.
fn print(event: &Value) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{event}").and_then(|()| out.flush());
}

fn worker(jobs: &Jobs, args: &Args) -> Result<JobWorker, BoxError> {
    let worker = JobWorker::new(jobs, [], &args.name)?
        .concurrency(args.concurrency)
        .lease(args.lease)?
        .on_failure(|failure| {
            let next = match failure.next {
                Next::RetryIn(_) => "retry",
                Next::Dead => "dead",
                _ => "unknown",
            };
            let (id, attempt) = (failure.job.id().as_str(), failure.attempt);
            print(&json!({"event": "failed", "id": id, "attempt": attempt, "next": next}));
        })
        .on_lost(|job, _| print(&json!({"event": "lost", "id": job.id().as_str()})))
        .on_store_error(|error| print(&json!({"event": "error", "message": error.to_string()})));
    Ok(match args.timeout {
        Some(timeout) => worker.timeout(timeout),
        None => worker,
    })
}

#[tokio::main]
async fn main() -> Result<ExitCode, BoxError> {
    let args = env::args().nth(1).ok_or("the argument, a JSON object, is missing")?;
    let args: Args = serde_json::from_str(&args)?;
    let mut options = Options::default();
    options.token = env::var("REQUEUE_TOKEN").ok().map(Secret::from);
    let store = HttpStore::connect_with(&env::var("REQUEUE_SERVER")?, options)?;
    let jobs = Jobs::new(Arc::new(store));

    let router = Router::new(State { jobs: jobs.clone(), requeued: Mutex::default() })
        .on_kind(&args.kind, handle);
    let worker = worker(&jobs, &args)?;
    print(&json!({"event": "ready"}));
    let running = worker.spawn_router(router)?;
    let stopped = running.run_until_signal(args.grace).await?;
    print(&json!({"event": "exit", "stopped": stopped.len()}));
    Ok(if stopped.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
