//! Changes of all jobs of a kind: what is asked before, and that they are few requests.

use crate::commands::{claim, scripted};
use crate::support::{Dir, Done};
use crate::terminal::Tty;
use requeue_testkit::servers::{PostgresServer, RedisServer};
use serde_json::json;

const SIZE: (u16, u16) = (100, 30);

/// Ready jobs `a`, `b` and `c`, and a dead one.
fn with_jobs(dir: &Dir) {
    dir.ask(&["put", "mail", "x", "x"]).ok();
    dir.ask(&["bury", &claim(dir, "mail"), "--error", "Connection Refused by host 7"]).ok();
    for id in ["a", "b", "c"] {
        dir.ask(&["put", "mail", id, "x"]).ok();
    }
}

#[test]
fn jobs_are_counted_changed_and_deleted_by_filter_on_every_store() {
    let (redis, postgres) = (RedisServer::start(), PostgresServer::start());
    for dir in [Dir::served(), Dir::new(), Dir::at(redis.url()), Dir::at(postgres.url())] {
        with_jobs(&dir);
        // In upper or lower case, as in the HTTP API.
        for error in ["connection refused", "REFUSED", "Refused"] {
            let dry = dir.ask(&["revive", "mail", "--all", "--error", error, "--dry-run"]).ok();
            assert_eq!(dry.out, "would revive 1 job of kind mail\n", "{error}");
        }
        assert_eq!(dir.job("mail", "x")["state"], "dead");
        let group = ["revive", "mail", "--all", "--error-group", "connection refused by host 8"];
        let none = dir.ask(&[&group[..], &["--yes", "--json"]].concat()).ok().json();
        assert_eq!(none, json!({ "matched": 0, "changed": 0, "failed": 0 }), "a group has a case");
        let revive = ["revive", "mail", "--all", "--error", "connection refused", "--yes"];
        dir.ask(&revive).ok().says("changed 1 of 1 job of kind mail");
        assert_eq!(dir.job("mail", "x")["state"], "ready");

        let cancel = ["cancel", "mail", "--all", "--prefix", "a"];
        let dry = dir.ask(&[&cancel[..], &["--dry-run", "--json"]].concat()).ok().json();
        assert_eq!(dry, json!({ "matched": 1, "changed": 0, "failed": 0, "dry_run": true }));
        dir.ask(&[&cancel[..], &["-y"]].concat()).ok().says("changed 1 of 1 job of kind mail");
        dir.ask(&["get", "mail", "a"]).code(3);

        dir.ask(&["put", "mail", "later", "x", "--in", "1h", "--priority", "4"]).ok();
        let run = ["run-now", "mail", "--all", "--priority", "4"];
        let dry = dir.ask(&[&run[..], &["--dry-run"]].concat()).ok();
        assert_eq!(dry.out, "would make 1 job of kind mail due now\n");
        dir.ask(&[&run[..], &["--yes"]].concat()).ok();
        assert_eq!(dir.job("mail", "later")["state"], "ready");
        // A job that is leased cannot be made due now.
        let receipt = claim(&dir, "mail");
        let some = dir.ask(&["run-now", "mail", "--all", "--state", "leased", "--yes"]).ok();
        some.says("changed 0 of 1 job of kind mail; 1 could not be changed");

        dir.ask(&["schedule", "set", "mail", "daily", "--every", "1d"]).ok();
        let dry = dir.ask(&["kind", "delete", "mail", "--dry-run"]).ok();
        assert_eq!(dry.out, "would delete kind mail with 4 jobs and 1 schedule\n");
        dir.ask(&["kind", "mail", "--max-attempts", "3"]).ok();
        let done = dir.ask(&["kind", "delete", "mail", "--yes"]).ok();
        done.says("deleted mail: 3 jobs removed; 1 more when their leases end");
        dir.ask(&["ack", &receipt]).ok().says("cancelled");
        // A timer of the schedule may be left.
        let kinds = dir.ask(&["stats", "--json"]).ok().lines();
        assert!(kinds.iter().all(|kind| kind["kind"] != "mail"), "{kinds:?}");
        dir.ask(&["kind", "mail"]).ok().says("max attempts  20");
        let again = dir.ask(&["kind", "delete", "mail", "--yes"]).code(3);
        again.complains("there is no kind mail").complains("requeue stats");
        dir.ask(&["put", "mail", "a", "x"]).ok().says("created mail/a");
        let json = dir.ask(&["kind", "delete", "mail", "--yes", "--json"]).ok().json();
        assert_eq!(json, json!({ "kind": "mail", "removed": 1, "ending": 0 }));
    }
}

