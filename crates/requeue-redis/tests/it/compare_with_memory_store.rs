//! A Redis store and a memory store return the same where the contract leaves a choice or the model of the
//! histories does not reach: the jitter of backoffs, the largest numbers, and batches of the largest size.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use requeue::ManualClock;
use requeue_jobs::{
    Body, Change, ChangeKind, Claim, Fence, Generation, JobId, JobState, JobView, Kind,
    MemoryStore, Put, Query, Restore, Settings, Settle, Settlement, Store, StoreError, TimeQuery,
    Timestamp, Version, WallClock, WorkerName,
};
use requeue_redis::{Options, RedisStore};
use requeue_testkit::servers::RedisServer;
use requeue_testkit::{Operation, Operations, Response, block_on};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Ids that Lua or Redis could misread: as numbers, as hash tags or as patterns.
const IDS: [&str; 6] = ["1", "0x10", "nan", "a b\0c", "{ü}", "*[?]^\\"];
#[test]
fn jobs_with_odd_ids_are_retried_after_the_same_backoff_and_listed_in_the_same_order() {
    let mut pair = Pair::new();
    for round in 0..6 {
        for name in IDS {
            pair.clock.advance(Duration::from_millis(1));
            if round == 0 {
                pair.call(put(name)).unwrap().unwrap();
            }
            pair.call(claim(1)).unwrap().unwrap();
            let receipt = pair.operations.receipts.pop().unwrap();
            let action = Settlement::Retry { delay: None, error: "why".to_owned() };
            pair.call(Operation::Settle(vec![Settle { receipt, action }])).unwrap().unwrap();
        }
        pair.clock.advance(Duration::from_secs(60));
    }
    for prefix in ["*", "*[?", "[", "\\", "^", "a b\0", "{", "n", "x"] {
        let query = Query { prefix: prefix.to_owned(), ..Query::new(kind("mail")) };
        pair.call(Operation::List(query)).unwrap().unwrap();
    }
    pair.compare_all().unwrap();
}

#[test]
fn the_count_of_deaths_stops_at_its_maximum() {
    let mut pair = Pair::new();
    let (kind, now) = (kind("mail"), pair.wall_clock.now());
    let mut job =
        JobView::new(kind.clone(), id("1"), Version::new(Body::default(), now, Generation(1)));
    job.deaths = u32::MAX;
    let (generation, fence, jobs) = (Generation(1), Fence(1), vec![job]);
    pair.call(Operation::Restore(Restore { kind, generation, fence, jobs })).unwrap().unwrap();
    pair.call(claim(1)).unwrap().unwrap();
    pair.call(put("1")).unwrap().unwrap();
    pair.bury_first();
    pair.compare_all().unwrap();
}

#[test]
fn the_retention_age_is_rounded_up_to_whole_milliseconds() {
    let mut pair = Pair::new();
    let mut settings = Settings::default();
    settings.retention.age = Duration::from_micros(1500);
    pair.call(Operation::Set(kind("mail"), settings)).unwrap().unwrap();
    pair.call(put("1")).unwrap().unwrap();
    pair.call(claim(1)).unwrap().unwrap();
    pair.bury_first();
    for expected in [0, 0, 1] {
        let response = pair.call(Operation::Reap(1)).unwrap();
        assert!(matches!(response, Ok(Response::Reap(reaped)) if reaped.count == expected));
        pair.clock.advance(Duration::from_millis(1));
    }
}

#[test]
fn large_batches_run_in_order_and_a_claim_ends_a_limited_number_of_expired_leases() {
    let mut pair = Pair::new();
    let id = |n: usize| id(&n.to_string());
    for from in [0, 750] {
        // Every third job is put twice, the second time near the end of the batch.
        let ids = (from..from + 750).chain((from..from + 750).step_by(3));
        let puts = ids.map(|n| Put::new(kind("mail"), id(n), Body::default()));
        pair.call(Operation::Put(puts.collect())).unwrap().unwrap();
    }
    assert_eq!([pair.claim_any(1000), pair.claim_any(1000)], [1000, 500]);
    for from in [0, 750] {
        let cancel = |n| Change { kind: kind("mail"), id: id(n), action: ChangeKind::Cancel };
        let changes = (from..from + 750).map(cancel).collect();
        pair.call(Operation::Change(changes)).unwrap().unwrap();
    }
    // All leases expire together. The first claim ends as many as one call may end, and no more.
    pair.clock.advance(Duration::from_secs(60));
    pair.call(put("late")).unwrap().unwrap();
    for claimed in [0, 1] {
        assert_eq!(pair.claim_any(10), claimed);
        pair.call(Operation::Kinds).unwrap().unwrap();
    }
}

