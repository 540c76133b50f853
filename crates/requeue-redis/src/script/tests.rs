//! Tests of the scripts on a real server: their headers, the constants that they share with the Rust
//! code, and the number of commands they run.

mod costs;
mod flags;
mod headers;

use super::*;
use crate::codec::body;
use crate::keys::Keys;
use redis::{Connection, RedisResult, ToRedisArgs, Value};
use requeue_jobs::limits::{
    KEPT_ATTEMPTS, MAX_BODY_LEN, MAX_CONTENT_LEN, MAX_CONTENT_TYPE_LEN, MAX_COUNTER, MAX_DELAY,
    MAX_RESULT_BYTES, MAX_SCHEDULE_LEN,
};
use requeue_jobs::{Body, Envelope, Head, Kind, Settings};
use requeue_testkit::servers::RedisServer;
use std::time::Duration;

const NOW: u64 = 1_700_000_000_000;
const NONCE: &str = "nonce-01";
/// What a script gets that creates the kind.
const MADE: &str = "text 0 0";

/// Runs scripts on the keys of one kind.
struct ScriptRunner {
    connection: Connection,
    keys: Keys,
}

impl ScriptRunner {
    /// With a kind that is new on this server.
    fn new(server: &RedisServer, kind: &str) -> ScriptRunner {
        let client = redis::Client::open(server.url()).expect("a valid address");
        let connection = client.get_connection().expect("the server is up");
        let keys = Keys::of("desk", &Kind::new(kind).expect("a valid kind"));
        let mut runner = ScriptRunner { connection, keys };
        runner.call(&SCRIPTS.begin, ("", "text"));
        runner
    }

    /// On a server that these tests share.
    fn of(kind: &str) -> ScriptRunner {
        static SERVER: LazyLock<RedisServer> = LazyLock::new(RedisServer::start);
        ScriptRunner::new(&SERVER, kind)
    }

    fn eval(&mut self, eval: &str, text: &str, args: impl ToRedisArgs) -> RedisResult<Value> {
        let mut cmd = redis::cmd(eval);
        cmd.arg(text).arg(self.keys.all.len()).arg(&self.keys.all).arg(args);
        cmd.query(&mut self.connection)
    }

    /// Calls a script and returns its reply as text.
    fn call(&mut self, script: &Script, args: impl ToRedisArgs) -> String {
        shown(&self.eval("EVAL", &script.text, args).expect("the script succeeds"))
    }

    /// Runs a command on one of the keys of the kind.
    fn ask(&mut self, name: &str, key: &str, args: &[&str]) -> String {
        let mut cmd = redis::cmd(name);
        cmd.arg(format!("{{{}}}:{key}", self.keys.tag)).arg(args);
        shown(&cmd.query(&mut self.connection).expect("the server is up"))
    }

    /// Puts jobs that are due now.
    fn put(&mut self, now: u64, ids: &[&str]) -> String {
        let puts: Vec<_> = ids.iter().map(|id| (*id, 0, "", of("body"))).collect();
        self.call(&SCRIPTS.put, (now, MADE, "", "", "", puts))
    }

    /// Claims up to `max` jobs for a second, and returns the fence of the first.
    fn claim(&mut self, now: u64, max: usize) -> u64 {
        let args = (now, max, 1000, NONCE, "worker", 1000, MAX_RESULT_BYTES);
        match self.eval("EVAL", &SCRIPTS.claim.text, args) {
            Ok(Value::Array(values)) => crate::reply::number(&values[2]).expect("a fence"),
            other => panic!("{other:?}"),
        }
    }

    /// Puts and claims these jobs, and returns fence and nonce of each lease.
    fn lease(&mut self, now: u64, ids: &[&str]) -> Vec<Vec<u8>> {
        for id in ids {
            self.put(now, &[id]);
        }
        let first = self.claim(now, ids.len());
        // Jobs with the same due time are claimed in the order of their ids.
        let mut sorted = ids.to_vec();
        sorted.sort_unstable();
        let index =
            |id| sorted.iter().position(|other| *other == id).expect("the job was put") as u64;
        ids.iter().map(|id| proof(first + index(*id))).collect()
    }

