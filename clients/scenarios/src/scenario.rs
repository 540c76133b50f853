//! The format of `scenarios.json`.

use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// One scenario: workers, what happens to them step by step, and what has to be seen.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The promise that the scenario checks.
    pub name: String,
    /// The clients whose language cannot do this.
    #[serde(default)]
    pub except: Vec<String>,
    /// Settings of the kind, beside short backoffs and `keep_done`.
    #[serde(default)]
    pub(crate) settings: Map<String, Value>,
    /// The workers by name, with the options of the worker program.
    pub(crate) workers: BTreeMap<String, Map<String, Value>>,
    pub(crate) steps: Vec<Step>,
    /// For each worker, what its handlers and callbacks saw, in this order and nothing else: the
    /// event, the id, and in some cases why or what is next.
    #[serde(default)]
    pub(crate) worker_events: BTreeMap<String, Vec<String>>,
    /// For each job, what the server did, in this order and nothing else: the event and the worker.
    /// Several extensions in a row count as one.
    #[serde(default)]
    pub(crate) server_events: BTreeMap<String, Vec<String>>,
    /// For how many different jobs a handler has to reach its end.
    #[serde(default)]
    pub(crate) ended: Option<usize>,
}

/// What happens next.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Step {
    /// Puts a job: the fields of a put, with the id.
    Put(Map<String, Value>),
    /// Puts jobs with the ids 0 to `count`.
    PutMany { count: usize, body: Value },
    /// Cancels a job.
    Cancel(String),
    /// Starts a worker program.
    Start(String),
    /// Sends a signal to a worker.
    Signal { worker: String, signal: SignalName },
    /// Changes the state of the server.
    Server(ServerStep),
    /// Injects a fault between the workers and the server.
    Network(NetworkStep),
    /// Waits until a worker prints an event with these fields.
    UntilEvent(WorkerEvent),
    /// Waits until a job looks like this. `last_error` has to be contained in its last error.
    UntilJob(Map<String, Value>),
    /// Waits until this many jobs are done.
    UntilDone(usize),
    /// Waits until a worker has ended, with this exit code if there is one.
    UntilExit { worker: String, code: Option<i32> },
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct WorkerEvent {
    pub(crate) worker: String,
    #[serde(flatten)]
    pub(crate) fields: Map<String, Value>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum SignalName {
    Term,
    Int,
    Kill,
    Stop,
    Cont,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ServerStep {
    /// SIGKILL.
    Kill,
    /// SIGTERM.
    Stop,
    Start,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum NetworkStep {
    /// Closes all connections. New ones are accepted.
    Cut,
    /// Forwards nothing until `release`.
    Hold,
    Release,
    /// Closes the connection of the next response after its first byte.
    LoseNextResponse,
}

impl Scenario {
    /// Returns the scenarios of `scenarios.json`.
    ///
    /// # Panics
    ///
    /// Panics if the file has another format.
    pub fn all() -> Vec<Scenario> {
        serde_json::from_str(include_str!("../scenarios.json")).expect("scenarios in this format")
    }
}
