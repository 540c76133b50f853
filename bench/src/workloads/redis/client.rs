//! A program that is measured: it is told what to do, a line each, and answers with a line.
//!
//! ```text
//!   version                           its version
//!   bulk COUNT DELAY                  puts so many, from one caller, many in a call: nanoseconds
//!   put CALLERS COUNT DELAY           puts so many, each in a call: nanoseconds
//!   fill COUNT DELAY                  puts so many, however it is done best
//!   process CONCURRENCY COUNT         works off as many as are ready: nanoseconds until all are acked
//!   late CONCURRENCY COUNT LEAD SPREAD    puts jobs that are due over SPREAD, LEAD from now, while
//!                                     a worker waits: how late each began, in microseconds
//!   wait WORKERS                      starts workers that find nothing to do
//! ```
//!
//! Times that it is given are in milliseconds. It ends when it is told no more.

use crate::workloads::usage;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than anything takes that it is told to do.
const PATIENCE: Duration = Duration::from_secs(180);
/// To end in, before it is ended.
const GRACE: Duration = Duration::from_secs(2);

pub(super) struct Client {
    process: Child,
    /// `None`: it is told no more.
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
        // Of a pipe it cannot be said how long to wait.
        thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Client { process, commands, answers, shown }
    }

    pub(super) fn tell(&mut self, line: &str) -> String {
        let commands = self.commands.as_mut().expect("it is told as long as it lives");
        writeln!(commands, "{line}").unwrap_or_else(|error| panic!("{}: {error}", self.shown));
        let answer = self.answers.recv_timeout(PATIENCE);
        answer.unwrap_or_else(|error| panic!("{} did not {line:?}: {error}", self.shown))
    }

    pub(super) fn number(&mut self, line: &str) -> f64 {
        let answer = self.tell(line);
        let number = answer.parse();
        number.unwrap_or_else(|_| panic!("{} answered {answer:?} to {line:?}", self.shown))
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
        // It has answered: nobody needs it any more.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
