//! Each script accepts, returns and changes what its header specifies.

use super::*;

#[test]
fn put_returns_a_letter_for_each_job_and_a_number_for_some() {
    let mut runner = ScriptRunner::of("put");
    let put = |runner: &mut ScriptRunner, id: &str, due: i64, action: &str| {
        runner.call(&SCRIPTS.put, (NOW, MADE, "", "", "", id, due, action, of(action)))
    };
    let unknown = runner.call(&SCRIPTS.put, (NOW, "", "", "", "", "a", 0, "", of("body")));
    assert_eq!(
        (unknown, runner.ask("HEXISTS", "meta", &["generation"])),
        ("0".to_owned(), "0".to_owned())
    );
    // A put that can only fail does not need a registered kind.
    assert_eq!(
        runner.call(&SCRIPTS.put, (NOW, "", "", "", "", "a", 0, "rg7", of("body"))),
        "[0 G 0]"
    );
    assert_eq!(put(&mut runner, "a", 0, ""), "[0 C]");
    assert_eq!(runner.call(&SCRIPTS.put, (NOW, "", "", "", "", "b", -5, "", of(""))), "[1 C]");
    assert_eq!(runner.ask("ZSCORE", "due", &["b"]), (NOW + 5).to_string());
    assert_eq!(put(&mut runner, "b", NOW as i64 + 9, ""), "[2 U]");
    assert_eq!(runner.ask("ZSCORE", "due", &["b"]), (NOW + 9).to_string());
    assert_eq!(put(&mut runner, "b", -2, "e"), "[3 U]");
    assert_eq!(put(&mut runner, "b", -7, "e"), "[4 U]");
    assert_eq!(runner.ask("ZSCORE", "due", &["b"]), (NOW + 2).to_string());
    assert_eq!(put(&mut runner, "b", -9, "d4"), "[5 U]");
    assert_eq!(runner.ask("ZSCORE", "due", &["b"]), (NOW + 4).to_string());
    assert_eq!(put(&mut runner, "b", 0, "k"), "[6 K 6]");
    assert_eq!(put(&mut runner, "b", 0, "ra"), "[6 E 6]");
    assert_eq!(put(&mut runner, "b", 0, "rg5"), "[6 G 6]");
    assert_eq!(put(&mut runner, "b", -9, "rg6"), "[6 U]");
    let too_long = MAX_DELAY.as_millis() as i64 + 1;
    assert_eq!(put(&mut runner, "b", -too_long, ""), format!("[7 D {too_long}]"));
    assert_eq!(runner.state("b"), "p=", "waiting -> pending");

    runner.claim(NOW, 1);
    assert_eq!(put(&mut runner, "a", 0, "k"), "[7 O]");
    assert_eq!(put(&mut runner, "a", 0, "k"), "[8 K 8]");
    assert_eq!(runner.state("a"), "l=>n", "leased -> has a successor");
    let fence: u64 = runner.ask("HGET", "meta", &["fence"]).parse().expect("a number");
    runner.call(&SCRIPTS.settle, (NOW, "a", proof(fence), "a", "", "", 0));
    let lease = runner.claim(NOW, 1);
    runner.call(&SCRIPTS.settle, (NOW, "a", proof(lease), "b", "", "why", 0));
    assert_eq!(runner.state("a"), "d=<");
    assert_eq!(put(&mut runner, "a", 0, "k"), "[8 K 8]");
    assert_eq!(put(&mut runner, "a", 0, ""), "[8 R]");
    assert_eq!(runner.state("a"), "p=<", "dead -> pending");

    // A batch: the numbers belong, in order, to the letters that have one.
    let more = ("c", 0, "", of(""), "b", 0, "ra", of(""), "d", 0, "rg1", of(""));
    assert_eq!(runner.call(&SCRIPTS.put, (NOW, MADE, "", "", "", more)), "[9 CEG 7 0]");
    assert_eq!(runner.ask("HGET", "meta", &["generation"]), "10");

    // Jobs that share due time, mode and condition.
    let shared = (NOW, MADE, -5, "ra", "", "c", of(""), "e", of("body"));
    assert_eq!(runner.call(&SCRIPTS.put, shared), "[10 EC 10]");
    assert_eq!(runner.ask("ZSCORE", "due", &["e"]), (NOW + 5).to_string());
}

