//! Runs one scenario with one worker program on one store.

use crate::events::{self, ServerEvents};
use crate::http::request;
use crate::process::Process;
use crate::scenario::{NetworkStep, Scenario, ServerStep, SignalName, Step};
use requeue_testkit::{Direction, Proxy};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The time limit of everything that a scenario waits for. Only a broken worker takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// The time between two looks at another process.
const LOOK: Duration = Duration::from_millis(5);

/// The store of the server.
#[derive(Debug, Clone)]
pub enum Store {
    /// A temporary directory.
    Disk,
    /// The Redis of this URL.
    Redis(String),
}

/// The program that runs the workers of a scenario.
#[derive(Debug, Clone)]
pub struct WorkerProgram {
    /// The client: scenarios can except it.
    pub client: String,
    /// The program and its first arguments.
    pub command: Vec<String>,
}

/// Runs a scenario with the server binary `server`. Returns what went wrong, with everything that
/// was seen.
pub(crate) fn run(
    scenario: &Scenario,
    program: &WorkerProgram,
    server: &Path,
    store: &Store,
) -> Result<(), String> {
    let mut stage = Stage::new(scenario, program, server, store)?;
    let result = stage.play(scenario).and_then(|()| stage.check(scenario));
    result.map_err(|problem| format!("{problem}\n{}", stage.seen()))
}

/// A server, the proxy in front of it, and the workers.
struct Stage<'a> {
    scenario: &'a Scenario,
    program: &'a WorkerProgram,
    server_binary: &'a Path,
    store: &'a Store,
    kind: String,
    dir: PathBuf,
    address: SocketAddr,
    proxy: Proxy,
    server: Option<(Process, ServerEvents)>,
    /// What the server did before it was killed or stopped.
    earlier_events: Vec<Value>,
    workers: BTreeMap<String, Process>,
    /// The lines of workers, by their number, that steps have waited for.
    matched: BTreeSet<(String, usize)>,
}

impl<'a> Stage<'a> {
    fn new(
        scenario: &'a Scenario,
        program: &'a WorkerProgram,
        server_binary: &'a Path,
        store: &'a Store,
    ) -> Result<Self, String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let kind =
            format!("scenario-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let dir = std::env::temp_dir().join(format!("requeue-{kind}"));
        fs::create_dir(&dir)
            .map_err(|error| format!("cannot create {}: {error}", dir.display()))?;
        // The port has to stay the same when the server is restarted. If another process takes it in
        // between, the server does not start, and another port is tried.
        let start = || {
            let address = free_address().map_err(|error| format!("no free port: {error}"))?;
            Ok((address, start_server(server_binary, store, &dir, address)?))
        };
        let mut started: Result<_, String> = start();
        for _ in 0..20 {
            started = started.or_else(|_| start());
        }
        let (address, server) = started?;
        let proxy = Proxy::to(address).map_err(|error| format!("no proxy: {error}"))?;
        let stage = Stage {
            scenario,
            program,
            server_binary,
            store,
            kind,
            dir,
            address,
            proxy,
            server: Some(server),
            earlier_events: Vec::new(),
            workers: BTreeMap::new(),
            matched: BTreeSet::new(),
        };
        let mut settings = json!({
            "backoff": {"base": "50ms", "max": "100ms"},
            "keep_done": {"for": "1h"},
        });
        let fields = settings.as_object_mut().expect("an object");
        fields.extend(scenario.settings.clone());
        stage.request("PUT", &format!("/v1/kinds/{}", stage.kind), Some(&settings))?;
        Ok(stage)
    }

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
            Step::Start(name) => self.start_worker(name)?,
            Step::Signal { worker, signal } => self.worker(worker)?.signal(*signal),
            Step::Server(step) => self.server_step(*step)?,
            Step::Network(NetworkStep::Cut) => self.proxy.cut(),
            Step::Network(NetworkStep::Hold) => self.proxy.hold(),
            Step::Network(NetworkStep::Release) => self.proxy.release(),
            Step::Network(NetworkStep::LoseNextResponse) => {
                self.proxy.cut_after(Direction::ToClient, 1);
            }
            Step::UntilEvent(event) => self.until_event(event)?,
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

    fn start_worker(&mut self, name: &str) -> Result<(), String> {
        let mut options = self.scenario.workers.get(name).ok_or("no such worker")?.clone();
        options.insert("name".to_owned(), name.into());
        options.insert("kind".to_owned(), self.kind.as_str().into());
        let (program, arguments) = self.program.command.split_first().ok_or("no program")?;
        let mut command = Command::new(program);
        command.args(arguments).arg(Value::Object(options).to_string());
        command.env("REQUEUE_SERVER", format!("http://{}", self.proxy.address()));
        command.env_remove("REQUEUE_TOKEN");
        let log = File::create(self.log_of(name)).map_err(|error| format!("no log: {error}"))?;
        command.stderr(log);
        self.workers.insert(name.to_owned(), Process::start(command)?);
        self.until_event(&Map::from_iter([
            ("worker".to_owned(), name.into()),
            ("event".to_owned(), "ready".into()),
        ]))
    }

