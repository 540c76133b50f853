//! A deployment with jobs in every state, whose keys are read without the store.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use super::key_reader::{self, Keys};
use requeue::ManualClock;
use requeue_jobs::{
    Backoff, Body, Change, ChangeKind, Claim, Content, Counts, Due, Envelope, Fence, Generation,
    JobId, JobState, JobView, Kind, Missed, Mode, Priority, Put, Query, Rate, Receipt, Restore,
    Retention, Schedule, Settings, Settle, Settled, Settlement, Store, Tick, Ticked, Timestamp,
    Version, WallClock, WorkerName,
};
use requeue_redis::{Options, RedisStore};
use requeue_testkit::servers::RedisServer;
use requeue_testkit::{Fixture, block_on};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

const BEGAN_AT: u64 = 1_700_000_000_000;
pub(crate) const HOUR: Duration = Duration::from_secs(3600);

static SERVER: LazyLock<RedisServer> = LazyLock::new(RedisServer::start);

/// A deployment, with a connection that reads its keys without the store.
pub(crate) struct Deployment {
    pub(crate) prefix: String,
    pub(crate) store: RedisStore,
    pub(crate) wall_clock: WallClock,
    pub(crate) clock: ManualClock,
    pub(crate) reader: Mutex<redis::Connection>,
}

impl Deployment {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let prefix = format!("keys-{}-", NEXT.fetch_add(1, Ordering::Relaxed));
        let (mut options, url) = (Options::default(), SERVER.url());
        options.prefix = prefix.clone();
        let clock = ManualClock::new();
        let wall_clock = WallClock::manual(&clock, Timestamp::from_millis(BEGAN_AT));
        let store = RedisStore::connect_at(&url, options, Some(wall_clock.clone()));
        let store = block_on(store).expect("the server is up");
        let client = redis::Client::open(url).expect("a valid address");
        let reader = Mutex::new(client.get_connection().expect("the server is up"));
        Deployment { prefix, store, wall_clock, clock, reader }
    }

    /// Reads the keys of all kinds, and checks their invariants.
    pub(crate) fn read(&self) -> BTreeMap<String, Keys> {
        let mut reader = self.reader.lock().expect("no test panicked while it read");
        key_reader::read(&mut reader, &self.prefix)
    }
}

impl Fixture for Deployment {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    fn now(&self) -> Timestamp {
        self.wall_clock.now()
    }

    fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    /// Checks the invariants of the keys, and that the store counts and lists the jobs that they contain.
    fn check(&self) {
        let listed = block_on(self.store.kinds()).expect("the server is up");
        let mut listed: BTreeMap<_, _> =
            listed.into_iter().map(|view| (view.kind.as_str().to_owned(), view)).collect();
        for (name, keys) in self.read() {
            let kind = Kind::new(name.as_str()).expect("a valid kind");
            let query = Query { limit: 1000, ..Query::new(kind) };
            let page = block_on(self.store.list(query)).expect("the server is up");
            assert!(page.jobs.iter().map(|job| job.id.as_str()).eq(keys.job.keys()));
            // The store does not list empty kinds.
            let Some(view) = listed.remove(&name) else {
                assert!(keys.job.is_empty() && keys.schedules.is_empty());
                continue;
            };
            let Counts { pending, leased, dead, done, .. } = view.counts;
            let counts = keys.lists.each_ref().map(|list| list.len() as u64);
            assert_eq!([pending, leased, dead, done], counts);
            let counters = (view.generation.0, view.fence.0);
            assert_eq!(counters, (keys.counter("generation"), keys.counter("fence")));
        }
        assert!(listed.is_empty(), "the keys contain nothing of {listed:?}");
    }

    fn orders_ties(&self) -> bool {
        false
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(10)
    }
}

pub(crate) fn kind() -> Kind {
    Kind::new("order.close").expect("a valid kind")
}

pub(crate) fn id(id: &str) -> JobId {
    JobId::new(id).expect("a valid id")
}

pub(crate) fn text(text: &str) -> Body {
    Body::new(text.as_bytes(), "text/plain").expect("a valid body")
}

/// A content whose head has an envelope.
pub(crate) fn enveloped(body: Body) -> Content {
    let envelope = Envelope::new([0, 255, 9], "application/x-sample").expect("it is short");
    Content { body, head: envelope.into() }
}

/// Creates jobs of one kind.
impl Deployment {
    pub(crate) fn put(&self, job: &str, content: impl Into<Content>, due: Due, mode: Mode) {
        let put = Put { due, mode, ..Put::new(kind(), id(job), content) };
        block_on(self.store.put(vec![put])).unwrap().remove(0).unwrap();
    }

    pub(crate) fn later(&self, job: &str) {
        self.put(job, text("later"), Due::After(HOUR), Mode::Replace);
    }

