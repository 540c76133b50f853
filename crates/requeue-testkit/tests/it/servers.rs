//! The servers for tests of other crates.

mod brokers;

use requeue_testkit::servers::{
    PgBouncer, PostgresServer, PostgresTls, PostgresVersion, RedisCluster, RedisServer,
    Replication, Sentinels, until,
};
use std::fs;
use std::net::TcpStream;
use std::process::Command;
use std::sync::mpsc::{self, TryRecvError};
use std::thread;

#[test]
fn a_killed_server_comes_back_with_what_it_wrote() {
    let mut server = RedisServer::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    assert_eq!(server.command(&["SET", "a", "1"]), "OK");
    server.kill();
    assert!(TcpStream::connect(server.address()).is_err());
    server.start_again();
    assert_eq!(server.command(&["GET", "a"]), "1");
    let (address, dir) = (server.address(), server.dir().to_owned());
    drop(server);
    assert!(TcpStream::connect(address).is_err());
    assert!(!dir.exists());
}

#[test]
fn a_servers_clock_can_be_set_back() {
    let server = RedisServer::with_clock(&[]);
    let seconds = || server.command(&["TIME"]).lines().next().unwrap().parse::<u64>().unwrap();
    let before = seconds();
    server.set_clock(-86_400);
    until("the server has the new time", || seconds() < before);
}

#[test]
fn a_slot_moves_with_its_keys() {
    let cluster = RedisCluster::start(3, 0);
    let slot = cluster.slot("{a}");
    let from = cluster.owner(slot);
    assert_eq!(cluster.nodes()[from].command(&["SET", "{a}:1", "one"]), "OK");
    let to = (from + 1) % 3;
    cluster.move_slot(slot, to);
    assert_eq!(cluster.owner(slot), to);
    assert_eq!(cluster.nodes()[to].command(&["GET", "{a}:1"]), "one");
}

#[test]
fn the_replica_takes_over() {
    let mut sentinels = Sentinels::start();
    let first = sentinels.master().port();
    sentinels.master().command(&["SET", "a", "1"]);
    until("the replica has the key", || sentinels.replica().command(&["GET", "a"]) == "1");
    sentinels.kill_master();
    assert_ne!(sentinels.master().port(), first);
    assert_eq!(sentinels.master().command(&["GET", "a"]), "1");
    sentinels.start_again();
    sentinels.master().command(&["SET", "b", "2"]);
    until("the replica has the key", || sentinels.replica().command(&["GET", "b"]) == "2");
}

#[test]
fn the_master_can_be_made_a_replica() {
    let mut sentinels = Sentinels::start();
    let first = sentinels.master().port();
    sentinels.fail_over();
    assert_eq!(sentinels.replica().port(), first);
}

#[test]
fn a_killed_postgres_comes_back_with_what_was_committed() {
    for version in PostgresVersion::all() {
        let mut server = PostgresServer::with(&version, &["-c", "max_connections=7"]);
        assert_eq!(server.query("show max_connections"), "7");
        server.query("create table t as select 1 as a");
        let processes = processes(&server);
        assert!(processes.len() > 3, "{processes:?}");
        server.kill();
        assert!(processes.iter().all(|pid| !is_alive(*pid)));
        assert!(TcpStream::connect(server.address()).is_err());
        server.start_again();
        assert_eq!(server.query("select a, a + 1 from t"), "1|2");
        let (address, dir) = (server.address(), server.dir().to_owned());
        let memory = shared_memory(&server);
        assert!(exists(memory));
        drop(server);
        assert!(!exists(memory));
        assert!(TcpStream::connect(address).is_err());
        assert!(!dir.exists());
    }
}

#[test]
fn a_postgres_server_has_several_databases_and_reports_errors() {
    let server = PostgresServer::start();
    server.create_database("other-one");
    let databases =
        server.query("select datname from pg_database where not datistemplate order by 1");
    assert_eq!(databases, "other-one\npostgres\nrequeue");
    let error = server.try_query("select 1; select * from missing").unwrap_err();
    assert!(error.contains("relation \"missing\" does not exist"), "{error}");
}

