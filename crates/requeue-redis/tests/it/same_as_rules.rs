//! The scripts do what the rules do: random steps here and in memory, with the same answers.
//!
//! Histories compare with a model that follows the store where the contract leaves room. Here
//! nothing is left: jitter, what is dropped and what is restored are the same to the millisecond.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use requeue::ManualClock;
use requeue_jobs::limits::MAX_CONTENT_TYPE_LEN;
use requeue_jobs::{
    Backoff, Body, Change, ChangeKind, Claim, Condition, Due, Fence, Generation, JobId, JobState,
    JobView, Kind, MemoryStore, Mode, Put, Query, Receipt, Restore, Retention, Settings, Settle,
    Settlement, Store, StoreError, Timestamp, WallClock, WorkerName,
};
use requeue_redis::{Options, RedisStore};
use requeue_testkit::servers::RedisServer;
use requeue_testkit::{Random, block_on, check_seeds};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const KINDS: [&str; 3] = ["mail", "sms", "never-made"];
/// What Lua, or Redis, could take for something else.
const IDS: [&str; 6] = ["1", "0x10", "nan", "a b\0c", "{ü}", "*[?]^\\"];
const STEPS: usize = 80;

struct Both {
    redis: RedisStore,
    memory: MemoryStore,
    clock: ManualClock,
    wall_clock: WallClock,
    receipts: Vec<Receipt>,
    random: Random,
    done: Vec<String>,
}

#[test]
fn the_redis_store_does_what_the_rules_do() {
    check_seeds(&[], "REQUEUE_HISTORIES", 60, |seed| {
        let mut both = Both::new(seed);
        (0..STEPS)
            .try_for_each(|_| both.step())
            .map_err(|difference| format!("{}\n{difference}", both.done.join("\n")))
    });
}

#[test]
fn deaths_are_counted_as_far_as_they_can_be() {
    let mut both = Both::new(1);
    let job =
        |id| JobView::new(kind("mail"), id, Body::default(), both.wall_clock.now(), Generation(1));
    let mut job = job(JobId::new("1").unwrap());
    job.deaths = u32::MAX;
    let put = Put::new(job.kind.clone(), job.id.clone(), Body::default());
    let (kind, jobs) = (job.kind.clone(), vec![job]);
    let restore = Restore { kind, generation: Generation(1), fence: Fence(1), jobs };
    both.ask("restore", async |store| store.restore(restore.clone()).await).unwrap().unwrap();
    both.claim_of(vec![put.kind.clone()], 1).unwrap();
    both.ask("put", async |store| store.put(vec![put.clone()]).await).unwrap().unwrap();
    let bury =
        Settle { receipt: both.receipts.remove(0), action: Settlement::Bury { error: "".into() } };
    both.ask("bury", async |store| store.settle(vec![bury.clone()]).await).unwrap().unwrap();
    both.compare().unwrap();
}

#[test]
fn the_dead_are_kept_for_whole_milliseconds() {
    let mut both = Both::new(2);
    let put = Put::new(kind("mail"), JobId::new("1").unwrap(), Body::default());
    let mut settings = Settings::default();
    settings.retention.age = Duration::from_micros(1500);
    let set = async |store: &dyn Store| store.set(kind("mail"), settings.clone()).await;
    both.ask("set", set).unwrap().unwrap();
    both.ask("put", async |store| store.put(vec![put.clone()]).await).unwrap().unwrap();
    both.claim_of(vec![put.kind.clone()], 1).unwrap();
    let bury =
        Settle { receipt: both.receipts.remove(0), action: Settlement::Bury { error: "".into() } };
    both.ask("bury", async |store| store.settle(vec![bury.clone()]).await).unwrap().unwrap();
    for reaped in [0, 0, 1] {
        let answer = both.ask("reap", async |store| store.reap(1).await).unwrap();
        assert_eq!(answer.map(|answer| answer.count), Ok(reaped));
        both.clock.advance(Duration::from_millis(1));
    }
}

