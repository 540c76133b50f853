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

use crate::workloads::usage;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

/// More time than any command takes.
const PATIENCE: Duration = Duration::from_secs(180);
/// The time in which it must end before it is killed.
const GRACE: Duration = Duration::from_secs(2);

pub(super) struct Client {
    process: Child,
    /// `None` after the last command.
    commands: Option<ChildStdin>,
    answers: Receiver<String>,
    shown: String,
}

impl Client {
    pub(super) fn start(program: &[impl AsRef<OsStr>], port: u16) -> Self {
        let mut command = Command::new(&program[0]);
        command.args(&program[1..]).arg(format!("redis://127.0.0.1:{port}"));
        let shown = format!("{command:?}");
        let process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut process =
            process.unwrap_or_else(|error| panic!("could not start {shown}: {error}"));
        let commands = process.stdin.take();
        let lines = BufReader::new(process.stdout.take().expect("it is piped")).lines();
        let (sender, answers) = mpsc::channel();
        // A read from a pipe has no timeout.
        thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Client { process, commands, answers, shown }
    }

    pub(super) fn tell(&mut self, line: &str) -> String {
        let commands = self.commands.as_mut().expect("commands are sent while the program runs");
        writeln!(commands, "{line}").unwrap_or_else(|error| panic!("{}: {error}", self.shown));
        let answer = self.answers.recv_timeout(PATIENCE);
        answer.unwrap_or_else(|error| panic!("{} did not respond to {line:?}: {error}", self.shown))
    }

    pub(super) fn number(&mut self, line: &str) -> f64 {
        let answer = self.tell(line);
        let number = answer.parse();
        number.unwrap_or_else(|_| panic!("{} responded {answer:?} to {line:?}", self.shown))
    }

    pub(super) fn cpu_time(&self) -> Duration {
        usage::cpu_time(self.process.id())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.commands = None;
        let started = Instant::now();
        while matches!(self.process.try_wait(), Ok(None)) && started.elapsed() < GRACE {
            thread::sleep(Duration::from_millis(1));
        }
        // It has responded, and is no longer needed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
