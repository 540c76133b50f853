//! A RabbitMQ server.

use super::process::{Process, folder};
use super::server::{Server, start_again, started};
use super::{SLOW_START, certificates, free_port, installed, is_available};
use std::fs;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::process::Command;

/// The variable with the folder of `rabbitmq-server` and `rabbitmqctl`.
const VARIABLE: &str = "REQUEUE_RABBITMQ";

/// The name of every server. There is no `epmd` that would require different names.
const NODE: &str = "requeue@localhost";

/// The settings of every server. Above the limit of memory it would block publishers.
const SETTINGS: [&str; 4] = [
    "log.console = true",
    "log.file = false",
    "vm_memory_high_watermark.absolute = 512MB",
    "disk_free_limit.absolute = 1MB",
];

/// A private RabbitMQ server without plugins. Its user `guest` has the password `guest`. If it is
/// killed, it keeps durable queues, and the persistent messages that it confirmed.
///
/// ```no_run
/// use requeue_testkit::servers::RabbitServer;
///
/// let mut server = RabbitServer::start();
/// server.kill();
/// server.start_again();
/// assert_eq!(server.ctl(&["list_queues", "name", "messages"]), "");
/// ```
#[derive(Debug)]
pub struct RabbitServer {
    server: Server,
    /// The port for `rabbitmqctl`.
    control_port: u16,
    tls_port: Option<u16>,
    settings: Vec<String>,
}

impl RabbitServer {
    /// Returns whether `scripts/brokers` has installed it. If not, tests leave it out. In CI it returns
    /// `true` if the script did not run, so that tests fail.
    pub fn available() -> bool {
        is_available(VARIABLE)
    }

    /// Starts a server with default settings.
    ///
    /// # Panics
    ///
    /// If it is not installed, or does not start.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// Starts a server with these lines in its `rabbitmq.conf`, such as `heartbeat = 1`.
    pub fn with(settings: &[&str]) -> Self {
        Self::in_folder(folder("rabbitmq"), settings, None)
    }

    /// Starts a server that also accepts TLS. Its folder contains the certificate `ca.crt`.
    pub fn with_tls(settings: &[&str]) -> Self {
        let dir = folder("rabbitmq");
        certificates::make(&dir);
        let file = |name: &str| dir.join(name).display().to_string();
        let own = [("cacertfile", "ca.crt"), ("certfile", "server.crt"), ("keyfile", "server.key")]
            .map(|(name, of)| format!("ssl_options.{name} = {}", file(of)));
        let settings: Vec<_> =
            own.iter().map(String::as_str).chain(settings.iter().copied()).collect();
        Self::in_folder(dir, &settings, Some(0))
    }

    /// Starts a server that also accepts TLS, and then requires a certificate of the client. Its folder
    /// contains the certificates: `ca.crt`, and `client.crt` with `client.key`.
    pub fn with_client_certificates(settings: &[&str]) -> Self {
        let client =
            ["ssl_options.verify = verify_peer", "ssl_options.fail_if_no_peer_cert = true"];
        Self::with_tls(&[&client[..], settings].concat())
    }

    /// Starts a server in a folder that may contain its certificates, with TLS if it has a port for it.
    fn in_folder(dir: PathBuf, settings: &[&str], tls_port: Option<u16>) -> Self {
        let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        let server = Server::new("rabbitmq-server", dir);
        let server = RabbitServer { server, control_port: 0, tls_port, settings };
        started(server, |server| {
            server.port = free_port();
            server.control_port = free_port();
            server.tls_port = tls_port.map(|_| free_port());
            server.try_start()
        })
    }

    /// Returns its URL for clients.
    pub fn url(&self) -> String {
        format!("amqp://127.0.0.1:{}", self.port)
    }

    /// Returns its TLS URL for clients, if it was started [with TLS](Self::with_tls).
    pub fn tls_url(&self) -> String {
        format!("amqps://127.0.0.1:{}", self.tls_port.expect("it has a TLS port"))
    }

