//! A Redis store and a memory store return the same results for the same random calls.
//!
//! The histories compare a store with a model that follows the store where the contract leaves a
//! choice. Here nothing is left open: backoffs with jitter, dropped jobs and restored jobs are the
//! same to the millisecond.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use requeue::ManualClock;
use requeue_jobs::limits::MAX_CONTENT_TYPE_LEN;
use requeue_jobs::{
    Backoff, Body, Change, ChangeKind, Claim, Due, Fence, Generation, JobId, JobState, JobView,
    Kind, MemoryStore, PushSetting, Put, Query, Restore, Retention, Settings, Settle, Settlement,
    Store, StoreError, TimeQuery, Timestamp, WallClock, WorkerName,
};
use requeue_redis::{Options, RedisStore};
use requeue_testkit::servers::RedisServer;
use requeue_testkit::{
    Operation, OperationKind, Operations, Random, Response, SettlementKind, block_on, check_seeds,
};
use std::collections::BTreeSet;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const KINDS: [&str; 3] = ["mail", "sms", "never-made"];
/// Ids that Lua or Redis could misread: as numbers, as hash tags or as patterns.
const IDS: [&str; 6] = ["1", "0x10", "nan", "a b\0c", "{ü}", "*[?]^\\"];
const STEPS: usize = 80;

#[test]
fn a_redis_store_returns_the_same_as_a_memory_store() {
    check_seeds(&[], "REQUEUE_HISTORIES", 60, |seed| {
        let (mut pair, mut random) = (Pair::new(), Random::new(seed));
        (0..STEPS)
            .try_for_each(|_| pair.step(&mut random))
            .map_err(|difference| format!("{}\n{difference}", pair.done.join("\n")))
    });
}

