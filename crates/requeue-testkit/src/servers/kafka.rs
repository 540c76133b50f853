//! A Kafka broker.

use super::process::{Process, folder};
use super::server::{Server, start_again, started};
use super::{SLOW_START, certificates, free_port, installed, is_available};
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The variable with the folder of the jars.
const VARIABLE: &str = "REQUEUE_KAFKA";

/// The settings of every broker. Topics have one replica, and every message is synced to the disk.
const SETTINGS: &str = "\
process.roles=broker,controller
node.id=1
log.dirs=data
listener.security.protocol.map=CLIENTS:PLAINTEXT,TOOLS:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=TOOLS
controller.listener.names=CONTROLLER
auto.create.topics.enable=true
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
log.flush.interval.messages=1
# A killed broker can start again when its session has expired.
broker.session.timeout.ms=2000
broker.heartbeat.interval.ms=200
";

/// What `kafka-storage format` writes for one node. The command takes seconds.
const META_PROPERTIES: &str = "version=1\ncluster.id=cmVxdWV1ZS10ZXN0a2l0AA\nnode.id=1\n";

/// The arguments of every Java program: it starts fast, and leaves no file in `/tmp`.
const JAVA: [&str; 4] = [
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
];

/// A private Kafka broker, which is also its controller. Topics are created when they are used. If it
/// is killed, it loses no message that it acknowledged.
///
/// ```no_run
/// use requeue_testkit::servers::KafkaServer;
///
/// let mut server = KafkaServer::start();
/// server.create_topic("orders", 3);
/// server.kill();
/// server.start_again();
/// assert_eq!(server.tool("TopicCommand", &["--list"], ""), "orders");
/// ```
#[derive(Debug)]
pub struct KafkaServer {
    server: Server,
    /// The port to which it directs clients.
    advertised: u16,
    /// The port for tools, which do not use the advertised port.
    tools_port: u16,
    controller_port: u16,
    settings: Vec<String>,
}

impl KafkaServer {
    /// Returns whether `scripts/brokers` has installed it. If not, tests leave it out. In CI it returns
    /// `true` if the script did not run, so that tests fail.
    pub fn available() -> bool {
        is_available(VARIABLE)
    }

    /// Starts a broker with default settings.
    ///
    /// # Panics
    ///
    /// If it is not installed, or does not start.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// Starts a broker with these lines in its `server.properties`, such as `num.partitions=3`.
    pub fn with(settings: &[&str]) -> Self {
        Self::in_folder(folder("kafka"), None, settings)
    }

    /// Starts a broker on this [port](free_port) that directs clients to the port `advertised` of
    /// 127.0.0.1, on which there is a proxy. The proxy can be created before the broker.
    ///
    /// # Panics
    ///
    /// If it does not start, for example because the port is in use.
    pub fn with_advertised(port: u16, advertised: u16, settings: &[&str]) -> Self {
        Self::in_folder(folder("kafka"), Some((port, advertised)), settings)
    }

    /// Starts a broker whose clients have to use TLS. Its folder contains the certificates: `ca.crt`, and
    /// `client.crt` with `client.key`. Tools do not use TLS. The lines may change the listener `CLIENTS`, for
    /// example with `listener.name.clients.ssl.client.auth=required`.
    pub fn with_tls(settings: &[&str]) -> Self {
        let dir = folder("kafka");
        certificates::make(&dir);
        let read = |name: &str| fs::read(dir.join(name)).expect("it was written");
        let store = dir.join("server.pem");
        fs::write(&store, [read("server.key"), read("server.crt"), read("ca.crt")].concat())
            .expect("files can be written");
        let own = [
            "listener.security.protocol.map=CLIENTS:SSL,TOOLS:PLAINTEXT,CONTROLLER:PLAINTEXT"
                .into(),
            "listener.name.clients.ssl.keystore.type=PEM".into(),
            format!("listener.name.clients.ssl.keystore.location={}", store.display()),
            "listener.name.clients.ssl.truststore.type=PEM".into(),
            format!(
                "listener.name.clients.ssl.truststore.location={}",
                dir.join("ca.crt").display()
            ),
        ];
        let settings: Vec<_> =
            own.iter().map(String::as_str).chain(settings.iter().copied()).collect();
        Self::in_folder(dir, None, &settings)
    }

