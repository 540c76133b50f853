//! Commands that show what a server does: `events`, `workers` and `stats --watch`.

use crate::support::{Dir, PATIENCE, Server, signal_to, until};
use crate::terminal::Tty;
use requeue_testkit::servers::free_port;
use rustix::process::Signal;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};

/// A running program that prints until it is interrupted. Killed on drop.
struct Running {
    child: Child,
    out: Receiver<String>,
    err: Receiver<String>,
}

impl Running {
    fn start(dir: &Dir, args: &[&str]) -> Self {
        let mut command = dir.command(args);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let out = lines(child.stdout.take().expect("it is piped"));
        let err = lines(child.stderr.take().expect("it is piped"));
        Running { child, out, err }
    }

    /// Waits for a line of stdout.
    #[track_caller]
    fn line(&self) -> String {
        self.out.recv_timeout(PATIENCE).expect("it prints a line")
    }

    #[track_caller]
    fn json(&self) -> Value {
        let line = self.line();
        serde_json::from_str(&line).expect(&line)
    }

    /// Waits for a line of stderr that contains this text, and skips others.
    #[track_caller]
    fn note(&self, text: &str) -> String {
        loop {
            let line = self.err.recv_timeout(PATIENCE).expect(text);
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Interrupts it. Returns the exit code.
    fn interrupt(mut self) -> Option<i32> {
        signal_to(&self.child, Signal::INT);
        self.exit_code()
    }

    fn exit_code(&mut self) -> Option<i32> {
        until("the program to exit", || self.child.try_wait().expect("it is ours")).code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines(from: impl Read + Send + 'static) -> Receiver<String> {
    let (to, lines) = channel();
    std::thread::spawn(move || {
        let lines = BufReader::new(from).lines().map_while(Result::ok);
        lines.map(|line| to.send(line)).take_while(Result::is_ok).for_each(drop);
    });
    lines
}

#[test]
fn events_are_printed_as_they_happen() {
    let dir = Dir::served();
    let url = dir.place()[1];
    let text = Running::start(&dir, &["events", "--server", url]);
    let json = Running::start(&dir, &["events", "mail", "sms", "--json", "--server", url]);
    text.note(&format!("listening to events of {url}"));
    json.note("listening");
    dir.ask(&["put", "report", "r"]).ok();
    dir.ask(&["put", "mail", "order-42"]).ok();
    let receipt = dir.ask(&["claim", "mail", "--worker", "lap\u{1b}top", "--json"]).ok().json();
    dir.ask(&["ack", receipt["receipt"].as_str().expect("a receipt")]).ok();

    let events = [json.json(), json.json(), json.json()];
    for (event, name) in events.iter().zip(["put", "claimed", "acked"]) {
        assert_eq!((&event["event"], &event["kind"]), (&name.into(), &"mail".into()), "{event}");
    }
    assert_eq!(events[1]["worker"], "lap\u{1b}top");
    assert_eq!(json.interrupt(), Some(0));

    let expected = [
        "put        report/r, created",
        "put        mail/order-42, created",
        "claimed    mail/order-42, worker lap\\u{1b}top, attempt 1, until ",
        "acked      mail/order-42, worker lap\\u{1b}top, attempt 1",
    ];
    for expected in expected {
        let line = text.line();
        // After the time, such as 2026-12-01 09:00:00.000.
        assert!(line.get(25..).is_some_and(|line| line.starts_with(expected)), "{line}");
    }
    assert_eq!(text.interrupt(), Some(0));
}

#[test]
fn a_broken_stream_of_events_is_opened_again() {
    let dir = Dir::new();
    let listen = format!("127.0.0.1:{}", free_port());
    let url = format!("http://{listen}");
    let serve = ["serve", "--listen", &listen, "--json", "--data", "d"];
    let server = Server::of(dir.command(&serve));
    let events = Running::start(&dir, &["events", "--server", &url]);
    events.note("listening");
    drop(server);
    events.note("; trying again");
    let _server = Server::of(dir.command(&serve));
    events.note("connected again");
    dir.run(&["put", "mail", "after", "--server", &url]).ok();
    let line = events.line();
    assert!(line.ends_with("put        mail/after, created"), "{line}");
    assert_eq!(events.interrupt(), Some(0));
}

#[test]
fn events_need_a_server_and_a_valid_token() {
    let dir = Dir::new();
    dir.write("tokens", format!("full {}\n", "t".repeat(32)));
    let server = Server::start(&dir, &["--data", "d", "--tokens", "tokens"]);
    for command in ["events", "workers"] {
        let refused = dir.run(&[command, "--server", &server.url]).code(1);
        refused.complains("hint: set REQUEUE_TOKEN");
        dir.run(&[command, "--server", "http://127.0.0.1:1"]).code(4).complains("requeue serve");
        for store in [["--data", "d"], ["--store", "redis://127.0.0.1:1"]] {
            let refused = dir.run(&[&[command], &store[..]].concat()).code(2);
            refused.complains("have no server").complains("use --server URL");
        }
    }
    dir.run(&["events", "ma il", "--server", &server.url]).code(2).complains("' '");
}

#[test]
fn workers_are_listed_with_their_leases() {
    let dir = Dir::served();
    dir.ask(&["workers"]).ok().says("no worker has claimed jobs");
    for id in ["a", "b"] {
        dir.ask(&["put", "mail", id]).ok();
    }
    let claimed = dir.ask(&["claim", "mail", "--worker", "laptop", "--json"]).ok().json();
    dir.ask(&["ack", claimed["receipt"].as_str().expect("a receipt")]).ok();
    dir.ask(&["claim", "mail", "sms", "--worker", "\u{1b}phone"]).ok();
    let table = dir.ask(&["workers"]).ok();
    let rows: Vec<Vec<&str>> =
        table.out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[1][..7], ["\\u{1b}phone", "mail,sms", "1", "0", "1", "0", "0"], "{table:#?}");
    assert_eq!(rows[2][..7], ["laptop", "mail", "0", "0", "1", "1", "0"], "{table:#?}");
    let lines = dir.ask(&["workers", "--json"]).ok().lines();
    assert_eq!((&lines[1]["name"], &lines[1]["acked"]), (&"laptop".into(), &1.into()));
    assert!(lines[1]["first_seen"].is_string(), "{lines:?}");
}

#[test]
fn stats_are_shown_again_and_again() {
    let dir = Dir::served();
    let url = dir.place()[1];
    dir.ask(&["put", "mail", "a", "--in", "1h"]).ok();
    let args = ["stats", "--watch", "100ms", "--server", url];
    let text = Running::start(&dir, &args);
    let json = Running::start(&dir, &[&args[..], &["--json"]].concat());
    let first = json.json();
    assert_eq!((&first["kind"], &first["pending"]), (&"mail".into(), &1.into()), "{first}");
    dir.ask(&["put", "mail", "b", "--in", "1h"]).ok();
    let second = until("the second job", || Some(json.json()).filter(|kind| kind["pending"] == 2));
    assert!(first["at"].as_str() < second["at"].as_str(), "{first} {second}");
    assert_eq!(json.interrupt(), Some(0));

    let time = text.line();
    assert!(time.starts_with("20") && time.ends_with(" UTC"), "{time}");
    assert!(text.line().starts_with("KIND  PENDING  READY"));
    assert!(text.line().starts_with("mail        1      0"));
    let changed = until("a change", || Some(text.line()).filter(|line| line.contains("pending +")));
    assert!(changed.starts_with("mail        2      0"), "{changed}");
    assert_eq!(text.interrupt(), Some(0));
}

#[test]
fn watched_stats_survive_the_end_of_their_server() {
    let dir = Dir::new();
    let listen = format!("127.0.0.1:{}", free_port());
    let serve = ["serve", "--listen", &listen, "--json", "--data", "d"];
    let server = Server::of(dir.command(&serve));
    let url = server.url.clone();
    dir.run(&["put", "mail", "a", "--server", &url]).ok();
    let json = Running::start(&dir, &["stats", "--watch=100ms", "--json", "--server", &url]);
    json.json();
    drop(server);
    json.note("trying_again");
    let _server = Server::of(dir.command(&serve));
    dir.run(&["put", "mail", "b", "--server", &url]).ok();
    until("the second job", || Some(json.json()).filter(|kind| kind["pending"] == 2));
    assert_eq!(json.interrupt(), Some(0));

    dir.run(&["stats", "--watch", "--server", "http://127.0.0.1:1"]).code(4);
    dir.run(&["stats", "--watch", "1ms"]).code(2).complains("the interval must be 100ms to 1d");
}

#[test]
fn on_a_terminal_each_table_replaces_the_one_before() {
    let dir = Dir::served();
    dir.ask(&["put", "mail", "a"]).ok();
    let args = [&["stats", "--watch", "100ms"], &dir.place()[..]].concat();
    let mut tty = Tty::start(&dir, &args, (40, 10));
    tty.shows("mail        1      1");
    dir.ask(&["put", "mail", "b"]).ok();
    let screen = tty.await_screen("the second job", |screen| {
        screen.contains("mail        2      2") && screen.matches("KIND").count() == 1
    });
    assert!(screen.lines().all(|line| line.chars().count() <= 40), "{screen}");
    // More kinds than lines.
    for n in 0..12 {
        dir.ask(&["put", &format!("kind-{n}"), "a"]).ok();
    }
    tty.shows("… 7 more lines");
    tty.press("\u{3}");
    assert_eq!(tty.exit_code(), Some(0));
}