#[test]
fn a_frozen_postgres_continues_where_it_was() {
    for version in PostgresVersion::all() {
        let server = PostgresServer::with(&version, &[]);
        server.freeze();
        let url = server.url();
        let query = thread::spawn(move || psql(&url, &[], "select 1"));
        until("the client is connected", || is_connected(server.port()));
        assert!(processes(&server).iter().all(|pid| state(*pid) == Some('T')));
        assert!(!query.is_finished());
        server.thaw();
        assert_eq!(query.join().unwrap(), Ok("1".to_owned()));
    }
}

#[test]
fn a_replica_of_postgres_is_promoted() {
    for version in PostgresVersion::all() {
        let mut primary = PostgresServer::with(&version, &[]);
        primary.query("create table t as select 1 as a");
        primary.query("create table busy (a text)");
        let (stop, stopped) = mpsc::channel::<()>();
        let url = primary.url();
        // While the replica copies them, files grow, appear and vanish.
        let write = "insert into busy select repeat('a', 1000) from generate_series(1, 1000); \
                     create table other (a text); drop table other";
        let writer = thread::spawn(move || {
            while stopped.try_recv() == Err(TryRecvError::Empty) {
                psql(&url, &[], write).unwrap();
            }
        });
        until("it is busy", || primary.query("select count(*) > 3000 from busy") == "t");
        let replica = primary.replica(Replication::Asynchronous);
        drop(stop);
        writer.join().unwrap();
        primary.query("insert into t values (2)");
        replica.wait_caught_up(&primary);
        assert_eq!(replica.query("select a from t order by a"), "1\n2");
        let rows = "select count(*) from busy where a = repeat('a', 1000)";
        assert_eq!(replica.query(rows), primary.query(rows));
        let error = replica.try_query("insert into t values (3)").unwrap_err();
        assert!(error.contains("read-only transaction"), "{error}");
        primary.kill();
        replica.promote();
        replica.query("insert into t values (3)");
        // A new replica takes the place of the old primary.
        let replica = replica.replica(Replication::Asynchronous);
        assert_eq!(replica.query("select count(*) from t"), "3");
    }
}

#[test]
fn a_commit_waits_for_a_synchronous_replica() {
    for version in PostgresVersion::all() {
        let mut primary = PostgresServer::with(&version, &[]);
        primary.query("create table t (a int)");
        let mut replica = primary.replica(Replication::Synchronous);
        primary.query("insert into t values (1)");
        replica.freeze();
        let url = primary.url();
        let commit = thread::spawn(move || psql(&url, &[], "insert into t values (2)"));
        let waits = "select count(*) from pg_stat_activity where wait_event = 'SyncRep'";
        until("the commit waits", || primary.query(waits) == "1");
        assert!(!commit.is_finished());
        replica.thaw();
        commit.join().unwrap().unwrap();
        replica.kill();
        replica.start_again();
        primary.query("insert into t values (3)");
        primary.kill();
        replica.promote();
        assert_eq!(replica.query("select count(*) from t"), "3");
        // It does not wait for a replica of its own.
        replica.query("insert into t values (4)");
    }
}

#[test]
fn pgbouncer_gives_a_connection_to_one_transaction_at_a_time() {
    for version in PostgresVersion::all() {
        let mut server = PostgresServer::with(&version, &[]);
        let mut pooler = PgBouncer::with(&server, &[("default_pool_size", "1")]);
        let connection = || pooler.query("select pg_backend_pid()");
        let first = connection();
        assert_eq!(connection(), first);
        // Settings of one client are seen by the next: it has the same connection.
        pooler.query("set application_name = 'a'");
        pooler.query("set my.setting = 'b'");
        assert_eq!(pooler.query("show my.setting"), "b");
        pooler.kill();
        assert!(pooler.try_query("select 1").is_err());
        pooler.start_again();
        assert_eq!(pooler.query("select 1"), "1");
        server.kill();
        server.start_again();
        until("PgBouncer is connected again", || pooler.try_query("select 1").is_ok());
    }
}

