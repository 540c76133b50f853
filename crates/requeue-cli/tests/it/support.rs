//! Runs the program in temporary directories.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// The time limit of everything that tests wait for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Polls until there is a value, since other processes cannot notify us. Panics after [`PATIENCE`].
pub(crate) fn until<T>(what: &str, poll: impl FnMut() -> Option<T>) -> T {
    eventually(poll).unwrap_or_else(|| panic!("timed out while waiting for {what}"))
}

/// Polls until there is a value. Returns `None` after [`PATIENCE`].
pub(crate) fn eventually<T>(mut poll: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + PATIENCE;
    loop {
        let found = poll();
        if found.is_some() || Instant::now() > end {
            return found;
        }
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// A temporary directory, removed on drop, and optionally a server on the store in it, or the URL of a
/// store elsewhere.
pub(crate) struct Dir {
    path: PathBuf,
    server: Option<Server>,
    store: Option<String>,
}

impl Dir {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("requeue-cli-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("a new directory");
        Dir { path, server: None, store: None }
    }

    /// With the store at this URL, which [`Dir::ask`] uses.
    pub(crate) fn at(url: String) -> Self {
        let mut dir = Dir::new();
        dir.store = Some(url);
        dir
    }

    /// With a server, which [`Dir::ask`] uses.
    pub(crate) fn served() -> Self {
        Dir::new().serve()
    }

    /// With the store at this URL, and a server on it, which [`Dir::ask`] uses.
    pub(crate) fn served_at(url: String) -> Self {
        Dir::at(url).serve()
    }

    /// Starts a server on the store of this directory.
    fn serve(mut self) -> Self {
        self.server = Some(Server::start(&self, &self.place()));
        self
    }

    /// The options that select the store of this directory.
    pub(crate) fn place(&self) -> [&str; 2] {
        match (&self.server, &self.store) {
            (Some(server), _) => ["--server", &server.url],
            (None, Some(url)) => ["--store", url],
            (None, None) => ["--data", "d"],
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::write(self.path(name), text).expect("a file of ours");
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect(name)
    }

    /// Waits until a command has written a whole line to this file.
    pub(crate) fn await_file(&self, name: &str) -> String {
        let written = || {
            let text = fs::read_to_string(self.path(name)).ok()?;
            text.ends_with('\n').then(|| text.trim().to_owned())
        };
        until(name, written)
    }

    /// The program, to run in this directory.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = self.clean(Command::new(env!("CARGO_BIN_EXE_requeue")));
        command.args(args);
        command
    }

    /// A command to run in this directory, without the environment variables of the program and of its
    /// tests.
    pub(crate) fn clean(&self, mut command: Command) -> Command {
        let variables = std::env::vars_os().map(|(name, _)| name);
        for name in variables.filter(|name| name.to_string_lossy().starts_with("REQUEUE_")) {
            command.env_remove(name);
        }
        command.current_dir(&self.path).env("TZ", "UTC").stdin(Stdio::null());
        command
    }

    /// Runs the program.
    pub(crate) fn run(&self, args: &[&str]) -> Done {
        Done::new(args, self.command(args).output().expect("it starts"))
    }

    /// Runs the program on the store of this directory.
    pub(crate) fn ask(&self, args: &[&str]) -> Done {
        self.run(&[args, &self.place()].concat())
    }

    /// Runs the program on the store of this directory, with this on its stdin.
    pub(crate) fn feed(&self, args: &[&str], input: &[u8]) -> Done {
        let mut command = self.command(&[args, &self.place()].concat());
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let mut stdin = child.stdin.take().expect("it is piped");
        // The program may print while it reads.
        let output = std::thread::scope(|scope| {
            scope.spawn(move || {
                // The program need not read all of it.
                let _ = stdin.write_all(input);
            });
            child.wait_with_output().expect("it ends")
        });
        Done::new(args, output)
    }

    /// The response of a server to a GET request, with its head.
    pub(crate) fn http(&self, url: &str, path: &str) -> String {
        let address = url.strip_prefix("http://").expect("plain HTTP");
        let mut stream = TcpStream::connect(address).expect("it listens");
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        answer
    }

    /// The body of the response of a server to a GET request.
    pub(crate) fn http_body(&self, url: &str, path: &str) -> String {
        let address = url.strip_prefix("http://").expect("plain HTTP");
        let mut stream = TcpStream::connect(address).expect("it listens");
        // HTTP/1.0 has no chunks.
        let request = format!("GET {path} HTTP/1.0\r\nhost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("it answers");
        response.split_once("\r\n\r\n").expect("a head").1.to_owned()
    }

    /// The job, as JSON.
    pub(crate) fn job(&self, kind: &str, id: &str) -> Value {
        self.ask(&["get", kind, id, "--json"]).ok().json()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        drop(self.server.take());
        // Best effort.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Done {
    #[expect(dead_code, reason = "failed assertions print it")]
    args: String,
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Done {
    pub(crate) fn new(args: &[&str], output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("it prints UTF-8");
        let (out, err) = (text(output.stdout), text(output.stderr));
        Done { args: args.join(" "), code: output.status.code(), out, err }
    }

    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        self.code(0)
    }

    #[track_caller]
    pub(crate) fn code(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    #[track_caller]
    pub(crate) fn says(self, text: &str) -> Self {
        assert!(self.out.contains(text), "no {text:?} in {self:#?}");
        self
    }

    #[track_caller]
    pub(crate) fn complains(self, text: &str) -> Self {
        assert!(self.err.contains(text), "no {text:?} in {self:#?}");
        self
    }

    /// The only line of stdout, as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        let [line] = &self.lines()[..] else { panic!("not one line: {self:#?}") };
        line.clone()
    }

    #[track_caller]
    pub(crate) fn lines(&self) -> Vec<Value> {
        let read = |line: &str| serde_json::from_str(line).expect(line);
        self.out.lines().map(read).collect()
    }
}

/// A running `requeue serve`, killed on drop.
pub(crate) struct Server {
    child: Child,
    pub(crate) url: String,
}

impl Server {
    pub(crate) fn start(dir: &Dir, args: &[&str]) -> Self {
        let fixed = ["serve", "--listen", "127.0.0.1:0", "--json"];
        Server::of(dir.command(&[&fixed, args].concat()))
    }

    /// Starts a server by this command. Its log goes to the stderr of the test.
    pub(crate) fn of(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        let out = child.stdout.take().expect("it is piped");
        BufReader::new(out).read_line(&mut line).expect("it prints UTF-8");
        let told: Value = serde_json::from_str(&line).expect(&line);
        let url = told["listening"].as_str().expect(&line).to_owned();
        Server { child, url }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        signal_to(&self.child, signal);
    }

    /// Waits until it exits. Returns the exit code.
    pub(crate) fn end(mut self) -> Option<i32> {
        until("the program to exit", || self.child.try_wait().expect("it is ours")).code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn signal_to(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(child.id().try_into().expect("a pid")).expect("not 0");
    kill_process(pid, signal).expect("it runs");
}

/// A running `requeue work`, killed on drop.
pub(crate) struct Worker {
    child: Child,
    events: Receiver<Value>,
    err: Option<std::thread::JoinHandle<String>>,
}

impl Worker {
    pub(crate) fn start(dir: &Dir, args: &[&str]) -> Self {
        let mut command = dir.command(&[&["work", "--json"], &dir.place()[..], args].concat());
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let (sender, events) = channel();
        let out = BufReader::new(child.stdout.take().expect("it is piped"));
        std::thread::spawn(move || {
            for line in out.lines() {
                let line = line.expect("it prints UTF-8");
                let event = serde_json::from_str(&line).expect(&line);
                if sender.send(event).is_err() {
                    return;
                }
            }
        });
        let mut err = child.stderr.take().expect("it is piped");
        let err = std::thread::spawn(move || {
            let mut text = String::new();
            err.read_to_string(&mut text).expect("it prints UTF-8");
            text
        });
        Worker { child, events, err: Some(err) }
    }

    /// Waits for the next event of this name, and skips others.
    #[track_caller]
    pub(crate) fn event(&mut self, name: &str) -> Value {
        loop {
            let event = self.events.recv_timeout(PATIENCE).expect("the worker still reports");
            if event["event"] == name {
                return event;
            }
            assert_ne!(event["event"], "trouble", "{event}");
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        signal_to(&self.child, signal);
    }

    /// Waits until it exits. Returns the exit code and stderr.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let status = until("the program to exit", || self.child.try_wait().expect("it is ours"));
        let err = self.err.take().expect("once").join().expect("it is read");
        (status.code(), err)
    }

    /// Stops it while no command runs. Returns stderr.
    pub(crate) fn stop(self) -> String {
        self.signal(Signal::TERM);
        let (code, err) = self.end();
        assert_eq!(code, Some(0), "{err}");
        err
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a process runs, and is not a zombie.
pub(crate) fn runs(pid: &str) -> bool {
    let stat = fs::read_to_string(Path::new("/proc").join(pid).join("stat"));
    // `pid (name) state …`
    stat.is_ok_and(|stat| {
        let state = stat.rsplit(')').next().and_then(|rest| rest.trim().chars().next());
        !matches!(state, Some('Z' | 'X'))
    })
}

/// Waits until a process no longer runs.
pub(crate) fn await_end(pid: &str) {
    until("a process to exit", || (!runs(pid)).then_some(()));
}

pub(crate) fn kill(pid: &str) {
    signal(pid, Signal::KILL);
}

pub(crate) fn signal(pid: &str, signal: Signal) {
    let pid = pid.parse().ok().and_then(Pid::from_raw).expect("a pid");
    kill_process(pid, signal).expect("it runs");
}
