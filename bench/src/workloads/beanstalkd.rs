//! beanstalkd's protocol. It has no batches: all commands of one are sent before the first response is
//! read.
//!
//! Callers cannot choose ids: they are part of the body. Puts and deletes are in its log and
//! synced one by one; reserves are not in it.

use std::io::{BufRead, BufReader, Read, Write};

pub(super) struct Connection<S> {
    answers: BufReader<S>,
    commands: Vec<u8>,
    line: String,
}

impl<S: Read + Write> Connection<S> {
    pub(super) fn new(stream: S) -> Self {
        let answers = BufReader::with_capacity(1 << 16, stream);
        Connection { answers, commands: Vec::new(), line: String::new() }
    }

    /// Puts jobs: the delay in seconds, the id, and the rest of the body.
    pub(super) fn put<'a>(
        &mut self,
        jobs: impl ExactSizeIterator<Item = (u64, &'a str, &'a [u8])>,
    ) {
        let count = jobs.len();
        for (delay, id, body) in jobs {
            let size = id.len() + body.len();
            write!(self.commands, "put 0 {delay} 60 {size}\r\n{id}").expect("memory");
            self.commands.extend_from_slice(body);
            self.commands.extend_from_slice(b"\r\n");
        }
        self.send();
        for _ in 0..count {
            self.answer("INSERTED ");
        }
    }

    /// Reserves and deletes so many jobs, with bodies of `size` bytes.
    pub(super) fn work_off(&mut self, count: usize, size: usize) {
        self.commands.extend(b"reserve-with-timeout 0\r\n".repeat(count));
        self.send();
        let mut deletes = Vec::new();
        let mut body = vec![0; size + 2];
        for _ in 0..count {
            let (id, _len) = self.answer("RESERVED ").split_once(' ').expect("id and length");
            write!(deletes, "delete {id}\r\n").expect("memory");
            self.answers.read_exact(&mut body).expect("the body has the length that was put");
        }
        self.commands = deletes;
        self.send();
        for _ in 0..count {
            self.answer("DELETED");
        }
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
