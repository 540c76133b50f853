//! A Postgres server.

mod bouncer;
mod psql;
mod replica;
mod tls;
mod version;

pub use bouncer::PgBouncer;
pub use replica::Replication;
pub use tls::PostgresTls;
pub use version::PostgresVersion;

use super::process::Process;
use super::server::{Server, start_again, started};
use super::unprivileged::{command, private_folder};
use super::{PATIENCE, free_port};
use psql::psql;
use std::fs;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;

/// The settings of every server. A server that is killed loses nothing without `fsync`, because the
/// kernel has the data.
const SETTINGS: [&str; 4] = [
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "dynamic_shared_memory_type=mmap",
    "fsync=off",
];

/// A private Postgres server with an empty database `requeue`. Its superuser `requeue` needs no
/// password.
///
/// ```no_run
/// use requeue_testkit::servers::PostgresServer;
///
/// let mut server = PostgresServer::start();
/// server.query("create table t as select 1 as a");
/// server.kill();
/// server.start_again();
/// assert_eq!(server.query("select a from t"), "1");
/// ```
#[derive(Debug)]
pub struct PostgresServer {
    server: Server,
    version: PostgresVersion,
    arguments: Vec<String>,
    tls: Option<PostgresTls>,
}

impl PostgresServer {
    /// Starts a server of the [chosen](PostgresVersion::chosen) version.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub fn start() -> Self {
        Self::with(&PostgresVersion::chosen(), &[])
    }

    /// Starts a server with these arguments, such as `["-c", "max_connections=10"]`.
    pub fn with(version: &PostgresVersion, arguments: &[&str]) -> Self {
        let dir = private_folder("postgres");
        version.create_data(&dir);
        Self::in_folder(version, dir, arguments, None)
    }

    /// Starts a server in a folder that contains its data.
    fn in_folder(
        version: &PostgresVersion,
        dir: PathBuf,
        arguments: &[&str],
        tls: Option<PostgresTls>,
    ) -> Self {
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let version = version.clone();
        let server = Server::new("postgres", dir);
        let server = PostgresServer { server, version, arguments, tls };
        started(server, |server| {
            server.port = free_port();
            server.try_start()
        })
    }

    /// Returns the URL of the database `requeue`.
    pub fn url(&self) -> String {
        self.url_of("requeue")
    }

    /// Returns the URL of a database.
    pub fn url_of(&self, database: &str) -> String {
        format!("postgres://requeue@127.0.0.1:{}/{database}", self.port)
    }

    /// Starts it again: in the same folder, on the same port.
    pub fn start_again(&mut self) {
        start_again(self, PATIENCE, Self::try_start);
    }

    /// Creates an empty database.
    pub fn create_database(&self, name: &str) {
        self.query(&format!("create database \"{name}\""));
    }

    /// Runs statements in the database `requeue` with `psql`, and returns what it prints: a line for
    /// each row, with `|` between the columns.
    ///
    /// # Panics
    ///
    /// If a statement fails.
    pub fn query(&self, sql: &str) -> String {
        self.try_query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// Runs statements like [`query`](Self::query), and returns the error message if one fails.
    pub fn try_query(&self, sql: &str) -> Result<String, String> {
        psql(&self.url(), &self.tls_environment(), sql)
    }

    /// Starts the process, and returns whether the server is ready. If not, its port may be in use.
    fn try_start(&mut self) -> bool {
        let port = format!("port={}", self.port);
        let settings = SETTINGS.into_iter().chain([port.as_str()]);
        let own = ["-D", "data"].into_iter().chain(settings.flat_map(|setting| ["-c", setting]));
        let arguments = own.chain(self.arguments.iter().map(String::as_str));
        let command = command(self.version.program("postgres"), arguments);
        let is_ready = |process: &Process| self.is_ready(process);
        self.process = Process::start(&self.dir, &command, &[], is_ready);
        self.process.is_some()
    }

    /// Returns whether the server reports in its file that it accepts connections.
    fn is_ready(&self, process: &Process) -> bool {
        let file = fs::read_to_string(self.dir.join("data/postmaster.pid")).unwrap_or_default();
        let lines: Vec<_> = file.lines().map(str::trim).collect();
        lines.first() == Some(&process.pid().to_string().as_str()) && lines.get(7) == Some(&"ready")
    }
}

impl Deref for PostgresServer {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

impl DerefMut for PostgresServer {
    fn deref_mut(&mut self) -> &mut Server {
        &mut self.server
    }
}
