//! What a worker tells: a line per attempt, on stderr; in JSON on stdout, where what commands
//! print to stdout then does not go.

use crate::failure::chain;
use crate::out::{Out, cut, note, plain};
use crate::shown::CELL;
use crate::times::{rough, show_duration};
use requeue_jobs::{Cause, ClaimedJob, JobFailure, Next, RunningJob, SettleError, StoreError};
use serde_json::{Value, json};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

pub(super) struct Report {
    pub(super) out: Out,
    /// Nothing of jobs that went well.
    quiet: bool,
    /// The store's latest trouble, and when it was told.
    trouble: Mutex<Option<(String, Instant)>>,
}

/// The same trouble is told no more often.
const AGAIN: Duration = Duration::from_secs(30);

impl Report {
    pub(super) fn new(out: Out, quiet: bool) -> Self {
        Report { out, quiet, trouble: Mutex::default() }
    }

    pub(super) fn started(&self, worker: &str, kinds: &[String]) {
        self.tell(
            || json!({ "event": "started", "worker": worker, "kinds": kinds }),
            || format!("{} works on {}", plain(worker), kinds.join(", ")),
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
            Next::RetryIn(delay) => ("failed", format!("again in {}", rough(delay)), Some(delay)),
            Next::Dead => ("dead", "attempts used up".to_owned(), None),
            _ => ("failed", "not tried again".to_owned(), None),
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
            || format!("lost {}, it may run elsewhere: {}", name(job), brief(&error)),
        );
    }

    /// Once, and now and then while it lasts.
    pub(super) fn trouble(&self, error: &StoreError) {
        let (told, now) = (chain(error), Instant::now());
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((last, at)) = &*trouble
            && *last == told
            && now.saturating_duration_since(*at) < AGAIN
        {
            return;
        }
        *trouble = Some((told.clone(), now));
        drop(trouble);
        self.tell(
            || json!({ "event": "trouble", "error": told }),
            || format!("trouble: {}; trying again", brief(&told)),
        );
    }

    pub(super) fn stopping(&self, running: &[RunningJob], grace: Duration) {
        self.tell(
            || json!({ "event": "stopping", "running": running.len() }),
            || {
                let grace = show_duration(grace);
                match running.len() {
                    0 => "stopping".to_owned(),
                    1 => {
                        format!("stopping: a command runs, and gets {grace}; a signal ends it now")
                    }
                    count => format!(
                        "stopping: {count} commands run, and get {grace}; a signal ends them now"
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

    /// What could not even be killed, or settled.
    pub(super) fn abandoned(&self, left: &[RunningJob]) {
        for RunningJob { job, .. } in left {
            self.tell(
                || event("abandoned", job, &[]),
                || format!("abandoned {}: it comes back when its lease expires", name(job)),
            );
        }
    }

    fn tell(&self, json: impl FnOnce() -> Value, text: impl FnOnce() -> String) {
        if self.out.json {
            // That nobody reads reports is no reason to stop working.
            use std::io::Write;
            let _ = writeln!(std::io::stdout(), "{}", json());
        } else {
            note(&text());
        }
    }
}

fn millis(duration: Duration) -> Duration {
    Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

fn name(job: &ClaimedJob) -> String {
    let attempt = job.attempt;
    let attempt = if attempt > 1 { format!(", attempt {attempt}") } else { String::new() };
    format!("{}/{}{attempt}", job.kind(), plain(job.id().as_str()))
}

/// An error's last line: what a command prints in the end says most.
fn brief(error: &str) -> String {
    plain(&cut(error.trim().lines().last().unwrap_or_default(), 2 * CELL))
}

fn event(word: &str, job: &ClaimedJob, more: &[(&str, Value)]) -> Value {
    let mut event = json!({
        "event": word,
        "kind": job.kind().as_str(),
        "id": job.id().as_str(),
        "attempt": job.attempt,
        "generation": job.generation.0,
    });
    for (name, value) in more {
        event[*name] = value.clone();
    }
    event
}