#[test]
fn claim_returns_jobs_leases_and_the_time_of_the_next_job() {
    let mut runner = ScriptRunner::of("claim");
    let claim = |runner: &mut ScriptRunner, now: u64, max: usize, ends: usize| {
        runner.call(&SCRIPTS.claim, (now, max, 1000, NONCE, "worker", ends, MAX_RESULT_BYTES))
    };
    let ends = NOW + 1000;
    assert_eq!(claim(&mut runner, NOW, 1, 9), format!("[{NOW} {ends} {NOW}000 -1 0 [] [] [] []]"));
    runner.put(NOW - 3, &["a", "b"]);
    let reply = claim(&mut runner, NOW, 1, 9);
    let begin = format!("[{NOW} {ends} {NOW}000 -2 0 [a {}] [", NOW - 3);
    assert!(reply.starts_with(&begin) && reply.ends_with("body] [] []]"), "{reply}");
    assert_eq!((runner.state("a"), runner.state("b")), ("l=>".to_owned(), "p=".to_owned()));
    let reply = claim(&mut runner, NOW, 9, 9);
    let begin = format!("[{NOW} {ends} {NOW}001 1000 0 [b ");
    assert!(
        reply.starts_with(&begin),
        "fences are consecutive, and the first lease expires in a second: {reply}"
    );

    // A job whose lease has expired is claimed again, and has a past.
    let (later, ends) = (NOW + 1000, NOW + 2000);
    let reply = claim(&mut runner, later, 1, 9);
    let begin = format!("[{later} {ends} {later}000 -2 0 [a {later}] [");
    assert!(reply.starts_with(&begin) && !reply.contains("[]"), "{reply}");
    assert!(reply.ends_with(" [a worker 1 0]]"), "the lease that expired: {reply}");
    assert_eq!(runner.state("a"), "l=><");
    // A cancelled job is removed, and counts as an expired lease that left no job to claim.
    runner.call(&SCRIPTS.change, (later, "b", "c"));
    let reply = claim(&mut runner, later, 1, 9);
    assert_eq!(reply, format!("[{later} {ends} {later}001 1000 1 [] [] [] [b worker 1 0]]"));
    assert_eq!(runner.state("b"), "");
    // A job whose last attempt fails dies, unless the call may end no more leases.
    runner.call(&SCRIPTS.set, (later, MADE, "max_attempts", "2"));
    assert!(claim(&mut runner, ends, 1, 0).contains(" 0 0 [] [] [] []]"));
    assert_eq!(runner.state("a"), "l=><");
    assert!(claim(&mut runner, ends, 1, 1).contains(" -1 1 [] [] [] [a worker 2 1]]"));
    assert_eq!(runner.state("a"), "d=<");

    // The lease length of the kind, and a concurrency limit.
    runner.call(&SCRIPTS.set, (ends, MADE, "lease", "70.5", "concurrency", "1"));
    runner.put(ends, &["c", "d"]);
    let reply = runner.call(&SCRIPTS.claim, (ends, 2, "", NONCE, "worker", 9, MAX_RESULT_BYTES));
    assert!(reply.starts_with(&format!("[{ends} {} {ends}000 71 0 [c ", ends + 71)), "{reply}");
    assert!(claim(&mut runner, ends, 2, 9).ends_with(" 0 71 0 [] [] [] []]"));
    runner.call(&SCRIPTS.set, (ends, MADE, "paused", "1"));
    assert!(claim(&mut runner, ends + 99, 2, 9).ends_with(" 0 -1 0 [] [] [] []]"));
}

#[test]
fn ack_removes_leased_jobs_and_leaves_special_cases_to_settle() {
    let mut runner = ScriptRunner::of("ack");
    let leases = runner.lease(NOW, &["a", "b", "c", "d"]);
    runner.put(NOW + 1, &["b"]);
    runner.call(&SCRIPTS.change, (NOW, "c", "c"));
    let wrong = [&leases[3][..14], b"?"].concat();
    let acks = (NOW, "a", &leases[0], "b", &leases[1], "c", &leases[2], "d", &wrong);
    assert_eq!(runner.call(&SCRIPTS.ack, acks), "ASSL");
    let states = ["a", "b", "c", "d"].map(|id| runner.state(id));
    assert_eq!(states, ["", "l=>n", "l=>", "l=>"]);
    let rest = ["b", "c"].iter().zip(&leases[1..]);
    let rest: Vec<_> = rest.map(|(id, lease)| (*id, lease.clone(), "a", "", "", 0)).collect();
    assert_eq!(runner.call(&SCRIPTS.settle, (NOW, rest)), "[AX]");
    assert_eq!(["b", "c"].map(|id| runner.state(id)), ["p=<", ""]);
    assert_eq!(runner.call(&SCRIPTS.ack, (NOW, "a", &leases[0])), "L", "a lease is acked once");
}