#[test]
fn a_postgres_server_requires_tls() {
    for version in PostgresVersion::all() {
        let allowed = PostgresServer::with_tls(&version, PostgresTls::Allowed, &[]);
        let encrypted = "select ssl from pg_stat_ssl where pid = pg_backend_pid()";
        assert_eq!(allowed.query(encrypted), "t");
        let plain = psql(&allowed.url(), &[("sslmode", "disable")], encrypted);
        assert_eq!(plain, Ok("f".to_owned()));

        let server = PostgresServer::with_tls(&version, PostgresTls::Required, &[]);
        let error = psql(&server.url(), &[("sslmode", "disable")], encrypted).unwrap_err();
        assert!(error.contains("no encryption"), "{error}");
        let file = |name: &str| server.dir().join(name).display().to_string();
        let verified = [("sslmode", "verify-full"), ("sslrootcert", &file("ca.crt"))];
        assert_eq!(psql(&server.url(), &verified, encrypted), Ok("t".to_owned()));
        let other = allowed.dir().join("ca.crt").display().to_string();
        let not_trusted = [("sslmode", "verify-full"), ("sslrootcert", &other)];
        let error = psql(&server.url(), &not_trusted, encrypted).unwrap_err();
        assert!(error.contains("certificate verify failed"), "{error}");
        // Also to its replica.
        let replica = server.replica(Replication::Asynchronous);
        assert_eq!(psql(&replica.url(), &verified, encrypted), Ok("t".to_owned()));

        let server = PostgresServer::with_tls(&version, PostgresTls::ClientCertificate, &[]);
        assert_eq!(server.query(encrypted), "t");
        let error = psql(&server.url(), &[("sslmode", "require")], encrypted).unwrap_err();
        assert!(error.contains("requires a valid client certificate"), "{error}");
    }
}

/// Runs a statement with these parameters of the connection.
fn psql(url: &str, parameters: &[(&str, &str)], sql: &str) -> Result<String, String> {
    let parameters: Vec<_> =
        parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let url = format!("{url}?{}", parameters.join("&"));
    let output = Command::new("psql").args(["-XAtq", &url, "-c", sql]).output();
    let output = output.expect("there is a psql");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// Returns the ids of the processes of a server.
fn processes(server: &PostgresServer) -> Vec<u32> {
    let pid = server.pid();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.expect("the server runs");
    children
        .split_whitespace()
        .map(|pid| pid.parse().expect("it is a number"))
        .chain([pid])
        .collect()
}

/// Returns the state of a process, such as `T` if it is suspended or `Z` if it has ended.
fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}

fn is_alive(pid: u32) -> bool {
    state(pid).is_some_and(|state| state != 'Z')
}

/// Returns the id of the shared memory segment of a server.
fn shared_memory(server: &PostgresServer) -> u32 {
    let file =
        fs::read_to_string(server.dir().join("data/postmaster.pid")).expect("the server runs");
    let id = file.lines().nth(6).and_then(|line| line.split_whitespace().nth(1));
    id.and_then(|id| id.parse().ok()).expect("it is in line 7")
}

/// Returns whether there is a shared memory segment with this id.
fn exists(memory: u32) -> bool {
    let segments = fs::read_to_string("/proc/sysvipc/shm").expect("the kernel lists them");
    segments.lines().any(|line| line.split_whitespace().nth(1) == Some(&memory.to_string()))
}

/// Returns whether a client has a connection to this port.
fn is_connected(port: u16) -> bool {
    let connections = fs::read_to_string("/proc/net/tcp").expect("the kernel lists them");
    let (to, established) = (format!("0100007F:{port:04X}"), "01");
    let mut columns = connections.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    columns.any(|columns| columns.get(2) == Some(&to.as_str()) && columns[3] == established)
}
