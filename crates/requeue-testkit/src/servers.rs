//! Real Redis and Postgres servers and message brokers for tests: each on private ports of 127.0.0.1,
//! in a temporary folder. With `TMPDIR=/dev/shm`, Postgres servers start faster.
//!
//! No server outlives its test or the process of the test, even if that is killed: a shell between
//! the two kills the server when its standard input is closed.

mod certificates;
mod cluster;
mod kafka;
mod nats;
mod postgres;
mod process;
mod rabbitmq;
mod sentinels;
mod server;
mod unprivileged;

pub use cluster::RedisCluster;
pub use kafka::KafkaServer;
pub use nats::NatsServer;
pub use postgres::{PgBouncer, PostgresServer, PostgresTls, PostgresVersion, Replication};
pub use rabbitmq::RabbitServer;
pub use sentinels::Sentinels;
pub use server::Server;

use crate::random::Random;
use process::{Process, folder};
use server::{start_again, started};
use std::ffi::OsString;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// How long a server may take to respond. Only a broken server takes this long.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long Kafka and RabbitMQ may take to start. On a busy machine they take half a minute.
const SLOW_START: Duration = Duration::from_secs(120);

/// The time between two checks of a server that starts.
const LOOK: Duration = Duration::from_millis(5);

/// A private `redis-server`. It saves nothing unless its arguments say so.
///
/// ```no_run
/// use requeue_testkit::servers::RedisServer;
///
/// let server = RedisServer::with(&["--appendonly", "yes"]);
/// server.command(&["SET", "a", "1"]);
/// assert_eq!(server.command(&["GET", "a"]), "1");
/// ```
#[derive(Debug)]
pub struct RedisServer {
    server: Server,
    arguments: Vec<String>,
    /// The arguments that specify ports, with their ports.
    ports: Vec<(&'static str, u16)>,
    environment: Vec<(String, String)>,
}

impl RedisServer {
    /// Starts a server with default arguments.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// Starts a server with these arguments.
    pub fn with(arguments: &[&str]) -> Self {
        let arguments = [&["--save", ""], arguments].concat();
        Self::in_folder(folder("redis"), &arguments, &[], Vec::new())
    }

    /// Starts a server whose clock can be [set](Self::set_clock).
    pub fn with_clock(arguments: &[&str]) -> Self {
        let (dir, arguments) = (folder("redis"), [&["--save", ""], arguments].concat());
        let file = dir.join("clock");
        fs::write(&file, "+0").expect("files can be written");
        let environment = another_time(&file);
        Self::in_folder(dir, &arguments, &[], environment)
    }

    /// Starts a server that also accepts TLS. Its folder contains the certificates: `ca.crt`, and
    /// `client.crt` with `client.key`, which it requires.
    pub fn with_tls(arguments: &[&str]) -> Self {
        let dir = folder("redis");
        certificates::make(&dir);
        let files = ["--tls-cert-file", "server.crt", "--tls-key-file", "server.key"];
        let trusts = ["--tls-ca-cert-file", "ca.crt", "--save", ""];
        let arguments = [&files[..], &trusts, arguments].concat();
        Self::in_folder(dir, &arguments, &["--tls-port"], Vec::new())
    }

