//! The flags of the scripts: which run when memory is full, and which are read-only.

use super::*;

/// The name of a script, the script, and arguments with an effect if the job `a` is leased and `b` is
/// pending.
type Case = (&'static str, &'static Script, Vec<Vec<u8>>);

fn cases(lease: &[u8]) -> Vec<Case> {
    let Scripts { put, claim, ack, settle, change, restore, reap, .. } = &*SCRIPTS;
    let Scripts { peek, view, facts, upcoming, set, schedule, schedules, tick, register, .. } =
        &*SCRIPTS;
    let now = NOW.to_string();
    let case = |name, script, args: &[&[u8]]| {
        let args = args.iter().map(|arg| arg.to_vec()).collect();
        (name, script, [vec![now.clone().into_bytes()], args].concat())
    };
    let record = [&[0; 19][..], &of("body")].concat();
    let at = NOW.to_string().into_bytes();
    vec![
        case("put", put, &[MADE.as_bytes(), b"0", b"", b"", b"c", &of("body")]),
        case(
            "restore",
            restore,
            &[MADE.as_bytes(), b"0", b"0", b"", b"d", b"1", b"p", b"5", &record, b""],
        ),
        case("schedule", schedule, &[MADE.as_bytes(), b"s", &[0; 14], b"10"]),
        case("tick", tick, &[b"s", b"0", b"5", b""]),
        case("register", register, &[b"desk", b"10"]),
        case("set", set, &[MADE.as_bytes(), b"lease", b"1000"]),
        case("settle", settle, &[b"a", lease, b"e", b"", b"", b"0"]),
        case("claim", claim, &[b"1", b"", NONCE.as_bytes(), b"w", b"9", b"99"]),
        case("ack", ack, &[b"a", lease]),
        case("change", change, &[b"b", b"c"]),
        case("reap", reap, &[b"10"]),
        case("peek", peek, &[]),
        case("view", view, &[b"", b"1", b"99", b"a"]),
        case("list_by_time", &SCRIPTS.list_by_time, &[b"r", b"0", b"", b"", b"9", b"99"]),
        case("facts", facts, &[]),
        case("upcoming", upcoming, &[b"0", &at]),
        case("schedules", schedules, &[b"99", b"s"]),
    ]
}

const ADDING: [&str; 5] = ["put", "restore", "schedule", "tick", "register"];
const READ_ONLY: [&str; 6] = ["peek", "view", "list_by_time", "facts", "upcoming", "schedules"];

#[test]
fn when_memory_is_full_only_scripts_that_add_data_are_rejected() {
    let server = RedisServer::start();
    let mut runner = ScriptRunner::new(&server, "full");
    let lease = runner.lease(NOW, &["a"]).remove(0);
    runner.put(NOW, &["b"]);
    assert_eq!(server.command(&["CONFIG", "SET", "maxmemory", "1"]), "OK");
    for (name, script, args) in cases(&lease) {
        let keys = runner.ask("HLEN", "job", &[]);
        match runner.eval("EVAL", &script.text, args) {
            Ok(reply) => assert!(!ADDING.contains(&name), "{name} returned {reply:?}"),
            Err(error) => {
                assert!(ADDING.contains(&name), "{name} was rejected: {error}");
                assert_eq!(error.code(), Some("OOM"), "{name}: {error}");
                assert_eq!(runner.ask("HLEN", "job", &[]), keys, "{name} has changed something");
            }
        }
    }
    assert_eq!((runner.state("a"), runner.state("b")), (String::new(), "l=>".to_owned()));
}

#[test]
fn only_read_only_scripts_run_with_eval_ro() {
    let mut runner = ScriptRunner::of("looks");
    let lease = runner.lease(NOW, &["a"]).remove(0);
    runner.put(NOW, &["b"]);
    for (name, script, args) in cases(&lease) {
        let result = runner.eval("EVAL_RO", &script.text, args);
        assert_eq!(result.is_ok(), READ_ONLY.contains(&name), "{name} returned {result:?}");
        assert_eq!(script.only_reads, READ_ONLY.contains(&name), "{name}");
    }
    assert_eq!((runner.state("a"), runner.state("b")), ("l=>".to_owned(), "p=".to_owned()));
}
