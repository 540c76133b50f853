//! Data of the previous version, and the previous version on the same server.
//!
//! `tests/fixtures/format-1.rdb` is the snapshot of a server with jobs in every state that the last
//! version with format 1 wrote. Its keys `script:NAME` contain scripts of that version.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use crate::support::deployment::{Deployment, id, kind, text};
use redis::{RedisResult, Value};
use requeue_jobs::{
    Due, Fence, JobState, Mode, Priority, Put, Receipt, Settled, Settlement, Store,
};
use requeue_testkit::servers::RedisServer;
use requeue_testkit::{Fixture, block_on};
use std::fs;
use std::path::Path;

/// A server with the snapshot.
fn server() -> RedisServer {
    let mut server = RedisServer::start();
    server.kill();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/format-1.rdb");
    fs::copy(fixture, server.dir().join("dump.rdb")).unwrap();
    server.start_again();
    server
}

impl Deployment {
    fn format(&self) -> String {
        let key = format!("{{{}}}:format", self.prefix);
        redis::cmd("GET").arg(key).query(&mut *self.reader.lock().unwrap()).unwrap()
    }

    fn put_urgent(&self, job: &str) {
        let mut put = Put::new(kind(), id(job), text("urgent"));
        put.priority = Priority::new(4).unwrap();
        block_on(self.store.put(vec![put])).unwrap().remove(0).unwrap();
    }

    /// Calls a script of the previous version.
    fn previous(&self, script: &str, arguments: &[&[u8]]) -> RedisResult<Value> {
        let names = ["due", "leased", "dead", "job", "lease", "next", "past", "meta", "schedules"];
        let keys = names.map(|name| format!("{{{}:order.close}}:{name}", self.prefix));
        let mut reader = self.reader.lock().unwrap();
        let mut get = redis::cmd("GET");
        let script: String = get.arg(format!("script:{script}")).query(&mut reader).unwrap();
        let mut cmd = redis::cmd("EVAL");
        cmd.arg(script).arg(keys.len()).arg(&keys);
        cmd.arg(self.now().as_millis()).arg(arguments);
        cmd.query(&mut reader)
    }
}

#[test]
fn jobs_of_the_previous_version_can_be_used() {
    let server = server();
    let all = Deployment::on(&server.url(), "keys-0-", 1_700_000_000_069);
    all.check();
    let contents = all.read().remove("order.close").unwrap();
    let count = |state| contents.jobs.values().filter(|job| job.view.state == state).count();
    let states = [JobState::Waiting, JobState::Ready, JobState::Leased, JobState::Dead];
    assert_eq!(states.map(count), [11, 2, 7, 3]);
    assert_eq!((contents.settings.max_attempts, contents.schedules.len()), (9, 2));

    let receipt = |job: &str| {
        let (fence, nonce) = contents.jobs[job].fence_and_nonce.unwrap();
        Receipt::new(kind(), id(job), Fence(fence), nonce)
    };
    assert_eq!(all.settle(receipt("leased"), Settlement::Ack), Settled::Done);
    all.check();
    // Now it changes to layout 2. All jobs stay, and leases can be settled.
    all.priorities_and_done();
    all.check();
    let after = all.read().remove("order.close").unwrap();
    for (id, job) in contents.jobs.iter().filter(|(id, _)| *id != "leased") {
        assert_eq!(after.jobs[id].view, job.view);
    }
    assert_eq!(all.settle(receipt("leased-next"), Settlement::Ack), Settled::Done);
    assert_eq!(all.settle(receipt("extended"), Settlement::Ack), Settled::Done);
    let extended = block_on(all.store.get(kind(), id("extended"))).unwrap().unwrap();
    assert_eq!(extended.state, JobState::Done);
    all.check();
}

#[test]
fn the_previous_version_works_beside_this_one_until_a_kind_has_layout_2() {
    let server = server();
    let all = Deployment::on(&server.url(), "mixed", 1_700_000_000_000);
    let put = |job: &str| all.previous("put", &[b"1", b"0", b"", job.as_bytes(), b"\x02body"]);
    let nonce = 0x0123_4567_89AB_CDEF_u64.to_be_bytes();
    let claim = || all.previous("claim", &[b"1", b"1000", &nonce, b"old", b"9", b"99999"]);
    all.put("a", text("body"), Due::Now, Mode::Replace);
    put("b").unwrap();
    all.check();
    let fence = match claim().unwrap() {
        Value::Array(reply) => u64::try_from(match reply[2] {
            Value::Int(fence) => fence,
            ref other => panic!("{other:?}"),
        }),
        other => panic!("{other:?}"),
    };
    let receipt = Receipt::new(kind(), id("a"), Fence(fence.unwrap()), u64::from_be_bytes(nonce));
    assert_eq!(all.settle(receipt, Settlement::Ack), Settled::Done);
    let receipt = all.claim("b");
    let proof = [&receipt.fence().0.to_be_bytes()[1..], &receipt.nonce().to_be_bytes()].concat();
    assert_eq!(all.previous("ack", &[b"b", &proof]).unwrap(), Value::BulkString(b"A".to_vec()));
    assert_eq!((all.read()["order.close"].jobs.len(), all.format()), (0, "1".to_owned()));

    all.put("c", text("body"), Due::Now, Mode::Replace);
    all.put_urgent("d");
    assert_eq!(all.format(), "2", "the previous version cannot connect any more");
    all.check();
    let before = format!("{:?}", all.read());
    // One that is still connected gets errors, and changes nothing.
    let retry: [&[u8]; 6] = [b"c", &proof, b"r", b"", b"why", b"0"];
    for (script, result) in
        [("put", put("c")), ("claim", claim()), ("settle", all.previous("settle", &retry))]
    {
        let error = result.expect_err(script);
        assert!(error.to_string().contains("WRONGTYPE"), "{script}: {error}");
    }
    assert_eq!(format!("{:?}", all.read()), before);
    all.claim("d");
    all.claim("c");
    all.check();
}
