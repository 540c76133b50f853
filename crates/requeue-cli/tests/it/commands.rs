//! Each command, on a real server, a data directory or Postgres.

use crate::support::{Dir, Done, signal_to, until};
use requeue_testkit::servers::PostgresServer;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::process::{Command, Stdio};
use std::thread::JoinHandle;

/// The receipt of the one job that is claimed.
pub(crate) fn claim(dir: &Dir, kind: &str) -> String {
    let claimed = dir.ask(&["claim", kind, "--json"]).ok().json();
    claimed["receipt"].as_str().expect("a receipt").to_owned()
}

#[test]
fn a_job_is_put_shown_claimed_and_acked() {
    // With a server, and on a data directory and a database without one.
    let postgres = PostgresServer::start();
    for dir in [Dir::served(), Dir::new(), Dir::at(postgres.url())] {
        put_shown_claimed_and_acked(&dir);
    }
}

fn put_shown_claimed_and_acked(dir: &Dir) {
    let put = dir.ask(&["put", "mail", "a", "{\"n\":1}", "--json"]).ok().json();
    assert_eq!(put, json!({ "kind": "mail", "id": "a", "outcome": "created", "generation": 1 }));
    dir.ask(&["put", "mail", "a", "{\"n\":2}"]).ok().says("updated mail/a as generation 2");
    let job = dir.job("mail", "a");
    assert_eq!((&job["state"], &job["body"]["n"]), (&"ready".into(), &2.into()));
    dir.ask(&["get", "mail", "a"]).ok().says("state         ready").says("{\"n\":2}");
    let claimed = dir.ask(&["claim", "mail", "--json", "--worker", "me"]).ok().json();
    assert_eq!((&claimed["attempt"], &claimed["generation"]), (&1.into(), &2.into()));
    assert_eq!(dir.job("mail", "a")["lease"]["worker"], "me");
    let receipt = claimed["receipt"].as_str().expect("a receipt");
    dir.ask(&["ack", receipt]).ok().says("done mail/a");
    dir.ask(&["get", "mail", "a"]).code(3).complains("there is no job \"a\" of kind mail");
    dir.ask(&["ack", receipt]).code(1).complains("is lost").complains("hint");
}

#[test]
fn a_body_comes_from_the_command_line_from_stdin_or_from_a_file() {
    let dir = Dir::served();
    dir.write("file", [0xff, 0x00]);
    dir.ask(&["put", "mail", "text", "hello"]).ok();
    dir.ask(&["put", "mail", "file", "@file"]).ok();
    dir.ask(&["put", "mail", "none"]).ok();
    dir.ask(&["put", "mail", "typed", "a,b", "--content-type", "text/csv"]).ok();
    dir.feed(&["put", "mail", "stdin", "-"], b"from stdin").ok();
    assert_eq!(dir.job("mail", "text")["body_text"], "hello");
    assert_eq!(dir.job("mail", "text")["content_type"], "text/plain; charset=utf-8");
    assert_eq!(dir.job("mail", "file")["body_base64"], "/wA=");
    assert_eq!(dir.job("mail", "stdin")["body_text"], "from stdin");
    assert_eq!(dir.job("mail", "none")["content_type"], "application/octet-stream");
    assert_eq!(dir.job("mail", "typed")["content_type"], "text/csv");
    dir.ask(&["put", "mail", "a", "@absent"]).code(1).complains("could not read absent");
    dir.write("large", vec![b'x'; (1 << 20) + 1]);
    dir.ask(&["put", "mail", "a", "@large"]).code(2).complains("the limit is 1048576");
}

#[test]
fn a_body_that_is_broken_json_is_rejected_unless_it_is_text() {
    let dir = Dir::served();
    let broken = "{\"to\":\"ann";
    dir.write("letter.json", broken);
    for args in [&["put", "mail", "a", broken][..], &["put", "mail", "a", "@letter.json"]] {
        let done = dir.ask(args).code(2);
        done.complains("the body begins with {, but is not valid JSON").complains("hint: correct");
    }
    dir.feed(&["put", "mail", "a", "-"], b"[1,").code(2).complains("not valid JSON");
    let typed = ["put", "mail", "a", broken, "--content-type", "application/json"];
    dir.ask(&typed).code(2).complains("the content type is application/json");
    dir.ask(&["get", "mail", "a"]).code(3);
    dir.ask(&["put", "mail", "a", broken, "--text"]).ok();
    let job = dir.job("mail", "a");
    assert_eq!(
        (&job["body_text"], &job["content_type"]),
        (&broken.into(), &"text/plain; charset=utf-8".into())
    );
    // Valid JSON, too, is text if that is asked for.
    dir.ask(&["put", "mail", "b", "{}", "--text"]).ok();
    assert_eq!(dir.job("mail", "b")["body_text"], "{}");
    dir.ask(&["put", "mail", "c", broken, "--content-type", "text/x-template"]).ok();
    dir.ask(&["put", "mail", "a", "x", "--text", "--content-type", "a/b"]).code(2);
    let set = ["schedule", "set", "mail", "s", broken, "--every", "1h"];
    dir.ask(&set).code(2).complains("not valid JSON");
    dir.ask(&[&set[..], &["--text"]].concat()).ok();
    dir.ask(&["kind", "mail", "--keep-done", "1d"]).ok();
    let receipt = claim(&dir, "mail");
    dir.ask(&["ack", &receipt, "--result", broken]).code(2).complains("not valid JSON");
    dir.ask(&["ack", &receipt, "--text"]).code(2).complains("need --result");
    dir.ask(&["ack", &receipt, "--result", broken, "--text"]).ok();
}

#[test]
fn a_put_without_a_body_says_that_the_old_one_is_gone() {
    let dir = Dir::served();
    let warning = "to change only the due time: requeue reschedule";
    let put = |args: &[&str]| dir.ask(&[&["put", "mail", "a"], args].concat()).ok().err;
    assert_eq!(put(&[]), "");
    assert_eq!(put(&["hello"]), "");
    assert_eq!(put(&["--mode", "keep"]), "");
    assert!(put(&["--in", "1h"]).contains(warning));
    assert_eq!(put(&["--in", "1h", "--json"]), "");
}

