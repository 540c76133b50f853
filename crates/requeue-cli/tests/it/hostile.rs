//! Nothing that a job, a server, a file, an argument or the environment contains reaches the terminal
//! as a control character.

use crate::support::{Dir, Done};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Stdio;

/// Sets the title of the window, changes colours (7-bit and 8-bit), deletes, and reverses text.
const HOSTILE: &str = "\u{1b}]0;x\u{7}\u{1b}[31m\u{9b}31m\u{7f}\r\u{202e}\u{2066}\u{200b}evil";

/// Asserts that nothing was printed that a terminal interprets, except line breaks.
#[track_caller]
fn clean(done: Done) -> Done {
    let text = format!("{}{}", done.out, done.err);
    let hidden = |c: &char| {
        c.is_control() && *c != '\n'
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let found = text.chars().find(hidden);
    assert_eq!(found, None, "{done:#?}");
    done
}

#[test]
fn no_command_prints_control_characters() {
    let dir = Dir::served();
    let ask = |args: &[&str]| clean(dir.ask(args));
    ask(&["put", "mail", HOSTILE, HOSTILE, "--content-type", "text/x\u{1b}"]).ok().says("evil");
    ask(&["put", "mail", HOSTILE, "--if-absent"]).code(1).complains("evil");
    ask(&["put", "mail", HOSTILE, "--if-generation", "7"]).code(1).complains("evil");
    ask(&["get", "mail", HOSTILE]).ok().says("evil");
    ask(&["get", "mail", &format!("no{HOSTILE}")]).code(3);
    ask(&["ls", "mail"]).ok().says("evil");
    ask(&["ls", "mail", "--prefix", HOSTILE]).ok();
    ask(&["stats"]).ok();
    ask(&["claim", "mail", "--worker", HOSTILE]).ok().says("evil");
    ask(&["get", "mail", HOSTILE]).ok().says("leased by");
    ask(&["workers"]).ok().says("evil");
    ask(&["workers", "--json"]).ok().says("evil");
    let receipt = dir.job("mail", HOSTILE)["lease"]["worker"].as_str().map(str::to_owned);
    assert_eq!(receipt.as_deref(), Some(HOSTILE), "JSON contains the text itself");

    // Settlements, with receipts that are lost and receipts that are none.
    dir.ask(&["put", "sms", HOSTILE, "x"]).ok();
    let claimed = clean(dir.ask(&["claim", "sms", "--json"])).ok().json();
    let receipt = claimed["receipt"].as_str().expect("a receipt");
    assert_eq!(claimed["id"], HOSTILE);
    ask(&["extend", receipt]).ok();
    ask(&["retry", receipt, "--error", HOSTILE, "--in", "0s"]).ok();
    for command in ["ack", "retry", "release", "extend", "bury"] {
        ask(&[command, receipt]).code(1).complains("is lost");
        ask(&[command, HOSTILE]).code(2).complains("is not a receipt");
    }
    ask(&["get", "sms", HOSTILE]).ok().says("failure");
    ask(&["ls", "sms"]).ok().says("evil");
    ask(&["work", "sms", "--exec", "exit 1", "--worker", HOSTILE, HOSTILE]).code(2);

    // Changes, and names that are invalid.
    ask(&["run-now", "sms", HOSTILE]).ok();
    ask(&["revive", "sms", HOSTILE]).code(1).complains("is not dead");
    ask(&["reschedule", "sms", HOSTILE, "--body", HOSTILE]).ok().says("evil");
    ask(&["reschedule", &format!("sms/{HOSTILE}"), "--in", "0s"]).ok().says("evil");
    ask(&["cancel", "sms", HOSTILE]).ok();
    ask(&["reschedule", "sms", HOSTILE, "--in", "0s"]).code(3).complains("evil");
    ask(&["cancel", "sms/a", HOSTILE]).code(2).complains("evil");
    ask(&["get", "sms/a", HOSTILE]).code(2).complains("evil");
    ask(&["put", "sms", "a", &format!("{{{HOSTILE}")]).code(2).complains("not valid JSON");
    ask(&["kind", "delete", HOSTILE, "--yes"]).code(2).complains("evil");
    ask(&["revive", "sms", "--all", "--yes", "--error", HOSTILE]).ok().says("changed 0");
    ask(&["cancel", "sms", HOSTILE]).code(3).complains("there is no job");
    for command in ["pause", "resume", "kind", "get", "ls", "claim", "cancel"] {
        let id = if ["get", "cancel"].contains(&command) { &["x"][..] } else { &[] };
        ask(&[&[command, HOSTILE], id].concat()).code(2).complains("evil");
    }
    for args in [
        &["put", "mail", "a", "--in", HOSTILE][..],
        &["put", "mail", "a", "--at", HOSTILE],
        &["put", "mail", "a", &format!("@{HOSTILE}")],
        &["put", "mail", "a", "--mode", HOSTILE],
        &["put", "--file", HOSTILE],
        &["import", HOSTILE],
        &["export", &format!("{HOSTILE}/x")],
        &["kind", "mail", "--concurrency", HOSTILE],
        &["ls", "mail", "--state", HOSTILE],
        &["bench", "--time", HOSTILE],
        &["completions", HOSTILE],
        &["man", "--out", "/dev/null/\u{1b}evil"],
        &["stats", "--token-file", HOSTILE],
        &[HOSTILE],
        &["stats", HOSTILE],
        &[&format!("--{HOSTILE}"), "stats"],
    ] {
        let done = ask(args);
        assert_ne!(done.code, Some(0), "{done:#?}");
        done.complains("evil");
    }
}

#[test]
fn no_store_and_no_option_of_serve_prints_control_characters() {
    let dir = Dir::new();
    for args in [
        &["stats", "--data", HOSTILE][..],
        &["stats", "--server", HOSTILE],
        &["stats", "--server", "http://127.0.0.1:1/\u{9b}evil"],
        &["stats", "--store", HOSTILE],
        &["verify", HOSTILE],
        &["stats", "--server", "https://127.0.0.1:1", "--ca-file", HOSTILE],
        &["backup", "--data", HOSTILE, "--to", HOSTILE],
        &["serve", "--log", HOSTILE],
        &["serve", "--listen", HOSTILE],
        &["serve", "--tokens", HOSTILE],
        &["serve", "--data", "/dev/null/\u{1b}evil"],
    ] {
        let done = clean(dir.run(args));
        assert_ne!(done.code, Some(0), "{done:#?}");
        let json = clean(dir.run(&[args, &["--json"]].concat()));
        let last = json.err.lines().last().unwrap_or_default();
        if !json.err.contains("Usage:") && args[0] != "serve" && !last.starts_with("For more") {
            assert!(serde_json::from_str::<Value>(last).is_ok(), "{json:#?}");
        }
    }
    let mut command = dir.command(&["stats"]);
    let output = command.env("REQUEUE_SERVER", format!("http://127.0.0.1:1{HOSTILE}")).output();
    let output = output.expect("it starts");
    clean(Done::new(&["stats"], output)).code(2);
}

#[test]
fn no_file_makes_control_characters_be_printed() {
    let dir = Dir::new();
    let id = serde_json::to_string(HOSTILE).expect("a text");
    let lines = [
        format!("{{\"kind\":\"mail\",\"id\":{id},\"body_text\":{id}}}"),
        format!("{{\"kind\":\"mail\",\"id\":\"a\",{id}:1}}"),
    ];
    dir.write("jobs", lines.join("\n"));
    clean(dir.ask(&["put", "--file", "jobs"])).code(2).says("put 1 job").complains("evil");
    clean(dir.ask(&["put", "--file", "jobs", "--json"])).code(2).says("evil").complains("evil");
    let header = "{\"type\":\"requeue-export\",\"version\":1,\"jobs\":1}";
    for line in [
        format!("{{\"type\":{id}}}"),
        format!("{{\"type\":\"kind\",\"kind\":{id}}}"),
        format!("{{\"type\":\"kind\",{id}:{id}}}"),
        HOSTILE.to_owned(),
    ] {
        dir.write("export", format!("{header}\n{line}\n"));
        clean(dir.ask(&["import", "export"])).code(1);
        let json = clean(dir.ask(&["import", "export", "--json"])).code(1);
        assert!(serde_json::from_str::<Value>(json.err.trim()).is_ok(), "{json:#?}");
    }
}

#[test]
fn a_worker_prints_no_control_characters() {
    let dir = Dir::served();
    dir.ask(&["put", "mail", HOSTILE, "x"]).ok();
    let bury = "kill -TERM $PPID; exit 65";
    for json in [&[][..], &["--json"]] {
        let args = ["work", "mail", "--exec", bury, "--worker", HOSTILE];
        let done = clean(dir.ask(&[&args, json].concat())).ok();
        let text = if json.is_empty() { done.err } else { done.out };
        assert!(text.contains("dead") && text.contains("evil"), "{text}");
        dir.ask(&["put", "mail", HOSTILE, "x"]).ok();
    }
}

/// Starts a server that sends this to everybody. Returns its URL.
fn server(response: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let url = format!("http://{}", listener.local_addr().expect("it is bound"));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("it is accepted");
            // A GET request without a body arrives as a whole.
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(response.as_bytes());
        }
    });
    url
}

