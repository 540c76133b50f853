//! The processes of requeue: a server on disk, and a bridge that puts messages as jobs.

use crate::workloads::http::Server;
use crate::workloads::place::{Fresh, Place};
use crate::workloads::usage;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const KIND: &str = "orders";
/// What the bridge logs when it has a connection.
const CONNECTED: &str = "consuming messages";
const PAUSE: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(30);

/// A server and a bridge, which end when this is dropped.
pub(super) struct Requeue {
    server: Server,
    bridge: Child,
    _dir: Fresh,
}

impl Requeue {
    /// Starts both. `broker` is the host and port of `to`.
    pub(super) fn start(program: &Path, place: &Place, broker: &str, from: &str, to: &str) -> Self {
        let server = Server::start(place, |port, dir| {
            let mut command = Command::new(program);
            command.args(["serve", "--listen", &format!("127.0.0.1:{port}")]);
            command.args(["--push-allow", broker]);
            command.arg("--data").arg(dir.join("data"));
            command
        });
        let url = format!("http://{}", server.address());
        let dir = place.fresh("bridge");
        let log = dir.join("log");
        let mut command = Command::new(program);
        command.args(["bridge", KIND, "--from", from, "--to", to, "--server", &url]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(File::create(&log).expect("there is space for its log"));
        let bridge = command.spawn();
        let bridge = bridge.unwrap_or_else(|error| panic!("could not start {command:?}: {error}"));
        let mut requeue = Requeue { server, bridge, _dir: dir };
        let started = Instant::now();
        let logged = || fs::read_to_string(&log).unwrap_or_default();
        while !logged().contains(CONNECTED) {
            let ended = requeue.bridge.try_wait().expect("it is our child");
            let is_late = started.elapsed() > PATIENCE;
            assert!(ended.is_none() && !is_late, "{command:?} does not start: {}", logged());
            thread::sleep(PAUSE);
        }
        requeue
    }

    /// CPU time of both processes.
    pub(super) fn cpu_time(&self) -> Duration {
        self.server.cpu_time() + usage::cpu_time(self.bridge.id())
    }
}

impl Drop for Requeue {
    fn drop(&mut self) {
        // Nothing depends on how it ends.
        let _ = self.bridge.kill();
        let _ = self.bridge.wait();
    }
}
