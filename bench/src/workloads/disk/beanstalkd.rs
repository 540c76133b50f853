//! beanstalkd over its protocol, all commands of a group in one write, on a Unix socket: this is
//! a third faster than a port.
//!
//! Callers cannot choose ids: they are part of the body. Puts and deletes are in its log and
//! synced one by one; reserves are not in it.

use super::Queue;
use super::job::{Job, PAYLOAD};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};
use std::thread;
use std::time::Duration;

/// The time between two attempts to connect: it does not listen while it reads its log.
const PAUSE: Duration = Duration::from_millis(2);
/// More time than filling it takes.
const HARDLY_EVER_MS: &str = "3600000";

pub(super) struct Beanstalkd {
    server: Child,
    socket: PathBuf,
    answers: BufReader<UnixStream>,
    commands: Vec<u8>,
    line: String,
}

impl Beanstalkd {
    /// Syncs every put and delete before the response.
    pub(super) fn synced(dir: &Path) -> Self {
        Beanstalkd::start(dir, "0")
    }

    /// Hardly ever syncs: to be filled, then restarted.
    pub(super) fn unsynced(dir: &Path) -> Self {
        Beanstalkd::start(dir, HARDLY_EVER_MS)
    }

    fn start(dir: &Path, sync_ms: &str) -> Self {
        // The path has at most 107 bytes; that of `dir` may be longer.
        let socket = std::env::temp_dir().join(format!("requeue-bench-{}", process::id()));
        let mut command = Command::new("beanstalkd");
        command.arg("-l").arg(format!("unix:{}", socket.display()));
        command.args(["-f", sync_ms, "-b"]).arg(dir);
        let server = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let mut server = server.expect("beanstalkd is installed");
        let connection = loop {
            if let Ok(connection) = UnixStream::connect(&socket) {
                break connection;
            }
            let ended = server.try_wait().expect("it is our child");
            assert!(ended.is_none(), "beanstalkd ended with {ended:?}");
            thread::sleep(PAUSE);
        };
        let answers = BufReader::with_capacity(1 << 16, connection);
        Beanstalkd { server, socket, answers, commands: Vec::new(), line: String::new() }
    }

    fn send(&mut self) {
        self.answers.get_mut().write_all(&self.commands).expect("beanstalkd listens");
        self.commands.clear();
    }

    /// Returns the next line without the word with which it must begin.
    fn answer(&mut self, word: &str) -> &str {
        self.line.clear();
        self.answers.read_line(&mut self.line).expect("beanstalkd responds with text");
        let rest = self.line.strip_prefix(word);
        rest.unwrap_or_else(|| panic!("{:?} instead of {word}", self.line)).trim()
    }
}

impl Queue for Beanstalkd {
    fn put(&mut self, jobs: &[Job]) {
        for Job { id, body, delay } in jobs {
            let delay = delay.as_secs();
            write!(self.commands, "put 0 {delay} 60 {PAYLOAD}\r\n{id}").expect("memory");
            self.commands.extend_from_slice(body);
            self.commands.extend_from_slice(b"\r\n");
        }
        self.send();
        for _ in jobs {
            self.answer("INSERTED");
        }
    }

    fn work_off(&mut self, count: usize) {
        self.commands.extend(b"reserve-with-timeout 0\r\n".repeat(count));
        self.send();
        let mut deletes = Vec::new();
        let mut body = [0; PAYLOAD + 2];
        for _ in 0..count {
            let (id, _len) = self.answer("RESERVED").split_once(' ').expect("id and length");
            write!(deletes, "delete {id}\r\n").expect("memory");
            self.answers.read_exact(&mut body).expect("the body has the length that was put");
        }
        self.commands = deletes;
        self.send();
        for _ in 0..count {
            self.answer("DELETED");
        }
    }
}

impl Drop for Beanstalkd {
    fn drop(&mut self) {
        // It has written what it has responded to, and nothing depends on how it ends.
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = fs::remove_file(&self.socket);
    }
}