#[test]
fn large_batches_are_done_in_order_and_claims_end_no_more_leases_than_they_may() {
    let mut both = Both::new(3);
    let id = |n: usize| JobId::new(n.to_string()).unwrap();
    let puts = |from: usize| -> Vec<Put> {
        // Every third is there twice, the second time further on.
        let ids = (from..from + 750).chain((from..from + 750).step_by(3));
        ids.map(|n| Put::new(kind("mail"), id(n), Body::default())).collect()
    };
    for from in [0, 750] {
        both.ask("put", async |store| store.put(puts(from)).await).unwrap().unwrap();
    }
    let cancel = |n| Change { kind: kind("mail"), id: id(n), action: ChangeKind::Cancel };
    assert_eq!([both.claim_any(1000), both.claim_any(1000)], [1000, 500]);
    for from in [0, 750] {
        let changes: Vec<_> = (from..from + 750).map(cancel).collect();
        both.ask("cancel", async |store| store.change(changes.clone()).await).unwrap().unwrap();
    }
    // Their leases are over all at once: the first claim ends as many as it may, and no more.
    both.clock.advance(Duration::from_secs(60));
    let put = Put::new(kind("mail"), JobId::new("late").unwrap(), Body::default());
    both.ask("put", async |store| store.put(vec![put.clone()]).await).unwrap().unwrap();
    for claimed in [0, 1] {
        assert_eq!(both.claim_any(10), claimed);
        both.ask("kinds", async |store| store.kinds().await).unwrap().unwrap();
    }
}

fn kind(name: &str) -> Kind {
    Kind::new(name).unwrap()
}