#[test]
fn settle_returns_how_each_lease_ended() {
    let mut runner = ScriptRunner::of("settle");
    let ids = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let leases = runner.lease(NOW, &ids);
    runner.call(&SCRIPTS.change, (NOW, "f", "c"));
    let now = NOW + 10;
    let settle = |id: &str, action: &'static str, length: &'static str| {
        let index = ids.iter().position(|other| *other == id).expect("a known id");
        (id.to_owned(), leases[index].clone(), action, length, "why", 0)
    };
    let all = [
        settle("a", "q", "50"),
        settle("b", "r", "60"),
        settle("c", "r", ""),
        settle("d", "b", ""),
        settle("e", "l", ""),
        settle("f", "l", ""),
        settle("g", "e", "5000"),
    ];
    let lost = ("h", &leases[0], "r", "", "why", 0);
    let reply = runner.call(&SCRIPTS.settle, (now, &all[..], lost));
    let [b, c, g] = [now + 60, now + 1000, now + 5000];
    assert_eq!(reply, format!("[ARRDFXEL {b} {c} {g}]"));
    let states = ids.map(|id| runner.state(id));
    assert_eq!(states, ["p=<", "p=<", "p=<", "d=<", "p=", "", "l=>", "l=>"]);
    let [a, e] = ["a", "e"].map(|id| runner.ask("ZSCORE", "due", &[id]));
    assert_eq!((a, e), ((now + 50).to_string(), NOW.to_string()));
    assert_eq!(runner.ask("ZSCORE", "leased", &["g"]), g.to_string());
    // With a jitter of 20 %, the largest random value shortens the delay by a fifth.
    let lease = runner.claim(NOW + 10, 1);
    let jitter = (NOW + 10, "e", proof(lease), "r", "", "", 65536);
    assert_eq!(runner.call(&SCRIPTS.settle, jitter), format!("[R {}]", NOW + 810));
}

#[test]
fn change_returns_the_result_for_each_job() {
    let mut runner = ScriptRunner::of("change");
    let leases = runner.lease(NOW, &["a", "b", "c", "d"]);
    runner.put(NOW, &["b"]);
    let bury = (NOW, "d", &leases[3], "b", "", "", 0);
    runner.call(&SCRIPTS.settle, bury);
    let later = (NOW, MADE, -100, "", "", "e", of(""), "f", of(""));
    runner.call(&SCRIPTS.put, later);
    let changes = ["a", "n", "b", "n", "c", "c", "d", "v", "e", "c", "f", "n"];
    assert_eq!(runner.call(&SCRIPTS.change, (NOW, &changes)), "lYEVRY");
    assert_eq!(runner.call(&SCRIPTS.change, (NOW, "e", "c", "f", "v")), "ad");
    let states = ["a", "b", "c", "d", "e", "f"].map(|id| runner.state(id));
    assert_eq!(states, ["l=>", "l=>n", "l=>", "p=<", "", "p="]);
    let [d, f] = ["d", "f"].map(|id| runner.ask("ZSCORE", "due", &[id]));
    assert_eq!([d, f], [NOW.to_string(), NOW.to_string()]);
}

#[test]
fn restore_adds_jobs_that_are_missing() {
    let mut runner = ScriptRunner::of("restore");
    let record = [&[0, 0, 0, 0, 0, 0, 5][..], &[0; 12], &of("body")].concat();
    let past = vec![0_u8; 33];
    assert_eq!(runner.call(&SCRIPTS.restore, (NOW, "", 9, 8, "")), "0");
    assert_eq!(runner.ask("HEXISTS", "meta", &["generation"]), "0");
    let pending = ("a", 5, "p", NOW + 3, &record, "");
    let dead = ("b", 12, "d", NOW - 3, &record, &past);
    let ended = ("c", 11, "", "", "", "");
    assert_eq!(runner.call(&SCRIPTS.restore, (NOW, MADE, 9, 8, "", pending, dead, ended)), "CCN");
    assert_eq!(["a", "b", "c"].map(|id| runner.state(id)), ["p=", "d=<", ""]);
    assert_eq!(runner.ask("HMGET", "meta", &["generation", "fence"]), "[12 8]");
    let again = ("b", 5, "p", NOW, &record, "");
    assert_eq!(runner.call(&SCRIPTS.restore, (NOW, "", 3, 10, "", again)), "K");
    assert_eq!(runner.state("b"), "d=<");
    assert_eq!(runner.ask("HMGET", "meta", &["generation", "fence"]), "[12 10]");
}

