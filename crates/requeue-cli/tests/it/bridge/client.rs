//! Clients of RabbitMQ in Python: the programs in `tests/plugin`.

use crate::support::{Dir, Done, until};
use requeue_testkit::servers::RabbitServer;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

/// The variable with the path of a Python that has pika.
const VARIABLE: &str = "REQUEUE_PIKA";

/// Starts RabbitMQ, if it and pika are installed. If not, the test is left out. In CI, it fails if nobody has
/// tried to install them.
pub(crate) fn rabbit() -> Option<RabbitServer> {
    let has_pika = match std::env::var_os(VARIABLE) {
        Some(path) => !path.is_empty(),
        None => std::env::var_os("CI").is_some_and(|value| !value.is_empty()),
    };
    match (RabbitServer::available(), has_pika) {
        (true, true) => return Some(RabbitServer::start()),
        (false, _) => eprintln!("left out: there is no RabbitMQ"),
        (true, false) => eprintln!("left out: there is no pika for Python ({VARIABLE})"),
    }
    None
}

/// Returns a command that runs a program of `tests/plugin`.
pub(crate) fn python(dir: &Dir, program: &str, args: &[&str]) -> Command {
    let python = std::env::var_os(VARIABLE).expect("scripts/brokers sets it");
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/plugin");
    let mut command = dir.clean(Command::new(python));
    // It writes no files beside the program.
    command.arg("-B").arg(folder.join(program)).args(args);
    command
}

/// Runs a command of `rabbit.py`.
pub(crate) fn ask(dir: &Dir, rabbit: &RabbitServer, args: &[&str]) -> Done {
    let url = rabbit.url();
    let args = [&[url.as_str()], args].concat();
    Done::new(&args, python(dir, "rabbit.py", &args).output().expect("it starts")).ok()
}

/// A command of `rabbit.py` that runs, killed on drop.
pub(crate) struct Client {
    child: Child,
    messages: Arc<Mutex<Vec<Value>>>,
}

impl Client {
    pub(crate) fn start(dir: &Dir, rabbit: &RabbitServer, args: &[&str]) -> Self {
        let url = rabbit.url();
        let args = [&[url.as_str()], args].concat();
        let mut command = python(dir, "rabbit.py", &args);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let out = BufReader::new(child.stdout.take().expect("it is piped"));
        let messages = Arc::<Mutex<Vec<Value>>>::default();
        let read = Arc::clone(&messages);
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                read.lock().expect("nobody panics").push(serde_json::from_str(&line).expect(&line));
            }
        });
        Client { child, messages }
    }

    /// Returns the messages that it has consumed so far.
    pub(crate) fn messages(&self) -> Vec<Value> {
        self.messages.lock().expect("nobody panics").clone()
    }

    /// Waits until it has consumed so many messages, and returns all of them.
    pub(crate) fn await_messages(&self, count: usize) -> Vec<Value> {
        until("messages", || Some(self.messages()).filter(|messages| messages.len() >= count))
    }

    /// Waits until it has exited with 0.
    pub(crate) fn end(mut self) {
        let status = until("the client to exit", || self.child.try_wait().expect("it is ours"));
        assert!(status.success(), "{status}");
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
