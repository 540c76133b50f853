//! Faktory over its protocol, with the `redis-server` that it starts and keeps jobs in.
//!
//! Several jobs are put by one command, each by a call of Redis. They are fetched and acked one by
//! one: all commands of a batch are sent before the first response is read.

use super::job::Job;
use super::load::Caller;
use super::server::Server;
use crate::workloads::place::Place;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{self, Command};
use std::thread;
use std::time::Duration;

const PAUSE: Duration = Duration::from_millis(5);

/// Its Redis writes and syncs a log before the response, like requeue. By default it writes a
/// snapshot every half a minute.
pub(super) fn start(program: &Path, place: &Place) -> Server {
    let server = Server::start(place, |port, dir| {
        let mut command = Command::new(program);
        command.args(["-b", &format!("127.0.0.1:{port}"), "-w", "127.0.0.1:0", "-l", "error"]);
        // The path of its socket must be short; that of `dir` may be long.
        command.args(["-d", ".", "-c", "."]).current_dir(dir);
        command
    });
    redis(server.dir(), "config set save ''");
    redis(server.dir(), "config set appendfsync always");
    redis(server.dir(), "config set appendonly yes");
    while !redis(server.dir(), "info persistence").contains("aof_rewrite_in_progress:0") {
        thread::sleep(PAUSE);
    }
    server
}

/// Sends a command to its Redis.
fn redis(dir: &Path, words: &str) -> String {
    let mut command = Command::new("redis-cli");
    command.current_dir(dir).args(["-s", "redis.sock"]);
    let words = words.split(' ').map(|word| word.trim_matches('\''));
    let output = command.args(words).output().expect("redis-cli is installed");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && !said.starts_with("ERR"), "{command:?} said {said}");
    said
}

pub(super) struct Connection {
    answers: BufReader<TcpStream>,
    commands: Vec<u8>,
    line: String,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, number: usize) -> Self {
        let answers = BufReader::with_capacity(1 << 14, stream);
        let mut connection = Connection { answers, commands: Vec::new(), line: String::new() };
        connection.answer("+HI ");
        let process = process::id();
        let hello = format!(
            "HELLO {{\"v\":2,\"hostname\":\"bench\",\"pid\":{process},\"labels\":[],\
             \"wid\":\"bench-{process}-{number}\"}}\r\n"
        );
        connection.commands.extend(hello.as_bytes());
        connection.send();
        connection.answer("+OK");
        connection
    }

    fn send(&mut self) {
        self.answers.get_mut().write_all(&self.commands).expect("Faktory listens");
        self.commands.clear();
    }

    /// Returns the next line without the text with which it must begin.
    fn answer(&mut self, start: &str) -> &str {
        self.line.clear();
        self.answers.read_line(&mut self.line).expect("Faktory responds with text");
        let rest = self.line.strip_prefix(start);
        rest.unwrap_or_else(|| panic!("{:?} instead of {start}", self.line)).trim()
    }

    /// Returns the next text that is preceded by its length.
    fn text(&mut self) -> String {
        let len: usize = self.answer("$").parse().expect("there is something");
        let mut text = vec![0; len + 2];
        self.answers.read_exact(&mut text).expect("the text has its length");
        String::from_utf8(text).expect("the response is text")
    }
}

fn write_job(text: &mut Vec<u8>, Job { id, body, delay }: &Job) {
    write!(text, "{{\"jid\":\"{id}\",\"jobtype\":\"bench\",\"args\":[\"{body}\"]").expect("memory");
    if *delay > 0 {
        // A day in the far future is as good as tomorrow.
        let (hours, minutes, seconds) = (delay / 3600 % 24, delay / 60 % 60, delay % 60);
        write!(text, ",\"at\":\"2099-01-01T{hours:02}:{minutes:02}:{seconds:02}Z\"")
            .expect("memory");
    }
    text.push(b'}');
}

impl Caller for Connection {
    fn put(&mut self, jobs: &[Job]) {
        if let [job] = jobs {
            self.commands.extend_from_slice(b"PUSH ");
            write_job(&mut self.commands, job);
            self.commands.extend_from_slice(b"\r\n");
            self.send();
            self.answer("+OK");
            return;
        }
        self.commands.extend_from_slice(b"PUSHB [");
        for (n, job) in jobs.iter().enumerate() {
            self.commands.extend_from_slice(if n == 0 { b"" } else { b"," });
            write_job(&mut self.commands, job);
        }
        self.commands.extend_from_slice(b"]\r\n");
        self.send();
        let refused = self.text();
        assert_eq!(refused.trim(), "{}", "not all were put");
    }

    fn work_off(&mut self, count: usize) {
        self.commands.extend(b"FETCH default\r\n".repeat(count));
        self.send();
        let mut acks = Vec::new();
        for _ in 0..count {
            let job = self.text();
            let id = job.split("\"jid\":\"").nth(1).and_then(|rest| rest.split('"').next());
            let id = id.expect("a job has an id");
            write!(acks, "ACK {{\"jid\":\"{id}\"}}\r\n").expect("memory");
        }
        self.commands = acks;
        self.send();
        for _ in 0..count {
            self.answer("+OK");
        }
    }
}
