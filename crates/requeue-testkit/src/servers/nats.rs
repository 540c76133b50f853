//! A NATS server.

use super::process::{Process, folder};
use super::server::{Server, start_again, started};
use super::{PATIENCE, certificates, free_port, installed, is_available};
use std::ffi::OsString;
use std::fs;
use std::net::TcpStream;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;

/// The variable with the path of `nats-server`.
const VARIABLE: &str = "REQUEUE_NATS";

/// The configuration of every server. JetStream syncs each message to the disk before it acknowledges
/// it; the default is to sync every two minutes.
const CONFIGURATION: &str = "jetstream { store_dir: data, sync_interval: always }\n";

/// A private NATS server with JetStream. If it is killed, it loses no message that it acknowledged.
///
/// ```no_run
/// use requeue_testkit::servers::NatsServer;
///
/// let mut server = NatsServer::with(&["--user", "requeue", "--pass", "secret"]);
/// assert_eq!(server.url(), format!("nats://127.0.0.1:{}", server.port()));
/// server.kill();
/// server.start_again();
/// ```
#[derive(Debug)]
pub struct NatsServer {
    server: Server,
    arguments: Vec<String>,
}

impl NatsServer {
    /// Returns whether `scripts/brokers` has installed it. If not, tests leave it out. In CI it returns
    /// `true` if the script did not run, so that tests fail.
    pub fn available() -> bool {
        is_available(VARIABLE)
    }

    /// Starts a server with default arguments.
    ///
    /// # Panics
    ///
    /// If it is not installed, or does not start.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// Starts a server with these arguments.
    pub fn with(arguments: &[&str]) -> Self {
        Self::in_folder(folder("nats"), arguments, "")
    }

    /// Starts a server with this text in its configuration file, such as accounts.
    pub fn with_configuration(text: &str) -> Self {
        Self::in_folder(folder("nats"), &[], text)
    }

    /// Starts a server that requires TLS. Its folder contains the certificate `ca.crt`.
    pub fn with_tls(arguments: &[&str]) -> Self {
        let dir = folder("nats");
        certificates::make(&dir);
        let tls = ["--tls", "--tlscert", "server.crt", "--tlskey", "server.key"];
        Self::in_folder(dir, &[&tls[..], arguments].concat(), "")
    }

    /// Starts a server that requires TLS and a certificate of the client. Its folder contains the
    /// certificates: `ca.crt`, and `client.crt` with `client.key`.
    pub fn with_client_certificates(arguments: &[&str]) -> Self {
        let client = ["--tlsverify", "--tlscacert", "ca.crt"];
        Self::with_tls(&[&client[..], arguments].concat())
    }

    /// Starts a server in a folder that may contain its certificates.
    fn in_folder(dir: PathBuf, arguments: &[&str], configuration: &str) -> Self {
        let configuration = format!("{CONFIGURATION}{configuration}");
        fs::write(dir.join("nats.conf"), configuration).expect("files can be written");
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let server = NatsServer { server: Server::new("nats-server", dir), arguments };
        started(server, |server| {
            server.port = free_port();
            server.try_start()
        })
    }

    /// Returns its URL for clients.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Returns its TLS URL for clients, if it was started [with TLS](Self::with_tls).
    pub fn tls_url(&self) -> String {
        format!("tls://127.0.0.1:{}", self.port)
    }

    /// Starts it again: in the same folder, on the same port.
    pub fn start_again(&mut self) {
        start_again(self, PATIENCE, Self::try_start);
    }

    /// Starts the process, and returns whether the server is ready. If not, its port may be in use.
    fn try_start(&mut self) -> bool {
        let port = self.port.to_string();
        let own = ["-c", "nats.conf", "-a", "127.0.0.1", "-p", &port];
        let arguments = own.into_iter().chain(self.arguments.iter().map(String::as_str));
        let command: Vec<_> =
            [installed(VARIABLE).into()].into_iter().chain(arguments.map(OsString::from)).collect();
        let is_ready = |process: &Process| {
            process.log().contains("Server is ready") && TcpStream::connect(self.address()).is_ok()
        };
        self.process = Process::start(&self.dir, &command, &[], is_ready);
        self.process.is_some()
    }
}

impl Deref for NatsServer {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

impl DerefMut for NatsServer {
    fn deref_mut(&mut self) -> &mut Server {
        &mut self.server
    }
}
