//! A program that is measured: it reads one command per line, and prints one line of results.

use super::usage;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

/// The time in which it must end before it is killed.
const GRACE: Duration = Duration::from_secs(2);

pub(super) struct Program {
    process: Child,
    /// `None` after the last command.
    commands: Option<ChildStdin>,
    answers: Receiver<String>,
    shown: String,
}

impl Program {
    /// Starts `program` with its arguments. The last argument is the URL of the server.
    pub(super) fn start(program: &[impl AsRef<OsStr>], url: &str) -> Self {
        let mut command = Command::new(&program[0]);
        command.args(&program[1..]).arg(url);
        let shown = format!("{command:?}");
        let process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut process =
            process.unwrap_or_else(|error| panic!("could not start {shown}: {error}"));
        let commands = process.stdin.take();
        let lines = BufReader::new(process.stdout.take().expect("it is piped")).lines();
        let (sender, answers) = mpsc::channel();
        // A read from a pipe has no timeout.
        thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Program { process, commands, answers, shown }
    }

    /// Sends a command, and returns the result. `patience` is more time than the command takes.
    pub(super) fn tell(&mut self, line: &str, patience: Duration) -> String {
        let commands = self.commands.as_mut().expect("commands are sent while the program runs");
        writeln!(commands, "{line}").unwrap_or_else(|error| panic!("{}: {error}", self.shown));
        let answer = self.answers.recv_timeout(patience);
        answer.unwrap_or_else(|error| panic!("{} did not respond to {line:?}: {error}", self.shown))
    }

    /// Returns its command, for messages.
    pub(super) fn shown(&self) -> &str {
        &self.shown
    }

    pub(super) fn cpu_time(&self) -> Duration {
        usage::cpu_time(self.process.id())
    }
}

impl Drop for Program {
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
