//! Keys with values that this store did not write: other types, truncated records, random bytes.
//! Errors name the key, no call panics, and the other jobs are not affected.

use crate::support::deployment::{Deployment, enveloped, id, kind, text};
use requeue_jobs::{
    Body, Change, ChangeKind, Claim, Claimed, Due, Generation, Mode, Priority, Put, PutOutcome,
    Query, Receipt, Reschedule, Settle, Settlement, Spans, Store, StoreError, Tick, TickJob,
    WorkerName,
};
use requeue_testkit::{Fixture, Random, block_on, check_seeds};
use std::time::Duration;

const KEYS: [&str; 10] =
    ["due", "leased", "dead", "done", "job", "lease", "next", "past", "meta", "schedules"];

impl Deployment {
    fn key(&self, name: &str) -> String {
        format!("{{{}:{}}}:{name}", self.prefix, kind())
    }

    fn redis<T: redis::FromRedisValue>(&self, cmd: &redis::Cmd) -> T {
        let mut reader = self.reader.lock().expect("no test panicked meanwhile");
        cmd.query(&mut reader).expect("the server is up")
    }

    fn damage(&self, name: &str, field: &str, value: &[u8]) {
        self.redis::<i64>(redis::cmd("HSET").arg(self.key(name)).arg(field).arg(value));
    }

    fn claim_some(&self, max: usize) -> Result<Claimed, StoreError> {
        let (worker, lease) = (WorkerName::new("w").expect("a name"), Some(Duration::from_secs(1)));
        let claim = Claim { kinds: vec![kind()], max, lease, worker, nonce: 7 };
        block_on(self.store.claim(claim))
    }

    fn put_now(&self, job: &str) {
        self.put(job, text("body"), Due::Now, Mode::Replace);
    }
}

fn ids(claimed: &Claimed) -> Vec<&str> {
    let mut ids: Vec<_> = claimed.jobs.iter().map(|job| job.id().as_str()).collect();
    ids.sort_unstable();
    ids
}

#[test]
fn a_damaged_record_does_not_hide_the_other_jobs_of_a_claim() {
    // Bit 7 of the flags means that a head follows, with its lengths.
    let head = |flags: u8, head: &[u8]| [&[0; 19][..], &[flags], head].concat();
    let values = [
        vec![],
        b"short".to_vec(),
        vec![255; 40],
        vec![0; 3 << 20],
        head(128, b"\0\0\0\x01\0"),
        head(128, b"\0\0\0\x02\0\0\0\x02\x08\0"),
        head(128, b"\xff\xff\xff\xff\0\0\0\x02\x07\0"),
        head(128 | 3, b"\0\0\0\x02\xff\xff\xff\xff\x07\0"),
        head(128, &[&[0, 0, 0, 1, 0, 0x30, 0, 0][..], &vec![7; 3 << 20]].concat()),
    ];
    for (value, priority) in values.iter().flat_map(|value| [(value, 0), (value, 9)]) {
        let all = Deployment::new();
        if priority > 0 {
            // The jobs have another priority than this one.
            let mut put = Put::new(kind(), id("other"), text("body"));
            put.priority = Priority::new(priority).expect("a priority");
            let put = block_on(all.store.put(vec![put])).expect("the server is up").remove(0);
            assert_eq!(put.expect("no condition").outcome, PutOutcome::Created);
            assert_eq!(ids(&all.claim_some(1).expect("the server is up")), ["other"]);
        }
        for job in ["a", "b", "c"] {
            all.put_now(job);
        }
        all.damage("job", "b", value);
        let claimed = all.claim_some(10).expect("the server is up");
        assert_eq!(ids(&claimed), ["a", "c"], "{:?}", claimed.errors);
        let [(_, StoreError::Unavailable { reason })] = &claimed.errors[..] else {
            panic!("{:?}", claimed.errors)
        };
        assert!(reason.contains("\"b\"") && reason.contains(&all.key("job")), "{reason}");
        let read = block_on(all.store.get(kind(), id("b"))).expect_err("it is damaged").to_string();
        assert!(read.contains("\"b\"") && read.contains(&all.key("job")), "{read}");
        // A put repairs it: the worker is gone, and the job is delivered again.
        let put = vec![Put::new(kind(), id("b"), text("repaired"))];
        let put = block_on(all.store.put(put)).expect("the server is up").remove(0);
        assert_eq!(put.expect("no condition").outcome, PutOutcome::Coalesced);
        all.advance(Duration::from_secs(1));
        let mut claimed = all.claim_some(10).expect("the server is up");
        claimed.jobs.retain(|job| job.id().as_str() == "b");
        assert_eq!(claimed.errors, []);
        assert_eq!(claimed.jobs[0].version.content.body, text("repaired"));
    }
}