    /// Starts a broker in a folder, on this port with its advertised port, or on any port.
    fn in_folder(dir: PathBuf, ports: Option<(u16, u16)>, settings: &[&str]) -> Self {
        let data = dir.join("data");
        fs::create_dir(&data).expect("temporary folders can be made");
        fs::write(data.join("meta.properties"), META_PROPERTIES).expect("files can be written");
        let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        let server = Server::new("kafka", dir);
        let (advertised, tools_port, controller_port) = (0, 0, 0);
        let server = KafkaServer { server, advertised, tools_port, controller_port, settings };
        started(server, |server| {
            (server.port, server.advertised) = ports.unwrap_or_else(|| {
                let port = free_port();
                (port, port)
            });
            server.tools_port = free_port();
            server.controller_port = free_port();
            server.try_start()
        })
    }

    /// Returns its URL for clients.
    pub fn url(&self) -> String {
        format!("kafka://127.0.0.1:{}", self.port)
    }

    /// Starts it again: in the same folder, on the same port.
    pub fn start_again(&mut self) {
        start_again(self, SLOW_START, Self::try_start);
    }

    /// Creates a topic.
    ///
    /// # Panics
    ///
    /// If it already exists.
    pub fn create_topic(&self, name: &str, partitions: u32) {
        let partitions = partitions.to_string();
        let arguments = ["--create", "--topic", name, "--partitions", &partitions];
        self.tool("TopicCommand", &arguments, "");
    }

    /// Runs a class of `org.apache.kafka.tools`, or of the package that it names, with these arguments and
    /// this input, and returns what it prints. It connects to the broker directly, even if that advertises
    /// another port.
    ///
    /// `ConsoleProducer` sends each line of the input as a message. `GetOffsetShell` prints a line
    /// `topic:partition:offset` for each partition, which contains the number of its messages.
    ///
    /// # Panics
    ///
    /// If it fails.
    pub fn tool(&self, class: &str, arguments: &[&str], input: &str) -> String {
        let server = format!("127.0.0.1:{}", self.tools_port);
        let program = match class.contains('.') {
            true => class.to_owned(),
            false => format!("org.apache.kafka.tools.{class}"),
        };
        let own = ["-Xmx64m", &program, "--bootstrap-server", &server];
        let command = self.java(&[&own[..], arguments].concat());
        let mut process = Command::new(&command[0])
            .args(&command[1..])
            .current_dir(&self.dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("there is a java");
        // A tool that does not read its input may already have ended.
        let mut stdin = process.stdin.take().expect("it is piped");
        drop(stdin.write_all(input.as_bytes()));
        drop(stdin);
        let output = process.wait_with_output().expect("java can be waited for");
        let text = |bytes| String::from_utf8_lossy(bytes).trim_end().to_owned();
        let (printed, error) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{class} {arguments:?} fails: {printed}\n{error}");
        printed
    }

    /// Starts the process, and returns whether the broker is ready. If not, a port may be in use.
    fn try_start(&mut self) -> bool {
        let KafkaServer { ref server, advertised, tools_port: tools, controller_port, .. } = *self;
        let port = server.port;
        let settings = format!(
            "{SETTINGS}\
             controller.quorum.voters=1@127.0.0.1:{controller_port}\n\
             listeners=CLIENTS://127.0.0.1:{port},TOOLS://127.0.0.1:{tools},\
             CONTROLLER://127.0.0.1:{controller_port}\n\
             advertised.listeners=CLIENTS://127.0.0.1:{advertised},TOOLS://127.0.0.1:{tools}\n\
             {}\n",
            self.settings.join("\n")
        );
        fs::write(self.dir.join("server.properties"), settings).expect("files can be written");
        let command = self.java(&[
            "-Xmx256m",
            "-Dorg.slf4j.simpleLogger.log.kafka.server=info",
            "kafka.Kafka",
            "server.properties",
        ]);
        let is_ready = |process: &Process| process.log().contains("Kafka Server started");
        self.process = Process::start_within(SLOW_START, &self.dir, &command, &[], is_ready);
        self.process.is_some()
    }

    /// Returns the command for a Java program with these arguments.
    fn java(&self, arguments: &[&str]) -> Vec<OsString> {
        let mut temporary = OsString::from("-Djava.io.tmpdir=");
        temporary.push(&self.dir);
        let jars = installed(VARIABLE).join("*");
        let own = ["java".into(), "-cp".into(), jars.into(), temporary];
        let arguments = JAVA.iter().chain(arguments).map(OsString::from);
        own.into_iter().chain(arguments).collect()
    }
}

impl Deref for KafkaServer {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

impl DerefMut for KafkaServer {
    fn deref_mut(&mut self) -> &mut Server {
        &mut self.server
    }
}
