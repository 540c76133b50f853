//! `requeue top` in a terminal, as a person sees it.

use crate::support::{Dir, Server, signal, until};
use crate::terminal::Tty;
use requeue_testkit::servers::free_port;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

const SIZE: (u16, u16) = (120, 30);

fn top(dir: &Dir) -> Tty {
    Tty::start(dir, &[&["top", "--interval", "200ms"], &dir.place()[..]].concat(), SIZE)
}

/// A served directory with two ready jobs of `mail`, one waiting job of `report` and a dead one of `sms`.
fn with_jobs() -> Dir {
    let dir = Dir::served();
    for id in ["a", "b"] {
        dir.ask(&["put", "mail", id]).ok();
    }
    dir.ask(&["put", "report", "r", "--in", "30m"]).ok();
    dir.ask(&["put", "sms", "x"]).ok();
    let claimed = dir.ask(&["claim", "sms", "--worker", "pho\u{1b}ne", "--json"]).ok().json();
    dir.ask(&["bury", claimed["receipt"].as_str().expect("a receipt")]).ok();
    dir
}

/// The numbers after the name of a kind: pending, ready, leased, dead.
#[track_caller]
fn counts(tty: &Tty, kind: &str) -> Vec<u64> {
    let line = tty.line(&format!(" {kind} "));
    let words = line.split_whitespace().skip_while(|word| *word != kind).skip(1);
    words.take(4).map(|word| word.parse().unwrap_or_else(|_| panic!("{line}"))).collect()
}

#[test]
fn the_kinds_and_their_counts_are_shown_and_follow_the_server() {
    let dir = with_jobs();
    let mut tty = top(&dir);
    tty.shows("3 kinds, sorted by READY, descending");
    assert_eq!(counts(&tty, "mail"), [2, 2, 0, 0]);
    assert_eq!(counts(&tty, "report"), [1, 0, 0, 0]);
    assert_eq!(counts(&tty, "sms"), [0, 0, 0, 1]);
    tty.shows(dir.place()[1]);
    tty.shows("pending 3  ready 2  leased 0  dead 1  waiting claims 0");
    tty.shows("version ");
    dir.ask(&["put", "mail", "c"]).ok();
    tty.shows("pending 4  ready 3");
    assert_eq!(counts(&tty, "mail"), [3, 3, 0, 0]);

    press_until_gone(&mut tty);
}

/// Quits, and checks that the terminal is as before.
#[track_caller]
fn press_until_gone(tty: &mut Tty) {
    tty.press("q");
    assert_eq!(tty.exit_code(), Some(0));
    until("the terminal to be restored", || tty.is_restored().then_some(()));
    assert_eq!(tty.text().trim(), "");
}

/// The kinds in the order of their rows.
fn order(screen: &str) -> Vec<&str> {
    let names =
        screen.lines().filter_map(|line| line.trim_start_matches('>').split_whitespace().next());
    names.filter(|name| ["mail", "report", "sms"].contains(name)).collect()
}

#[test]
fn rows_are_sorted_filtered_and_selected_by_keys() {
    let dir = with_jobs();
    let mut tty = top(&dir);
    tty.await_screen("the order", |screen| order(screen) == ["mail", "report", "sms"]);
    tty.press("\u{1b}[B\u{1b}[A");
    tty.shows("> mail");
    // The selection stays on its kind.
    tty.press("r");
    tty.shows("sorted by READY, ascending");
    tty.await_screen("the order", |screen| order(screen) == ["report", "sms", "mail"]);
    tty.shows("> mail");
    tty.press("ssr");
    tty.shows("sorted by DEAD, descending");
    tty.shows("DEAD▼");
    tty.await_screen("the order", |screen| order(screen) == ["sms", "mail", "report"]);
    tty.press("\u{1b}[A");
    tty.shows("> sms");
    tty.press("\u{1b}[F");
    tty.shows("> report");

    tty.press("/mai");
    tty.shows("filter: mai_");
    tty.await_screen("one row", |screen| order(screen) == ["mail"]);
    tty.shows("1 of 3 kinds");
    tty.press("\r");
    tty.shows("? help");
    tty.press("\u{1b}");
    tty.await_screen("all rows", |screen| order(screen).len() == 3);

    tty.press("?");
    tty.shows("any key closes it");
    tty.shows("pause or resume the kind");
    tty.press("x");
    tty.await_screen("no help", |screen| !screen.contains("any key closes it"));
    tty.press("\u{3}");
    assert_eq!(tty.exit_code(), Some(0), "Ctrl-C quits");
}

