//! What all servers have in common: a port, a folder, and a process that can be killed and started
//! again.

use super::process::Process;
use std::fs;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A server of a test. Dropping it kills it and removes its folder.
#[derive(Debug)]
pub struct Server {
    program: &'static str,
    pub(super) port: u16,
    pub(super) dir: PathBuf,
    /// Invariant: `None` after it was killed.
    pub(super) process: Option<Process>,
}

impl Server {
    pub(super) fn new(program: &'static str, dir: PathBuf) -> Self {
        Server { program, port: 0, dir, process: None }
    }

    /// Returns the port on which it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns `127.0.0.1` and the port.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Returns the folder with its files.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the process id of its main process.
    pub fn pid(&self) -> u32 {
        self.running().pid()
    }

    /// Returns the contents of its log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    /// Kills all its processes like `kill -9`. Its `start_again` starts it again.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Suspends all its processes without closing connections: for its clients it hangs.
    pub fn freeze(&self) {
        self.running().freeze();
    }

    /// Resumes it.
    pub fn thaw(&self) {
        self.running().thaw();
    }

    fn running(&self) -> &Process {
        self.process.as_ref().expect("the server runs")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        drop(fs::remove_dir_all(&self.dir));
    }
}

/// Starts a server for the first time. `start` chooses its ports, and returns whether the server is
/// ready. If not, another process has taken a port in between.
pub(super) fn started<S: Deref<Target = Server>>(
    mut server: S,
    mut start: impl FnMut(&mut S) -> bool,
) -> S {
    for _ in 0..20 {
        if start(&mut server) {
            return server;
        }
    }
    panic!("{} does not start: {}", server.program, server.log());
}

/// Kills a server, and starts it again with `start` within `limit`: in the same folder, on the same
/// ports. Connections of the killed server may still be closing.
pub(super) fn start_again<S: DerefMut<Target = Server>>(
    server: &mut S,
    limit: Duration,
    start: fn(&mut S) -> bool,
) {
    server.kill();
    let end = Instant::now() + limit;
    while !start(server) {
        assert!(Instant::now() < end, "{} does not start: {}", server.program, server.log());
    }
}
