//! requeue's service, with requests that are written by hand: a full client would take more
//! time than the server, and they share the cores.

use super::job::Job;
use super::load::Caller;
use super::server::Server;
use crate::workloads::place::Place;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

/// Waits for one job, for the longest time that the server allows.
pub(super) const WAIT: &[u8] = b"POST /v1/claim HTTP/1.1\r\nhost: localhost\r\n\
    content-type: application/json\r\ncontent-length: 71\r\n\r\n\
    {\"kinds\":[\"bench\"],\"worker\":\"bench\",\"max\":1,\"lease\":\"10m\",\"wait\":\"60s\"}";
/// Text that each job in a response contains.
pub(super) const RECEIPT: &str = "\"receipt\":\"";

pub(super) fn start(program: &Path, place: &Place) -> Server {
    Server::start(place, |port, dir| {
        let mut command = Command::new(program);
        command.args(["serve", "--listen", &format!("127.0.0.1:{port}")]);
        command.arg("--data").arg(dir.join("data"));
        command
    })
}

/// A connection that is kept open.
pub(super) struct Connection {
    stream: TcpStream,
    body: String,
    request: Vec<u8>,
    answer: Vec<u8>,
}

impl Connection {
    pub(super) fn new(stream: TcpStream) -> Self {
        Connection { stream, body: String::new(), request: Vec::new(), answer: Vec::new() }
    }

    /// Sends a request, and returns the body of the response, which must be a success.
    pub(super) fn send(&mut self, method: &str, path: &str, body: &str) -> &str {
        body.clone_into(&mut self.body);
        self.call(method, path, "")
    }

    /// Sends `self.body`, and returns the body of the response, which must be a success.
    fn call(&mut self, method: &str, path: &str, more_of_path: &str) -> &str {
        let Connection { stream, body, request, answer } = self;
        request.clear();
        write!(
            request,
            "{method} {path}{more_of_path} HTTP/1.1\r\nhost: localhost\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .expect("memory");
        stream.write_all(request).expect("the server listens");
        let start = read_answer(stream, answer);
        let text = std::str::from_utf8(answer).expect("the response is text");
        let good = text.starts_with("HTTP/1.1 20") && !text[start..].contains("\"error\":");
        assert!(good, "{method} {path} returned: {text}");
        &text[start..]
    }
}

/// Reads one response, and returns the start of its body.
fn read_answer(stream: &mut TcpStream, answer: &mut Vec<u8>) -> usize {
    answer.clear();
    let mut whole = None;
    let mut piece = [0; 1 << 14];
    loop {
        let len = stream.read(&mut piece).expect("the server responds");
        assert!(len > 0, "the server has closed the connection");
        answer.extend_from_slice(&piece[..len]);
        whole = whole.or_else(|| whole_length(answer));
        match whole {
            Some((start, end)) if answer.len() == end => return start,
            Some((_, end)) => assert!(answer.len() < end, "the response is longer than its length"),
            None => {}
        }
    }
}

/// Returns the start and end of the body, once the head is complete.
fn whole_length(answer: &[u8]) -> Option<(usize, usize)> {
    const LENGTH: &str = "content-length: ";
    let start = answer.windows(4).position(|end| end == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&answer[..start]).expect("a head is text");
    let length = head.lines().find_map(|line| line.strip_prefix(LENGTH)?.parse::<usize>().ok());
    Some((start, start + length.unwrap_or_else(|| panic!("a response without length: {head}"))))
}

fn write_job(text: &mut String, job: &Job) {
    text.push_str("\"body_text\":\"");
    text.push_str(&job.body);
    text.push('"');
    if job.delay > 0 {
        text.push_str(",\"delay\":\"");
        text.push_str(&job.delay.to_string());
        text.push_str("s\"");
    }
    text.push('}');
}

impl Caller for Connection {
    fn put(&mut self, jobs: &[Job]) {
        self.body.clear();
        if let [job] = jobs {
            self.body.push('{');
            write_job(&mut self.body, job);
            self.call("PUT", "/v1/kinds/bench/jobs/", &job.id);
            return;
        }
        self.body.push_str("{\"jobs\":[");
        for (n, job) in jobs.iter().enumerate() {
            self.body.push_str(if n == 0 { "{\"id\":\"" } else { ",{\"id\":\"" });
            self.body.push_str(&job.id);
            self.body.push_str("\",");
            write_job(&mut self.body, job);
        }
        self.body.push_str("]}");
        self.call("POST", "/v1/kinds/bench/jobs", "");
    }

    fn work_off(&mut self, count: usize) {
        self.body.clear();
        self.body.push_str("{\"kinds\":[\"bench\"],\"worker\":\"bench\",\"lease\":\"1m\",\"max\":");
        self.body.push_str(&count.to_string());
        self.body.push('}');
        let claimed = self.call("POST", "/v1/claim", "");
        let mut acks = String::from("{\"leases\":[");
        let mut found = 0;
        for job in claimed.split(RECEIPT).skip(1) {
            let (receipt, _) = job.split_once('"').expect("a receipt is a text");
            acks.push_str(if found == 0 { "{" } else { ",{" });
            acks.push_str(RECEIPT);
            acks.push_str(receipt);
            acks.push_str("\"}");
            found += 1;
        }
        assert_eq!(found, count, "as many are due, and were not claimed");
        acks.push_str("]}");
        self.body = acks;
        self.call("POST", "/v1/ack", "");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_claim_that_waits_has_the_length_that_it_says() {
        let (start, end) = whole_length(WAIT).expect("it has a head");
        assert_eq!((end, start > 0), (WAIT.len(), true));
    }

    #[test]
    fn an_answer_is_whole_when_its_body_is() {
        assert_eq!(whole_length(b"HTTP/1.1 200 OK\r\ncontent-len"), None);
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ndate: now\r\n\r\n{";
        assert_eq!(whole_length(answer), Some((answer.len() - 1, answer.len() + 1)));
    }
}
