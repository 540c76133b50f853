//! The server and the workers, as processes that end with the test.

use crate::scenario::SignalName;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

/// A process that prints JSON Lines to stdout. It is killed on drop.
pub(crate) struct Process {
    child: Child,
    lines: Arc<Mutex<Vec<Value>>>,
    reader: Option<JoinHandle<()>>,
}

impl Process {
    pub(crate) fn start(mut command: Command) -> Result<Self, String> {
        let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut child = started.map_err(|error| format!("{command:?} did not start: {error}"))?;
        let out = child.stdout.take().expect("it is piped");
        let lines = Arc::new(Mutex::new(Vec::new()));
        let collected = Arc::clone(&lines);
        let reader = thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let value = serde_json::from_str(&line).unwrap_or(Value::String(line));
                collected.lock().expect("no thread panics").push(value);
            }
        });
        Ok(Process { child, lines, reader: Some(reader) })
    }

    /// Returns what the process has printed so far.
    pub(crate) fn lines(&self) -> Vec<Value> {
        self.lines.lock().expect("no thread panics").clone()
    }

    pub(crate) fn signal(&self, signal: SignalName) {
        let signal = match signal {
            SignalName::Term => Signal::TERM,
            SignalName::Int => Signal::INT,
            SignalName::Kill => Signal::KILL,
            SignalName::Stop => Signal::STOP,
            SignalName::Cont => Signal::CONT,
        };
        // A process that has just ended cannot be signalled, and the scenario notices that.
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    /// Returns the exit status if the process has ended and everything that it printed is there.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.child.try_wait().ok().flatten()?;
        if let Some(reader) = self.reader.take() {
            drop(reader.join());
        }
        Some(status)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Also if it is stopped by SIGSTOP. It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