    /// Starts a server in a folder that may contain its files, with several ports.
    fn in_folder(
        dir: PathBuf,
        arguments: &[&str],
        ports: &[&'static str],
        environment: Vec<(String, String)>,
    ) -> Self {
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let ports = ports.iter().map(|&name| (name, 0)).collect();
        let server = Server::new("redis-server", dir);
        let server = RedisServer { server, arguments, ports, environment };
        started(server, |server| {
            server.port = free_port();
            server.ports.iter_mut().for_each(|(_, port)| *port = free_port());
            server.try_start()
        })
    }

    /// Returns its URL for clients.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Returns its TLS URL for clients, if it was started [with TLS](Self::with_tls).
    pub fn tls_url(&self) -> String {
        let (_, port) =
            self.ports.iter().find(|(name, _)| *name == "--tls-port").expect("it has a TLS port");
        format!("rediss://127.0.0.1:{port}")
    }

    /// Starts it again: in the same folder, on the same port.
    pub fn start_again(&mut self) {
        start_again(self, PATIENCE, Self::try_start);
    }

    /// Sets its clock, if it was started [with a clock](Self::with_clock), to this many seconds before
    /// or after the real time.
    pub fn set_clock(&self, seconds: i64) {
        // Renamed, so that the server never reads a part of it.
        let (written, file) = (self.dir.join("clock.new"), self.dir.join("clock"));
        fs::write(&written, format!("{seconds:+}")).expect("files can be written");
        fs::rename(&written, &file).expect("files can be renamed");
    }

    /// Sends a command with `redis-cli`, and returns what it prints.
    pub fn command(&self, arguments: &[&str]) -> String {
        let port = self.port.to_string();
        cli(&[&["-p", &port], arguments].concat())
    }

    /// Starts the process, and returns whether the server responds. If not, its port may be in use.
    fn try_start(&mut self) -> bool {
        let port = self.port.to_string();
        let own = ["--port", &port, "--bind", "127.0.0.1", "--dir", "."].map(str::to_owned);
        let ports = self.ports.iter().flat_map(|(name, port)| [name.to_string(), port.to_string()]);
        let arguments = self.arguments.iter().cloned().chain(own).chain(ports);
        let command: Vec<_> = [OsString::from("redis-server")]
            .into_iter()
            .chain(arguments.map(OsString::from))
            .collect();
        let is_ready = |process: &Process| responds(self.port, process);
        self.process = Process::start(&self.dir, &command, &self.environment, is_ready);
        self.process.is_some()
    }
}

impl Deref for RedisServer {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

impl DerefMut for RedisServer {
    fn deref_mut(&mut self) -> &mut Server {
        &mut self.server
    }
}

/// Returns a port that is not in use. It is not in the range for client connections: a client could
/// get such a port while the server is down, even the client that tries to reach the server.
pub fn free_port() -> u16 {
    let mut random = Random::new(RandomState::new().hash_one(()));
    loop {
        let port = 10_000 + random.below(20_000) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Returns whether tests can start a broker whose path is in this variable. If the variable is empty,
/// the broker cannot be installed on this machine. If it is not set, nobody has tried to install it:
/// in CI, tests then fail instead of leaving the broker out.
fn is_available(variable: &str) -> bool {
    match std::env::var_os(variable) {
        Some(path) => !path.is_empty(),
        None => std::env::var_os("CI").is_some_and(|value| !value.is_empty()),
    }
}

/// Returns the path of a broker in this variable.
///
/// # Panics
///
/// If it is not installed.
fn installed(variable: &str) -> PathBuf {
    let path = std::env::var_os(variable).filter(|path| !path.is_empty());
    let install = r#"`eval "$(scripts/brokers)"` installs the brokers and sets it"#;
    path.unwrap_or_else(|| panic!("{variable} is not set: {install}")).into()
}

/// Returns the libraries that make a process read its time from a file. The C library comes before
/// jemalloc, which reads the time before libfaketime is initialized.
fn another_time(file: &Path) -> Vec<(String, String)> {
    let folders = fs::read_dir("/usr/lib").expect("there are libraries").flatten();
    let mut libraries = folders.map(|folder| folder.path().join("faketime/libfaketime.so.1"));
    let library = libraries.find(|library| library.exists());
    let library = library.expect("no libfaketime: run scripts/test, which installs it");
    let set = |name: &str, value: String| (name.to_owned(), value);
    vec![
        set("LD_PRELOAD", format!("{}:libc.so.6", library.display())),
        set("FAKETIME_TIMESTAMP_FILE", file.display().to_string()),
        set("FAKETIME_NO_CACHE", "1".to_owned()),
        set("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
    ]
}

/// Returns whether the server responds on this port, and has loaded its files.
fn responds(port: u16, process: &Process) -> bool {
    let send = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"INFO\r\n")?;
        let (mut stream, mut response) = (BufReader::new(stream), String::new());
        stream.read_line(&mut response)?;
        let bytes = response.trim().strip_prefix('$').and_then(|bytes| bytes.parse().ok());
        stream.take(bytes.unwrap_or(0)).read_to_string(&mut response)?;
        Ok(response)
    };
    let Ok(response) = send() else { return false };
    // A server that requires a password reports nothing else.
    let pid = process.pid();
    let is_it =
        response.contains(&format!("process_id:{pid}\r\n")) && !response.contains("loading:1");
    is_it || (response.starts_with("-NOAUTH") && !process.is_over())
}

/// Runs `redis-cli`, and returns what it prints.
fn cli(arguments: &[&str]) -> String {
    let output = Command::new("redis-cli").arg("--no-auth-warning").args(arguments).output();
    let output = output.expect("no redis-cli: run scripts/test, which installs it");
    let error = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8_lossy(&output.stdout);
    format!("{}{}", text.trim_end(), error.trim_end())
}

/// Waits until a condition is true.
///
/// # Panics
///
/// If it takes too long. The message contains `what`.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "waited in vain: {what}");
        thread::sleep(LOOK);
    }
}