#[test]
fn reap_ends_expired_leases_and_removes_old_dead_jobs() {
    let mut runner = ScriptRunner::of("reap");
    let leases = runner.lease(NOW, &["a", "b", "c", "d", "e"]);
    runner.call(&SCRIPTS.change, (NOW, "b", "c"));
    runner.call(&SCRIPTS.put, (NOW, MADE, "", "", "", "c", -5000, "", of("")));
    let bury = (NOW, "d", &leases[3], "b", "", "", 0);
    runner.call(&SCRIPTS.settle, bury);
    let longer = (NOW, "e", &leases[4], "e", 9000, "", 0);
    runner.call(&SCRIPTS.settle, longer);
    assert_eq!(runner.call(&SCRIPTS.reap, (NOW + 999, 10)), "[0 []]");
    runner.call(&SCRIPTS.set, (NOW, MADE, "retention_age", "500"));
    let reaped = runner.call(&SCRIPTS.reap, (NOW + 1000, 2));
    assert_eq!(reaped, "[3 [a worker 1 0 b worker 1 0]]", "two expired leases and one dead job");
    assert_eq!(runner.call(&SCRIPTS.reap, (NOW + 1000, 2)), "[1 [c worker 1 0]]");
    let states = ["a", "b", "c", "d", "e"].map(|id| runner.state(id));
    assert_eq!(states, ["p=<", "", "p=<", "", "l=>"]);
    assert_eq!(runner.ask("ZSCORE", "due", &["c"]), (NOW + 5000).to_string());
}

#[test]
fn read_only_scripts_return_the_current_state() {
    let mut runner = ScriptRunner::of("look");
    assert_eq!(runner.call(&SCRIPTS.peek, NOW), "-1");
    assert_eq!(runner.call(&SCRIPTS.facts, NOW), "[0 0 0 0 0 -1 0 0 0 -1 0 0]");
    let leases = runner.lease(NOW, &["a", "b"]);
    assert_eq!(runner.call(&SCRIPTS.peek, NOW + 200), "800", "when the leases expire");
    let bury = (NOW, "b", &leases[1], "b", "", "", 0);
    runner.call(&SCRIPTS.settle, bury);
    runner.put(NOW - 7, &["c"]);
    runner.call(&SCRIPTS.put, (NOW, MADE, "", "", "", "d", -300, "", of("later")));
    assert_eq!(runner.call(&SCRIPTS.peek, NOW), "0");
    let fence = format!("{NOW}001");
    assert_eq!(
        runner.call(&SCRIPTS.facts, NOW),
        format!("[2 1 1 0 1 {} 4 {fence} 0 -1 0 0]", NOW - 7)
    );
    let spans = runner.call(&SCRIPTS.upcoming, (NOW, NOW - 7, NOW, NOW + 300, NOW + 301));
    assert_eq!(spans, "[1 0 1]");
    runner.call(&SCRIPTS.set, (NOW, MADE, "paused", "1", "lease", "10"));
    assert_eq!(runner.call(&SCRIPTS.peek, NOW), "-1");
    assert!(runner.call(&SCRIPTS.facts, NOW).ends_with(" 1 -1 0 1]"));

    let view = |runner: &mut ScriptRunner, state: &str, max: usize, bytes: usize| {
        runner.call(&SCRIPTS.view, (NOW, state, max, bytes, &["a", "x", "b", "c", "d"]))
    };
    let reply = view(&mut runner, "", 9, 999);
    assert!(reply.starts_with(&format!("[{NOW} 5 [a l {} ", NOW + 1000)), "{reply}");
    for job in
        [format!(" b d {NOW} "), format!(" c r {} ", NOW - 7), format!(" d w {} ", NOW + 300)]
    {
        assert!(reply.contains(&job), "{job} in {reply}");
    }
    assert!(view(&mut runner, "d", 9, 999).starts_with(&format!("[{NOW} 5 [b d ")));
    assert!(view(&mut runner, "", 1, 999).starts_with(&format!("[{NOW} 1 [a l ")));
    assert!(
        view(&mut runner, "", 9, 0).starts_with(&format!("[{NOW} 1 [a l ")),
        "at least one job"
    );
    assert_eq!(view(&mut runner, "w", 0, 999), format!("[{NOW} 0 []]"));
}

