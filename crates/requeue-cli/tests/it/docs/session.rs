//! One bash shell in a new directory, which runs the commands of a page, with a server if needed.

use super::output::Reader;
use super::page::Example;
use crate::support::{Dir, PATIENCE, eventually, until};
use requeue_testkit::servers::free_port;
use rustix::process::{Pid, Signal, kill_process_group};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

/// The port in the pages.
const PAGE_PORT: &str = "7654";

/// Printed by the shell after each command, before the exit code.
const END: &str = "-- end of the command --";

pub(super) struct Session {
    dir: Dir,
    shell: Child,
    lines: Receiver<String>,
    port: String,
    has_server: bool,
    reader: Reader,
}

impl Session {
    pub(super) fn new() -> Self {
        let (dir, port) = (Dir::new(), free_port().to_string());
        let program = std::path::Path::new(env!("CARGO_BIN_EXE_requeue"));
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", program.parent().expect("a directory").display());
        let mut command = dir.clean(Command::new("bash"));
        let command = command.env("PATH", path).process_group(0);
        let command = command.env("REQUEUE_LISTEN", format!("127.0.0.1:{port}"));
        let command = command.env("REQUEUE_SERVER", format!("http://127.0.0.1:{port}"));
        let mut shell = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("bash");
        let out = BufReader::new(shell.stdout.take().expect("it is piped"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            out.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)).ok();
        });
        Session { dir, shell, lines, port, has_server: false, reader: Reader::default() }
    }

    /// Runs a command in the shell. Returns what it prints to stdout, or the error if it fails.
    pub(super) fn bash(&mut self, command: &str) -> Result<String, String> {
        let command = self.with_real_port(command);
        let script = format!("{{ {command}\n}} </dev/null 2>stderr; printf '\\n{END}%d\\n' $?\n");
        let stdin = self.shell.stdin.as_mut().expect("it is piped");
        stdin.write_all(script.as_bytes()).map_err(|error| error.to_string())?;
        let mut printed = String::new();
        loop {
            let line = self.lines.recv_timeout(PATIENCE);
            let line = line.map_err(|_| "it does not end, or it ends the shell".to_owned())?;
            if let Some(code) = line.strip_prefix(END) {
                let printed = printed.strip_suffix('\n').unwrap_or(&printed);
                let printed = self.with_page_port(printed);
                return match code {
                    "0" => Ok(printed),
                    _ => Err(format!("it ends with {code}: {}", self.file("stderr"))),
                };
            }
            printed += &line;
            printed.push('\n');
        }
    }

    // With the colon, since receipts and fences may contain the same digits.
    fn with_real_port(&self, text: &str) -> String {
        text.replace(&format!(":{PAGE_PORT}"), &format!(":{}", self.port))
    }

    fn with_page_port(&self, text: &str) -> String {
        text.replace(&format!(":{}", self.port), &format!(":{PAGE_PORT}"))
    }

    /// A file of the session, or nothing as long as it does not exist.
    fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.path(name)).unwrap_or_default()
    }

    /// Runs an example, and compares what it prints with the page.
    pub(super) fn check(&mut self, example: &Example) -> Result<(), String> {
        let command = self.reader.translated(&example.command);
        let of_program = |verb: &str| format!(" {command} ").contains(&format!("requeue {verb} "));
        let expected = example.printed.as_deref();
        let printed = if of_program("serve") {
            let printed = self.serve(&command)?;
            // A page may start a server without showing what it prints.
            if expected.is_none_or(str::is_empty) {
                return Ok(());
            }
            printed
        } else if of_program("work") || of_program("events") {
            self.ensure_server()?;
            return self.work(&command, expected.unwrap_or_default());
        } else {
            self.ensure_server()?;
            self.bash(&command)?
        };
        match expected {
            Some(expected) if !self.reader.agrees(expected, &printed) => {
                Err(format!("the page shows:\n{expected}\nit prints:\n{printed}"))
            }
            _ => Ok(()),
        }
    }

    /// Starts a server in the background, instead of the one that runs.
    fn serve(&mut self, command: &str) -> Result<String, String> {
        let command = command.split(" #").next().unwrap_or_default().trim_end_matches([' ', '&']);
        self.bash("[ -z \"$server\" ] || { kill -9 $server; wait $server || :; }; : > listening")?;
        self.bash(&format!("{command} > listening 2> log & server=$!"))?;
        self.has_server = true;
        let listens = || self.file("listening").ends_with('\n').then_some(());
        eventually(listens).ok_or_else(|| format!("it does not start: {}", self.file("log")))?;
        Ok(self.with_page_port(&self.file("listening")))
    }

    pub(super) fn ensure_server(&mut self) -> Result<(), String> {
        if self.has_server { Ok(()) } else { self.serve("requeue serve").map(drop) }
    }

    /// Runs a worker, or another command that does not end, until it has printed what the page shows, and then stops it.
    fn work(&mut self, command: &str, expected: &str) -> Result<(), String> {
        let command = command.split(" #").next().unwrap_or_default().trim_end_matches([' ', '&']);
        self.bash(&format!("{command} > work 2>&1 & worker=$!"))?;
        let printed = || {
            let printed = self.with_page_port(&self.file("work"));
            let all = expected.lines().all(|line| self.reader.has_line(&printed, line));
            (all && !printed.is_empty()).then_some(())
        };
        let problem = || format!("the page shows:\n{expected}\nit prints:\n{}", self.file("work"));
        eventually(printed).ok_or_else(problem)?;
        self.bash("kill $worker; wait $worker").map(drop)
    }

    /// Runs a program, which must end with 0.
    pub(super) fn script(&mut self, interpreter: &str, program: &str) -> Result<(), String> {
        self.ensure_server()?;
        self.dir.write("program", program.replace(PAGE_PORT, &self.port));
        let ended = self.bash(&format!("timeout 60 {interpreter} program")).map(drop);
        ended.map_err(|error| format!("{error} (for a worker: `<!-- test: worker of KIND; … -->`)"))
    }

    /// Runs a program that never ends, and puts jobs of a kind: each body, and the event that
    /// its job leads to.
    pub(super) fn worker(
        &mut self,
        interpreter: &str,
        program: &str,
        kind: &str,
        cases: &[(&str, &str)],
    ) -> Result<(), String> {
        self.ensure_server()?;
        self.dir.write("program", program.replace(PAGE_PORT, &self.port));
        self.bash(&format!("curl -sSN localhost:{PAGE_PORT}/v1/events > events & :"))?;
        // Events are sent only to those who listen: a put that is not shown came too early.
        until("events", || {
            let put = format!("requeue put {kind} probe --in 1h; requeue cancel {kind} probe");
            self.bash(&put).ok().filter(|_| !self.file("events").is_empty())
        });
        for (number, (body, _)) in cases.iter().enumerate() {
            self.bash(&format!("requeue put {kind} case-{number} '{body}'"))?;
        }
        self.bash(&format!("{interpreter} program > printed 2> errors & worker=$!"))?;
        for (number, (body, event)) in cases.iter().enumerate() {
            let seen = self.event(event, &format!("case-{number}"));
            seen.map_err(|error| format!("a job with the body {body}: {error}"))?;
        }
        Ok(())
    }

    /// Stops the worker without a job, and then others while they print something for a job: into a
    /// pipe that is full.
    pub(super) fn stop_worker(
        &mut self,
        interpreter: &str,
        kind: &str,
        body: &str,
    ) -> Result<(), String> {
        self.bash("kill $worker; wait $worker").map_err(|error| format!("SIGTERM: {error}"))?;
        // Others could be retried in between.
        self.bash(&format!("requeue cancel {kind} --all --yes"))?;
        self.bash("mkfifo pipe; exec 7<>pipe; dd if=/dev/zero of=pipe bs=4096 oflag=nonblock; :")?;
        let start = |session: &mut Self, id: &str| {
            session.bash(&format!("requeue put {kind} {id} '{body}'"))?;
            session.bash(&format!("{interpreter} program > pipe 2> errors & worker=$!"))?;
            session.event("claimed", id)
        };
        start(self, "held")?;
        // Two signals in a row may arrive as one.
        let twice = "while kill $worker; do sleep 0.1; done; wait $worker; [ $? = 1 ]";
        self.bash(twice).map_err(|error| format!("SIGTERM twice: {error}"))?;

        start(self, "last")?;
        self.bash(&format!("kill $worker; requeue put {kind} more '{body}'"))?;
        self.bash("cat <&7 > printed & reader=$!")?;
        let ended = self.bash("wait $worker").map(drop);
        ended.map_err(|error| format!("SIGTERM while a job runs: {error}"))?;
        self.event("acked", "last")?;
        let more = self.bash(&format!("requeue get {kind} more --json"))?;
        match more.contains("\"state\":\"ready\"") {
            true => self.bash("kill $reader").map(drop),
            false => Err(format!("a job was claimed after SIGTERM: {more}")),
        }
    }

    /// Waits for an event of a job.
    fn event(&self, event: &str, id: &str) -> Result<(), String> {
        let parts = [format!("\"event\":\"{event}\""), format!("\"id\":\"{id}\"")];
        let happened = |line: &str| parts.iter().all(|part| line.contains(part));
        let seen = || self.file("events").lines().any(happened).then_some(());
        eventually(seen).ok_or_else(|| {
            let (events, errors) = (self.file("events"), self.file("errors"));
            format!("{id} is not {event}: {errors}\n{events}")
        })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let pid = i32::try_from(self.shell.id()).ok().and_then(Pid::from_raw).expect("a pid");
        // The shell and all that it started; they may have ended.
        let _ = kill_process_group(pid, Signal::KILL);
        let _ = self.shell.wait();
    }
}
