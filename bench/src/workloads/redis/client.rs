//! A program that is measured: it reads one command per line, and prints one line of results.
//!
//! ```text
//!   version                           its version
//!   bulk COUNT DELAY                  puts COUNT jobs from one caller, many per call: nanoseconds
//!   put CALLERS COUNT DELAY           puts COUNT jobs, one per call: nanoseconds
//!   fill COUNT DELAY                  puts COUNT jobs in the fastest way
//!   process CONCURRENCY COUNT         processes COUNT ready jobs: nanoseconds until all are acked
//!   late CONCURRENCY COUNT LEAD SPREAD    puts jobs that are due over SPREAD, LEAD from now, while
//!                                     a worker waits: the delay of each, in microseconds
//!   wait WORKERS                      starts idle workers
//! ```
//!
//! Times in commands are in milliseconds. The program ends when its input ends.

use crate::workloads::program::Program;
use std::ffi::OsStr;
use std::time::Duration;

/// More time than any command takes.
const PATIENCE: Duration = Duration::from_secs(180);

pub(super) struct Client {
    program: Program,
}

impl Client {
    pub(super) fn start(program: &[impl AsRef<OsStr>], port: u16) -> Self {
        Client { program: Program::start(program, &format!("redis://127.0.0.1:{port}")) }
    }

    pub(super) fn tell(&mut self, line: &str) -> String {
        self.program.tell(line, PATIENCE)
    }

    pub(super) fn number(&mut self, line: &str) -> f64 {
        let answer = self.tell(line);
        let number = answer.parse();
        number
            .unwrap_or_else(|_| panic!("{} responded {answer:?} to {line:?}", self.program.shown()))
    }

    pub(super) fn cpu_time(&self) -> Duration {
        self.program.cpu_time()
    }
}