#[test]
fn a_kind_is_paused_and_resumed_after_a_confirmation() {
    let dir = with_jobs();
    let mut tty = top(&dir);
    let paused = || {
        let kinds = dir.ask(&["stats", "--json"]).ok().lines();
        let mail = kinds.into_iter().find(|kind| kind["kind"] == "mail");
        mail.expect("it exists")["paused"] == true
    };
    tty.shows("> mail");
    tty.press("p");
    tty.shows("pause mail, so that its jobs are not handed out? y/n");
    tty.press("n");
    tty.shows("? help");
    assert!(!paused());
    tty.press("py");
    tty.shows("paused mail");
    assert!(paused());
    tty.await_screen("the flag", |screen| {
        screen.lines().any(|line| line.starts_with("> mail") && line.contains(" paused"))
    });
    tty.press("p");
    tty.shows("resume mail? y/n");
    tty.press("y");
    tty.shows("resumed mail");
    assert!(!paused());
}

#[test]
fn panels_show_what_is_due_the_workers_and_the_events() {
    let dir = with_jobs();
    let mut tty = top(&dir);
    tty.shows("due in the next hour");
    tty.press("h");
    tty.shows("due in the next day");
    tty.press("d");
    tty.await_screen("no panel", |screen| !screen.contains("due in the next"));
    tty.press("w");
    tty.shows("1 worker, by leases held");
    let line = tty.line("0 held");
    assert!(line.contains("pho\\u{1b}ne"), "{line}");
    tty.press("e");
    tty.shows("no event yet");
    // The stream may not be open yet: events are those from then on.
    until("an event", || {
        dir.ask(&["put", "mail", "hos\u{1b}[31mtile"]).ok();
        tty.text().contains("mail/hos\\u{1b}[31mtile").then_some(())
    });
    press_until_gone(&mut tty);
}

#[test]
fn the_screen_follows_the_size_of_the_terminal() {
    let dir = with_jobs();
    let tty = top(&dir);
    tty.shows("OLDEST");
    tty.resize(60, 15);
    tty.await_screen("a narrow table", |screen| {
        order(screen).len() == 3
            && screen.contains("FLAGS")
            && !screen.contains("OLDEST")
            && screen.lines().all(|line| line.chars().count() <= 60)
    });
    assert_eq!(counts(&tty, "mail"), [2, 2, 0, 0]);
    tty.resize(200, 50);
    tty.shows("DONE, LAST HOUR");
    tty.resize(10, 3);
    tty.shows("too small");
    tty.resize(SIZE.0, SIZE.1);
    // No key here: crossterm may not see one that arrives together with a resize until the next key.
    tty.shows("3 kinds");
}

#[test]
fn a_server_that_is_away_is_reported_and_found_again() {
    let dir = Dir::new();
    let listen = format!("127.0.0.1:{}", free_port());
    let url = format!("http://{listen}");
    let args = ["top", "--interval", "200ms", "--server", &url];
    let mut tty = Tty::start(&dir, &args, SIZE);
    tty.shows("! no data since ");
    let serve = ["serve", "--listen", &listen, "--json", "--data", "d"];
    let server = Server::of(dir.command(&serve));
    dir.run(&["put", "mail", "a", "--server", &url]).ok();
    tty.shows("> mail");
    assert!(!tty.text().contains("! no data since"), "{}", tty.text());
    drop(server);
    let screen = tty.shows("! no data since ");
    assert!(screen.contains("> mail"), "the last data stays: {screen}");
    let _server = Server::of(dir.command(&serve));
    dir.run(&["put", "mail", "b", "--server", &url]).ok();
    tty.await_screen("new data", |screen| {
        screen.contains("pending 2") && !screen.contains("! no data since")
    });
    press_until_gone(&mut tty);
}

#[test]
fn a_signal_ends_it_and_restores_the_terminal() {
    let dir = with_jobs();
    let mut tty = top(&dir);
    tty.shows("3 kinds");
    assert!(!tty.is_restored());
    signal(&tty.pid().to_string(), Signal::TERM);
    assert_eq!(tty.exit_code(), Some(0));
    until("the terminal to be restored", || tty.is_restored().then_some(()));
}

#[test]
fn it_works_without_a_server() {
    let dir = Dir::new();
    dir.ask(&["put", "mail", "a", "--in", "90s"]).ok();
    dir.ask(&["put", "mail", "b"]).ok();
    let mut tty = top(&dir);
    tty.shows("due in the next hour: 1 job");
    assert_eq!(counts(&tty, "mail"), [2, 1, 0, 0]);
    tty.press("we");
    tty.shows("only a server knows its workers");
    tty.shows("only a server has a stream of events");
    tty.press("py");
    tty.shows("paused mail");
    press_until_gone(&mut tty);
    assert_eq!(dir.ask(&["kind", "mail", "--json"]).ok().json()["paused"], true);
}