    /// Returns the keys that contain a job, as letters: `p`, `l`, `d` for due, leased and dead; `=` for
    /// its record, `>` for its lease, `n` for its successor and `<` for its past.
    fn state(&mut self, id: &str) -> String {
        let mut state = String::new();
        for (key, letter) in [("due", 'p'), ("leased", 'l'), ("dead", 'd')] {
            if self.ask("ZSCORE", key, &[id]) != "nil" {
                state.push(letter);
            }
        }
        for (key, letter) in [("job", '='), ("lease", '>'), ("next", 'n'), ("past", '<')] {
            if self.ask("HEXISTS", key, &[id]) == "1" {
                state.push(letter);
            }
        }
        state
    }
}

/// Fence and nonce, which are the first bytes of a lease.
fn proof(fence: u64) -> Vec<u8> {
    [&fence.to_be_bytes()[1..], NONCE.as_bytes()].concat()
}

/// The encoded body of a put.
fn of(text: &str) -> Vec<u8> {
    body(&Body::octets(text.as_bytes()).expect("the body is short"))
}

/// Returns a reply as text; the elements of an array are separated by spaces.
fn shown(value: &Value) -> String {
    match value {
        Value::Nil => "nil".to_owned(),
        Value::Int(number) => number.to_string(),
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) => text.clone(),
        Value::Okay => "OK".to_owned(),
        Value::Array(values) => {
            let values: Vec<_> = values.iter().map(shown).collect();
            format!("[{}]", values.join(" "))
        }
        other => panic!("{other:?}"),
    }
}

/// How many bytes the encoding of a head may have more than count towards the limits.
const AROUND_FIELDS: usize = 64;

#[test]
fn the_longest_head_fits_into_the_longest_record() {
    let of_type = "t".repeat(MAX_CONTENT_TYPE_LEN);
    let envelope = Envelope::new(vec![7; MAX_CONTENT_LEN - of_type.len()], of_type);
    let head = Head::from(envelope.expect("it is not too long"));
    assert_eq!(head.len(), MAX_CONTENT_LEN);
    assert!(head.encode().len() <= MAX_CONTENT_LEN + AROUND_FIELDS);
}

#[test]
fn scripts_contain_the_same_limits_and_defaults_as_the_rust_code() {
    let settings = Settings::default();
    let (backoff, retention) = (settings.backoff, settings.retention);
    let millis = |duration: Duration| duration.as_millis();
    let lease = format!("or {})", millis(settings.lease));
    let Scripts { put, claim, settle, reap, tick, view, schedules, .. } = &*SCRIPTS;
    // The flags, two lengths of a head and what is around its fields, the length of the content type, and
    // the content type.
    let longest_content = MAX_CONTENT_LEN + 1 + 8 + AROUND_FIELDS + 1 + MAX_CONTENT_TYPE_LEN;
    let longest_record = 19 + longest_content;
    for (script, line) in [
        (put, format!("local MAX_DELAY = {}\n", millis(MAX_DELAY))),
        (tick, format!("local MAX_DELAY = {}\n", millis(MAX_DELAY))),
        (put, format!("local MAX_COUNTER = {MAX_COUNTER}\n")),
        (claim, format!("local KEPT_ATTEMPTS = {KEPT_ATTEMPTS}\n")),
        (settle, format!("local KEPT_ATTEMPTS = {KEPT_ATTEMPTS}\n")),
        (claim, format!("local GROUP = {}\n", MAX_RESULT_BYTES / MAX_BODY_LEN)),
        (claim, format!("MAX_RECORD, MAX_CONTENT = {longest_record}, {MAX_CONTENT_LEN}\n")),
        (view, format!("MAX_RECORD, MAX_OTHER = {longest_record}, ")),
        (schedules, format!("MAX_SCHEDULE = {}\n", 13 + 2 * MAX_SCHEDULE_LEN + longest_content)),
        (claim, format!("math.ceil(tonumber(set[3]) {lease})")),
        (settle, format!("'lease')) {lease})")),
        (settle, format!("local longest = tonumber(set[2]) or {}\n", millis(backoff.max))),
        (settle, format!("(tonumber(set[1]) or {}) * 2 ^", millis(backoff.base))),
        (settle, format!("tonumber(set[3]) or {}, 100)", backoff.jitter_percent)),
        (settle, format!("'max_attempts')) or {})", settings.max_attempts)),
        (claim, format!("'max_attempts')) or {})", settings.max_attempts)),
        (reap, format!("'retention_count', {}, {} }}", millis(retention.age), retention.count)),
        (claim, format!("'ageing')) or {})", settings.ageing.map_or(0, millis))),
    ] {
        assert!(script.text.contains(&line), "the script does not contain {line:?}");
    }
    assert!(
        (settings.concurrency, settings.paused) == (None, false),
        "scripts assume these defaults"
    );
}

