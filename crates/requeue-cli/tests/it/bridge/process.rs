//! The processes of the program.

use crate::support::{Dir, Done, Server, signal_to, until};
use rustix::process::Signal;
use serde_json::Value;
use std::fs::{self, File};
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

/// A running `requeue bridge`, killed on drop.
pub(crate) struct BridgeProcess {
    child: Child,
    log: PathBuf,
}

impl BridgeProcess {
    /// Starts `requeue bridge` with these arguments, and with its broker in the environment.
    pub(crate) fn start(dir: &Dir, from: &str, args: &[&str]) -> Self {
        let mut command = dir.command(&[&["bridge"], args].concat());
        command.env("REQUEUE_BRIDGE_FROM", from);
        BridgeProcess::of(dir, command)
    }

    /// Starts this command. Its log goes to a file of its own.
    pub(crate) fn of(dir: &Dir, mut command: Command) -> Self {
        let log = (0..).map(|n| dir.path(&format!("bridge-{n}.log"))).find(|log| !log.exists());
        let log = log.expect("there are enough numbers");
        command.stdout(Stdio::piped()).stderr(File::create(&log).expect("a file of ours"));
        BridgeProcess { child: command.spawn().expect("it starts"), log }
    }

    /// Waits until its log contains a text.
    pub(crate) fn await_log(&self, text: &str) {
        let log = || fs::read_to_string(&self.log).expect("a file of ours");
        until(text, || log().contains(text).then_some(()));
    }

    /// Waits until it has declared its queues and consumes messages.
    pub(crate) fn await_consuming(&self) {
        self.await_log("consuming messages");
    }

    /// Sends SIGKILL, and waits until it has exited.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it is ours");
    }

    /// Sends a signal, and waits until it has exited.
    pub(crate) fn stop(mut self, signal: Signal) -> Done {
        signal_to(&self.child, signal);
        let status = until("the bridge to exit", || self.child.try_wait().expect("it is ours"));
        let mut stdout = Vec::new();
        let mut out = self.child.stdout.take().expect("it is piped");
        out.read_to_end(&mut stdout).expect("it is read");
        let stderr = fs::read(&self.log).expect("a file of ours");
        Done::new(&["bridge"], Output { status, stdout, stderr })
    }
}

impl Drop for BridgeProcess {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the command of a server on the data directory, which may connect to brokers at these addresses.
pub(crate) fn serve(dir: &Dir, allowed: &[&str], args: &[&str]) -> Command {
    let fixed = ["serve", "--listen", "127.0.0.1:0", "--json"];
    let allowed: Vec<_> = allowed.iter().flat_map(|one| ["--push-allow", one]).collect();
    dir.command(&[&fixed[..], &allowed, args].concat())
}

/// Lets a command run so many seconds in the future.
pub(crate) fn in_the_future(mut command: Command, seconds: i64) -> Command {
    let folders = fs::read_dir("/usr/lib").expect("there are libraries").flatten();
    let mut libraries = folders.map(|folder| folder.path().join("faketime/libfaketime.so.1"));
    let library = libraries.find(|library| library.exists());
    let library = library.expect("no libfaketime: run scripts/test, which installs it");
    command.env("LD_PRELOAD", library).env("FAKETIME", format!("{seconds:+}s"));
    command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    command
}

/// Returns what a server shows about a kind: its counts, settings and deliveries.
pub(crate) fn kind(dir: &Dir, server: &Server, kind: &str) -> Value {
    let body = dir.http_body(&server.url, &format!("/v1/kinds/{kind}"));
    serde_json::from_str(&body).expect(&body)
}

/// Returns how many jobs of a kind there are, in all states.
pub(crate) fn count(dir: &Dir, server: &Server, of: &str) -> u64 {
    let shown = kind(dir, server, of);
    let states = ["pending", "leased", "dead"];
    states.iter().map(|state| shown[state].as_u64().expect("a number")).sum()
}