    /// Starts it again: in the same folder, on the same port.
    pub fn start_again(&mut self) {
        start_again(self, SLOW_START, Self::try_start);
    }

    /// Runs `rabbitmqctl` with these arguments, and returns what it prints, without headers: for
    /// `["list_queues", "name", "messages"]` a line for each queue, with a tab between the columns.
    ///
    /// # Panics
    ///
    /// If it fails.
    pub fn ctl(&self, arguments: &[&str]) -> String {
        // It would listen on the port to which it connects.
        let environment = self.environment("-dist_listen false");
        let output = Command::new(installed(VARIABLE).join("rabbitmqctl"))
            .args(["--silent", "--node", NODE])
            .args(arguments)
            .envs(environment)
            .current_dir(&self.dir)
            .output()
            .expect("rabbitmqctl can be run");
        let text = |bytes| String::from_utf8_lossy(bytes).trim_end().to_owned();
        let (printed, error) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "rabbitmqctl {arguments:?} fails: {printed}\n{error}");
        printed
    }

    /// Starts the process, and returns whether the server is ready. If not, a port may be in use.
    fn try_start(&mut self) -> bool {
        let plain = format!("listeners.tcp.1 = {}", self.address());
        let tls = self.tls_port.map(|port| format!("listeners.ssl.1 = 127.0.0.1:{port}"));
        let own = SETTINGS.into_iter().chain([plain.as_str()]).chain(tls.as_deref());
        let settings: Vec<_> = own.chain(self.settings.iter().map(String::as_str)).collect();
        let file = |name: &str, text: &str| {
            fs::write(self.dir.join(name), text).expect("files can be written");
        };
        file("rabbitmq.conf", &(settings.join("\n") + "\n"));
        file("enabled_plugins", "[].\n");
        let command = [installed(VARIABLE).join("rabbitmq-server").into()];
        let is_ready = |process: &Process| process.log().contains("Server startup complete");
        let environment = self.environment("");
        self.process =
            Process::start_within(SLOW_START, &self.dir, &command, &environment, is_ready);
        self.process.is_some()
    }

    /// Returns the variables for `rabbitmq-server` and `rabbitmqctl`, with these arguments for Erlang.
    fn environment(&self, arguments: &str) -> Vec<(String, String)> {
        let file = |name: &str| self.dir.join(name).display().to_string();
        let set = |name: &str, value: String| (name.to_owned(), value);
        // Erlang nodes find each other with `epmd`, which would outlive the server. These arguments
        // specify the port instead. RabbitMQ starts `epmd` itself unless the node has its name.
        let port = format!("-start_epmd false -erl_epmd_port {} {arguments}", self.control_port);
        let node =
            format!("-sname {NODE} -kernel inet_dist_use_interface {{127,0,0,1}} +S 1:1 +A 4");
        vec![
            set("ERL_AFLAGS", port),
            set("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", node),
            set("RABBITMQ_NODENAME", NODE.to_owned()),
            set("RABBITMQ_DIST_PORT", self.control_port.to_string()),
            // The shell script is replaced by the server, instead of waiting for it.
            set("RUNNING_UNDER_SYSTEMD", "true".to_owned()),
            // It contains the secret that `rabbitmqctl` needs.
            set("HOME", self.dir.display().to_string()),
            set("RABBITMQ_MNESIA_BASE", file("data")),
            set("RABBITMQ_LOG_BASE", file("logs")),
            set("RABBITMQ_CONFIG_FILE", file("rabbitmq.conf")),
            set("RABBITMQ_ENABLED_PLUGINS_FILE", file("enabled_plugins")),
            set("RABBITMQ_CONF_ENV_FILE", "/dev/null".to_owned()),
            set("ERL_CRASH_DUMP_BYTES", "0".to_owned()),
        ]
    }
}

impl Deref for RabbitServer {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

impl DerefMut for RabbitServer {
    fn deref_mut(&mut self) -> &mut Server {
        &mut self.server
    }
}
