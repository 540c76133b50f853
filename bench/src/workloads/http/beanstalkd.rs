//! beanstalkd over its protocol, on a port like requeue. It has no batches: all commands of one are
//! sent before the first response is read.
//!
//! Callers cannot choose ids: they are part of the body. Puts and deletes are in its log and
//! synced one by one; reserves are not in it.

use super::job::{Job, PAYLOAD};
use super::load::Caller;
use super::server::Server;
use crate::workloads::place::Place;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Command;

/// Waits for one job without a limit.
pub(super) const WAIT: &[u8] = b"reserve\r\n";
pub(super) const RESERVED: &str = "RESERVED ";

pub(super) fn start(place: &Place) -> Server {
    Server::start(place, |port, dir| {
        let mut command = Command::new("beanstalkd");
        command.args(["-l", "127.0.0.1", "-p", &port.to_string(), "-f", "0", "-b"]).arg(dir);
        command
    })
}

pub(super) struct Connection {
    answers: BufReader<TcpStream>,
    commands: Vec<u8>,
    line: String,
}

impl Connection {
    pub(super) fn new(stream: TcpStream) -> Self {
        let answers = BufReader::with_capacity(1 << 14, stream);
        Connection { answers, commands: Vec::new(), line: String::new() }
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

impl Caller for Connection {
    fn put(&mut self, jobs: &[Job]) {
        for Job { id, body, delay } in jobs {
            write!(self.commands, "put 0 {delay} 60 {PAYLOAD}\r\n{id}{body}\r\n").expect("memory");
        }
        self.send();
        for _ in jobs {
            self.answer("INSERTED ");
        }
    }

    fn work_off(&mut self, count: usize) {
        self.commands.extend(b"reserve-with-timeout 0\r\n".repeat(count));
        self.send();
        let mut deletes = Vec::new();
        let mut body = [0; PAYLOAD + 2];
        for _ in 0..count {
            let (id, _len) = self.answer(RESERVED).split_once(' ').expect("id and length");
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
