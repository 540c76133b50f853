//! Reports of a worker: one line per attempt on stderr. With `--json`, one object per line on
//! stdout; the stdout of commands then goes to stderr.

use crate::error::chain;
use crate::format::CELL_WIDTH;
use crate::output::{Output, count, escape, print_note, truncate};
use crate::times::{rough, show_duration};
use requeue_jobs::{Cause, ClaimedJob, JobFailure, Next, RunningJob, SettleError, StoreError};
use serde_json::{Value, json};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

pub(super) struct Report {
    pub(super) out: Output,
    /// Whether jobs that are done are left out.
    quiet: bool,
    /// The last error of the store, and when it was reported.
    store_error: Mutex<Option<(String, Instant)>>,
}

/// Minimum time between two reports of the same store error.
const REPEAT_INTERVAL: Duration = Duration::from_secs(30);

impl Report {
    pub(super) fn new(out: Output, quiet: bool) -> Self {
        Report { out, quiet, store_error: Mutex::default() }
    }

    pub(super) fn started(&self, worker: &str, kinds: &[String]) {
        self.tell(
            || json!({ "event": "started", "worker": worker, "kinds": kinds }),
            || format!("worker {} waits for jobs of {}", escape(worker), kinds.join(", ")),
        );
    }

    pub(super) fn done(&self, job: &ClaimedJob, took: Duration) {
        if !self.quiet {
            let json = || event("done", job, &[("took", show_duration(millis(took)).into())]);
            self.tell(json, || format!("done {}, {}", name(job), rough(took)));
        }
    }

    fn buried(&self, job: &ClaimedJob, error: &str, took: Duration) {
        let took_text = show_duration(millis(took)).into();
        self.tell(
            || event("dead", job, &[("took", took_text), ("error", error.into())]),
            || format!("dead {}, {}: {}", name(job), rough(took), brief(error)),
        );
    }

    pub(super) fn failed(&self, failed: &JobFailure<'_>) {
        if let (Cause::GaveUp(reason), Next::Dead) = (failed.cause, failed.next) {
            return self.buried(failed.job, reason, failed.took);
        }
        let error = failed.cause.to_string();
        let (word, next, retry_in) = match failed.next {
            Next::RetryIn(delay) => ("failed", format!("retry in {}", rough(delay)), Some(delay)),
            Next::Dead => ("dead", "no attempts left".to_owned(), None),
            _ => ("failed", "no retry".to_owned(), None),
        };
        let retry_in = retry_in.map(|delay| show_duration(millis(delay)));
        self.tell(
            || {
                event(
                    word,
                    failed.job,
                    &[("error", error.as_str().into()), ("retry_in", retry_in.into())],
                )
            },
            || format!("{word} {}, {next}: {}", name(failed.job), brief(&error)),
        );
    }

    pub(super) fn lost(&self, job: &ClaimedJob, error: &SettleError) {
        let error = chain(error);
        self.tell(
            || event("lost", job, &[("error", error.as_str().into())]),
            || format!("lost {}, another worker may run it: {}", name(job), brief(&error)),
        );
    }

    /// Reports an error of the store once, and again every [`REPEAT_INTERVAL`] while it lasts.
    pub(super) fn trouble(&self, error: &StoreError) {
        let (message, now) = (chain(error), Instant::now());
        let mut last_error = self.store_error.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((last, at)) = &*last_error
            && *last == message
            && now.saturating_duration_since(*at) < REPEAT_INTERVAL
        {
            return;
        }
        *last_error = Some((message.clone(), now));
        drop(last_error);
        self.tell(
            || json!({ "event": "trouble", "error": message }),
            || format!("error: {}; trying again", brief(&message)),
        );
    }

    pub(super) fn stopping(&self, running: &[RunningJob], grace: Duration) {
        self.tell(
            || json!({ "event": "stopping", "running": running.len() }),
            || {
                let grace = show_duration(grace);
                match running.len() {
                    0 => "stopping".to_owned(),
                    running => format!(
                        "stopping: {} may run for {grace}; send another signal to stop now",
                        count(running as u64, "command"),
                    ),
                }
            },
        );
    }

    pub(super) fn killing(&self, left: &[RunningJob]) {
        for RunningJob { job, .. } in left {
            self.tell(|| event("killing", job, &[]), || format!("killing {}", name(job)));
        }
    }

    /// Reports jobs whose commands could not be killed, or which could not be settled.
    pub(super) fn abandoned(&self, left: &[RunningJob]) {
        for RunningJob { job, .. } in left {
            self.tell(
                || event("abandoned", job, &[]),
                || format!("abandoned {}: it is claimed again when its lease expires", name(job)),
            );
        }
    }

    fn tell(&self, json: impl FnOnce() -> Value, text: impl FnOnce() -> String) {
        if self.out.json {
            // The worker continues even if nobody reads its reports.
            let _ = self.out.print_json(&json());
        } else {
            print_note(&text());
        }
    }
}

fn millis(duration: Duration) -> Duration {
    Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

fn name(job: &ClaimedJob) -> String {
    let attempt = job.attempt;
    let attempt = if attempt > 1 { format!(", attempt {attempt}") } else { String::new() };
    format!("{}/{}{attempt}", job.kind(), escape(job.id().as_str()))
}

/// The last line of an error, which is usually the most useful one.
fn brief(error: &str) -> String {
    escape(&truncate(error.trim().lines().last().unwrap_or_default(), 2 * CELL_WIDTH))
}

fn event(word: &str, job: &ClaimedJob, more: &[(&str, Value)]) -> Value {
    let mut event = json!({
        "event": word,
        "kind": job.kind().as_str(),
        "id": job.id().as_str(),
        "attempt": job.attempt,
        "generation": job.version.generation.0,
    });
    for (name, value) in more {
        event[*name] = value.clone();
    }
    event
}
