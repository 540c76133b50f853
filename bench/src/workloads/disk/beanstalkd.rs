//! beanstalkd on a Unix socket, which is a third faster than a port.

use super::Queue;
use super::job::{Job, PAYLOAD};
use crate::workloads::beanstalkd::Connection;
use std::fs;
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
    connection: Connection<UnixStream>,
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
        Beanstalkd { server, socket, connection: Connection::new(connection) }
    }
}

impl Queue for Beanstalkd {
    fn put(&mut self, jobs: &[Job]) {
        let jobs = jobs.iter().map(|job| (job.delay.as_secs(), &*job.id, &job.body[..]));
        self.connection.put(jobs);
    }

    fn work_off(&mut self, count: usize) {
        self.connection.work_off(count, PAYLOAD);
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
