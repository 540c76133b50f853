//! Keys that an operator may or must not edit by hand, as documented in `docs/redis-keys.md`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use crate::support::deployment::{Deployment, HOUR, id, kind, text};
use requeue_jobs::{
    Claim, Claimed, Due, Mode, Put, Receipt, Settings, Settle, Settlement, Store, WorkerName,
};
use requeue_testkit::{Fixture, block_on};
use std::time::Duration;

impl Deployment {
    fn by_hand(&self, command: &str, keys: &[&str], rest: &[&str]) -> i64 {
        let tag = format!("{{{}:order.close}}", self.prefix);
        let mut cmd = redis::cmd(command);
        cmd.arg(keys.iter().map(|key| format!("{tag}:{key}")).collect::<Vec<_>>()).arg(rest);
        cmd.query(&mut *self.reader.lock().unwrap()).unwrap()
    }

    fn kinds_by_hand(&self, command: &str) {
        let mut cmd = redis::cmd(command);
        cmd.arg(format!("{{{}}}:kinds", self.prefix)).arg("order.close");
        assert_eq!(cmd.query::<i64>(&mut *self.reader.lock().unwrap()).unwrap(), 1);
    }

    /// Puts a job and returns its generation.
    fn generation(&self, job: &str) -> u64 {
        let put = vec![Put::new(kind(), id(job), text(""))];
        block_on(self.store.put(put)).unwrap().remove(0).unwrap().generation.0
    }

    fn is_lost(&self, receipt: Receipt) -> bool {
        let ack = vec![Settle { receipt, action: Settlement::Ack }];
        block_on(self.store.settle(ack)).unwrap().remove(0).is_err()
    }

    fn claim_any(&self) -> Claimed {
        let (worker, lease) = (WorkerName::new("w").unwrap(), Some(Duration::from_secs(1)));
        let claim = Claim { kinds: vec![kind()], max: 10, lease, worker, nonce: 7 };
        block_on(self.store.claim(claim)).unwrap()
    }
}

const JOBS: [&str; 8] = ["due", "leased", "dead", "done", "job", "lease", "next", "past"];

#[test]
fn all_jobs_of_a_kind_may_be_deleted_by_hand() {
    let all = Deployment::new();
    all.waiting_and_ready();
    let receipts = all.leased();
    all.failed_and_dead();
    all.priorities_and_done();
    all.settings_and_schedules();
    let before = all.read().remove("order.close").unwrap();
    assert_eq!(all.by_hand("UNLINK", &JOBS, &[]), 8);
    all.check();
    let after = all.read().remove("order.close").unwrap();
    assert_eq!((after.job.len(), after.schedules.len()), (0, 2));
    assert!(receipts.into_values().all(|receipt| all.is_lost(receipt)));
    assert_eq!(all.generation("new"), before.counter("generation") + 1, "the counter continues");
    all.check();
}

#[test]
fn a_whole_kind_may_be_deleted_by_hand() {
    let all = Deployment::new();
    all.waiting_and_ready();
    all.settings_and_schedules();
    all.by_hand("HDEL", &["meta"], &["paused"]);
    let receipt = all.lease("leased");
    all.advance(Duration::from_secs(1));
    assert_eq!(all.by_hand("UNLINK", &[&JOBS[..], &["meta", "schedules"]].concat(), &[]), 6);
    all.kinds_by_hand("SREM");
    all.check();
    assert!(all.read().is_empty());
    assert_eq!(all.generation("new"), 1, "generations begin again");
    assert!(all.claim("new").fence() > receipt.fence(), "the counter continues");
    assert!(all.is_lost(receipt));
    all.check();
}

#[test]
fn settings_schedules_and_pasts_may_be_changed_by_hand() {
    let all = Deployment::new();
    all.settings_and_schedules();
    assert_eq!(all.by_hand("HDEL", &["meta"], &["paused"]), 1);
    let receipt = all.lease("failed");
    all.settle(receipt, Settlement::Retry { delay: Some(HOUR), error: "why".into() });
    assert_eq!(all.by_hand("HDEL", &["past"], &["failed"]), 1);
    all.check();
    all.put("failed", text("again"), Due::Now, Mode::Replace);
    assert_eq!(all.by_hand("HSET", &["meta"], &["paused", "1"]), 1);
    assert!(all.claim_any().jobs.is_empty());
    assert_eq!(all.by_hand("HDEL", &["meta"], &["paused"]), 1);
    let claimed = all.claim_any().jobs;
    assert_eq!(
        (claimed.len(), claimed[0].attempt),
        (1, 1),
        "the backoff was deleted with the past"
    );
    assert_eq!(all.by_hand("HDEL", &["schedules"], &["daily"]), 1);
    assert_eq!(all.by_hand("UNLINK", &["schedules"], &[]), 1);
    all.check();
}

#[test]
fn forbidden_edits_have_the_documented_effects() {
    let all = Deployment::new();
    all.generation("without-a-record");
    assert_eq!(all.by_hand("HDEL", &["job"], &["without-a-record"]), 1);
    let claimed = all.claim_any();
    assert!(claimed.jobs.is_empty() && claimed.errors.len() == 1, "{claimed:?}");
    all.advance(Duration::from_secs(1));
    all.claim_any();
    all.check();

    all.generation("unlisted");
    assert_eq!(all.by_hand("ZREM", &["due"], &["unlisted"]), 1);
    assert_eq!(block_on(all.store.get(kind(), id("unlisted"))).unwrap(), None);
    assert!(all.claim_any().jobs.is_empty());
    assert_eq!(block_on(all.store.check()).unwrap().len(), 1, "the check reports it");
    all.generation("unlisted");
    all.kinds_by_hand("SREM");
    assert_eq!(block_on(all.store.kinds()).unwrap(), []);
    assert_eq!(all.claim_any().jobs.len(), 1);
    all.kinds_by_hand("SADD");
    assert_eq!(block_on(all.store.kinds()).unwrap().len(), 1);
    all.check();
}

#[test]
fn settings_that_contradict_themselves_are_an_error_until_they_are_set_again() {
    let all = Deployment::new();
    all.settings_and_schedules();
    for (field, value, expected) in
        [("backoff_jitter", "101", "the limit is 100"), ("concurrency", "0", "is 0")]
    {
        all.by_hand("HSET", &["meta"], &[field, value]);
        let error = block_on(all.store.settings(kind())).unwrap_err().to_string();
        assert!(error.contains("settings of the kind are invalid"), "{error}");
        assert!(error.contains(expected), "{error}");
        block_on(all.store.set(kind(), Settings::default())).unwrap();
        assert_eq!(block_on(all.store.settings(kind())).unwrap(), Settings::default());
    }
}
