//! The message brokers. Tests of a broker that is not installed print that it is left out.

use super::is_alive;
use requeue_testkit::servers::{KafkaServer, NatsServer, RabbitServer, free_port, until};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

#[test]
fn a_killed_rabbitmq_comes_back_with_its_durable_queues() {
    if is_left_out("RabbitMQ", RabbitServer::available()) {
        return;
    }
    let mut server = RabbitServer::with_client_certificates(&["heartbeat = 7"]);
    assert_eq!(server.url(), format!("amqp://{}", server.address()));
    assert_eq!(server.ctl(&["eval", "application:get_env(rabbit, heartbeat)."]), "{ok,7}");
    let declare = r#"rabbit_amqqueue:declare({resource, <<"/">>, queue, <<"orders">>},
                         true, false, [], none, <<"test">>), ok."#;
    assert_eq!(server.ctl(&["eval", declare]), "ok");
    let processes = processes(server.pid());
    assert!(processes.len() > 1, "{processes:?}");
    server.kill();
    has_ended(&server.address(), &processes);
    server.start_again();
    assert_eq!(server.ctl(&["list_queues", "name", "messages"]), "orders\t0");

    let file = |name: &str| server.dir().join(name).display().to_string();
    let (authority, certificate, key) = (file("ca.crt"), file("client.crt"), file("client.key"));
    let address = server.tls_url().replace("amqps://", "");
    assert!(!accepts_tls(&address, &["-CAfile", &authority]));
    let client = ["-CAfile", &authority, "-cert", &certificate, "-key", &key];
    assert!(accepts_tls(&address, &client));

    let processes = self::processes(server.pid());
    let (address, dir) = (server.address(), server.dir().to_owned());
    drop(server);
    has_ended(&address, &processes);
    assert!(!dir.exists());
}

