//! What single scripts do that no call of the store shows: a schedule runs once, kinds are created and removed by several
//! scripts, and a list by time continues anywhere.

use super::*;

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