#[test]
fn the_count_of_deaths_stops_at_its_maximum() {
    let mut pair = Pair::new();
    let (kind, now) = (kind("mail"), pair.wall_clock.now());
    let mut job = JobView::new(kind.clone(), id("1"), Body::default(), now, Generation(1));
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

fn operations() -> Operations {
    use {OperationKind as O, SettlementKind as S};
    Operations {
        operations: &[
            (12, O::Put),
            (10, O::Claim),
            (8, O::Settle),
            (4, O::Change),
            (2, O::Set),
            (2, O::Restore),
            (4, O::List),
            (2, O::Reap),
            (1, O::SetSchedule),
            (1, O::RemoveSchedule),
            (2, O::Tick),
            (1, O::Get),
            (1, O::Upcoming),
        ],
        kinds: KINDS[..2].iter().map(|name| kind(name)).collect(),
        claimed_together: KINDS.map(kind).to_vec(),
        ids: IDS.map(id).to_vec(),
        workers: vec![WorkerName::new("w").unwrap()],
        batch: |random| random.below(4),
        delay: length,
        body: |random| {
            let longest = "x".repeat(MAX_CONTENT_TYPE_LEN);
            let types =
                ["application/octet-stream", "application/json", "text/plain", "", &longest];
            let bytes = random.number().to_le_bytes()[..random.below(9)].to_vec();
            Body::new(bytes, *random.pick(&types)).unwrap()
        },
        max_wait: length,
        one_kind: &[(11, true), (1, false)],
        max_claimed: &[(3, 1), (1, 3)],
        lease: |random| random.chance(60).then(|| length(random) + Duration::from_millis(10)),
        settlements: &[
            (1, S::Ack),
            (1, S::Bury),
            (1, S::Requeue),
            (3, S::Retry),
            (1, S::Release),
            (1, S::Extend),
        ],
        retry_delay: length,
        error: |random| "e".repeat(random.below(3)),
        extension: |random| random.chance(50).then(|| Duration::from_secs(1)),
        settings,
        prefixes: &["", "", "*", "*[?", "[", "\\", "^", "a b\0", "{", "n", "x"],
        page: &[(1, 0), (1, 1), (1, 2), (1, 3), (1, 4)],
        ..Operations::default()
    }
}

/// Mostly a different number of milliseconds each time; sometimes with a fraction.
fn length(random: &mut Random) -> Duration {
    let millis = random.below(4000) as u64;
    let nanos = if random.chance(30) { random.below(1_000_000) as u64 } else { 0 };
    Duration::from_millis(millis) + Duration::from_nanos(nanos)
}

fn settings(random: &mut Random) -> Settings {
    let mut settings = Settings::default();
    if random.chance(20) {
        return settings;
    }
    settings.lease = length(random) + Duration::from_millis(10);
    settings.backoff = Backoff {
        base: length(random) / 100,
        max: length(random),
        jitter_percent: *random.pick(&[0, 20, 100, 255]),
    };
    settings.max_attempts = random.below(4) as u32;
    settings.concurrency = *random.pick(&[None, None, Some(0), Some(1), Some(2)]);
    settings.paused = random.chance(10);
    let ages = [Duration::ZERO, length(random), Duration::MAX];
    let (age, count) = (*random.pick(&ages), *random.pick(&[0, 2, usize::MAX]));
    settings.retention = Retention { age, count };
    if random.chance(20) {
        let (config, secrets) = ("a target".to_owned(), "its secrets".to_owned().into());
        settings.push = Some(PushSetting { config, secrets });
    }
    // Both stores reject settings that contradict themselves.
    if random.chance(10) { settings } else { settings.clamped() }
}

/// A Redis store and a memory store with the same clock.
struct Pair {
    redis: RedisStore,
    memory: MemoryStore,
    clock: ManualClock,
    wall_clock: WallClock,
    operations: Operations,
    /// The operations so far, each with its time.
    done: Vec<String>,
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
            operations: operations(),
            done: Vec::new(),
        }
    }

    fn step(&mut self, random: &mut Random) -> Result<(), String> {
        let by = length(random) / (1 << random.below(8));
        self.clock.advance(by + Duration::from_millis(1));
        let mut operation = self.operations.next(random, self.wall_clock.now(), &self.memory);
        vary(&mut operation, random, &self.operations);
        // If two jobs have the same time, each store may choose a different one of them.
        let chooses =
            matches!(operation, Operation::Claim(_) | Operation::Settle(_) | Operation::Reap(_));
        if chooses && self.has_ties() {
            return Ok(());
        }
        // A list is read to its end: jobs that are put later may be missing on its next pages.
        while let Ok(Response::List(page)) = self.call(operation.clone())?
            && let Operation::List(query) = &mut operation
            && page.cursor.is_some()
        {
            query.after = page.cursor;
        }
        self.compare_all()
    }

    /// Runs the operation on both stores, and returns the response of both.
    fn call(&mut self, operation: Operation) -> Result<Result<Response, StoreError>, String> {
        self.done.push(format!("{} {operation:?}", self.wall_clock.now().as_millis()));
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
        let done = self.done.len();
        for kind in KINDS.map(kind) {
            let query = Query { limit: 1000, ..Query::new(kind) };
            self.call(Operation::List(query.clone())).map(drop)?;
            let [waiting, leased] = [JobState::Waiting, JobState::Leased];
            let states = [JobState::Ready, leased, waiting, JobState::Dead, JobState::Done];
            let by_time = TimeQuery::new(query.kind, states[done % 5]);
            let (newest_first, limit) = (done.is_multiple_of(2), 1 + done % 7);
            self.call(Operation::ListByTime(TimeQuery { newest_first, limit, ..by_time }))
                .map(drop)?;
        }
        self.call(Operation::Kinds).map(drop)?;
        self.done.truncate(done);
        Ok(())
    }

    /// Returns whether two jobs of a kind come up, or die, at the same time.
    fn has_ties(&self) -> bool {
        let now = self.wall_clock.now();
        KINDS.map(kind).into_iter().any(|kind| {
            let max_attempts = block_on(self.memory.settings(kind.clone())).unwrap().max_attempts;
            let query = Query { limit: 1000, ..Query::new(kind) };
            let jobs = block_on(self.memory.list(query)).unwrap().jobs;
            let time = |job: &JobView| match (&job.lease, job.died_at) {
                (Some(lease), _) => (false, lease.ends_at),
                (None, Some(died_at)) => (true, died_at),
                (None, None) => (false, job.due),
            };
            // The next call ends these leases, and their jobs may die.
            let dies = |job: &&JobView| {
                job.lease.as_ref().is_some_and(|lease| lease.ends_at <= now)
                    && job.attempts.saturating_add(1) >= max_attempts
            };
            let times: BTreeSet<_> = jobs.iter().map(time).collect();
            times.len() < jobs.len() || jobs.iter().filter(dies).count() > 1
        })
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

/// Adds cases that the generator leaves out because models cannot follow them.
fn vary(operation: &mut Operation, random: &mut Random, operations: &Operations) {
    match operation {
        // Which kind comes first differs between the stores, so such a claim takes all jobs.
        Operation::Claim(claim) if claim.kinds.len() > 1 => claim.max = 1000,
        Operation::Put(puts) => {
            let old = puts.iter_mut().filter(|_| random.chance(3));
            old.for_each(|put| put.due = Due::At(Timestamp::from_millis(1)));
        }
        Operation::Settle(settlements) => {
            for settle in settlements {
                if let Settlement::Retry { delay, .. } = &mut settle.action
                    && random.chance(30)
                {
                    *delay = None;
                }
            }
        }
        Operation::Restore(restore) => {
            restore.fence = Fence(7);
            for job in &mut restore.jobs {
                if random.chance(50) {
                    (job.attempts, job.deaths) = (u32::MAX, u32::MAX);
                }
                if random.chance(20) {
                    job.id = operations.id(random);
                }
            }
        }
        _ => {}
    }
}
