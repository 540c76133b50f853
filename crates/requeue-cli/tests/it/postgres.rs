//! The service and the commands on Postgres.

use crate::support::{Dir, Server, Worker, until};
use requeue_testkit::servers::{PgBouncer, PostgresServer, PostgresVersion};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// A password that no output may contain.
const SECRET: &str = "hunter2-and-more";

/// A body that no log may contain.
const BODY: &str = "a-confidential-body";

/// A server that tests share, each with a database of its own.
static SERVER: LazyLock<PostgresServer> = LazyLock::new(|| {
    PostgresServer::with(&PostgresVersion::chosen(), &["-c", "max_connections=300"])
});

/// Creates an empty database, and returns its URL.
fn database() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("cli_{}", NEXT.fetch_add(1, Ordering::Relaxed));
    SERVER.create_database(&name);
    SERVER.url_of(&name)
}

/// Starts a server whose role `app` has the password [`SECRET`] and may create nothing.
fn with_password() -> (PostgresServer, String) {
    let server = PostgresServer::start();
    server.query(&format!("create role app login password '{SECRET}'"));
    let rules = "host all requeue 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n";
    fs::write(server.dir().join("data/pg_hba.conf"), rules).expect("a file of ours");
    server.query("select pg_reload_conf()");
    let url = server.url().replace("requeue@", &format!("app:{SECRET}@"));
    let wrong = url.replace(SECRET, "wrong");
    let dir = Dir::new();
    until("the new rules", || {
        let done = dir.run(&["stats", "--store", &wrong]);
        done.err.contains("password authentication failed").then_some(())
    });
    (server, url)
}

/// The receipt of the one job that is claimed.
fn claim(dir: &Dir, kind: &str) -> String {
    let claimed = dir.ask(&["claim", kind, "--json"]).ok().json();
    claimed["receipt"].as_str().expect("a receipt").to_owned()
}

#[test]
fn a_server_on_postgres_does_what_a_server_does() {
    for version in PostgresVersion::all() {
        let postgres = PostgresServer::with(&version, &[]);
        let dir = Dir::served_at(postgres.url());
        does_what_a_server_does(&dir);
        dir.run(&["postgres", "check", "--store", &postgres.url()]).ok().says("0 problems");
    }
}

fn does_what_a_server_does(dir: &Dir) {
    // Settings, failures, the dead-letter queue.
    let set = ["kind", "mail", "--max-attempts", "2", "--backoff", "1ms"];
    dir.ask(&set).ok().says("max attempts  2");
    dir.ask(&["put", "mail", "a", "{\"to\":\"ann\"}"]).ok().says("created mail/a");
    let first = claim(dir, "mail");
    dir.ask(&["retry", &first, "--error", "no route"]).ok();
    let second = until("the retry", || {
        let claimed = dir.ask(&["claim", "mail", "--json"]);
        (claimed.code == Some(0)).then(|| claimed.json())
    });
    assert_eq!(second["attempt"], 2);
    dir.ask(&["ack", &first]).code(1).complains("is lost");
    let second = second["receipt"].as_str().expect("a receipt");
    dir.ask(&["retry", second, "--error", "still no route"]).ok().says("dead mail/a");
    let dead = dir.ask(&["ls", "mail", "--state", "dead", "--json"]).ok().json();
    assert_eq!((&dead["id"], &dead["attempts"]), (&json!("a"), &json!(2)));
    assert!(dead.to_string().contains("still no route"), "{dead}");
    dir.ask(&["revive", "mail", "a"]).ok();
    dir.ask(&["pause", "mail"]).ok();
    dir.ask(&["claim", "mail"]).code(3);
    dir.ask(&["resume", "mail"]).ok();
    dir.ask(&["ack", &claim(dir, "mail")]).ok().says("done mail/a");

    // Delays, merging, cancelling.
    dir.ask(&["put", "mail", "b", "one", "--in", "1h"]).ok();
    dir.ask(&["put", "mail", "b", "two", "--in", "1h"]).ok().says("updated mail/b");
    dir.ask(&["claim", "mail"]).code(3);
    dir.ask(&["run-now", "mail", "b"]).ok();
    let held = claim(dir, "mail");
    dir.ask(&["put", "mail", "b", "three"]).ok().says("coalesced");
    dir.ask(&["ack", &held]).ok();
    assert_eq!(dir.job("mail", "b")["body_text"], "three");
    dir.ask(&["cancel", "mail", "b"]).ok();

    // Schedules.
    dir.ask(&["schedule", "set", "poll", "inbox", "hello", "--every", "1s"]).ok();
    let run = until("a run", || {
        let claimed = dir.ask(&["claim", "poll", "--json"]);
        (claimed.code == Some(0)).then(|| claimed.json())
    });
    assert_eq!((&run["id"], &run["body_text"]), (&json!("inbox"), &json!("hello")));
    dir.ask(&["schedule", "rm", "poll", "inbox"]).ok();
}