#[test]
fn settings_are_fields_and_an_empty_value_removes_one() {
    let mut runner = ScriptRunner::of("set");
    assert_eq!(runner.call(&SCRIPTS.set, (NOW, "", "lease", "10")), "0");
    assert_eq!(runner.ask("HEXISTS", "meta", &["generation"]), "0");
    assert_eq!(runner.call(&SCRIPTS.set, (NOW, MADE, "lease", "10", "paused", "1")), "1");
    assert_eq!(runner.call(&SCRIPTS.set, (NOW, "", "lease", "20", "paused", "")), "1");
    assert_eq!(runner.ask("HGETALL", "meta", &[]), "[generation 0 lease 20]");
}

#[test]
fn the_number_of_schedules_is_limited_and_a_tick_runs_once() {
    let mut runner = ScriptRunner::of("tick");
    let schedule = |next: u64| [&next.to_be_bytes()[2..], &[0, 10, 0], &of("body")].concat();
    assert_eq!(runner.call(&SCRIPTS.schedule, (NOW, "", "a", schedule(NOW), 2, "", 9999)), "0");
    assert_eq!(runner.ask("EXISTS", "schedules", &[]), "0");
    for (id, reply) in [("a", "1"), ("b", "1"), ("c", "-1"), ("a", "1")] {
        let set = (NOW, MADE, id, schedule(NOW), 2, "", 9999);
        assert_eq!(runner.call(&SCRIPTS.schedule, set), reply, "{id}");
    }
    let (same, other) = (NOW.to_string(), (NOW + 1).to_string());
    for (id, condition, reply) in
        [("a", "absent", "2"), ("a", &other, "2"), ("a", &same, "1"), ("c", &same, "2")]
    {
        let set = (NOW, MADE, id, schedule(NOW), 2, condition, 9999);
        assert_eq!(runner.call(&SCRIPTS.schedule, set), reply, "{id} {condition}");
    }
    let tick = |runner: &mut ScriptRunner, id: &str, expected: u64, next: u64, put: &str| match put
    {
        "" => runner.call(&SCRIPTS.tick, (NOW, id, expected, next)),
        _ => runner.call(&SCRIPTS.tick, (NOW, id, expected, next, id, of("body"), "")),
    };
    assert_eq!(tick(&mut runner, "c", NOW, NOW + 9, "1"), "[a]");
    assert_eq!(tick(&mut runner, "a", NOW, NOW + 9, "1"), "[C 0]");
    assert_eq!(
        (runner.state("a"), runner.ask("ZSCORE", "due", &["a"])),
        ("p=".into(), NOW.to_string())
    );
    assert_eq!(tick(&mut runner, "a", NOW, NOW + 9, "1"), format!("[M {}]", NOW + 9));
    assert_eq!(tick(&mut runner, "a", NOW + 9, NOW + 19, ""), "[S]");
    assert_eq!(tick(&mut runner, "a", NOW + 19, NOW + 29, "1"), "[U 1]");
    assert_eq!(runner.ask("ZSCORE", "due", &["a"]), (NOW + 19).to_string());
    assert_eq!(tick(&mut runner, "b", NOW, NOW, ""), "[S]");
    let far = NOW + MAX_DELAY.as_millis() as u64 + 1;
    assert_eq!(tick(&mut runner, "b", NOW, far, ""), "[S]");
    assert_eq!(tick(&mut runner, "b", far, NOW, "1"), format!("[D {}]", far - NOW));
}

