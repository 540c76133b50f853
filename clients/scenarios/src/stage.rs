//! A server, the proxy in front of it, and workers: what a scenario plays with.

use crate::events::ServerEvents;
use crate::http::request;
use crate::process::Process;
use crate::scenario::{Scenario, ServerStep, SignalName};
use crate::wait::until;
use crate::{Store, WorkerProgram};
use requeue_testkit::Proxy;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A server, the proxy in front of it, and the workers.
pub(crate) struct Stage<'a> {
    scenario: &'a Scenario,
    program: &'a WorkerProgram,
    server_binary: &'a Path,
    store: &'a Store,
    pub(crate) kind: String,
    dir: PathBuf,
    pub(crate) address: SocketAddr,
    pub(crate) proxy: Proxy,
    server: Option<(Process, ServerEvents)>,
    /// What the server did before it was killed or stopped.
    earlier_events: Vec<Value>,
    pub(crate) workers: BTreeMap<String, Process>,
    /// The lines of workers, by their number, that steps have waited for.
    pub(crate) matched: BTreeSet<(String, usize)>,
}

impl<'a> Stage<'a> {
    pub(crate) fn new(
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
        // The port has to stay the same when the server is restarted.
        let (address, server) = until(|| {
            let address = free_address().map_err(|error| format!("no free port: {error}"))?;
            Ok((address, start_server(server_binary, store, &dir, address)?))
        })?;
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

    pub(crate) fn start_worker(&mut self, name: &str) -> Result<(), String> {
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
        Ok(())
    }

    pub(crate) fn server_step(&mut self, step: ServerStep) -> Result<(), String> {
        if let ServerStep::Start = step {
            // A connection of another process may have the port for a moment.
            self.server = Some(until(|| {
                start_server(self.server_binary, self.store, &self.dir, self.address)
            })?);
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

    /// What the server did, in all of its processes.
    pub(crate) fn server_events(&self) -> Vec<Value> {
        let current = self.server.iter().flat_map(|(_, events)| events.so_far());
        self.earlier_events.iter().cloned().chain(current).collect()
    }

    pub(crate) fn seen(&self) -> String {
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

    pub(crate) fn worker(&mut self, name: &str) -> Result<&mut Process, String> {
        self.workers.get_mut(name).ok_or_else(|| format!("{name} was not started"))
    }

    fn log_of(&self, worker: &str) -> PathBuf {
        self.dir.join(format!("{worker}.log"))
    }

    pub(crate) fn job_path(&self, id: &str) -> String {
        format!("/v1/kinds/{}/jobs/{id}", self.kind)
    }

    /// Sends a request that has to succeed.
    pub(crate) fn request(
        &self,
        method: &str,
        path: &str,
        content: Option<&Value>,
    ) -> Result<(u16, Value), String> {
        let (status, response) = self.request_any(method, path, content)?;
        let is_success = (200..300).contains(&status);
        if is_success { Ok((status, response)) } else { Err(format!("{status}: {response}")) }
    }

    pub(crate) fn request_any(
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
    let mut command = Command::new(binary);
    command.args(["serve", "--json", "--listen", &address.to_string()]).current_dir(dir);
    match store {
        Store::Disk => command.args(["--data", "data"]),
        Store::Url(url) => command.args(["--store", url]),
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
