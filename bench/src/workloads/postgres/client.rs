//! A program that is measured: it reads one command per line, and prints one line of JSON.
//!
//! ```text
//!   version                          {"version":"1.2.3"}
//!   insert COUNT DELAY               inserts COUNT jobs that are due after DELAY, 1000 per call:
//!                                    {"seconds":0.1}
//!   process WORKERS COUNT            starts a worker, processes COUNT ready jobs until all are
//!                                    finished, and stops the worker: {"seconds":0.1}
//!   late WORKERS COUNT FIRST LAST    starts a worker, then inserts COUNT jobs with delays from FIRST
//!                                    to LAST: how late each was started: {"late_us":[1200,900]}
//!   start WORKERS                    starts a worker, which runs until the program ends: {}
//!   offer COUNT                      inserts COUNT ready jobs: how many jobs the started worker had
//!                                    finished before: {"finished":3000}
//!   fill COUNT                       inserts COUNT scheduled jobs with one SQL statement: {}. Only
//!                                    the systems of `pending-10m` have it
//! ```
//!
//! Times in commands are in milliseconds. Bodies have 100 bytes; see [`job`](super::job). The program
//! creates its tables when it starts, and ends when its input ends.

use super::server::url;
use crate::workloads::program::Program;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::time::Duration;

/// More time than any command takes: filling a table with ten million jobs takes minutes.
const PATIENCE: Duration = Duration::from_secs(3600);

/// The result of a command: the fields that the command asks for.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Answer {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) finished: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) late_us: Option<Vec<i64>>,
}

pub(super) struct Client {
    program: Program,
}

impl Client {
    pub(super) fn start(program: &[impl AsRef<OsStr>], port: u16, database: &str) -> Self {
        Client { program: Program::start(program, &url(port, database)) }
    }

    pub(super) fn version(&mut self) -> String {
        self.ask("version", |answer| answer.version)
    }

    pub(super) fn insert(&mut self, count: usize, delay: Duration) {
        self.ask(&format!("insert {count} {}", delay.as_millis()), |answer| answer.seconds);
    }

    /// Returns the time in seconds.
    pub(super) fn process(&mut self, workers: usize, count: usize) -> f64 {
        self.ask(&format!("process {workers} {count}"), |answer| answer.seconds)
    }

    /// Returns how late each job was, in microseconds.
    pub(super) fn late(&mut self, workers: usize, count: usize, delays: [Duration; 2]) -> Vec<i64> {
        let [first, last] = delays.map(|delay| delay.as_millis());
        self.ask(&format!("late {workers} {count} {first} {last}"), |answer| answer.late_us)
    }

    pub(super) fn start_worker(&mut self, workers: usize) {
        self.ask(&format!("start {workers}"), Some);
    }

    /// Returns how many jobs were finished before.
    pub(super) fn offer(&mut self, count: usize) -> u64 {
        self.ask(&format!("offer {count}"), |answer| answer.finished)
    }

    pub(super) fn fill(&mut self, count: usize) {
        self.ask(&format!("fill {count}"), Some);
    }

    fn ask<T>(&mut self, line: &str, field: impl FnOnce(Answer) -> Option<T>) -> T {
        let answer = self.program.tell(line, PATIENCE);
        let value = serde_json::from_str(&answer).ok().and_then(field);
        value.unwrap_or_else(|| panic!("{} responded {answer:?} to {line:?}", self.program.shown()))
    }
}