#[test]
fn a_reschedule_of_a_job_with_a_damaged_head_is_refused_and_changes_nothing() {
    let all = Deployment::new();
    for head in [&b"\0\0\0\x01\0"[..], b"\0\0\0\x01\0\0\0\x09\x07"] {
        all.put("a", text("body"), Due::After(Duration::from_secs(9)), Mode::Replace);
        let value = [&[0; 19][..], &[128], head].concat();
        all.damage("job", "a", &value);
        let set = Reschedule { body: Some(text("new")), ..Reschedule::default() };
        let action = ChangeKind::Reschedule(set);
        let change = Change { kind: kind(), id: id("a"), action };
        let changed = block_on(all.store.change(vec![change])).expect("the server is up").remove(0);
        let reason = changed.expect_err("it is damaged").to_string();
        assert!(reason.contains("\"a\"") && reason.contains(&all.key("job")), "{reason}");
        let get = redis::cmd("HGET").arg(all.key("job")).arg("a").to_owned();
        assert_eq!(all.redis::<Vec<u8>>(&get), value);
    }
}

#[test]
fn a_settlement_of_a_damaged_job_leaves_the_others_of_its_batch_alone() {
    let all = Deployment::new();
    for job in ["a", "b", "c"] {
        all.put_now(job);
    }
    let claimed = all.claim_some(10).expect("the server is up").jobs;
    all.damage("job", "b", b"short");
    let retry = Settlement::Retry { delay: None, error: "why".to_owned() };
    let retry = |receipt: Receipt| Settle { receipt, action: retry.clone() };
    let retries = claimed.iter().map(|job| retry(job.receipt.clone())).collect();
    let results = block_on(all.store.settle(retries)).expect("the server is up");
    for (job, result) in claimed.iter().zip(results) {
        match job.id().as_str() {
            "b" => {
                let reason = result.expect_err("it is damaged").to_string();
                assert!(reason.contains(&all.key("job")), "{reason}");
            }
            _ => drop(result.expect("it is sound")),
        }
    }
}

#[test]
fn a_key_of_another_type_is_named() {
    for name in KEYS {
        let all = Deployment::new();
        all.put_now("a");
        let key = all.key(name);
        all.redis::<i64>(redis::cmd("DEL").arg(&key));
        all.redis::<String>(redis::cmd("SET").arg(&key).arg("foreign"));
        let mut errors = Vec::new();
        errors.extend(block_on(all.store.schedules(kind())).err().map(|error| error.to_string()));
        errors.extend(block_on(all.store.settings(kind())).err().map(|error| error.to_string()));
        errors.extend(block_on(all.store.get(kind(), id("a"))).err().map(|it| it.to_string()));
        match all.claim_some(1) {
            Ok(claimed) => errors.extend(claimed.errors.iter().map(|(_, error)| error.to_string())),
            Err(error) => errors.push(error.to_string()),
        }
        let put = block_on(all.store.put(vec![Put::new(kind(), id("a"), text(""))]));
        errors.extend(put.expect("one result").remove(0).err().map(|error| error.to_string()));
        let wrong: Vec<_> = errors.iter().filter(|error| error.contains("WRONGTYPE")).collect();
        // `lease` and `next` are not touched by these calls, nor by a list without leased jobs.
        assert!(!wrong.is_empty() || ["lease", "next"].contains(&name), "{name}: {errors:?}");
        assert!(wrong.iter().all(|error| error.contains(&key)), "{name}: {wrong:?}");
    }
}