#[test]
fn a_reschedule_with_a_body_removes_the_envelope_and_no_other_field_of_the_head() {
    let mut runner = ScriptRunner::of("reschedule");
    let (first, envelope, last) = (b"\x03\x02ab", b"\x07\x03\x01te", b"\x81\x01\x01z");
    let with_head = |counted: u8, fields: &[&[u8]], body: &[u8]| {
        let fields = fields.concat();
        let lengths = [0, 0, 0, counted, 0, 0, 0, fields.len() as u8];
        [&[128 | 2 << 2][..], &lengths, &fields, body].concat()
    };
    let new = [&[0][..], b"new"].concat();
    for (old, expected) in [
        (with_head(2, &[envelope], b"body"), [&[2 << 2][..], b"new"].concat()),
        (with_head(4, &[first, envelope], b"body"), with_head(2, &[first], b"new")),
        (with_head(3, &[envelope, last], b"body"), with_head(1, &[last], b"new")),
        (with_head(5, &[first, envelope, last], b""), with_head(3, &[first, last], b"new")),
        (with_head(3, &[first, last], b"body"), with_head(3, &[first, last], b"new")),
    ] {
        let put = [("a", old)];
        runner.call(&SCRIPTS.put, (NOW, MADE, NOW, "", "2", &put));
        // It is kept as it is if there is no other body.
        for (body, expected) in [(&[][..], &put[0].1), (&new, &expected)] {
            let reply = runner.call(&SCRIPTS.reschedule, (NOW, "", "a", "", "", body, ""));
            assert!(reply.ends_with(" U]"), "{reply}");
            let key = format!("{{{}}}:job", runner.keys.tag);
            let mut get = redis::cmd("HGET");
            let get = get.arg(key).arg("a");
            let record: Vec<u8> = get.query(&mut runner.connection).expect("the server is up");
            assert_eq!(&record[19..], expected);
        }
    }
}

#[test]
fn every_script_has_a_header_with_arguments_reply_and_state_change() {
    let Scripts { put, claim, ack, settle, change, restore, reap, .. } = &*SCRIPTS;
    let Scripts { peek, view, facts, upcoming, set, schedule, tick, register, .. } = &*SCRIPTS;
    let Scripts { list_by_time, reschedule, .. } = &*SCRIPTS;
    let of_kinds = [
        put,
        claim,
        ack,
        settle,
        change,
        reschedule,
        restore,
        reap,
        peek,
        view,
        facts,
        upcoming,
        set,
        schedule,
        tick,
        list_by_time,
    ];
    for script in of_kinds.into_iter().chain([register]) {
        let text = &script.text;
        for line in ["\n-- ARGV    ", "\n-- Reply   ", "\n-- State   "] {
            assert_eq!(text.matches(line).count(), 1, "{line:?} of\n{text}");
        }
    }
    // Scripts of a kind get its keys in a common first part.
    assert!(of_kinds.iter().all(|script| script.text.contains("META, SCHEDULES = unpack(KEYS)")));
    assert!(register.text.contains("\n-- KEYS    "));
}