#[test]
fn a_killed_nats_comes_back_with_what_it_acknowledged() {
    if is_left_out("NATS", NatsServer::available()) {
        return;
    }
    let mut server = NatsServer::start();
    assert_eq!(server.url(), format!("nats://{}", server.address()));
    let stream = r#"{"name":"S","subjects":["a"]}"#;
    let created = nats_request(&server, "$JS.API.STREAM.CREATE.S", stream);
    assert!(created.contains(r#""storage":"file""#), "{created}");
    let acknowledged = nats_request(&server, "a", "one");
    assert!(acknowledged.contains(r#""seq":1"#), "{acknowledged}");
    let processes = processes(server.pid());
    server.kill();
    has_ended(&server.address(), &processes);
    server.start_again();
    let info = nats_request(&server, "$JS.API.STREAM.INFO.S", "");
    assert!(info.contains(r#""messages":1"#), "{info}");
    let processes = self::processes(server.pid());
    let (address, dir) = (server.address(), server.dir().to_owned());
    drop(server);
    has_ended(&address, &processes);
    assert!(!dir.exists());
}

#[test]
fn a_frozen_nats_continues_where_it_was() {
    if is_left_out("NATS", NatsServer::available()) {
        return;
    }
    let server = NatsServer::start();
    server.freeze();
    assert_eq!(super::state(server.pid()), Some('T'));
    server.thaw();
    assert!(nats_info(&server).contains(r#""jetstream":true"#));
}

#[test]
fn a_nats_server_requires_what_its_arguments_say() {
    if is_left_out("NATS", NatsServer::available()) {
        return;
    }
    let server = NatsServer::with(&["--user", "u", "--pass", "p"]);
    let info = nats_info(&server);
    assert!(info.contains(r#""auth_required":true"#), "{info}");
    assert!(!info.contains("tls_required"), "{info}");
    let server = NatsServer::with_tls(&[]);
    let info = nats_info(&server);
    assert!(info.contains(r#""tls_required":true"#) && !info.contains("tls_verify"), "{info}");
    assert_eq!(server.tls_url(), format!("tls://{}", server.address()));
    let info = nats_info(&NatsServer::with_client_certificates(&[]));
    assert!(info.contains(r#""tls_verify":true"#), "{info}");
}

#[test]
fn a_killed_kafka_comes_back_with_what_it_acknowledged() {
    if is_left_out("Kafka", KafkaServer::available()) {
        return;
    }
    // Nothing listens on the advertised port: the tools do not use it.
    let (port, advertised) = (free_port(), free_port());
    let mut server = KafkaServer::with_advertised(port, advertised, &["num.partitions=2"]);
    assert_eq!(server.url(), format!("kafka://127.0.0.1:{port}"));
    server.create_topic("orders", 3);
    server.tool("ConsoleProducer", &["--topic", "events"], "one\ntwo\n");
    let processes = processes(server.pid());
    server.kill();
    has_ended(&server.address(), &processes);
    server.start_again();
    let offsets = server.tool("GetOffsetShell", &["--topic-partitions", "events,orders"], "");
    let offsets: Vec<_> = offsets.lines().map(|line| line.rsplit_once(':').unwrap()).collect();
    let partitions: Vec<_> = offsets.iter().map(|(partition, _)| *partition).collect();
    assert_eq!(partitions, ["events:0", "events:1", "orders:0", "orders:1", "orders:2"]);
    let messages = offsets.iter().map(|(_, offset)| offset.parse::<u32>().unwrap()).sum::<u32>();
    assert_eq!(messages, 2);
    let processes = self::processes(server.pid());
    let (address, dir) = (server.address(), server.dir().to_owned());
    drop(server);
    has_ended(&address, &processes);
    assert!(!dir.exists());
}

/// Prints that the tests of a broker are left out, if it is not available.
fn is_left_out(broker: &str, is_available: bool) -> bool {
    if !is_available {
        eprintln!(
            r#"left out: {broker} is not installed (`eval "$(scripts/brokers)"` installs it)"#
        );
    }
    !is_available
}

/// Checks that nothing listens on this address, and that these processes end. The ones that a broker
/// starts end by themselves when it is killed, some only a moment later.
fn has_ended(address: &str, processes: &[u32]) {
    assert!(TcpStream::connect(address).is_err());
    until("no process is left", || processes.iter().all(|pid| !is_alive(*pid)));
}

/// Returns the ids of a process and of all that it and its child processes have started.
fn processes(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let children = threads
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok())
        .flat_map(|children| children.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .flat_map(|child| processes(child.parse().expect("it is a number")));
    children.chain([pid]).collect()
}

/// Returns whether `openssl` can connect with these arguments.
fn accepts_tls(address: &str, arguments: &[&str]) -> bool {
    // With TLS 1.2, a missing certificate is reported during the handshake.
    let output = Command::new("openssl")
        .args(["s_client", "-tls1_2", "-verify_return_error", "-connect", address])
        .args(arguments)
        .stdin(Stdio::null())
        .output();
    output.expect("there is an openssl").status.success()
}

/// Returns what a NATS server reports to a new client.
fn nats_info(server: &NatsServer) -> String {
    let mut line = String::new();
    let stream = TcpStream::connect(server.address()).expect("the server listens");
    BufReader::new(stream).read_line(&mut line).expect("the server sends text");
    line
}

/// Sends a request to a NATS server, and returns the response.
fn nats_request(server: &NatsServer, subject: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(server.address()).expect("the server listens");
    let length = body.len();
    let request = format!("SUB inbox 1\r\nPUB {subject} inbox {length}\r\n{body}\r\n");
    let request = format!("CONNECT {{\"verbose\":false}}\r\n{request}");
    stream.write_all(request.as_bytes()).expect("the server reads");
    let lines = BufReader::new(stream).lines();
    let mut lines = lines.map(|line| line.expect("the server sends text"));
    lines.find(|line| line.starts_with("MSG ")).expect("the server responds");
    lines.next().expect("the message has a body")
}
