//! A server that is measured, with its own process and directory.

use crate::workloads::place::{Fresh, Place};
use crate::workloads::usage;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The time between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(2);
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Server {
    process: Child,
    address: SocketAddr,
    dir: Fresh,
}

impl Server {
    /// Starts the command that `command` returns for a port and an empty directory.
    pub(crate) fn start(place: &Place, command: impl FnOnce(u16, &Path) -> Command) -> Self {
        let dir = place.fresh("server");
        let address = free_address();
        let said = dir.join("said");
        let file = || File::create(&said).expect("there is space for its output");
        let mut command = command(address.port(), &dir);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file());
        let process = command.spawn();
        let process =
            process.unwrap_or_else(|error| panic!("could not start {command:?}: {error}"));
        let mut server = Server { process, address, dir };
        let started = Instant::now();
        while TcpStream::connect(address).is_err() {
            let ended = server.process.try_wait().expect("it is our child");
            if ended.is_some() || started.elapsed() > PATIENCE {
                let said = fs::read_to_string(&said).unwrap_or_default();
                panic!("{command:?} does not listen: {ended:?}, {said}");
            }
            thread::sleep(PAUSE);
        }
        server
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The directory with its data.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("the server listens");
        stream.set_nodelay(true).expect("it is a TCP stream");
        stream
    }

    /// CPU time of the server and of the processes that it started.
    pub(crate) fn cpu_time(&self) -> Duration {
        let process = self.process.id();
        let children = usage::children(process).into_iter().map(usage::cpu_time);
        usage::cpu_time(process) + children.sum::<Duration>()
    }

    /// In bytes.
    pub(super) fn rss(&self) -> u64 {
        usage::rss(self.process.id())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let children = usage::children(self.process.id());
        // It has written what it has responded to, and nothing depends on how it ends.
        let _ = self.process.kill();
        let _ = self.process.wait();
        // A Redis that is asked to stop writes first, to a directory that no longer exists.
        for child in children.into_iter().filter_map(|id| Pid::from_raw(id.cast_signed())) {
            let _ = kill_process(child, Signal::KILL);
        }
    }
}

/// A port that is not in use. Another process could take it before the server does, but hardly will.
pub(crate) fn free_address() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    listener.and_then(|listener| listener.local_addr()).expect("there is a free port")
}
