//! The statistics of a Redis server.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::ops::{AddAssign, Sub};
use std::thread;
use std::time::Duration;

/// A larger log is rewritten while nothing is measured.
const LARGE_LOG: u64 = 256 << 20;
const PAUSE: Duration = Duration::from_millis(5);

/// The resources that a server has used so far.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Usage {
    /// CPU time of all threads.
    pub(super) cpu: Duration,
    /// Including the commands that scripts call.
    pub(super) commands: u64,
    /// Size of the log in bytes.
    pub(super) aof: u64,
}

impl Sub for Usage {
    type Output = Usage;

    fn sub(self, before: Usage) -> Usage {
        Usage {
            cpu: self.cpu - before.cpu,
            // This command itself.
            commands: self.commands - before.commands - 1,
            aof: self.aof - before.aof,
        }
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, more: Usage) {
        self.cpu += more.cpu;
        self.commands += more.commands;
        self.aof += more.aof;
    }
}

pub(super) struct Connection {
    answers: BufReader<TcpStream>,
}

impl Connection {
    pub(super) fn to(port: u16) -> Self {
        let connection = TcpStream::connect((Ipv4Addr::LOCALHOST, port));
        Connection { answers: BufReader::new(connection.expect("the server listens")) }
    }

    /// Deletes all keys.
    pub(super) fn empty(&mut self) {
        self.call("FLUSHALL SYNC");
        self.call("SCRIPT FLUSH SYNC");
        if self.number("aof_current_size") > LARGE_LOG {
            self.call("BGREWRITEAOF");
            while self.number("aof_rewrite_in_progress") + self.number("aof_rewrite_scheduled") > 0
            {
                thread::sleep(PAUSE);
            }
        }
    }

    pub(super) fn usage(&mut self) -> Usage {
        let info = self.info();
        let seconds = |name| field(&info, name).parse::<f64>().expect("seconds");
        Usage {
            cpu: Duration::from_secs_f64(seconds("used_cpu_sys") + seconds("used_cpu_user")),
            commands: field(&info, "total_commands_processed").parse().expect("a number"),
            aof: field(&info, "aof_current_size").parse().expect("a number"),
        }
    }

    pub(super) fn used_memory(&mut self) -> u64 {
        self.number("used_memory")
    }

    pub(super) fn version(&mut self) -> String {
        field(&self.info(), "redis_version").to_owned()
    }

    fn number(&mut self, name: &str) -> u64 {
        field(&self.info(), name).parse().expect("a number")
    }

    fn info(&mut self) -> String {
        self.call("INFO")
    }

    fn call(&mut self, command: &str) -> String {
        let connection = self.answers.get_mut();
        connection.write_all(format!("{command}\r\n").as_bytes()).expect("the server listens");
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("the server responds");
        let Some(len) = line.strip_prefix('$') else {
            assert!(line.starts_with('+'), "{command} returned {line:?}");
            return line;
        };
        let len: usize = len.trim().parse().expect("a length");
        let mut text = vec![0; len + 2];
        self.answers.read_exact(&mut text).expect("the server responds");
        String::from_utf8(text).expect("the response is text")
    }
}

fn field<'a>(info: &'a str, name: &str) -> &'a str {
    let value = |line: &'a str| line.strip_prefix(name)?.strip_prefix(':');
    let value = info.lines().find_map(value);
    value.unwrap_or_else(|| panic!("the server does not report {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let info = "used_memory_rss:2\r\nused_memory:1\r\n";
        assert_eq!(field(info, "used_memory"), "1");
    }
}
