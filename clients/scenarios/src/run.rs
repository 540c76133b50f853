//! Plays the steps of a scenario, and compares what was seen with it.

use crate::events;
use crate::process::Process;
use crate::scenario::{NetworkStep, Scenario, Step};
use crate::stage::Stage;
use crate::wait::until;
use crate::{Store, WorkerProgram};
use requeue_testkit::Direction;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::path::Path;

/// Runs a scenario with the server binary `server`. Returns what went wrong, with everything that
/// was seen.
pub(crate) fn run(
    scenario: &Scenario,
    program: &WorkerProgram,
    server: &Path,
    store: &Store,
) -> Result<(), String> {
    // The server runs in another directory.
    let server = server
        .canonicalize()
        .map_err(|error| format!("there is no server {}: {error}", server.display()))?;
    let mut stage = Stage::new(scenario, program, &server, store)?;
    let result = stage.play(scenario).and_then(|()| stage.check(scenario));
    result.map_err(|problem| format!("{problem}\n{}", stage.seen()))
}

impl Stage<'_> {
    fn play(&mut self, scenario: &Scenario) -> Result<(), String> {
        for (number, step) in scenario.steps.iter().enumerate() {
            let played = self.step(step);
            played.map_err(|problem| format!("step {number}, {step:?}: {problem}"))?;
        }
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Put(fields) => {
                let mut fields = fields.clone();
                let id = fields.remove("id").ok_or("an id is missing")?;
                let path = self.job_path(id.as_str().ok_or("the id is no text")?);
                self.request("PUT", &path, Some(&Value::Object(fields)))?;
            }
            Step::PutMany { count, body } => {
                let job = |id: usize| json!({"id": id.to_string(), "body": body});
                let jobs = json!({"jobs": (0..*count).map(job).collect::<Vec<_>>()});
                self.request("POST", &format!("/v1/kinds/{}/jobs", self.kind), Some(&jobs))?;
            }
            Step::Cancel(id) => {
                self.request("DELETE", &self.job_path(id), None)?;
            }
            Step::Start(worker) => {
                self.start_worker(worker)?;
                self.until_event(worker, &json!({"event": "ready"}))?;
            }
            Step::Signal { worker, signal } => self.worker(worker)?.signal(*signal),
            Step::Server(step) => self.server_step(*step)?,
            Step::Network(NetworkStep::Cut) => self.proxy.cut(),
            Step::Network(NetworkStep::Hold) => self.proxy.hold(),
            Step::Network(NetworkStep::Release) => self.proxy.release(),
            Step::Network(NetworkStep::LoseNextResponse) => {
                self.proxy.cut_after(Direction::ToClient, 1);
            }
            Step::UntilEvent(event) => {
                self.until_event(&event.worker, &Value::Object(event.fields.clone()))?;
            }
            Step::UntilJob(job) => self.until_job(job)?,
            Step::UntilDone(count) => {
                let path = format!("/v1/kinds/{}", self.kind);
                until(|| {
                    let (_, kind) = self.request("GET", &path, None)?;
                    let done = kind["done"].as_u64().unwrap_or(0);
                    if done >= *count as u64 { Ok(()) } else { Err(format!("{done} are done")) }
                })?;
            }
            Step::UntilExit { worker, code } => {
                let process = self.worker(worker)?;
                let status = until(|| process.ended().ok_or_else(|| "it runs".to_owned()))?;
                if code.is_some() && status.code() != *code {
                    return Err(format!("it ended with {status}"));
                }
            }
        }
        Ok(())
    }

    /// Waits for a line of a worker that has these fields, and that no earlier step has waited for.
    fn until_event(&mut self, name: &str, event: &Value) -> Result<(), String> {
        let found = until(|| {
            let worker = self.workers.get_mut(name).ok_or("the worker was not started")?;
            let has_ended = worker.ended();
            let lines = worker.lines();
            let is_new = |line: usize| !self.matched.contains(&(name.to_owned(), line));
            let mut new = lines.iter().enumerate().filter(|(number, _)| is_new(*number));
            match (new.find(|(_, line)| contains(line, event)), has_ended) {
                (Some((number, _)), _) => Ok(Ok(number)),
                (None, Some(status)) => Ok(Err(format!("{name} ended with {status}"))),
                (None, None) => Err(format!("{name} did not print it")),
            }
        })??;
        self.matched.insert((name.to_owned(), found));
        Ok(())
    }

    fn until_job(&self, job: &Map<String, Value>) -> Result<(), String> {
        let mut expected = job.clone();
        let id = expected.get("id").and_then(Value::as_str).ok_or("an id is missing")?;
        let path = self.job_path(id);
        let error = expected.remove("last_error");
        let error = error.map(|error| error.as_str().unwrap_or("").replace("KIND", &self.kind));
        let expected = Value::Object(expected);
        let is_absent = expected["state"] == "absent";
        until(|| {
            let (status, job) = self.request_any("GET", &path, None)?;
            let last = job["failures"].as_array().and_then(|failures| failures.last());
            let last = last.and_then(|failure| failure["error"].as_str()).unwrap_or("");
            let has_error = error.as_ref().is_none_or(|error| last.contains(error));
            let matches = if is_absent { status == 404 } else { contains(&job, &expected) };
            if matches && has_error { Ok(()) } else { Err(format!("the job is {job}")) }
        })
    }

    /// Compares what workers and server did with the scenario.
    fn check(&mut self, scenario: &Scenario) -> Result<(), String> {
        for (name, expected) in &scenario.worker_events {
            let worker = self.worker(name)?;
            let texts = || worker.lines().iter().filter_map(worker_event).collect::<Vec<String>>();
            // The last one may follow a change of the job that a step waited for.
            let _ =
                until(|| if texts().len() < expected.len() { Err(String::new()) } else { Ok(()) });
            let mut texts = texts();
            // The handler and the callback run at the same time.
            for number in 1..texts.len() {
                if texts[number - 1].starts_with("lost") && texts[number].starts_with("stopped") {
                    texts.swap(number - 1, number);
                }
            }
            let same = |(text, expected): (&String, &String)| {
                // A language may not tell a handler why it is stopped.
                text == expected || (text.starts_with("stopped") && expected.starts_with(text))
            };
            if texts.len() != expected.len() || !texts.iter().zip(expected).all(same) {
                return Err(format!("{name} printed {texts:?}; expected {expected:?}"));
            }
        }
        if let Some(count) = scenario.ended {
            let lines = self.workers.values().flat_map(Process::lines);
            let ended = lines.filter(|line| line["event"] == "end" && line["how"] == "return");
            let ended = BTreeSet::from_iter(ended.map(|line| line["id"].to_string()));
            if ended.len() != count {
                return Err(format!("{} jobs reached their end; expected {count}", ended.len()));
            }
        }
        for (id, expected) in &scenario.server_events {
            let texts = || events::of_job(&self.server_events(), id);
            // Events are sent after the response.
            let _ =
                until(|| if texts().len() < expected.len() { Err(String::new()) } else { Ok(()) });
            let texts = texts();
            if texts != *expected {
                return Err(format!("the server did {texts:?}; expected {expected:?}"));
            }
        }
        self.check_acked_once()
    }

    /// No generation of a job is acked twice.
    fn check_acked_once(&self) -> Result<(), String> {
        let mut acked = BTreeSet::new();
        for event in self.server_events().iter().filter(|event| event["event"] == "acked") {
            let key = (event["id"].to_string(), event["generation"].to_string());
            if !acked.insert(key) {
                return Err(format!("acked twice: {event}"));
            }
        }
        Ok(())
    }
}

/// Returns an event of a handler or a callback as text, or `None` if it may occur at any time.
fn worker_event(line: &Value) -> Option<String> {
    let event = line["event"].as_str()?;
    let id = line["id"].as_str().unwrap_or_default();
    match event {
        "start" | "end" | "lost" => Some(format!("{event} {id}")),
        "rescheduled" => {
            Some(format!("rescheduled {id} {}", line["result"].as_str().unwrap_or_default()))
        }
        "failed" => Some(format!("failed {id} {}", line["next"].as_str().unwrap_or_default())),
        "stopped" => {
            let why = line["why"].as_str().unwrap_or_default();
            Some(format!("stopped {id} {why}").trim_end().to_owned())
        }
        _ => None,
    }
}

/// Whether `value` has all fields of `expected`, at all levels.
fn contains(value: &Value, expected: &Value) -> bool {
    match expected {
        Value::Object(fields) => fields.iter().all(|(name, field)| contains(&value[name], field)),
        other => value == other,
    }
}
