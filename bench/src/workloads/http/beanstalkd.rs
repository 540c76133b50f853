//! beanstalkd on a port, like requeue.

use super::job::{Job, PAYLOAD};
use super::load::Caller;
use super::server::Server;
use crate::workloads::beanstalkd::Connection;
use crate::workloads::place::Place;
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

impl Caller for Connection<TcpStream> {
    fn put(&mut self, jobs: &[Job]) {
        self.put(jobs.iter().map(|job| (job.delay, &*job.id, job.body.as_bytes())));
    }

    fn work_off(&mut self, count: usize) {
        self.work_off(count, PAYLOAD);
    }
}