/// Calls every method. Each may fail, but none may panic or hang.
fn call_everything(all: &Deployment, jobs: &[&str]) {
    let store = &all.store;
    let claimed = all.claim_some(5);
    if let Ok(claimed) = &claimed {
        let actions = [
            Settlement::AckWith(text("result")),
            Settlement::Release,
            Settlement::Extend(None),
            Settlement::RequeueAfter(Duration::from_secs(1)),
            Settlement::Retry { delay: None, error: "why".to_owned() },
            Settlement::Bury { error: "why".to_owned() },
        ];
        let settle = |(job, action): (&requeue_jobs::ClaimedJob, &Settlement)| Settle {
            receipt: job.receipt.clone(),
            action: action.clone(),
        };
        drop(block_on(store.settle(claimed.jobs.iter().zip(&actions).map(settle).collect())));
    }
    for job in jobs {
        drop(block_on(store.get(kind(), id(job))));
        let body = Some(Body::new(*b"new", "image/x-odd").expect("a body"));
        let body = ChangeKind::Reschedule(Reschedule { body, ..Reschedule::default() });
        for action in [body, ChangeKind::RunNow, ChangeKind::Revive, ChangeKind::Cancel] {
            drop(block_on(store.change(vec![Change { kind: kind(), id: id(job), action }])));
        }
    }
    let puts = jobs.iter().map(|job| Put::new(kind(), id(job), enveloped(text("again")))).collect();
    drop(block_on(store.put(puts)));
    drop(block_on(store.list(Query { limit: 1000, ..Query::new(kind()) })));
    drop(block_on(store.kinds()));
    drop(block_on(store.kind(kind())));
    drop(block_on(store.reap(100)));
    drop(block_on(store.settings(kind())));
    drop(block_on(store.schedules(kind())));
    drop(block_on(store.check()));
    let spans = Spans { from: all.now(), length: Duration::from_secs(1), count: 3 };
    drop(block_on(store.upcoming(kind(), spans)));
    let (expected, next) = (all.now(), all.now());
    let (body, priority) = (Body::default(), Priority::default());
    let put = Some(TickJob { id: id("daily"), content: body.into(), priority });
    drop(block_on(store.tick(Tick { kind: kind(), id: id("daily"), expected, next, put })));
}

/// Changes a value in a random way.
fn mutate(random: &mut Random, value: &mut Vec<u8>) {
    match random.below(4) {
        0 => value.truncate(random.below(value.len() + 1)),
        1 => value.extend((0..random.below(40)).map(|_| random.below(256) as u8)),
        2 => *value = (0..random.below(60)).map(|_| random.below(256) as u8).collect(),
        _ => {
            for _ in 0..=random.below(4) {
                if !value.is_empty() {
                    let at = random.below(value.len());
                    value[at] = random.below(256) as u8;
                }
            }
        }
    }
}

#[test]
fn no_call_panics_whatever_the_keys_contain() {
    check_seeds(&[], "REQUEUE_DAMAGE", 6, |seed| {
        let mut random = Random::new(seed);
        let all = Deployment::new();
        all.waiting_and_ready();
        all.leased();
        all.failed_and_dead();
        all.heads();
        all.settings_and_schedules();
        all.redis::<i64>(redis::cmd("HDEL").arg(all.key("meta")).arg("paused"));
        let mut jobs = vec![
            "json",
            "leased",
            "leased-next",
            "leased-cancelled-next",
            "dead",
            "failed-often",
            "head",
            "head-next",
        ];
        if random.chance(50) {
            all.priorities_and_done();
            jobs.extend(["urgent", "urgent-later", "urgent-dead", "done", "done-text"]);
        }
        for _ in 0..25 {
            let key = all.key(KEYS[random.below(KEYS.len())]);
            match random.below(8) {
                0 => {
                    all.redis::<i64>(redis::cmd("DEL").arg(&key));
                }
                1 => {
                    let job = jobs[random.below(jobs.len())];
                    let list = all.key(KEYS[random.below(4)]);
                    let scores =
                        ["0", "-1", "inf", "-inf", "1e300", "0.5", "1700000000000", "4e14"];
                    let score = scores[random.below(scores.len())];
                    all.redis::<i64>(redis::cmd("ZADD").arg(list).arg(score).arg(job));
                }
                _ => {
                    let hash = KEYS[4 + random.below(6)];
                    let fields: Vec<Vec<u8>> = all.redis(redis::cmd("HKEYS").arg(all.key(hash)));
                    if !fields.is_empty() {
                        let field = &fields[random.below(fields.len())];
                        let get = redis::cmd("HGET").arg(all.key(hash)).arg(field).to_owned();
                        let mut value: Vec<u8> = all.redis(&get);
                        mutate(&mut random, &mut value);
                        let mut set = redis::cmd("HSET");
                        all.redis::<i64>(set.arg(all.key(hash)).arg(field).arg(value));
                    }
                }
            }
            call_everything(&all, &jobs);
            all.advance(Duration::from_millis(random.below(3000) as u64));
        }
        // What remains of the kind can be deleted, and it works again.
        let keys: Vec<_> = KEYS.iter().map(|name| all.key(name)).collect();
        all.redis::<i64>(redis::cmd("DEL").arg(keys));
        all.put_now("new");
        let claimed = all.claim_some(5).map_err(|error| error.to_string())?;
        assert_eq!(
            (ids(&claimed), claimed.jobs[0].version.generation),
            (vec!["new"], Generation(1))
        );
        Ok(())
    });
}