#[test]
fn a_job_is_named_in_the_form_in_which_it_is_printed() {
    let dir = Dir::served();
    dir.ask(&["put", "mail/a", "hello", "--delay", "1h"]).ok().says("created mail/a");
    dir.ask(&["put", "mail", "x/y", "hello"]).ok().says("created mail/x/y");
    assert_eq!(dir.job("mail", "a")["body_text"], "hello");
    dir.ask(&["get", "mail/a", "--json"]).ok().says("waiting");
    dir.ask(&["show", "mail/x/y", "--json"]).ok().says("\"id\":\"x/y\"");
    dir.ask(&["list", "mail"]).ok().says("x/y");
    dir.ask(&["run-now", "mail/a"]).ok().says("ready mail/a");
    dir.ask(&["bury", &claim(&dir, "mail")]).ok();
    dir.ask(&["revive", "mail/x/y"]).ok().says("revived mail/x/y");
    dir.ask(&["put", "sms/b"]).ok();
    dir.ask(&["cancel", "mail/a", "sms/b", "mail/zz"])
        .code(3)
        .says("removed mail/a\nremoved sms/b\n");
    dir.ask(&["cancel", "mail/a", "b"]).code(2).complains("\"b\" is not KIND/ID");
    dir.ask(&["get", "mail/a", "b"]).code(2).complains("unexpected argument \"b\"");
    dir.ask(&["put", "mail/a", "b", "c"]).code(2).complains("unexpected argument \"c\"");
    dir.ask(&["get", "mail/"]).code(2).complains("the id must not be empty");
    dir.ask(&["get", "/a"]).code(2).complains("must not be empty");
    for command in ["get", "cancel", "reschedule", "put"] {
        dir.ask(&[command, "mail", "--json"]).code(2);
    }
    let set = ["schedule", "set", "report/daily", "hello", "--every", "1d"];
    dir.ask(&set).ok().says("set report/daily");
    for verb in ["show", "pause", "resume", "next", "run", "rm"] {
        dir.ask(&["schedule", verb, "report/daily"]).ok();
    }
    dir.ask(&["schedule", "list"]).ok().complains("there are no schedules");
    assert_eq!(dir.job("report", "daily")["body_text"], "hello");
}

#[test]
fn a_pause_of_a_kind_that_does_not_exist_fails() {
    let postgres = PostgresServer::start();
    for dir in [Dir::served(), Dir::new(), Dir::at(postgres.url())] {
        dir.ask(&["put", "mail", "a", "x"]).ok();
        for verb in ["pause", "resume"] {
            let absent = dir.ask(&[verb, "mial"]).code(3);
            absent.complains("there is no kind mial").complains("hint: ");
            assert_eq!(dir.ask(&["stats", "--json"]).ok().lines().len(), 1);
        }
        // Unless it is paused in advance.
        dir.ask(&["pause", "mial"]).complains("requeue pause mial --create");
        dir.ask(&["pause", "news", "--create"]).ok().says("paused news");
        dir.ask(&["put", "news", "a"]).ok();
        dir.ask(&["claim", "news"]).code(3);
        dir.ask(&["resume", "news"]).ok();
        dir.ask(&["pause", "mail"]).ok().says("paused mail");
        dir.ask(&["cancel", "mail", "a"]).ok();
        // It still has a setting.
        dir.ask(&["resume", "mail"]).ok().says("resumed mail");
        // A kind without jobs that has a schedule, or any setting, exists.
        dir.ask(&["kind", "sms", "--max-attempts", "3"]).ok();
        dir.ask(&["pause", "sms"]).ok();
        dir.ask(&["schedule", "set", "report", "daily", "--every", "1d"]).ok();
        dir.ask(&["pause", "report"]).ok();
    }
}

#[test]
fn the_hint_of_an_error_fits_the_error() {
    let dir = Dir::new();
    let problem = |name: &str, detail: &str| {
        json!({
            "type": format!("/v1/problems/{name}"), "title": "unavailable", "status": 503,
            "detail": detail,
        })
    };
    let full =
        "the disk has 0.5 MiB free, but 160.0 MiB are reserved for jobs that are stored already";
    for (name, detail, hint) in [
        ("unavailable", full, Some("hint: free some space on the disk of the store")),
        (
            "unavailable",
            "no space for new jobs: only the log's reserve is left",
            Some("hint: free"),
        ),
        ("unavailable", "Redis is loading its data", None),
        ("stopping", "the server is stopping", None),
        ("busy", "too many requests", None),
    ] {
        let (url, server) = scripted_with("503 Service Unavailable", vec![problem(name, detail)]);
        let done = dir.run(&["put", "mail", "a", "x", "--server", &url]).code(4).complains(detail);
        server.join().expect("it serves");
        assert!(!done.err.contains("is a server running"), "{done:#?}");
        assert_eq!(hint.is_none(), !done.err.contains("hint: "), "{done:#?}");
        done.complains(hint.unwrap_or_default());
    }
    let nobody = ["put", "mail", "a", "x", "--server", "http://127.0.0.1:1"];
    dir.run(&nobody).code(4).complains("hint: is a server running at http://127.0.0.1:1?");
}

#[test]
fn numbers_of_bytes_are_rounded_for_people() {
    let dir = Dir::new();
    dir.write("large", vec![b'x'; 300 << 10]);
    dir.ask(&["put", "mail", "a", "@large"]).ok();
    dir.ask(&["export", "all.jsonl"]).ok().says(" KiB)");
    let json = dir.run(&["import", "all.jsonl", "--data", "other", "--json"]).ok().json();
    assert!(json["bytes"].as_u64().is_some_and(|bytes| bytes > 300 << 10), "{json}");
    let copied = dir.ask(&["backup", "--to", "copy"]).ok();
    assert!(copied.out.contains("KiB in ") || copied.out.contains("MiB in "), "{copied:?}");
    dir.run(&["verify", "copy"]).ok().says("iB");
}

#[test]
fn a_job_is_due_at_the_given_time() {
    let dir = Dir::served();
    dir.ask(&["put", "mail", "a", "--at", "tomorrow 09:00 Asia/Tokyo"]).ok();
    let due = dir.job("mail", "a")["due"].to_string();
    assert!(due.ends_with("T00:00:00.000Z\""), "{due}");
    dir.ask(&["put", "mail", "b", "--in", "1h"]).ok();
    dir.ask(&["get", "mail", "b"]).ok().says("(in 59m ");
    dir.ask(&["put", "mail", "c", "--in", "4000 days"]).code(2).complains("the delay is");
}