#[test]
fn a_worker_runs_commands_for_jobs_in_a_database() {
    let dir = Dir::at(database());
    dir.ask(&["put", "mail", "a", "hello"]).ok();
    let mut worker = Worker::start(&dir, &["mail", "--exec", "cat > ran"]);
    worker.event("done");
    // Put by another process, while the worker waits.
    dir.ask(&["put", "mail", "b", "again"]).ok();
    worker.event("done");
    worker.stop();
    assert_eq!(dir.read("ran"), "again");
    dir.ask(&["stats", "--json"]).ok();
    dir.ask(&["postgres", "check"]).ok();
}

#[test]
fn the_address_and_the_log_of_a_server_contain_neither_the_password_nor_bodies() {
    let (postgres, url) = with_password();
    postgres.query("grant create on database requeue to app");
    let dir = Dir::new();
    // From the environment, as operators should do it.
    let log = "trace,tokio_postgres=trace,tokio_postgres::query=trace";
    let mut command = dir.command(&["serve", "--listen", "127.0.0.1:0", "--log", log]);
    command.env("REQUEUE_STORE", &url).stdout(Stdio::piped());
    command.stderr(fs::File::create(dir.path("log")).expect("a file of ours"));
    let mut child = command.spawn().expect("it starts");
    let mut out = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut line = String::new();
    out.read_line(&mut line).expect("it prints UTF-8");
    let server = line.strip_prefix("listening on ").and_then(|rest| rest.split(',').next());
    let server = server.expect(&line).to_owned();
    assert!(line.ends_with(", jobs in Postgres\n"), "{line}");
    dir.run(&["put", "mail", "a", BODY, "--server", &server]).ok();
    let mut shown = line;
    for path in ["/v1/stats", "/metrics", "/readyz", "/", "/v1/kinds"] {
        shown += &dir.http_body(&server, path);
    }
    postgres.query("alter role app password 'changed'");
    postgres.query("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'app'");
    until("the problem", || {
        let body = dir.http_body(&server, "/v1/stats");
        body.contains("password authentication failed").then(|| shown += &body)
    });
    until("the problem in the log", || {
        dir.read("log").contains("postgres_unavailable").then_some(())
    });
    child.kill().expect("it runs");
    child.wait().expect("it is ours");
    shown += &dir.read("log");
    // Nor does the driver log bodies, which are parameters of its statements.
    for secret in [SECRET, BODY] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

#[test]
fn errors_of_connecting_are_clear_and_do_not_contain_the_password() {
    let (postgres, url) = with_password();
    let port = postgres.port();
    let port = |text: &str| text.replace("PORT", &port.to_string());
    let cases = [
        // Mistakes in the URL.
        (
            format!("postgres:app:{SECRET}@h/d"),
            2,
            "it must begin with postgres:// or postgresql://",
        ),
        (format!("postgres://app:{SECRET}/requeue"), 2, "invalid Postgres URL"),
        (format!("postgres://app:{SECRET}@h/d?sslmode=sometimes"), 2, "sslmode is \"sometimes\""),
        (format!("postgres://app:{SECRET}@h:{SECRET}/d"), 2, "invalid Postgres URL"),
        (format!("postgres://app@h/d?password={SECRET}%zz"), 2, "password is not valid percent"),
        (format!("postgres://app:{SECRET}@h/d?{SECRET}"), 2, "invalid Postgres URL"),
        (format!("postgres://app:{SECRET}@h/d?unknown=1"), 2, "unknown"),
        (format!("http://app:{SECRET}@h/d"), 2, "invalid URL in --store"),
        (format!("postgres://app:{SECRET}@/d"), 2, "it contains no host"),
        // Servers that deny access, or are not there.
        (port(&format!("postgres://app:{SECRET}x@127.0.0.1:PORT/requeue")), 1, "denied access: "),
        (port(&format!("postgres://nobody:{SECRET}@127.0.0.1:PORT/requeue")), 1, "denied access: "),
        (port("postgres://requeue@127.0.0.1:PORT/nothing"), 1, "\"nothing\" does not exist"),
        (format!("postgres://app:{SECRET}@127.0.0.1:1/requeue"), 4, "127.0.0.1:1 is not available"),
        (
            format!("postgres://app:{SECRET}@127.0.0.1:1/d?sslmode=verify-full&sslrootcert=none"),
            1,
            "TLS cannot be set up: none",
        ),
        (
            port(&format!("postgres://app:{SECRET}@127.0.0.1:PORT/requeue?sslmode=require")),
            4,
            "TLS",
        ),
        // Tables that are missing.
        (url.clone(), 1, "the schema \"requeue\" has no tables of requeue"),
    ];
    let dir = Dir::new();
    for (url, code, message) in &cases {
        let done = dir.run(&["stats", "--store", url]).code(*code).complains(message);
        assert!(!done.err.contains(SECRET) && !done.out.contains(SECRET), "{done:?}");
    }
    let serve = ["serve", "--listen", "127.0.0.1:0", "--store", &url];
    let done = dir.run(&serve).code(1);
    let done = done.complains("permission denied").complains("hint: create the tables with a role");
    assert!(!done.err.contains(SECRET), "{done:?}");
}

#[test]
fn a_privileged_role_migrates_for_a_server_that_may_not() {
    let (postgres, url) = with_password();
    let (dir, owner) = (Dir::new(), postgres.url());
    let migrate = |args: &[&str]| dir.run(&[&["postgres", "migrate"], args].concat());
    let store = ["--store", &owner];
    let done = migrate(&[&store[..], &["--json"]].concat()).ok().json();
    let version = done["to"].as_i64().expect("a version");
    assert_eq!(done, json!({ "schema": "requeue", "from": 0, "to": version }));
    assert!(version > 0, "{done}");
    migrate(&store).ok().says(&format!("schema requeue: already at version {version}\n"));
    let staging = [&store[..], &["--postgres-schema", "staging"]].concat();
    migrate(&staging).ok().says(&format!("schema staging: version 0 -> {version}\n"));
    let mut by_environment = dir.command(&["postgres", "migrate"]);
    let output = by_environment.env("REQUEUE_STORE", &owner).output().expect("it starts");
    assert_eq!(output.status.code(), Some(0), "{output:?}");

    postgres.query(
        "grant usage on schema requeue to app;
         grant select, insert, update, delete on all tables in schema requeue to app;
         grant usage, select, update on all sequences in schema requeue to app;
         grant execute on all functions in schema requeue to app",
    );
    let server = Server::start(&dir, &["--store", &url, "--postgres-no-migrate"]);
    dir.run(&["put", "mail", "a", "--server", &server.url]).ok();
    let claimed = dir.run(&["claim", "mail", "--json", "--server", &server.url]).ok().json();
    let receipt = claimed["receipt"].as_str().expect("a receipt");
    dir.run(&["ack", receipt, "--server", &server.url]).ok().says("done mail/a");

    postgres.query("update requeue.format set version = 1000");
    for command in [&["stats"][..], &["postgres", "migrate"], &["serve", "--listen", "127.0.0.1:0"]]
    {
        let other = dir.run(&[command, &store].concat()).code(1);
        other.complains("has format 1000").complains(&format!("only format {version}"));
    }
}

#[test]
fn processes_that_start_at_the_same_time_create_the_tables_once() {
    for _ in 0..3 {
        let dir = Dir::at(database());
        let start = |_| {
            let mut command = dir.command(&["postgres", "migrate", "--json", "--store"]);
            let command = command.arg(dir.place()[1]).stdout(Stdio::piped());
            command.spawn().expect("it starts")
        };
        let processes: Vec<_> = (0..8).map(start).collect();
        let created = processes.into_iter().map(|process| {
            let output = process.wait_with_output().expect("it is ours");
            assert_eq!(output.status.code(), Some(0));
            let done: Value = serde_json::from_slice(&output.stdout).expect("it prints JSON");
            usize::from(done["from"] == 0)
        });
        assert_eq!(created.sum::<usize>(), 1);
        dir.ask(&["put", "mail", "a"]).ok();
    }
}

#[test]
fn a_check_finds_counts_that_are_wrong() {
    let dir = Dir::at(database());
    dir.ask(&["put", "mail", "a"]).ok();
    dir.ask(&["put", "mail", "b"]).ok();
    dir.ask(&["postgres", "check"]).ok().says("schema requeue: 0 problems\n");
    let sound = dir.ask(&["postgres", "check", "--json"]).ok().json();
    assert_eq!(sound, json!({ "schema": "requeue", "sound": true, "problems": [] }));
    let name = dir.place()[1].rsplit('/').next().expect("a database");
    let mut psql = Command::new("psql");
    let psql = psql.args(["-qXc", "delete from requeue.job where id = 'a'", &SERVER.url_of(name)]);
    assert!(psql.status().expect("psql runs").success());
    let done = dir.ask(&["postgres", "check"]).code(1).says("problem: kind mail: the totals are 2");
    done.says("schema requeue: 1 problem\n").complains("hint: `requeue export`");
    let done = dir.ask(&["postgres", "check", "--json"]).code(1);
    assert_eq!((&done.lines()[0]["sound"], done.lines().len()), (&json!(false), 1));
}

#[test]
fn a_store_moves_from_disk_to_postgres_and_back() {
    let dir = Dir::served();
    let set = ["kind", "mail", "--keep-done", "7d", "--rate", "100/1s", "--ageing", "1m"];
    dir.ask(&set).ok();
    dir.ask(&["put", "mail", "done", "x", "--priority", "3"]).ok();
    dir.ask(&["ack", &claim(&dir, "mail"), "--result", "sent"]).ok();
    dir.ask(&["put", "mail", "failed", "x"]).ok();
    dir.ask(&["bury", &claim(&dir, "mail"), "--error", "no such address"]).ok();
    dir.feed(&["put", "mail", "waiting", "-", "--in", "1h"], b"\0\x01\xff{}").ok();
    dir.ask(&["put", "sms", "Größe \u{10ffff}", "x", "--in", "300d"]).ok();
    dir.ask(&["schedule", "set", "report", "daily", "--cron", "0 9 1 1 *"]).ok();
    let lines: String =
        (0..300).map(|n| format!("{{\"kind\":\"bulk\",\"id\":\"{n}\",\"body\":{n}}}\n")).collect();
    dir.feed(&["put", "--file", "-"], lines.as_bytes()).ok();
    dir.ask(&["export", "disk.jsonl"]).ok();

    let url = database();
    let store = ["--store", url.as_str()];
    dir.run(&[&["import", "disk.jsonl"][..], &store].concat()).ok().says("imported 304 jobs");
    let again = dir.run(&[&["import", "disk.jsonl"][..], &store].concat()).ok();
    again.says(" existed already");
    dir.run(&[&["export", "postgres.jsonl"][..], &store].concat()).ok();
    dir.run(&[&["postgres", "check"][..], &store].concat()).ok();
    dir.run(&["import", "postgres.jsonl", "--data", "back"]).ok().says("imported 304 jobs");
    dir.run(&["export", "back.jsonl", "--data", "back"]).ok();
    let contents = |name: &str| {
        let text = dir.read(name);
        let mut lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
        // The time of the export.
        lines.remove(0);
        lines
    };
    let disk = contents("disk.jsonl");
    assert_eq!(contents("postgres.jsonl"), disk);
    assert_eq!(contents("back.jsonl"), disk);
}

#[test]
fn the_benchmark_of_a_database_leaves_no_jobs() {
    let dir = Dir::at(database());
    let bench = ["bench", "--time", "50ms"];
    dir.ask(&bench).code(1).complains("has no tables of requeue");
    dir.ask(&["postgres", "migrate"]).ok();
    dir.ask(&bench).ok().says("Postgres\n").says("claim and ack, batches of 100");
    for kind in dir.ask(&["stats", "--json"]).ok().lines() {
        for state in ["pending", "leased", "dead", "done"] {
            assert!(kind[state] == 0 || kind[state].is_null(), "{kind}");
        }
    }
}

#[test]
fn two_servers_behind_a_pooler_share_the_jobs_of_a_database() {
    let bouncer = PgBouncer::start(&SERVER);
    let url = database();
    let name = url.rsplit('/').next().expect("a database");
    let (dir, url) = (Dir::new(), bouncer.url_of(name));
    let options = ["--store", &url, "--postgres-no-listen", "--postgres-poll", "20ms"];
    let [one, other] = [(); 2]
        .map(|()| Server::start(&dir, &[&options[..], &["--postgres-connections", "3"]].concat()));
    let wait = ["claim", "mail", "--json", "--wait", "1m", "--server", &other.url];
    let mut waiting = dir.command(&wait);
    let waiting = waiting.stdout(Stdio::piped()).spawn().expect("it starts");
    until("a claim that waits", || {
        dir.http_body(&other.url, "/v1/stats").contains("\"waiting_claims\":1").then_some(())
    });
    dir.run(&["put", "mail", "a", "--server", &one.url]).ok();
    let claimed = waiting.wait_with_output().expect("it is ours");
    let claimed: Value = serde_json::from_slice(&claimed.stdout).expect("a job");
    let receipt = claimed["receipt"].as_str().expect("a receipt");
    dir.run(&["ack", receipt, "--server", &one.url]).ok().says("done mail/a");
}