impl Both {
    fn new(seed: u64) -> Both {
        static SERVER: LazyLock<RedisServer> = LazyLock::new(RedisServer::start);
        let clock = ManualClock::new();
        let wall_clock = WallClock::manual(&clock, Timestamp::from_millis(1_700_000_000_000));
        let mut options = Options::default();
        static NEXT: AtomicU64 = AtomicU64::new(0);
        options.prefix = format!("rules-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let url = SERVER.url();
        let redis = RedisStore::connect_at(&url, options, Some(wall_clock.clone()));
        Both {
            redis: block_on(redis).unwrap(),
            memory: MemoryStore::with(wall_clock.clone()),
            clock,
            wall_clock,
            receipts: Vec::new(),
            random: Random::new(seed),
            done: Vec::new(),
        }
    }

    /// Asks both, and answers what both answer.
    fn ask<T: Debug + PartialEq>(
        &mut self,
        what: impl Debug,
        ask: impl AsyncFn(&dyn Store) -> T,
    ) -> Result<T, String> {
        self.done.push(format!("{} {what:?}", self.wall_clock.now().as_millis()));
        let (redis, memory) = (block_on(ask(&self.redis)), block_on(ask(&self.memory)));
        match redis == memory {
            true => Ok(redis),
            false => Err(format!("redis {redis:#?}\nrules {memory:#?}")),
        }
    }

    /// All jobs of a kind, as memory has them.
    fn jobs(&self, kind: &Kind) -> Vec<JobView> {
        block_on(self.memory.list(Query { limit: 1000, ..Query::new(kind.clone()) })).unwrap().jobs
    }

    fn kind(&mut self) -> Kind {
        kind(KINDS[self.random.below(2)])
    }

    fn id(&mut self) -> JobId {
        JobId::new(*self.random.pick(&IDS)).unwrap()
    }

    /// Mostly so long that no two things happen at once; now and then with a fraction.
    fn length(&mut self) -> Duration {
        let millis = self.random.below(4000) as u64;
        let nanos = if self.random.chance(30) { self.random.below(1_000_000) as u64 } else { 0 };
        Duration::from_millis(millis) + Duration::from_nanos(nanos)
    }

    fn step(&mut self) -> Result<(), String> {
        let by = self.length() / (1 << self.random.below(8));
        self.clock.advance(by + Duration::from_millis(1));
        match self.random.below(22) {
            0..=5 => self.put()?,
            6..=10 => self.claim()?,
            11..=14 => self.settle()?,
            15 | 16 => self.change()?,
            17 => self.set()?,
            18 => self.restore()?,
            19 | 20 => self.list()?,
            _ => {
                let max = *self.random.pick(&[0, 1, 1000]);
                // Of two that are due at once, each drops another.
                if !self.has_ties() {
                    self.ask(("reap", max), async |store| store.reap(max).await).map(drop)?;
                }
            }
        }
        self.compare()
    }

    /// Compares all that is told.
    fn compare(&mut self) -> Result<(), String> {
        let done = self.done.len();
        for kind in KINDS.map(kind) {
            let query = Query { limit: 1000, ..Query::new(kind) };
            self.ask("list", async |store| store.list(query.clone()).await).map(drop)?;
        }
        self.ask("kinds", async |store| store.kinds().await).map(drop)?;
        self.done.truncate(done);
        Ok(())
    }

    /// To its end: who goes on later may miss what was put since.
    fn list(&mut self) -> Result<(), String> {
        let states = [JobState::Waiting, JobState::Ready, JobState::Leased, JobState::Dead];
        let prefixes = ["", "", "*", "*[?", "[", "\\", "^", "a b\0", "{", "n", "x"];
        let mut query = Query {
            state: self.random.chance(50).then(|| *self.random.pick(&states)),
            prefix: (*self.random.pick(&prefixes)).to_owned(),
            after: self.random.chance(50).then(|| self.id()),
            limit: self.random.below(5),
            ..Query::new(self.kind())
        };
        loop {
            let page = self.ask(&query, async |store| store.list(query.clone()).await)?;
            query.after = match page.map_err(|error| error.to_string())?.cursor {
                Some(cursor) => Some(cursor),
                None => return Ok(()),
            };
        }
    }

    fn put(&mut self) -> Result<(), String> {
        let puts: Vec<Put> = (0..self.random.below(4)).map(|_| self.random_put()).collect();
        self.ask(&puts, async |store| store.put(puts.clone()).await).map(drop)
    }

    fn random_put(&mut self) -> Put {
        let longest = "x".repeat(MAX_CONTENT_TYPE_LEN);
        let types = ["application/octet-stream", "application/json", "text/plain", "", &longest];
        let bytes = self.random.number().to_le_bytes()[..self.random.below(9)].to_vec();
        let body = Body::new(bytes, *self.random.pick(&types)).unwrap();
        let mut put = Put::new(self.kind(), self.id(), body);
        put.due = match self.random.below(4) {
            0 => Due::Now,
            1 => Due::At(self.wall_clock.now().saturating_add(self.length())),
            2 if self.random.chance(10) => Due::At(Timestamp::from_millis(1)),
            _ => Due::After(self.length()),
        };
        put.mode = match self.random.below(5) {
            0 => Mode::Earliest,
            1 => Mode::Keep,
            2 => Mode::Debounce { max_wait: self.length() },
            _ => Mode::Replace,
        };
        put.condition = match self.random.below(8) {
            0 => Some(Condition::IfAbsent),
            1 => {
                let job = block_on(self.memory.get(put.kind.clone(), put.id.clone())).unwrap();
                let newest = job.map_or(Generation(1), |job| job.newest_generation());
                Some(Condition::IfGeneration(newest))
            }
            _ => None,
        };
        put
    }

    /// Whether two jobs of a kind stand in one place: then each store takes the one it likes.
    fn has_ties(&self) -> bool {
        KINDS.map(kind).iter().any(|kind| {
            let jobs = self.jobs(kind);
            let place = |job: &JobView| match (&job.lease, job.died_at) {
                (Some(lease), _) => (false, lease.ends_at),
                (None, Some(died_at)) => (true, died_at),
                (None, None) => (false, job.due),
            };
            let places: BTreeSet<_> = jobs.iter().map(place).collect();
            places.len() < jobs.len()
        })
    }

    fn claim(&mut self) -> Result<(), String> {
        if self.has_ties() {
            return Ok(());
        }
        // Which of several kinds is first, each store says for itself. So take all there is.
        let (kinds, max) = match self.random.below(12) {
            0 => (KINDS.to_vec(), 1000),
            n => (vec![KINDS[n % 2]], *self.random.pick(&[1, 1, 1, 3])),
        };
        self.claim_of(kinds.into_iter().map(kind).collect(), max)
    }

    fn claim_of(&mut self, kinds: Vec<Kind>, max: usize) -> Result<(), String> {
        let lease = self.random.chance(60).then(|| self.length() + Duration::from_millis(10));
        let worker = WorkerName::new("w").unwrap();
        let claim = Claim { kinds, max, lease, worker, nonce: self.random.number() };
        let claimed = self.ask(&claim, async |store| {
            let mut claimed = store.claim(claim.clone()).await?;
            claimed.jobs.sort_by_key(|job| job.kind().clone());
            Ok::<_, StoreError>(claimed)
        })?;
        self.receipts.extend(claimed.unwrap().jobs.into_iter().map(|job| job.receipt));
        Ok(())
    }

    /// Claims so many, whichever, and answers how many there were.
    fn claim_any(&mut self, max: usize) -> usize {
        let (worker, lease) = (WorkerName::new("w").unwrap(), None);
        let claim = Claim { kinds: vec![kind("mail")], max, lease, worker, nonce: 7 };
        let count = async |store: &dyn Store| store.claim(claim.clone()).await.unwrap().jobs.len();
        self.ask("claim", count).unwrap()
    }

    fn settle(&mut self) -> Result<(), String> {
        let late = self.receipts.len().saturating_sub(6);
        if self.receipts.is_empty() || self.has_ties() {
            return Ok(());
        }
        let mut settlements = Vec::new();
        for _ in 0..=self.random.below(3) {
            let receipt = self.random.pick(&self.receipts[late..]).clone();
            let error = "e".repeat(self.random.below(3));
            let action = match self.random.below(8) {
                0 => Settlement::Ack,
                1 => Settlement::Bury { error },
                2 => Settlement::RequeueAfter(self.length()),
                3 => Settlement::Retry { delay: Some(self.length()), error },
                4 | 5 => Settlement::Retry { delay: None, error },
                6 => Settlement::Release,
                _ => Settlement::Extend(self.random.chance(50).then(|| Duration::from_secs(1))),
            };
            settlements.push(Settle { receipt, action });
        }
        self.ask(&settlements, async |store| store.settle(settlements.clone()).await).map(drop)
    }

    fn change(&mut self) -> Result<(), String> {
        let action =
            *self.random.pick(&[ChangeKind::Cancel, ChangeKind::RunNow, ChangeKind::Revive]);
        let changes = vec![Change { kind: self.kind(), id: self.id(), action }];
        self.ask(&changes, async |store| store.change(changes.clone()).await).map(drop)
    }

    fn set(&mut self) -> Result<(), String> {
        let kind = self.kind();
        let mut settings = Settings::default();
        if self.random.chance(80) {
            settings.lease = self.length() + Duration::from_millis(10);
            let (base, max) = (self.length() / 100, self.length());
            let jitter_percent = *self.random.pick(&[0, 20, 100, 255]);
            settings.backoff = Backoff { base, max, jitter_percent };
            settings.max_attempts = self.random.below(4) as u32;
            settings.concurrency = *self.random.pick(&[None, None, Some(0), Some(1), Some(2)]);
            settings.paused = self.random.chance(10);
            let ages = [Duration::ZERO, self.length(), Duration::MAX];
            let age = *self.random.pick(&ages);
            let count = *self.random.pick(&[0, 2, usize::MAX]);
            settings.retention = Retention { age, count };
        }
        let what = (kind.clone(), settings.clone());
        self.ask(what, async |store| store.set(kind.clone(), settings.clone()).await)?.unwrap();
        Ok(())
    }

    /// Lets jobs that are here be cancelled, and arrive again; with the highest numbers.
    fn restore(&mut self) -> Result<(), String> {
        let kind = self.kind();
        let mut jobs = self.jobs(&kind);
        for job in &mut jobs {
            if self.random.chance(50) {
                (job.attempts, job.deaths) = (u32::MAX, u32::MAX);
            }
            if self.random.chance(20) {
                job.id = self.id();
            }
        }
        let changes: Vec<_> = jobs
            .iter()
            .filter(|job| job.state != JobState::Leased)
            .map(|job| Change {
                kind: kind.clone(),
                id: job.id.clone(),
                action: ChangeKind::Cancel,
            })
            .collect();
        self.ask(&changes, async |store| store.change(changes.clone()).await)?.unwrap();
        let (generation, fence) = (Generation(self.random.below(100) as u64), Fence(7));
        let restore = Restore { kind, generation, fence, jobs };
        self.ask(&restore, async |store| store.restore(restore.clone()).await)?.unwrap();
        Ok(())
    }
}