    /// Puts a job and claims it. No other job may be due.
    pub(crate) fn lease(&self, job: &str) -> Receipt {
        self.put(job, text(&format!("body of {job}")), Due::Now, Mode::Replace);
        self.claim(job)
    }

    pub(crate) fn claim(&self, job: &str) -> Receipt {
        let worker = WorkerName::new("host-1/worker é").unwrap();
        let (kinds, lease, nonce) = (vec![kind()], Some(10 * HOUR), 0x0123_4567_89AB_CDEF);
        let claim = Claim { kinds, max: 1, lease, worker, nonce };
        let claimed = block_on(self.store.claim(claim)).unwrap().jobs.remove(0);
        assert_eq!(claimed.id().as_str(), job, "nothing else is due");
        claimed.receipt
    }

    pub(crate) fn settle(&self, receipt: Receipt, action: Settlement) -> Settled {
        block_on(self.store.settle(vec![Settle { receipt, action }])).unwrap().remove(0).unwrap()
    }

    pub(crate) fn change(&self, job: &str, action: ChangeKind) {
        let change = Change { kind: kind(), id: id(job), action };
        block_on(self.store.change(vec![change])).unwrap().remove(0).unwrap();
    }

    pub(crate) fn tick(&self, schedule: &str, expected: Timestamp, next: Timestamp) -> Ticked {
        let tick = Tick { kind: kind(), id: id(schedule), expected, next, put: None };
        block_on(self.store.tick(tick)).unwrap()
    }

    pub(crate) fn waiting_and_ready(&self) {
        for (job, content_type) in [
            ("octets", "application/octet-stream"),
            ("json", "application/json"),
            ("odd-é-日本", "image/x-odd; a=b"),
            ("untyped", ""),
        ] {
            let body = Body::new([0, 255, 7], content_type).unwrap();
            self.put(job, body, Due::After(HOUR), Mode::Replace);
        }
        self.put("empty", Body::default(), Due::After(HOUR), Mode::Earliest);
        let debounce = Mode::Debounce { max_wait: 3 * HOUR };
        self.put("debounced", text("a"), Due::After(HOUR), debounce);
        self.clock.advance(Duration::from_millis(3));
        self.put("debounced", text("b"), Due::After(HOUR), debounce);
        self.later("cancelled");
        self.change("cancelled", ChangeKind::Cancel);
    }