    fn server_step(&mut self, step: ServerStep) -> Result<(), String> {
        if let ServerStep::Start = step {
            let started = start_server(self.server_binary, self.store, &self.dir, self.address)?;
            self.server = Some(started);
            return Ok(());
        }
        let (mut process, events) = self.server.take().ok_or("the server is not running")?;
        process.signal(match step {
            ServerStep::Kill => SignalName::Kill,
            ServerStep::Stop | ServerStep::Start => SignalName::Term,
        });
        until(|| process.ended().ok_or_else(|| "it runs".to_owned()))?;
        self.earlier_events.extend(events.all());
        Ok(())
    }

    /// Waits for a line of a worker that has these fields, and that no earlier step has waited for.
    fn until_event(&mut self, event: &Map<String, Value>) -> Result<(), String> {
        let mut event = event.clone();
        let name = event.remove("worker").ok_or("a worker is missing")?;
        let name = name.as_str().ok_or("the worker is no text")?.to_owned();
        let event = Value::Object(event);
        let found = until(|| {
            let worker = self.workers.get_mut(&name).ok_or("the worker was not started")?;
            let has_ended = worker.ended();
            let lines = worker.lines();
            let is_new = |line: usize| !self.matched.contains(&(name.clone(), line));
            let mut new = lines.iter().enumerate().filter(|(number, _)| is_new(*number));
            match (new.find(|(_, line)| contains(line, &event)), has_ended) {
                (Some((number, _)), _) => Ok(Ok(number)),
                (None, Some(status)) => Ok(Err(format!("{name} ended with {status}"))),
                (None, None) => Err(format!("{name} did not print it")),
            }
        })??;
        self.matched.insert((name, found));
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

    /// What the server did, in all of its processes.
    fn server_events(&self) -> Vec<Value> {
        let current = self.server.iter().flat_map(|(_, events)| events.so_far());
        self.earlier_events.iter().cloned().chain(current).collect()
    }

    fn seen(&self) -> String {
        let mut text = String::from("What the server did:\n");
        for event in self.server_events() {
            text.push_str(&format!("  {event}\n"));
        }
        for (name, worker) in &self.workers {
            text.push_str(&format!("What {name} printed:\n"));
            for line in worker.lines() {
                text.push_str(&format!("  {line}\n"));
            }
            let log = fs::read_to_string(self.log_of(name)).unwrap_or_default();
            text.push_str(&format!("What {name} printed to stderr:\n{log}\n"));
        }
        text
    }

    fn worker(&mut self, name: &str) -> Result<&mut Process, String> {
        self.workers.get_mut(name).ok_or_else(|| format!("{name} was not started"))
    }

    fn log_of(&self, worker: &str) -> PathBuf {
        self.dir.join(format!("{worker}.log"))
    }

    fn job_path(&self, id: &str) -> String {
        format!("/v1/kinds/{}/jobs/{id}", self.kind)
    }

    /// Sends a request that has to succeed.
    fn request(
        &self,
        method: &str,
        path: &str,
        content: Option<&Value>,
    ) -> Result<(u16, Value), String> {
        let (status, response) = self.request_any(method, path, content)?;
        let is_success = (200..300).contains(&status);
        if is_success { Ok((status, response)) } else { Err(format!("{status}: {response}")) }
    }

    fn request_any(
        &self,
        method: &str,
        path: &str,
        content: Option<&Value>,
    ) -> Result<(u16, Value), String> {
        request(self.address, method, path, content)
            .map_err(|error| format!("{method} {path}: {error}"))
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        self.workers.clear();
        drop(self.server.take());
        // Best effort.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Starts a server and waits until it listens.
fn start_server(
    binary: &Path,
    store: &Store,
    dir: &Path,
    address: SocketAddr,
) -> Result<(Process, ServerEvents), String> {
    // The server runs in another directory.
    let binary = binary
        .canonicalize()
        .map_err(|error| format!("there is no server {}: {error}", binary.display()))?;
    let mut command = Command::new(binary);
    command.args(["serve", "--json", "--listen", &address.to_string()]).current_dir(dir);
    match store {
        Store::Disk => command.args(["--data", "data"]),
        Store::Redis(url) => command.args(["--store", url]),
    };
    for name in ["SERVER", "TOKEN", "READ_TOKEN", "STORE", "LISTEN"] {
        command.env_remove(format!("REQUEUE_{name}"));
    }
    command.env("REQUEUE_LOG", "error");
    let mut process = Process::start(command)?;
    until(|| match (process.lines().is_empty(), process.ended()) {
        (false, _) => Ok(Ok(())),
        (true, Some(status)) => Ok(Err(format!("the server ended with {status}"))),
        (true, None) => Err("the server does not listen".to_owned()),
    })??;
    let events = ServerEvents::of(address).map_err(|error| format!("no events: {error}"))?;
    Ok((process, events))
}

fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}

/// Returns an event of a handler or a callback as text, or `None` if it may occur at any time.
fn worker_event(line: &Value) -> Option<String> {
    let event = line["event"].as_str()?;
    let id = line["id"].as_str().unwrap_or_default();
    match event {
        "start" | "end" | "lost" => Some(format!("{event} {id}")),
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

/// Polls until there is a value, since other processes cannot notify us.
fn until<T>(mut poll: impl FnMut() -> Result<T, String>) -> Result<T, String> {
    let end = Instant::now() + PATIENCE;
    loop {
        match poll() {
            Err(problem) if Instant::now() > end => return Err(format!("timed out: {problem}")),
            Err(_) => std::thread::park_timeout(LOOK),
            Ok(value) => return Ok(value),
        }
    }
}