fn kind(name: &str) -> Kind {
    Kind::new(name).unwrap()
}

fn id(id: &str) -> JobId {
    JobId::new(id).unwrap()
}

fn put(name: &str) -> Operation {
    Operation::Put(vec![Put::new(kind("mail"), id(name), Body::default())])
}

fn claim(max: usize) -> Operation {
    let (kinds, worker) = (vec![kind("mail")], WorkerName::new("w").unwrap());
    Operation::Claim(Claim { kinds, max, lease: None, worker, nonce: 7 })
}

/// A Redis store and a memory store with the same clock.
struct Pair {
    redis: RedisStore,
    memory: MemoryStore,
    clock: ManualClock,
    wall_clock: WallClock,
    operations: Operations,
}

impl Pair {
    fn new() -> Pair {
        static SERVER: LazyLock<RedisServer> = LazyLock::new(RedisServer::start);
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let clock = ManualClock::new();
        let wall_clock = WallClock::manual(&clock, Timestamp::from_millis(1_700_000_000_000));
        let mut options = Options::default();
        options.prefix = format!("pair-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let url = SERVER.url();
        let redis = RedisStore::connect_at(&url, options, Some(wall_clock.clone()));
        Pair {
            redis: block_on(redis).unwrap(),
            memory: MemoryStore::with(wall_clock.clone()),
            clock,
            wall_clock,
            operations: Operations::default(),
        }
    }

    /// Runs the operation on both stores, and returns the response of both.
    fn call(&mut self, operation: Operation) -> Result<Result<Response, StoreError>, String> {
        let run = |store: &dyn Store| {
            let mut response = operation.run(store);
            // Each store chooses which kind of a claim comes first.
            if let Ok(Response::Claim(claimed)) = &mut response {
                claimed.jobs.sort_by_key(|job| job.kind().clone());
                claimed.expired.sort_by_key(|expired| expired.kind.clone());
            }
            response
        };
        let (redis, memory) = (run(&self.redis), run(&self.memory));
        if redis != memory {
            return Err(format!("redis  {redis:#?}\nmemory {memory:#?}"));
        }
        if let Ok(response) = &redis {
            self.operations.keep_receipts(response);
        }
        Ok(redis)
    }

    /// Compares all jobs and kinds.
    fn compare_all(&mut self) -> Result<(), String> {
        let query = Query { limit: 1000, ..Query::new(kind("mail")) };
        self.call(Operation::List(query)).map(drop)?;
        for state in [JobState::Ready, JobState::Leased, JobState::Waiting, JobState::Dead] {
            self.call(Operation::ListByTime(TimeQuery::new(kind("mail"), state))).map(drop)?;
        }
        self.call(Operation::Kinds).map(drop)
    }

    /// Returns the number of jobs claimed, which is the same on both. The jobs may differ.
    fn claim_any(&self, max: usize) -> usize {
        let [redis, memory] = [&self.redis as &dyn Store, &self.memory].map(|store| {
            match claim(max).run(store).unwrap() {
                Response::Claim(claimed) => claimed.jobs.len(),
                other => panic!("not the response to a claim: {other:?}"),
            }
        });
        assert_eq!(redis, memory);
        redis
    }

    fn bury_first(&mut self) {
        let receipt = self.operations.receipts[0].clone();
        let action = Settlement::Bury { error: String::new() };
        self.call(Operation::Settle(vec![Settle { receipt, action }])).unwrap().unwrap();
    }
}
