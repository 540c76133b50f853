//! PgBouncer in front of a server.

use super::PostgresServer;
use super::psql::psql;
use crate::servers::process::Process;
use crate::servers::server::{Server, start_again, started};
use crate::servers::unprivileged::{command, private_folder};
use crate::servers::{PATIENCE, free_port};
use std::fmt::Write;
use std::fs;
use std::net::TcpStream;
use std::ops::{Deref, DerefMut};

/// A private PgBouncer that pools the connections to a server by transaction: two transactions of a
/// client may run on different connections.
///
/// ```no_run
/// use requeue_testkit::servers::{PgBouncer, PostgresServer};
///
/// let server = PostgresServer::start();
/// let pooler = PgBouncer::start(&server);
/// assert_eq!(pooler.query("select 1"), "1");
/// ```
#[derive(Debug)]
pub struct PgBouncer {
    server: Server,
    /// The configuration without the port.
    configuration: String,
}

impl PgBouncer {
    /// Starts it for all databases of a server.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub fn start(server: &PostgresServer) -> Self {
        Self::with(server, &[])
    }

    /// Starts it with these settings, such as `("default_pool_size", "1")`.
    pub fn with(server: &PostgresServer, settings: &[(&str, &str)]) -> Self {
        Self::to(server.port(), settings)
    }

    /// Starts it for the server, or a proxy of one, on this port of 127.0.0.1.
    pub fn to(port: u16, settings: &[(&str, &str)]) -> Self {
        let database = format!("host=127.0.0.1 port={port} user=requeue");
        let mut configuration = format!("[databases]\n* = {database}\n[pgbouncer]\n");
        let own = [
            ("listen_addr", "127.0.0.1"),
            ("unix_socket_dir", ""),
            ("auth_type", "any"),
            ("pool_mode", "transaction"),
            // Clients do not wait long after the server was down.
            ("server_login_retry", "0.1"),
        ];
        for (name, value) in own.iter().chain(settings) {
            writeln!(configuration, "{name} = {value}").expect("it is a string");
        }
        let server = Server::new("pgbouncer", private_folder("pgbouncer"));
        started(PgBouncer { server, configuration }, |pooler| {
            pooler.port = free_port();
            pooler.try_start()
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

    /// Starts it again, on the same port.
    pub fn start_again(&mut self) {
        start_again(self, PATIENCE, Self::try_start);
    }

    /// Runs statements like [`PostgresServer::query`].
    ///
    /// # Panics
    ///
    /// If a statement fails.
    pub fn query(&self, sql: &str) -> String {
        self.try_query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// Runs statements, and returns the error message if one fails.
    pub fn try_query(&self, sql: &str) -> Result<String, String> {
        psql(&self.url(), &[], sql)
    }

    /// Starts the process, and returns whether it is ready. If not, its port may be in use.
    fn try_start(&mut self) -> bool {
        let configuration = format!("{}listen_port = {}\n", self.configuration, self.port);
        fs::write(self.dir.join("pgbouncer.ini"), configuration).expect("files can be written");
        // Not every user has its folder in the path.
        let command = command("/usr/sbin/pgbouncer", ["pgbouncer.ini"]);
        let listens = format!("listening on {}", self.address());
        let is_ready = |process: &Process| {
            process.log().contains(&listens) && TcpStream::connect(self.address()).is_ok()
        };
        self.process = Process::start(&self.dir, &command, &[], is_ready);
        self.process.is_some()
    }
}

impl Deref for PgBouncer {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

impl DerefMut for PgBouncer {
    fn deref_mut(&mut self) -> &mut Server {
        &mut self.server
    }
}