#[test]
fn a_time_without_a_zone_is_in_that_of_this_machine_and_rejected_in_a_file() {
    let dir = Dir::served();
    for (zone, due) in [("Asia/Tokyo", "T00:00:00.000Z"), ("Asia/Kolkata", "T03:30:00.000Z")] {
        let args = [&["put", "mail", "a", "--at", "tomorrow 09:00"], &dir.place()[..]].concat();
        let done = dir.command(&args).env("TZ", zone).output().expect("it runs");
        Done::new(&args, done).ok();
        let found = dir.job("mail", "a")["due"].as_str().unwrap().to_owned();
        assert!(found.ends_with(due), "{zone}: {found}");
    }
    dir.write("jobs.jsonl", r#"{"kind":"mail","id":"b","due":"tomorrow 09:00"}"#);
    let done = dir.ask(&["put", "--file", "jobs.jsonl"]).code(2);
    done.complains("line 1 of jobs.jsonl: due: ").complains("tomorrow 09:00 UTC");
}

#[test]
fn put_conditions_and_modes_apply() {
    let dir = Dir::served();
    dir.ask(&["put", "mail", "a", "1", "--in", "1h", "--if-absent"]).ok();
    let again = dir.ask(&["put", "mail", "a", "2", "--if-absent"]).code(1);
    again.complains("hint: without --if-absent");
    dir.ask(&["put", "mail", "a", "2", "--if-generation", "7"]).code(1);
    dir.ask(&["put", "mail", "a", "2", "--if-generation", "1", "--in", "1h"]).ok();
    dir.ask(&["put", "mail", "a", "3", "--mode", "keep"]).ok().says("kept");
    assert_eq!(dir.job("mail", "a")["body_text"], "2");
    let debounce = ["put", "mail", "a", "4", "--mode", "debounce", "--max-wait", "2h"];
    dir.ask(&debounce).ok().says("updated");
}

#[test]
fn the_jobs_of_a_file_are_put_in_order() {
    let dir = Dir::served();
    let lines: String = (0..2500)
        .map(|n| json!({ "kind": "mail", "id": format!("{n:04}"), "body": n }).to_string() + "\n")
        .collect();
    dir.write("jobs.jsonl", format!("\n{lines}"));
    let done = dir.ask(&["put", "--file", "jobs.jsonl", "--json"]).ok();
    let answers = done.lines();
    assert_eq!(answers.len(), 2500);
    assert_eq!(
        (&answers[2499]["id"], &answers[2499]["generation"]),
        (&"2499".into(), &2500.into())
    );
    let input = br#"{"kind":"mail","id":"0000","if_absent":true}
{"kind":"mail","id":"x"}
{"kind":"mail","id":"y","delay":"5"}
{"kind":"mail","id":"z"}"#;
    let done = dir.feed(&["put", "--file", "-"], input).code(2);
    let done = done.complains("line 3").complains("the lines before it were put");
    assert_eq!(done.out, "put 1 of 2 jobs: 1 created\n", "{done:?}");
    let input = br#"{"kind":"mail","id":"0000","mode":"keep"}
{"kind":"mail","id":"0001"}
{"kind":"mail","id":"0002"}"#;
    let done = dir.feed(&["put", "--file", "-"], input).ok();
    assert_eq!(done.out, "put 3 jobs: 1 kept, 2 updated\n");
    assert_eq!(dir.feed(&["put", "--file", "-"], b"\n").ok().out, "put 0 jobs\n");
    let wrong = dir.feed(&["put", "--file", "-"], b"{}").code(2);
    assert_eq!(wrong.out, "", "nothing was put");
    let listed = dir.ask(&["ls", "mail", "--all", "--json"]).ok().lines();
    assert_eq!(listed.len(), 2501);
}

#[test]
fn jobs_are_listed_by_state_and_prefix() {
    let dir = Dir::served();
    for (id, delay) in [("a1", "0s"), ("a2", "1h"), ("b1", "0s"), ("b2", "1h")] {
        dir.ask(&["put", "mail", id, "x", "--in", delay]).ok();
    }
    let ids = |args: &[&str]| -> Vec<Value> {
        let done = dir.ask(&[&["ls", "mail", "--json"], args].concat()).ok();
        done.lines().into_iter().map(|mut job| job["id"].take()).collect()
    };
    assert_eq!(ids(&[]), ["a1", "a2", "b1", "b2"]);
    assert_eq!(ids(&["--state", "waiting"]), ["a2", "b2"]);
    assert_eq!(ids(&["--prefix", "b"]), ["b1", "b2"]);
    assert_eq!(ids(&["--limit", "3"]), ["a1", "a2", "b1"]);
    let done = dir.ask(&["ls", "mail", "--limit", "3"]).ok();
    done.says("ID  STATE").complains("there are more jobs");
}

#[test]
fn a_lease_can_be_extended_released_retried_and_buried() {
    let dir = Dir::served();
    dir.ask(&["put", "mail", "a", "x"]).ok();
    let receipt = claim(&dir, "mail");
    let extended = dir.ask(&["extend", &receipt, "--lease", "10m", "--json"]).ok().json();
    assert_eq!(extended["result"], "extended");
    assert_eq!(extended["at"], dir.job("mail", "a")["lease"]["ends_at"]);
    dir.ask(&["release", &receipt]).ok().says("released mail/a");
    let receipt = claim(&dir, "mail");
    let retry = ["retry", &receipt, "--error", "busy", "--in", "0s"];
    dir.ask(&retry).ok().says("retry mail/a, due ");
    let job = dir.job("mail", "a");
    assert_eq!((&job["attempts"], &job["failures"][0]["error"]), (&1.into(), &"busy".into()));
    let receipt = claim(&dir, "mail");
    let other = receipt.replace("/a", "/zz");
    let done = dir.ask(&["bury", &receipt, &other, "--error", "hopeless"]).code(1);
    done.says("dead mail/a").complains("is lost");
    assert_eq!(dir.job("mail", "a")["state"], "dead");
    dir.ask(&["claim", "mail"]).code(3).complains("no job to claim").complains("--wait");
    dir.ask(&["claim", "mail", "--wait", "10ms"]).code(3);
}

#[test]
fn jobs_are_changed_by_id_or_with_all() {
    let dir = Dir::served();
    for id in ["a", "b", "c"] {
        dir.ask(&["put", "mail", id, "x"]).ok();
        let receipt = claim(&dir, "mail");
        let error = if id == "c" { "no such order" } else { "no such user" };
        dir.ask(&["bury", &receipt, "--error", error]).ok();
    }
    dir.ask(&["revive", "mail", "a"]).ok().says("revived mail/a");
    dir.ask(&["revive", "mail", "a"]).code(1).complains("not dead").complains("run-now");
    dir.ask(&["revive", "mail", "zz", "b"]).code(3).says("revived mail/b");
    let some = ["revive", "mail", "--all", "--error", "user", "--yes", "--json"];
    let none = json!({ "matched": 0, "changed": 0, "failed": 0 });
    assert_eq!(dir.ask(&some).ok().json(), none);
    dir.ask(&["revive", "mail", "--all", "--yes"]).ok().says("changed 1 of 1 job of kind mail");
    for (id, error) in [("a", "order 1 not found"), ("b", "order 22 not found"), ("c", "no order")]
    {
        dir.ask(&["put", "orders", id, "x", "--priority", if id == "a" { "7" } else { "0" }]).ok();
        let receipt = claim(&dir, "orders");
        dir.ask(&["bury", &receipt, "--error", error]).ok();
    }
    let urgent = ["revive", "orders", "--all", "--yes", "--error-group", "order 3 not found"];
    let urgent = [&urgent[..], &["--priority", "7"]].concat();
    dir.ask(&urgent).ok().says("changed 1 of 1 job of kind orders");
    assert_eq!(dir.job("orders", "a")["state"], "ready");
    dir.ask(&urgent[..6]).ok().says("changed 1 of 1 job of kind orders");
    assert_eq!(dir.job("orders", "c")["state"], "dead");
    dir.ask(&["put", "mail", "later", "x", "--in", "1h"]).ok();
    dir.ask(&["run-now", "mail", "--all", "--yes"]).ok().says("changed 1 of 1 job of kind mail");
    assert_eq!(dir.job("mail", "later")["state"], "ready");
    dir.ask(&["cancel", "mail", "a"]).ok().says("removed mail/a");
    dir.ask(&["cancel", "mail", "a"]).code(3);
    let receipt = claim(&dir, "mail");
    let all = dir.ask(&["cancel", "mail", "--all", "--yes", "--json"]).ok().json();
    assert_eq!(all, json!({ "matched": 3, "changed": 3, "failed": 0 }));
    dir.ask(&["extend", &receipt]).ok().says("cancelled");
}

#[test]
fn kinds_are_set_paused_and_counted() {
    let dir = Dir::served();
    dir.ask(&["put", "mail", "a", "x"]).ok();
    let set = ["kind", "mail", "--max-attempts", "2", "--backoff", "5s", "--json"];
    let settings = dir.ask(&set).ok().json();
    assert_eq!(
        (&settings["max_attempts"], &settings["backoff"]["base"]),
        (&2.into(), &"5s".into())
    );
    assert_eq!(dir.ask(&["kind", "mail", "--json"]).ok().json(), settings);
    dir.ask(&["kind", "mail", "--lease", "1ms"]).code(2).complains("the range is 10ms");
    dir.ask(&["kind", "mail"]).ok().says("from 5s to 1h");
    dir.ask(&["pause", "mail"]).ok().says("paused mail");
    dir.ask(&["claim", "mail"]).code(3);
    dir.ask(&["stats"]).ok().says("paused");
    dir.ask(&["resume", "mail"]).ok();
    claim(&dir, "mail");
    let kinds = dir.ask(&["kinds", "--json"]).ok().json();
    assert_eq!(
        (&kinds["kind"], &kinds["leased"], &kinds["paused"]),
        (&"mail".into(), &1.into(), &false.into())
    );
}

#[test]
fn higher_priorities_are_claimed_first() {
    let dir = Dir::served();
    for (id, priority) in [("a", "0"), ("b", "9"), ("c", "5")] {
        dir.ask(&["put", "mail", id, "x", "--priority", priority]).ok();
    }
    let claimed = dir.ask(&["claim", "mail", "--max", "3", "--json"]).ok().lines();
    let order: Vec<_> = claimed.iter().map(|job| (&job["id"], &job["priority"])).collect();
    let (b, c, a) = (json!("b"), json!("c"), json!("a"));
    assert_eq!(order, [(&b, &json!(9)), (&c, &json!(5)), (&a, &json!(null))]);
    dir.ask(&["get", "mail", "c"]).ok().says("priority      5");
    dir.ask(&["ls", "mail"]).ok().says("PRIORITY");
    dir.ask(&["put", "mail", "d", "x", "--priority", "5"]).ok();
    let of = |options: &[&str]| {
        let listed = dir.ask(&[&["ls", "mail", "--priority", "5"], options].concat()).ok();
        let ids = listed.out.lines().skip(1).filter_map(|line| line.split(' ').next());
        (ids.map(str::to_owned).collect::<Vec<_>>().join(" "), listed)
    };
    assert_eq!(of(&[]).0, "c d");
    let (first, listed) = of(&["--limit", "1"]);
    assert_eq!(first, "c");
    listed.complains("there are more jobs");
    dir.ask(&["ls", "mail", "--priority", "1"]).ok().complains("no jobs of kind mail match");
    let invalid = dir.ask(&["put", "mail", "d", "x", "--priority", "10"]).code(2);
    invalid.complains("invalid value '10' for '--priority <N>'").complains("0..=9");
    let line = br#"{"kind":"mail","id":"e","priority":10}"#;
    let invalid = dir.feed(&["put", "--file", "-"], line).code(2);
    invalid.complains("the priority is 10; the limit is 9");
    dir.ask(&["kind", "mail", "--ageing", "0s"]).code(2).complains("the ageing is 0ns");
    dir.ask(&["kind", "mail", "--ageing", "soon"]).code(2).complains("such as 10m, or `none`");
    dir.ask(&["kind", "mail", "--ageing", "90s"]).ok().says("one level of priority per 1m30s");
    dir.ask(&["kind", "mail", "--ageing", "none"]).ok().says("ageing        never");
}

#[test]
fn reserved_kinds_can_be_listed_and_not_changed() {
    let dirs = [Dir::served(), Dir::new()];
    for dir in dirs {
        dir.ask(&["schedule", "set", "mail", "daily", "--every", "1h"]).ok();
        let list = || dir.ask(&["ls", "requeue.schedules", "--json"]).ok().json();
        let before = list();
        assert_eq!(before["id"], "mail/daily");
        for command in [
            &["cancel", "requeue.schedules", "mail/daily"][..],
            &["cancel", "requeue.schedules", "--all"],
            &["run-now", "requeue.schedules", "mail/daily"],
            &["revive", "requeue.schedules", "--all"],
            &["put", "requeue.schedules", "mail/daily", "x"],
            &["kind", "requeue.schedules", "--max-attempts", "1"],
            &["pause", "requeue.schedules"],
            &["claim", "requeue.schedules"],
            &["work", "requeue.schedules", "--exec", "true"],
            &["ack", "660584e864d88.510a03a22be957e0.requeue.schedules/mail/daily"],
            &["schedule", "set", "requeue.x", "daily", "--every", "1h"],
        ] {
            dir.ask(command).complains("is reserved");
        }
        assert_eq!(list(), before);
    }
}

#[test]
fn a_kind_with_a_rate_limit_is_throttled() {
    let dir = Dir::served();
    for id in ["a", "b"] {
        dir.ask(&["put", "sms", id, "x"]).ok();
    }
    dir.ask(&["kind", "sms", "--rate", "1/1h"]).ok().says("1 per 1h, evenly spaced");
    claim(&dir, "sms");
    dir.ask(&["claim", "sms"]).code(3);
    dir.ask(&["stats"]).ok().says("throttled, next job in ");
    let kind = dir.ask(&["stats", "--json"]).ok().json();
    assert!(kind["throttled_until"].is_string(), "{kind}");
    dir.ask(&["kind", "sms", "--rate", "0/1s"])
        .code(2)
        .complains("the number of jobs of the rate is 0");
    dir.ask(&["kind", "sms", "--rate", "5"]).code(2).complains("such as 10/s or 100/1m, or `none`");
    dir.ask(&["kind", "sms", "--burst", "5"]).code(2).complains("--rate");
    dir.ask(&["kind", "sms", "--rate", "none"]).ok();
    claim(&dir, "sms");
}

#[test]
fn done_jobs_are_kept_with_their_results_and_not_put_again() {
    let dir = Dir::served();
    let keep = ["kind", "mail", "--keep-done", "7d", "--keep-done-count", "10"];
    dir.ask(&keep).ok().says("keep done     up to 10 jobs, for 7d");
    for id in ["a", "b"] {
        dir.ask(&["put", "mail", id, "x", "--if-new"]).ok();
    }
    let receipt = claim(&dir, "mail");
    dir.ask(&["ack", &receipt, "--result", r#"{"sent":3}"#]).ok().says("done mail/a");
    let receipt = claim(&dir, "mail");
    let ack = ["ack", &receipt, "--result", "-", "--content-type", "image/gif"];
    dir.feed(&ack, b"\xff").ok();
    let job = dir.job("mail", "a");
    assert_eq!(
        (&job["state"], &job["done"]["result"]["body"]),
        (&json!("done"), &json!({"sent": 3}))
    );
    assert_eq!(dir.job("mail", "b")["done"]["result"]["body_base64"], "/w==");
    dir.ask(&["get", "mail", "a"])
        .ok()
        .says("done by       cli-")
        .says(r#"result        {"sent":3}"#);
    let listed = dir.ask(&["ls", "mail", "--state", "done"]).ok();
    listed.says("TOOK").says(r#"{"sent":3}"#).says("1 byte of image/gif");
    let kind = dir.ask(&["stats", "--json"]).ok().json();
    assert_eq!((&kind["pending"], &kind["done"]), (&json!(0), &json!(2)));

    let again = dir.ask(&["put", "mail", "a", "x", "--if-new"]).code(1);
    again.complains("already exists, with generation 1").complains("--if-new");
    dir.ask(&["put", "mail", "c", "x", "--if-new", "--if-absent"]).code(2);
    dir.ask(&["run-now", "mail", "a"]).code(1).complains("is done").complains("put it again");
    dir.ask(&["put", "mail", "a", "x", "--if-absent"]).ok().says("created mail/a");
    dir.ask(&["cancel", "mail", "--all", "--yes", "--state", "done"])
        .ok()
        .says("changed 1 of 1 job");

    dir.write("long", vec![b'x'; 65_537]);
    let receipt = claim(&dir, "mail");
    let long = dir.ask(&["ack", &receipt, "--result", "@long"]).code(2);
    long.complains("the result has 65537 bytes; the limit is 65536");
    dir.ask(&["kind", "mail", "--keep-done", "none", "--keep-done-count", "5"]).code(2);
    dir.ask(&["kind", "mail", "--keep-done", "none"]).ok().says("keep done     no");
    dir.ask(&["ack", &receipt, "--result", "discarded"]).ok();
    dir.ask(&["get", "mail", "a"]).code(3).complains("unless its kind keeps done jobs");
}

#[test]
fn done_jobs_priorities_and_settings_are_exported_and_imported() {
    let dir = Dir::served();
    let set = ["kind", "mail", "--keep-done", "7d", "--rate", "100/1s", "--ageing", "1m"];
    dir.ask(&set).ok();
    dir.ask(&["put", "mail", "done", "x", "--priority", "3"]).ok();
    let receipt = claim(&dir, "mail");
    dir.ask(&["ack", &receipt, "--result", "sent"]).ok();
    dir.ask(&["put", "mail", "waiting", "x", "--priority", "9", "--in", "1h"]).ok();
    dir.ask(&["put", "mail", "leased", "first", "--priority", "1"]).ok();
    claim(&dir, "mail");
    dir.ask(&["put", "mail", "leased", "second", "--priority", "2"]).ok();

    dir.ask(&["export", "all.jsonl"]).ok().says("exported 3 jobs of 1 kind");
    dir.run(&["import", "all.jsonl", "--data", "other"]).ok().says("imported 3 jobs");
    let other = |id: &str| dir.run(&["get", "mail", id, "--json", "--data", "other"]).ok().json();
    assert_eq!(other("done"), dir.job("mail", "done"));
    assert_eq!(other("done")["done"]["result"]["body_text"], "sent");
    assert_eq!(other("waiting"), dir.job("mail", "waiting"));
    assert_eq!(
        (&other("leased")["priority"], &other("leased")["body_text"]),
        (&json!(2), &json!("second"))
    );
    let settings =
        |place: &[&str]| dir.run(&[&["kind", "mail", "--json"], place].concat()).ok().json();
    assert_eq!(settings(&["--data", "other"]), dir.ask(&["kind", "mail", "--json"]).ok().json());
    let again = ["put", "mail", "done", "x", "--if-new", "--data", "other"];
    dir.run(&again).code(1).complains("already exists");
}

#[test]
fn a_store_is_exported_and_imported() {
    let dir = Dir::new();
    let line = |n: u32| json!({ "kind": format!("k{}", n % 3), "id": n.to_string(), "body": n });
    let lines: String = (0..300).map(|n| line(n).to_string() + "\n").collect();
    dir.feed(&["put", "--file", "-"], lines.as_bytes()).ok();
    dir.ask(&["export", "all.jsonl"]).ok().says("exported 300 jobs of 3 kinds");
    let shown = dir.ask(&["export"]).ok();
    assert_eq!(shown.out, dir.read("all.jsonl"));
    assert!(!dir.path("all.jsonl.part").exists());
    let import = ["import", "all.jsonl", "--data", "other", "--json"];
    assert_eq!(dir.run(&import).ok().json()["jobs"], 300);
    let again = dir.run(&["import", "all.jsonl", "--data", "other"]).ok();
    again.says("300 existed already");
    assert_eq!(dir.run(&["export", "--data", "other"]).ok().out, shown.out);
    let cut: String = shown.out.lines().take(10).map(|line| format!("{line}\n")).collect();
    dir.write("cut.jsonl", cut);
    let done = dir.run(&["import", "cut.jsonl", "--data", "third"]).code(1);
    done.complains("the export is incomplete");
    let server = Dir::served();
    server.feed(&["import"], shown.out.as_bytes()).ok().says("imported 300 jobs of 3 kinds");
    assert_eq!(server.ask(&["export"]).ok().out, shown.out);
    dir.run(&["import", "absent", "--data", "fourth"]).code(1).complains("could not open absent");
    assert!(!dir.path("fourth").exists());
}

#[test]
fn a_kind_with_secrets_is_imported_into_a_server_without_them() {
    let (from, to) = (Dir::served(), Dir::served());
    from.write("secret", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    let push = ["--push", "http://127.0.0.1:9/hooks", "--push-secret", "secret"];
    from.ask(&[&["kind", "mail"], &push[..]].concat()).ok();
    from.ask(&["pause", "mail"]).ok();
    from.ask(&["put", "mail", "a", "1"]).ok();
    from.ask(&["put", "report", "b", "2"]).ok();
    let export = from.ask(&["export"]).ok().out;
    let done = to.feed(&["import", "--json"], export.as_bytes()).ok().json();
    assert_eq!((&done["kinds"], &done["jobs"]), (&json!(2), &json!(2)));
    assert_eq!(done["bytes"], export.len());
    assert_eq!(to.job("report", "b")["body_text"], "2");
    let push = &to.ask(&["kind", "mail", "--json"]).ok().json()["push"];
    assert_eq!(push["url"], "http://127.0.0.1:9/hooks");
    to.feed(&["import"], export.as_bytes()).ok().says("existed already");
    // The end is missing.
    let cut = export.lines().next().expect("a line").to_owned() + "\n";
    let done = to.feed(&["import"], cut.as_bytes()).code(1);
    done.complains("the export is incomplete");
    let wrong = to.feed(&["import"], b"{}\n").code(1);
    wrong.complains("line 1");
}

#[test]
fn a_directory_is_copied_and_verified() {
    let dir = Dir::new();
    dir.ask(&["put", "mail", "a", "x"]).ok();
    dir.ask(&["backup", "--to", "copy"]).ok().says("copied");
    dir.ask(&["backup", "--to", "copy"]).code(1).complains("is not empty").complains("hint");
    dir.run(&["verify", "copy"]).ok().says("sound: 1 job of 1 kind");
    assert_eq!(dir.run(&["verify", "d", "--json"]).ok().json()["sound"], true);
    dir.run(&["verify", "absent"]).code(1).complains("absent");
    let entries = std::fs::read_dir(dir.path("copy")).expect("a directory");
    for entry in entries.map(|entry| entry.expect("an entry").path()) {
        let mut bytes = std::fs::read(&entry).expect("a file");
        let middle = bytes.len() / 2;
        if let Some(byte) = bytes.get_mut(middle) {
            *byte ^= 0xFF;
        }
        std::fs::write(&entry, bytes).expect("a file");
    }
    let done = dir.run(&["verify", "copy"]).code(1).says("problem: ");
    done.complains("copy is damaged").complains("restore a copy");
}

#[test]
fn what_is_left_of_a_damaged_directory_is_exported() {
    let dir = Dir::new();
    for (id, body) in [("a", "body-a"), ("b", "body-b"), ("c", "body-c")] {
        dir.ask(&["put", "mail", id, body]).ok();
    }
    dir.ask(&["export", "whole.jsonl", "--salvage"]).ok().says("exported 3 jobs of 1 kind");
    for entry in std::fs::read_dir(dir.path("d")).expect("a directory") {
        let path = entry.expect("an entry").path();
        let mut bytes = std::fs::read(&path).expect("a file");
        if let Some(at) = bytes.windows(6).position(|found| found == b"body-b") {
            bytes[at] ^= 1;
            std::fs::write(&path, bytes).expect("a file");
        }
    }
    dir.ask(&["export", "jobs.jsonl"])
        .code(1)
        .complains("is damaged at byte")
        .complains("--salvage");
    dir.run(&["verify", "d"]).code(1).complains("--salvage");
    let done = dir.ask(&["export", "jobs.jsonl", "--salvage"]).code(6);
    done.says("exported 2 jobs of 1 kind")
        .complains("lost: log-")
        .complains("of the log: the changes of its operations")
        .complains("d is damaged: 3 losses");
    dir.ask(&["export", "--salvage", "--json"]).code(6).complains(r#""lost":"groups""#);
    dir.run(&["import", "jobs.jsonl", "--data", "new"]).ok().says("imported 2 jobs");
    dir.run(&["get", "mail", "c", "--data", "new"]).ok().says("body-c");
    dir.run(&["export", "--salvage"]).code(2).complains("--salvage needs --data DIR");
    dir.run(&["export", "--salvage", "--data", "none"]).code(1);
}

#[test]
fn a_bench_measures_and_leaves_nothing_behind() {
    let dir = Dir::new();
    dir.run(&["bench", "--time", "10ms"])
        .ok()
        .says("put, single")
        .says("delay from due time to claim");
    let lines = dir.run(&["bench", "--time", "10ms", "--data", "sub", "--json"]).ok().lines();
    assert!(lines.iter().all(|line| line["p99_seconds"].is_f64()), "{lines:?}");
    let names = std::fs::read_dir(dir.path("")).expect("a directory");
    let names: Vec<_> = names.map(|entry| entry.expect("an entry").file_name()).collect();
    assert_eq!(names, ["sub"]);
    assert_eq!(std::fs::read_dir(dir.path("sub")).expect("a directory").count(), 0);
}

#[test]
fn a_closed_pipe_is_no_error() {
    let dir = Dir::served();
    let lines: String = (0..5000)
        .map(|n| json!({ "kind": "mail", "id": n.to_string() }).to_string() + "\n")
        .collect();
    dir.feed(&["put", "--file", "-"], lines.as_bytes()).ok();
    let mut shell = std::process::Command::new("bash");
    let script = "set -o pipefail; \"$0\" ls mail --all --json \"$@\" | head -1";
    let shell = shell.args(["-c", script, env!("CARGO_BIN_EXE_requeue")]).args(dir.place());
    let output = shell.current_dir(dir.path("")).output().expect("bash runs");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn all_jobs_of_a_file_are_put_even_if_stdout_is_closed() {
    let dir = Dir::served();
    let line = |n| json!({ "kind": "mail", "id": format!("{n:04}") }).to_string() + "\n";
    dir.write("jobs.jsonl", (0..2500).map(line).collect::<String>());
    let args = [&["put", "--file", "jobs.jsonl"], &dir.place()[..]].concat();
    let mut child = dir.command(&args).stdout(Stdio::piped()).spawn().expect("it starts");
    drop(child.stdout.take());
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    assert_eq!(dir.ask(&["stats", "--json"]).ok().json()["pending"], 2500);
    // A long list is printed in several pages.
    let listed = dir.ask(&["ls", "mail", "--all"]).ok();
    assert_eq!(listed.out.matches("STATE").count(), 1);
    assert_eq!(listed.out.lines().count(), 2501);
    dir.ask(&["ls", "none"]).ok().complains("no jobs of kind none match");
}

/// A server that sends these responses, one per connection, and then stops. Returns its URL, and
/// the request lines that it received.
pub(crate) fn scripted(answers: Vec<Value>) -> (String, JoinHandle<Vec<String>>) {
    scripted_with("200 OK", answers)
}

/// Does the same with this status.
fn scripted_with(status: &'static str, answers: Vec<Value>) -> (String, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("it is bound"));
    let serving = std::thread::spawn(move || {
        let mut asked = Vec::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().expect("it is asked");
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") {
                stream.read_exact(&mut byte).expect("a whole head");
                head.push(byte[0]);
            }
            let head = String::from_utf8(head).expect("it is text").to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length = length.map_or(0, |text| text.parse().expect("a number"));
            stream.read_exact(&mut vec![0; length]).expect("a whole body");
            asked.push(head.lines().next().expect("a line").to_owned());
            let body = answer.to_string();
            let length = body.len();
            let told = format!(
                "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\n\
                 content-length: {length}\r\n\r\n{body}"
            );
            stream.write_all(told.as_bytes()).expect("it reads");
        }
        asked
    });
    (url, serving)
}

#[test]
fn settings_are_patched_by_the_server() {
    // If the client read and wrote the settings, it could overwrite concurrent changes.
    let dir = Dir::new();
    dir.ask(&["put", "mail", "a"]).ok();
    let mut set = dir.ask(&["kind", "mail", "--json"]).ok().json();
    set.as_object_mut().expect("an object").remove("kind");
    let kinds = json!({ "kinds": dir.ask(&["stats", "--json"]).ok().lines() });
    for verb in [&["pause", "mail"][..], &["resume", "mail"], &["kind", "mail", "--jitter", "5"]] {
        let list = (verb[0] != "kind").then(|| kinds.clone());
        let (url, server) = scripted(list.into_iter().chain([set.clone()]).collect());
        dir.run(&[verb, &["--server", &url]].concat()).ok();
        let asked = server.join().expect("it serves");
        assert_eq!(asked.last().expect("a request"), "patch /v1/kinds/mail http/1.1");
    }
}

#[test]
fn a_failed_put_of_a_file_reports_how_far_it_got() {
    let dir = Dir::new();
    let line = |n: u32| json!({ "kind": "mail", "id": n.to_string() }).to_string() + "\n";
    dir.write("jobs.jsonl", (0..1500).map(line).collect::<String>());
    let results = vec![json!({ "outcome": "created", "generation": 1 }); 1000];
    let (url, server) = scripted(vec![json!({ "results": results })]);
    let done = dir.run(&["put", "--file", "jobs.jsonl", "--server", &url]);
    server.join().expect("it serves");
    let done = done.says("put 1000 jobs: 1000 created");
    let done = done.complains("the lines before line 1001 were put");
    assert!(matches!(done.code, Some(4 | 5)), "{done:?}");
}

#[test]
fn an_export_replaces_only_regular_files() {
    let dir = Dir::new();
    dir.ask(&["put", "mail", "a", "x"]).ok();
    let pipe = dir.path("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("it starts");
    assert!(made.success());
    // It would otherwise wait for somebody who reads the pipe, and show the export to whoever has made it.
    let refused = dir.ask(&["export", "pipe"]).code(1);
    refused.complains("could not write pipe: it is not a regular file").complains("- for stdout");
    assert!(pipe.metadata().expect("it is there").file_type().is_fifo());
    // A symbolic link is not followed, whatever is behind it.
    dir.write("file", "old");
    for target in ["file", "absent", "pipe"] {
        let link = format!("link-to-{target}");
        symlink(target, dir.path(&link)).expect("a link");
        let refused = dir.ask(&["export", &link]).code(1);
        refused.complains(&format!("could not write {link}: it is a symbolic link"));
        assert!(dir.path(&link).is_symlink());
    }
    assert_eq!(dir.read("file"), "old");
    assert!(!dir.path("absent").exists());
    dir.ask(&["export", "-"]).ok().says("\"mail\"");
    dir.ask(&["export", "/dev/stdout"]).code(1).complains("use the name of a file");
    dir.ask(&["export", "/dev/null"]).code(1).complains("it is not a regular file");
    dir.ask(&["export", "."]).code(1).complains("could not write .: it is a directory");
}

#[test]
fn verify_rejects_a_directory_without_jobs() {
    let dir = Dir::new();
    dir.run(&["verify", "."]).code(1).complains(". is not a data directory");
    dir.run(&["verify", "none"]).code(1);
    dir.ask(&["put", "mail", "a"]).ok();
    dir.run(&["verify", "d"]).ok().says("sound: 1 job");
    let served = Dir::served();
    served.run(&["verify", "d"]).code(4).complains("hint: verify a copy made by `requeue backup`");
}

#[test]
fn a_bench_that_is_interrupted_leaves_nothing_behind() {
    let dir = Dir::new();
    let args = ["bench", "--time", "600s"];
    let mut child = dir.command(&args).stderr(Stdio::piped()).spawn().expect("it starts");
    let name = format!("requeue-bench-{}", child.id());
    until("its directory", || dir.path(&name).join("lock").exists().then_some(()));
    signal_to(&child, Signal::INT);
    let mut err = String::new();
    child.stderr.take().expect("it is piped").read_to_string(&mut err).expect("it is text");
    assert_eq!(child.wait().expect("it ends").code(), Some(1), "{err}");
    assert!(err.contains("interrupted") && !dir.path(&name).exists(), "{err}");
}

fn mode(dir: &Dir, name: &str) -> u32 {
    std::fs::metadata(dir.path(name)).expect(name).permissions().mode() & 0o777
}

fn set_mode(dir: &Dir, name: &str, mode: u32) {
    std::fs::set_permissions(dir.path(name), Permissions::from_mode(mode)).expect(name);
}

#[test]
fn an_export_can_be_read_only_by_its_owner_also_if_the_file_existed() {
    let dir = Dir::new();
    dir.ask(&["put", "mail", "a", "secret"]).ok();
    dir.ask(&["export", "new.jsonl"]).ok();
    assert_eq!(mode(&dir, "new.jsonl"), 0o600);
    dir.write("old.jsonl", "");
    set_mode(&dir, "old.jsonl", 0o640);
    // What an earlier run left behind, or another user placed there, is not written to.
    dir.write("victim", "kept");
    symlink("victim", dir.path("old.jsonl.part")).expect("a link");
    dir.ask(&["export", "old.jsonl"]).ok();
    assert_eq!(mode(&dir, "old.jsonl"), 0o600);
    assert_eq!(dir.read("old.jsonl"), dir.read("new.jsonl"));
    assert_eq!(dir.read("victim"), "kept");
}

#[test]
fn a_data_directory_that_everybody_can_write_to_is_reported() {
    let dir = Dir::new();
    dir.ask(&["put", "mail", "a"]).ok();
    for (mode, warned) in [(0o700, false), (0o775, false), (0o777, true)] {
        set_mode(&dir, "d", mode);
        let done = dir.ask(&["stats"]).ok();
        let warning = format!(
            "warning: every user can replace the files in d (mode {mode:04o}); run: chmod o-w d"
        );
        assert_eq!(done.err.contains(&warning), warned, "{done:?}");
        for args in [&["export", "--data", "d", "--salvage", "-"][..], &["verify", "d"]] {
            let done = dir.run(args).ok();
            assert_eq!(done.err.contains(&warning), warned, "{done:?}");
        }
    }
    let mut command = dir.command(&["serve", "--listen", "127.0.0.1:0", "--data", "d", "--json"]);
    let mut child =
        command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it starts");
    let mut log = BufReader::new(child.stderr.take().expect("it is piped")).lines();
    let warned = log.any(|line| line.expect("it is text").contains("(mode 0777)"));
    signal_to(&child, Signal::TERM);
    child.wait().expect("it ends");
    assert!(warned);
}

#[test]
fn a_lock_that_is_a_symbolic_link_is_not_followed() {
    let dir = Dir::new();
    std::fs::create_dir(dir.path("d")).expect("a new directory");
    dir.write("victim", "kept");
    symlink("../victim", dir.path("d/lock")).expect("a link");
    dir.ask(&["put", "mail", "a"])
        .code(1)
        .complains("could not open d/lock: it is a symbolic link");
    assert_eq!(dir.read("victim"), "kept");
}

#[test]
fn a_token_file_that_others_can_read_is_reported() {
    let dir = Dir::served();
    dir.write("token", "tttttttttttttttttttttttttttttttt");
    for (mode, warned) in [(0o600, false), (0o400, false), (0o644, true), (0o620, true)] {
        set_mode(&dir, "token", mode);
        let done = dir.ask(&["stats", "--token-file", "token"]).ok();
        let warning = format!(
            "warning: token contains a secret, and other users have access to it (mode {mode:04o}); run: chmod 600 token"
        );
        assert_eq!(done.err.matches(&warning).count(), usize::from(warned), "{done:?}");
    }
}

#[test]
fn an_export_that_cannot_be_written_leaves_the_old_file_and_no_half_one() {
    let dir = Dir::served();
    let body = "x".repeat(100_000);
    dir.feed(&["put", "mail", "a", "-"], body.as_bytes()).ok();
    dir.write("jobs.jsonl", "old");
    // Its files may have 8 blocks of 512 bytes: a write beyond that fails, as on a full disk.
    let line = "trap '' XFSZ; ulimit -f 8; exec \"$@\"";
    let program = env!("CARGO_BIN_EXE_requeue");
    let args = [&["-c", line, "sh", program, "export", "jobs.jsonl"][..], &dir.place()].concat();
    let output = dir.clean(Command::new("sh")).args(args).output().expect("sh runs");
    Done::new(&["export"], output).code(1).complains("jobs.jsonl.part: File too large");
    assert_eq!(dir.read("jobs.jsonl"), "old");
    assert!(!dir.path("jobs.jsonl.part").exists());
    let stdout = std::fs::File::options().write(true).open("/dev/full").expect("a device");
    let args = [&["export"][..], &dir.place()].concat();
    let output = dir.command(&args).stdout(stdout).output().expect("it starts");
    Done::new(&["export"], output).code(1).complains("could not write stdout: No space left");
}

#[test]
fn an_export_into_a_closed_pipe_ends_quietly() {
    let dir = Dir::new();
    let body = "x".repeat(1_000_000);
    dir.feed(&["put", "mail", "a", "-"], body.as_bytes()).ok();
    let mut command = dir.command(&["export", "--data", "d"]);
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    // Not 0: the export is incomplete.
    assert_eq!(Done::new(&["export"], output).code(1).err, "");
}

#[test]
fn a_kind_is_pushed_to_a_url_with_secrets_from_files() {
    // With a server, and on a data directory without one.
    for dir in [Dir::served(), Dir::new()] {
        pushed(&dir);
    }
}

fn pushed(dir: &Dir) {
    let secrets = ["MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "C2FVsBQIhrscChlQIMV+b5sSYspob7oD"];
    dir.write("new", format!("whsec_{}\n", secrets[0]));
    dir.write("old", format!("whsec_{}\n", secrets[1]));
    dir.write("wrong", "hunter2");
    dir.ask(&["put", "other", "a"]).ok();
    // Not an allowed target: even if a job were sent, there would be no request.
    let url = "http://127.0.0.1:9/hooks";
    let set = ["kind", "mail", "--push", url, "--push-secret", "new", "--push-secret", "old"];
    dir.ask(&set).ok().says(&format!("to {url}, signed with 2 secrets"));
    let change =
        ["--push-timeout", "1m", "--push-concurrency", "3", "--push-format", "cloudevents"];
    dir.ask(&[&["kind", "mail"][..], &change].concat()).ok();
    let done = dir.ask(&["kind", "mail", "--json"]).ok();
    assert!(secrets.iter().all(|secret| !done.out.contains(secret)), "{}", done.out);
    let expected = json!({
        "url": url, "headers": {}, "timeout": "1m", "concurrency": 3,
        "secrets": ["whsec_…LaSw", "whsec_…b7oD"], "format": "cloudevents",
    });
    assert_eq!(done.json()["push"], expected);
    dir.write("authorization", "Bearer hunter2\n");
    let header = |header: &str| dir.ask(&["kind", "mail", "--json", "--push-header", header]);
    header("X-Team=ops=1").ok();
    let shown = header("Authorization=@authorization").ok();
    assert_eq!(shown.json()["push"]["headers"], json!({"authorization": "…", "x-team": "…"}));
    assert!(!shown.out.contains("hunter2"), "{}", shown.out);
    header("X-TEAM=").ok();
    let shown = header("authorization=").ok();
    assert_eq!(shown.json()["push"]["headers"], json!({}));
    header("x-team").code(2).complains("expected NAME=VALUE or NAME=@FILE");
    header("host=a").code(2).complains("reserved");
    header("x-team=@absent").code(1).complains("absent");
    let other = ["kind", "mail", "--push", "http://127.0.0.1:10/hooks"];
    dir.ask(&other).code(2).complains("give the secrets again");
    dir.ask(&["kind", "mail", "--push-secret", "wrong"]).code(2).complains("whsec_");
    dir.ask(&["kind", "mail", "--push-secret", "absent"]).code(1).complains("absent");
    dir.ask(&["kind", "mail", "--push-timeout", "2h"]).code(2).complains("100ms to 1h");
    dir.ask(&["kind", "mail", "--no-push", "--push", url]).code(2);
    dir.ask(&["kind", "mail", "--no-push"]).ok().says("push          no");
    dir.ask(&["put", "mail", "a"]).ok();
    // The server may have claimed it before it noticed the change. Then it is retried.
    dir.ask(&["claim", "mail", "--wait", "20s"]).ok();
}

#[test]
fn an_invalid_internal_target_is_rejected_before_the_server_starts() {
    let dir = Dir::new();
    let wrong = dir.run(&["serve", "--push-allow", "10.0.0.0/8", "--push-allow", "10.0.0.0/33"]);
    wrong.code(2).complains("--push-allow").complains("10.0.0.0/33");
    dir.run(&["serve", "--push-in-flight", "0"]).code(2).complains("at least 1");
    dir.run(&["serve", "--push-memory", "1"]).code(2);
}