#[test]
fn the_number_of_registered_kinds_is_limited() {
    let mut runner = ScriptRunner::of("register");
    let keys = ["kinds", "registered", "removed"].map(|key| format!("{{desk-kinds}}:{key}"));
    let mut register = |kind: &str| {
        let mut cmd = redis::cmd("EVAL");
        cmd.arg(&SCRIPTS.register.text).arg(3).arg(&keys).arg((kind, 2));
        shown(&cmd.query(&mut runner.connection).expect("the script succeeds"))
    };
    let refused = "[3 0 0]";
    let replies = ["a", "b", "c", "b"].map(&mut register);
    assert_eq!(replies, ["[0 0 0]", "[0 0 0]", refused, "[0 0 0]"]);
    let mut run = |script: &Script, keys: &[String], args: &[&str]| {
        let mut cmd = redis::cmd("EVAL");
        cmd.arg(&script.text).arg(keys.len()).arg(keys).arg(args);
        shown(&cmd.query(&mut runner.connection).expect("the script succeeds"))
    };
    assert_eq!(run(&SCRIPTS.raise, &keys[2..], &["7", "9"]), "1");
    assert_eq!(run(&SCRIPTS.raise, &keys[2..], &["8", "3"]), "1");
    // "b" was registered again as the third registration, "a" is the first.
    assert_eq!(run(&SCRIPTS.unregister, &keys[..2], &["a", "1", "b", "2"]), "1");
    assert_eq!(run(&SCRIPTS.register, &keys, &["c", "2"]), "[0 8 9]");
}

#[test]
fn a_kind_is_created_once_it_was_begun_and_removed_if_it_has_nothing() {
    let mut runner = ScriptRunner::of("forget");
    let put = |runner: &mut ScriptRunner, made: &str| {
        runner.call(&SCRIPTS.put, (NOW, made, 0, "", "", "a", of("")))
    };
    assert_eq!(put(&mut runner, ""), "0");
    assert_eq!(put(&mut runner, "other 5 6"), "0");
    assert_eq!(put(&mut runner, "text 5 6"), "[5 C]");
    assert_eq!(runner.ask("HGET", "meta", &["making"]), "nil");
    assert_eq!(runner.ask("HGET", "meta", &["fence"]), "6");
    let forget = |runner: &mut ScriptRunner, generation: u64| {
        runner.call(&SCRIPTS.forget, (NOW, generation, 6))
    };
    assert_eq!(forget(&mut runner, 6), "0");
    runner.call(&SCRIPTS.change, (NOW, "a", "c"));
    assert_eq!(runner.state("a"), "");
    assert_eq!(forget(&mut runner, 5), "0");
    assert_eq!(forget(&mut runner, 6), "1");
    assert_eq!(runner.ask("EXISTS", "meta", &[]), "0");
    // Whoever has begun before begins again.
    runner.call(&SCRIPTS.begin, (NOW, "text"));
    assert_eq!(forget(&mut runner, 6), "1");
    assert_eq!(put(&mut runner, "text 5 6"), "0");
}

#[test]
fn list_by_time_returns_whether_more_follow_and_the_last_place() {
    let mut runner = ScriptRunner::of("list_by_time");
    runner.put(NOW, &["b", "a", "c"]);
    let list = |runner: &mut ScriptRunner, newest: u8, after: (&str, &str), max: usize, bytes| {
        runner.call(&SCRIPTS.list_by_time, (NOW, "r", newest, after.0, after.1, max, bytes))
    };
    let (now, start) = (NOW.to_string(), ("", ""));
    let reply = list(&mut runner, 0, start, 2, 999);
    assert!(reply.starts_with(&format!("[1 {NOW} b [a r {NOW} ")), "{reply}");
    let reply = list(&mut runner, 0, (&now, "b"), 2, 999);
    assert!(reply.starts_with(&format!("[0 {NOW} c [c r {NOW} ")), "{reply}");
    let reply = list(&mut runner, 1, (&now, "bb"), 1, 999);
    assert!(reply.starts_with(&format!("[1 {NOW} b [b r {NOW} ")), "{reply}");
    assert_eq!(list(&mut runner, 1, (&now, "a"), 1, 999), "[0   []]");
    // At least one job, however few bytes are allowed.
    let reply = list(&mut runner, 1, start, 9, 0);
    assert!(reply.starts_with(&format!("[1 {NOW} c [c r {NOW} ")), "{reply}");
    // An entry without a record is examined, and not returned.
    runner.ask("HDEL", "job", &["c"]);
    assert_eq!(list(&mut runner, 0, (&now, "b"), 1, 999), format!("[0 {NOW} c []]"));
}