    /// Returns the receipts of the jobs that stay leased.
    pub(crate) fn leased(&self) -> BTreeMap<&'static str, Receipt> {
        let mut receipts = BTreeMap::new();
        for (job, has_next, is_cancelled) in [
            ("leased", false, false),
            ("leased-next", true, false),
            ("leased-cancelled", false, true),
            ("leased-cancelled-next", true, true),
        ] {
            receipts.insert(job, self.lease(job));
            self.clock.advance(Duration::from_millis(1));
            if is_cancelled {
                self.change(job, ChangeKind::Cancel);
            }
            if has_next {
                self.later(job);
                self.clock.advance(Duration::from_millis(1));
                self.later(job);
            }
        }
        let receipt = self.lease("extended");
        self.settle(receipt.clone(), Settlement::Extend(Some(20 * HOUR)));
        receipts.insert("extended", receipt);
        receipts
    }

    /// Returns the due time of the job `failed-often`.
    pub(crate) fn failed_and_dead(&self) -> Timestamp {
        let receipt = self.lease("acked-next");
        self.later("acked-next");
        self.settle(receipt, Settlement::Ack);
        let receipt = self.lease("requeued");
        self.settle(receipt, Settlement::RequeueAfter(HOUR));
        let receipt = self.lease("released");
        self.settle(receipt, Settlement::Release);
        self.claim("released");
        for job in ["dead", "dead-twice", "revived", "put-again"] {
            let receipt = self.lease(job);
            self.clock.advance(Duration::from_millis(2));
            self.settle(receipt, Settlement::Bury { error: "no use".into() });
        }
        self.change("dead-twice", ChangeKind::Revive);
        let receipt = self.claim("dead-twice");
        self.settle(receipt, Settlement::Bury { error: String::new() });
        self.later("put-again");
        self.change("revived", ChangeKind::Revive);
        self.claim("revived");
        let mut receipt = self.lease("failed-often");
        for attempt in 1..7 {
            self.clock.advance(Duration::from_millis(7));
            let error = format!("é, for time {attempt}");
            self.settle(receipt, Settlement::Retry { delay: Some(Duration::ZERO), error });
            receipt = self.claim("failed-often");
        }
        match self
            .settle(receipt, Settlement::Retry { delay: Some(2 * HOUR), error: "x".repeat(3000) })
        {
            Settled::RetryAt(at) => at,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn expired(&self) {
        self.put("expired", text("lapses"), Due::Now, Mode::Replace);
        let worker = WorkerName::new("w").unwrap();
        let (lease, nonce) = (Some(Duration::from_millis(10)), u64::MAX);
        let claim = Claim { kinds: vec![kind()], max: 1, lease, worker, nonce };
        assert_eq!(block_on(self.store.claim(claim)).unwrap().jobs.len(), 1);
        self.clock.advance(Duration::from_millis(10));
        assert_eq!(block_on(self.store.reap(10)).unwrap().count, 1);
    }

    pub(crate) fn restored(&self) {
        let due = Timestamp::from_millis(BEGAN_AT + 99_000_000);
        let generation = Generation(6_000_000);
        let job = JobView::new(
            kind(),
            id("restored"),
            Version::new(text("from elsewhere"), due, generation),
        );
        let mut dead =
            JobView::new(kind(), id("dead-elsewhere"), Version::new(text(""), due, Generation(7)));
        (dead.state, dead.died_at, dead.deaths) = (JobState::Dead, Some(self.wall_clock.now()), 3);
        let (generation, fence) = (Generation(7_000_000), Fence(8_000_000));
        let restore = Restore { kind: kind(), generation, fence, jobs: vec![job, dead] };
        for result in block_on(self.store.restore(restore)).unwrap() {
            result.unwrap();
        }
    }

    /// Creates jobs with priorities, done jobs and a rate limit.
    pub(crate) fn priorities_and_done(&self) {
        let mut settings = Settings::default();
        settings.rate =
            Some(Rate { jobs: 100, per: Duration::from_micros(60_500_250), burst: Some(50) });
        settings.ageing = Some(2 * HOUR);
        settings.keep_done = Some(Retention { age: 48 * HOUR, count: 10 });
        block_on(self.store.set(kind(), settings)).unwrap();
        let put = |job: &str, level: u8, due: Due| {
            let mut put = Put::new(kind(), id(job), text(&format!("body of {job}")));
            (put.due, put.priority) = (due, Priority::new(level).unwrap());
            block_on(self.store.put(vec![put])).unwrap().remove(0).unwrap();
        };
        put("urgent-later", 9, Due::After(HOUR));
        put("urgent", 5, Due::Now);
        self.claim("urgent");
        put("urgent", 7, Due::After(HOUR));
        put("urgent-dead", 3, Due::Now);
        let receipt = self.claim("urgent-dead");
        self.settle(receipt, Settlement::Bury { error: "no use".into() });
        for (job, result) in [
            ("done", None),
            ("done-empty", Some(Body::default())),
            ("done-text", Some(text("paid"))),
            ("done-odd", Some(Body::new([0, 255], "image/x-odd").unwrap())),
        ] {
            put(job, 2, Due::Now);
            let receipt = self.claim(job);
            self.clock.advance(Duration::from_millis(5));
            self.settle(receipt, result.map_or(Settlement::Ack, Settlement::AckWith));
        }
    }

    /// Creates a pending job with a head, a leased one with a head that it does not share with its successor, and a
    /// schedule with a head. No other job may be due.
    pub(crate) fn heads(&self) {
        let odd = Body::new([0, 255, 7], "image/x-odd").unwrap();
        self.put("head", enveloped(odd), Due::After(HOUR), Mode::Replace);
        for job in ["head-leased", "head-next"] {
            self.put(job, enveloped(text("body")), Due::Now, Mode::Replace);
            self.claim(job);
        }
        self.put("head-next", enveloped(Body::default()), Due::After(HOUR), Mode::Replace);
        let (when, time_zone) = ("every 1h".into(), String::new());
        let (content, next) = (enveloped(text("tick")), Timestamp::from_millis(BEGAN_AT));
        let missed = Missed::All;
        let schedule = Schedule { id: id("head"), when, time_zone, content, missed, next };
        block_on(self.store.set_schedule(kind(), schedule, Default::default())).unwrap();
    }

    pub(crate) fn settings_and_schedules(&self) {
        let mut settings = Settings::default();
        settings.lease = Duration::from_micros(45_500_250);
        let (base, max) = (Duration::from_millis(250), Duration::from_secs(90));
        settings.backoff = Backoff { base, max, jitter_percent: 35 };
        (settings.max_attempts, settings.concurrency) = (9, Some(100));
        settings.retention = Retention { age: 48 * HOUR, count: 1234 };
        settings.paused = true;
        block_on(self.store.set(kind(), settings)).unwrap();
        for (name, missed) in [("daily", Missed::One), ("moved", Missed::Skip)] {
            let (when, time_zone) = ("0 6 * * *".into(), "Europe/Berlin".into());
            let (body, next) = (text("good morning"), Timestamp::from_millis(BEGAN_AT + 86_400));
            let schedule =
                Schedule { id: id(name), when, time_zone, content: body.into(), missed, next };
            block_on(self.store.set_schedule(kind(), schedule, Default::default())).unwrap();
        }
        let next = Timestamp::from_millis(BEGAN_AT + 86_400);
        assert_eq!(self.tick("moved", next, next.saturating_add(HOUR)), Ticked::Skipped);
    }
}