#[test]
fn what_cannot_be_shown_is_an_error_before_the_screen_changes() {
    let dir = Dir::new();
    dir.run(&["top"]).code(2).complains("needs a terminal").complains("requeue stats --watch");
    dir.run(&["top", "--json"]).code(2).complains("no JSON output");
    dir.run(&["top", "--interval", "1ms"]).code(2).complains("100ms to 1d");
    dir.write("tokens", format!("full {}\n", "t".repeat(32)));
    let server = Server::start(&dir, &["--data", "d", "--tokens", "tokens"]);
    let mut tty = Tty::start(&dir, &["top", "--server", &server.url], SIZE);
    assert_eq!(tty.exit_code(), Some(1));
    tty.shows("hint: set REQUEUE_TOKEN");
    assert!(tty.is_restored());
}

#[test]
fn a_read_token_shows_everything_and_pauses_nothing() {
    let dir = Dir::new();
    let (full, read) = ("f".repeat(32), "r".repeat(32));
    dir.write("tokens", format!("full {full}\nread {read}\n"));
    dir.write("full", &full);
    dir.write("read", &read);
    let private = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(dir.path("read"), private).expect("a file of ours");
    let server = Server::start(&dir, &["--data", "d", "--tokens", "tokens"]);
    dir.run(&["put", "mail", "a", "--server", &server.url, "--token-file", "full"]).ok();
    let mut tty = Tty::start(&dir, &["top", "--server", &server.url, "--token-file", "read"], SIZE);
    tty.shows("> mail");
    tty.press("py");
    let line = tty.line("could not pause mail: ");
    assert!(line.contains("token"), "{line}");
    press_until_gone(&mut tty);
}

/// A server that responds to each path with this JSON, and to others with 404.
fn canned_server(responses: Vec<(&'static str, Value)>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("it listens"));
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut head = String::new();
            let mut reader = BufReader::new(&stream);
            while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).is_ok_and(|n| n > 0) {}
            let path = head.split([' ', '?']).nth(1).unwrap_or_default();
            let found = responses.iter().find(|(of, _)| *of == path);
            let (status, body) = match found {
                Some((_, json)) => ("200 OK", json.to_string()),
                None => ("404 Not Found", "{}".to_owned()),
            };
            let head = format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: ");
            // The program may end at any time.
            let _ = (&stream).write_all(format!("{head}{}\r\n\r\n{body}", body.len()).as_bytes());
        }
    });
    url
}

#[test]
fn rates_lateness_and_histograms_of_a_server_are_shown() {
    let kind = |name: &str, push: bool| {
        json!({
            "kind": name, "pending": 9, "ready": 4, "ready_capped": false, "leased": 2, "dead": 1,
            "done": 7, "oldest_ready": null, "paused": false, "push": push, "generation": 1,
            "fence": 1,
        })
    };
    let recent = json!({
        "seconds": 60, "put": 1500, "claimed": 1, "acked": 150, "failed": 3, "dead": 0,
        "lateness_p50_ms": 15, "lateness_p99_ms": 2500,
    });
    let series = json!({ "kind": "mail", "acked": vec![1; 60], "put": [], "recent": recent });
    let counts = |count: usize| vec![2; count];
    let problems = json!([{
        "name": "disk_full", "detail": "no space left\u{1b}[2J", "since": "2026-01-01T00:00:00.000Z",
    }]);
    let url = canned_server(vec![
        ("/v1/kinds", json!({ "kinds": [kind("mail", false), kind("sms", true)] })),
        (
            "/v1/stats",
            json!({
                "version": "9.9", "uptime_seconds": 5400, "waiting_claims": 8, "problems": problems,
            }),
        ),
        ("/v1/series", json!({ "from": "x", "step": "1m", "total": {}, "kinds": [series] })),
        (
            "/v1/upcoming",
            json!({
                "counted_at": "x", "ready": 4, "later": 5,
                "horizons": [
                    { "name": "hour", "span": "1m", "counts": counts(60) },
                    { "name": "week", "span": "2h", "counts": counts(84) },
                ],
            }),
        ),
    ]);
    let mut tty = Tty::start(&Dir::new(), &["top", "--server", &url], (160, 30));
    tty.shows("version 9.9, up 1h 30m");
    tty.shows("! problem disk_full");
    tty.shows("no space left\\u{1b}[2J");
    tty.shows("waiting claims 8");
    let mail = tty.line("> mail");
    let cells: Vec<&str> = mail.split_whitespace().skip(2).collect();
    let expected =
        ["9", "4", "2", "1", "7", "25", "2.5", "<0.1", "15ms", "2.5s", "████████████████████"];
    assert_eq!(cells, expected, "{mail}");
    let sms = tty.line("  sms");
    assert!(sms.matches('–').count() == 6 && sms.trim_end().ends_with("push"), "{sms}");
    tty.shows("due in the next hour: 120 jobs, 5 after a week");
    tty.press("hh");
    tty.shows("due in the next week: 168 jobs");
    press_until_gone(&mut tty);
}