/// A server that is not ours returns what it wants.
#[test]
fn no_response_of_a_server_makes_control_characters_be_printed() {
    let text = serde_json::to_string(HOSTILE).expect("a text");
    let dir = Dir::new();
    let problem = |name: &str, status: u16| {
        let json = format!(
            "{{\"type\":\"/v1/problems/{name}\",\"title\":{text},\"status\":{status},\
             \"detail\":{text},\"field\":{text}}}"
        );
        format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n{json}", json.len())
    };
    for (response, code) in [
        (problem("invalid", 422), 2),
        (problem("unavailable", 503), 4),
        (problem("unauthorized", 401), 1),
        (problem("bug", 500), 4),
        (format!("HTTP/1.1 404 X\r\ncontent-length: {}\r\n\r\n{HOSTILE}", HOSTILE.len()), 4),
        (format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{HOSTILE}", HOSTILE.len()), 4),
    ] {
        let url = server(response);
        let done = clean(dir.run(&["stats", "--server", &url])).code(code);
        assert!(!done.err.is_empty());
        clean(dir.run(&["stats", "--json", "--server", &url])).code(code);
    }
}

/// The stdout of a command is not ours: `requeue export` writes jobs as they are, in JSON.
#[test]
fn json_output_is_escaped_and_still_has_the_same_value() {
    let dir = Dir::new();
    dir.ask(&["put", "mail", HOSTILE, HOSTILE]).ok();
    let job = clean(dir.ask(&["get", "mail", HOSTILE, "--json"])).ok().json();
    assert_eq!((job["id"].as_str(), job["body_text"].as_str()), (Some(HOSTILE), Some(HOSTILE)));
    let listed = clean(dir.ask(&["ls", "mail", "--json"])).ok().json();
    assert_eq!(listed["id"], HOSTILE);
    let output = dir.command(&["export", "--data", "d"]).stderr(Stdio::null()).output();
    let export = String::from_utf8(output.expect("it starts").stdout).expect("it is UTF-8");
    assert!(!export.contains('\u{1b}'), "JSON escapes the C0 characters");
}