#[test]
fn without_a_terminal_nothing_is_changed_unless_yes_is_given() {
    let dir = Dir::served();
    with_jobs(&dir);
    for args in [
        &["cancel", "mail", "--all"][..],
        &["revive", "mail", "--all"],
        &["run-now", "mail", "--all", "--json"],
        &["kind", "delete", "mail"],
    ] {
        let refused = |done: Done| done.code(2).complains("no terminal").complains("--dry-run");
        refused(dir.ask(args));
        // What is piped in is no answer: it may be a file that is read by mistake.
        refused(dir.feed(args, b"y\n"));
    }
    assert_eq!(dir.ask(&["ls", "mail", "--json"]).ok().lines().len(), 4);
    dir.ask(&["cancel", "mail", "a", "--yes"]).code(2).complains("need --all");
    dir.ask(&["cancel", "mail", "--all", "--yes", "--dry-run"]).code(2);
    dir.ask(&["cancel", "mail/a", "--all", "--yes"]).code(2).complains("the character '/'");
}

#[test]
fn a_person_at_a_terminal_is_asked() {
    let dir = Dir::served();
    with_jobs(&dir);
    let ask = |args: &[&str], answer: &str, question: &str| {
        let mut tty = Tty::start(&dir, &[args, &dir.place()[..]].concat(), SIZE);
        tty.shows(question);
        tty.press(answer);
        let code = tty.exit_code();
        (code, tty)
    };
    let cancel = ["cancel", "mail", "--all", "--state", "ready"];
    let question = "Cancel 3 jobs of kind mail? [y/N]";
    for answer in ["n\n", "\n", "x\n", "\u{4}"] {
        let (code, tty) = ask(&cancel, answer, question);
        assert_eq!(code, Some(1), "{answer:?}");
        tty.shows("not confirmed: nothing was changed");
        assert_eq!(dir.ask(&["ls", "mail", "--json"]).ok().lines().len(), 4);
    }
    let (code, _) = ask(&cancel, "\u{3}", question);
    assert_ne!(code, Some(0), "Ctrl-C");
    let (code, tty) =
        ask(&["revive", "mail", "--all"], "Yes\n", "Revive 1 job of kind mail? [y/N]");
    assert_eq!(code, Some(0));
    tty.shows("changed 1 of 1 job of kind mail");
    let (code, tty) = ask(
        &["kind", "delete", "mail"],
        "y\n",
        "Delete kind mail with 4 jobs and 0 schedules? [y/N]",
    );
    assert_eq!(code, Some(0));
    tty.shows("deleted mail: 4 jobs removed");
    // If no job matches, there is nothing to ask.
    let mut tty = Tty::start(&dir, &[&cancel[..], &dir.place()].concat(), SIZE);
    tty.shows("changed 0 of 0 jobs of kind mail");
    assert_eq!(tty.exit_code(), Some(0));
}

#[test]
fn a_server_changes_all_jobs_by_itself() {
    let dir = Dir::new();
    let page = |cursor: Option<&str>| json!({ "matched": 10_000, "changed": 9_999, "failed": 1, "cursor": cursor });
    let (url, server) = scripted(vec![page(Some("k/9")), page(None)]);
    let cancel = ["cancel", "mail", "--all", "--prefix", "k", "--yes", "--json", "--server", &url];
    let done = dir.run(&cancel).ok().json();
    assert_eq!(done, json!({ "matched": 20_000, "changed": 19_998, "failed": 2 }));
    let post = "post /v1/kinds/mail/cancel http/1.1";
    assert_eq!(server.join().expect("it serves"), [post, post]);

    let counted = |matched, cursor: Option<&str>| json!({ "matched": matched, "scanned": 10_000, "cursor": cursor });
    let (url, server) = scripted(vec![counted(7, Some("k/9")), counted(2, None)]);
    let dry = ["revive", "mail", "--all", "--error", "a b", "--dry-run", "--server", &url];
    dir.run(&dry).ok().says("would revive 9 jobs of kind mail");
    let get = "get /v1/kinds/mail/count?";
    let asked = server.join().expect("it serves");
    let fields = |n: usize| {
        let query = asked[n].strip_prefix(get).expect("a count").split(' ').next().expect("a path");
        let mut fields: Vec<_> = query.split('&').collect();
        fields.sort_unstable();
        fields.join(" ")
    };
    assert_eq!(fields(0), "error=a%20b state=dead");
    assert_eq!(fields(1), "after=k%2f9 error=a%20b state=dead");

    // After some changes, it is not true that nothing was done.
    let (url, server) = scripted(vec![page(Some("k"))]);
    let failed = dir.run(&["cancel", "mail", "--all", "--yes", "--server", &url]).code(5);
    server.join().expect("it serves");
    failed.complains("9999 jobs were changed before that; run it again");
}
