//! Sample data: fills a store with jobs in every state, and reads all contents of a store.

use requeue::ManualClock;
use requeue_jobs::{
    Backoff, Body, Change, ChangeKind, Claim, Content, Due, Envelope, Fence, Generation, JobId,
    JobView, Kind, KindView, Missed, Mode, Priority, PushSetting, Put, Query, Rate, Receipt,
    Reschedule, Restore, Retention, Schedule, Settings, Settle, Settlement, Store, Tick, Timestamp,
    Version, WallClock, WorkerName,
};
use requeue_testkit::block_on;
use std::time::Duration;

/// The time at which the samples begin, in milliseconds.
pub(crate) const BEGAN_AT: u64 = 1_700_000_000_000;

const HOUR: Duration = Duration::from_secs(3600);

/// A manual clock, and a wall clock that begins at [`BEGAN_AT`].
pub(crate) fn beginning() -> (ManualClock, WallClock) {
    let clock = ManualClock::new();
    let wall_clock = WallClock::manual(&clock, Timestamp::from_millis(BEGAN_AT));
    (clock, wall_clock)
}

/// All contents of a store.
#[derive(Debug, PartialEq)]
pub(crate) struct StoreContents {
    pub(crate) kinds: Vec<(KindView, Settings, Vec<Schedule>)>,
    pub(crate) jobs: Vec<JobView>,
}

/// Reads all contents of a store.
pub(crate) fn read_contents(store: &dyn Store) -> StoreContents {
    let (mut kinds, mut jobs) = (Vec::new(), Vec::new());
    for view in block_on(store.kinds()).unwrap() {
        let settings = block_on(store.settings(view.kind.clone())).unwrap();
        let schedules = block_on(store.schedules(view.kind.clone())).unwrap();
        let mut query = Query { limit: 1000, ..Query::new(view.kind.clone()) };
        loop {
            let page = block_on(store.list(query.clone())).unwrap();
            jobs.extend(page.jobs);
            query.after = page.cursor;
            if query.after.is_none() {
                break;
            }
        }
        kinds.push((view, settings, schedules));
    }
    StoreContents { kinds, jobs }
}

/// Writes sample data to a store.
pub(crate) struct SampleWriter<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) clock: &'a ManualClock,
    /// The receipts of leases that are still held.
    pub(crate) receipts: Vec<Receipt>,
    nonce: u64,
}

pub(crate) fn kind(name: &str) -> Kind {
    Kind::new(name).unwrap()
}

fn id(id: &str) -> JobId {
    JobId::new(id).unwrap()
}

fn text(text: &str) -> Body {
    Body::new(text.as_bytes(), "text/plain").unwrap()
}

fn with_head(body: Body) -> Content {
    let envelope = Envelope::new(*b"properties", "application/x-sample").unwrap();
    Content { body, head: envelope.into() }
}

impl<'a> SampleWriter<'a> {
    pub(crate) fn new(store: &'a dyn Store, clock: &'a ManualClock) -> Self {
        SampleWriter { store, clock, receipts: Vec::new(), nonce: 1 << 60 }
    }

    pub(crate) fn put(&self, of: &str, job: &str, body: Body, due: Due, mode: Mode) {
        let put = Put { due, mode, ..Put::new(kind(of), id(job), body) };
        block_on(self.store.put(vec![put])).unwrap().remove(0).unwrap();
    }

    /// Puts a job with a priority.
    fn put_urgent(&self, of: &str, job: &str, priority: u8, due: Due) {
        let body = text(&format!("body of {job}"));
        let priority = Priority::new(priority).unwrap();
        let put = Put { due, priority, ..Put::new(kind(of), id(job), with_head(body)) };
        block_on(self.store.put(vec![put])).unwrap().remove(0).unwrap();
    }

    /// Puts a job that is due in an hour.
    pub(crate) fn later(&self, of: &str, job: &str, body: &str) {
        self.put(of, job, text(body), Due::After(HOUR), Mode::Replace);
    }

    fn claim(&mut self, of: &str, job: &str) -> Receipt {
        self.nonce += 1;
        let (kinds, worker) = (vec![kind(of)], WorkerName::new("worker-1").unwrap());
        let lease = Some(Duration::from_secs(60));
        let claim = Claim { kinds, max: 1, lease, worker, nonce: self.nonce };
        let claimed = block_on(self.store.claim(claim)).unwrap().jobs.remove(0);
        assert_eq!(claimed.id().as_str(), job, "nothing else of {of} is due");
        claimed.receipt
    }

    /// Claims and acks the first job of a kind.
    pub(crate) fn ack_first(&mut self, of: &str) {
        self.nonce += 1;
        let (kinds, worker) = (vec![kind(of)], WorkerName::new("worker-2").unwrap());
        let claim = Claim { kinds, max: 1, lease: None, worker, nonce: self.nonce };
        let receipt = block_on(self.store.claim(claim)).unwrap().jobs.remove(0).receipt;
        self.settle(receipt, Settlement::Ack);
    }

    fn lease(&mut self, of: &str, job: &str) -> Receipt {
        self.put(of, job, text(&format!("body of {job}")), Due::Now, Mode::Replace);
        self.claim(of, job)
    }

    fn settle(&self, receipt: Receipt, action: Settlement) {
        block_on(self.store.settle(vec![Settle { receipt, action }])).unwrap().remove(0).unwrap();
    }

    fn change(&self, of: &str, job: &str, action: ChangeKind) {
        let change = Change { kind: kind(of), id: id(job), action };
        block_on(self.store.change(vec![change])).unwrap().remove(0).unwrap();
    }

    fn fail(&mut self, of: &str, job: &str, times: usize) {
        let mut receipt = self.lease(of, job);
        for attempt in 1..=times {
            self.clock.advance(Duration::from_millis(7));
            let delay = if attempt < times { Duration::ZERO } else { HOUR };
            let error = format!("failure {attempt}");
            self.settle(receipt.clone(), Settlement::Retry { delay: Some(delay), error });
            if attempt < times {
                receipt = self.claim(of, job);
            }
        }
    }

    /// Puts jobs in each state into a kind, with ids that begin with `with`. No other job of the
    /// kind may be due.
    pub(crate) fn every_state(&mut self, of: &str, with: &str) {
        let name = |name: &str| format!("{with}-{name}");
        self.later(of, &name("waiting"), "plain text");
        let json = Body::new(*br#"{"a":1}"#, "application/json").unwrap();
        self.put(of, &name("json"), json, Due::After(HOUR), Mode::Replace);
        let odd = Body::new([0, 255, 7], "image/x-odd; a=b").unwrap();
        self.put(of, &name("odd-é-日本"), odd, Due::After(2 * HOUR), Mode::Earliest);
        let empty = Body::octets([]).unwrap();
        self.put(of, &name("empty"), empty, Due::After(HOUR), Mode::Replace);
        self.clock.advance(Duration::from_millis(3));
        self.later(of, &name("waiting"), "put again");
        let debounce = Mode::Debounce { max_wait: 3 * HOUR };
        self.put(of, &name("debounced"), text("a"), Due::After(HOUR), debounce);
        self.clock.advance(Duration::from_secs(1));
        self.put(of, &name("debounced"), text("b"), Due::After(HOUR), debounce);

        for (job, successor, cancelled) in [
            ("leased", false, false),
            ("leased-next", true, false),
            ("leased-cancelled", false, true),
            ("leased-cancelled-next", true, true),
        ] {
            let receipt = self.lease(of, &name(job));
            self.receipts.push(receipt);
            self.clock.advance(Duration::from_millis(1));
            if cancelled {
                self.change(of, &name(job), ChangeKind::Cancel);
            }
            if successor {
                self.later(of, &name(job), "successor");
            }
        }
        let receipt = self.lease(of, &name("leased-moved"));
        self.receipts.push(receipt);
        let moved = Reschedule { due: Some(Due::After(HOUR)), ..Reschedule::default() };
        self.change(of, &name("leased-moved"), ChangeKind::Reschedule(moved));
        let receipt = self.lease(of, &name("extended"));
        self.later(of, &name("extended"), "successor");
        self.settle(receipt.clone(), Settlement::Extend(Some(HOUR)));
        self.receipts.push(receipt);

        self.fail(of, &name("failed-once"), 1);
        self.fail(of, &name("failed-often"), 7);
        let receipt = self.lease(of, &name("acked-next"));
        self.later(of, &name("acked-next"), "successor");
        self.settle(receipt, Settlement::Ack);
        let receipt = self.lease(of, &name("again-later"));
        self.settle(receipt, Settlement::RequeueAfter(HOUR));

        for job in ["dead", "dead-twice", "revived", "dead-and-gone"] {
            let receipt = self.lease(of, &name(job));
            self.settle(receipt, Settlement::Bury { error: "no use".into() });
            self.clock.advance(Duration::from_millis(2));
        }
        self.change(of, &name("dead-twice"), ChangeKind::Revive);
        let receipt = self.claim(of, &name("dead-twice"));
        self.settle(receipt, Settlement::Bury { error: String::new() });
        self.later(of, &name("revived"), "put on a dead one");
        self.change(of, &name("dead-and-gone"), ChangeKind::Cancel);
        let receipt = self.lease(of, &name("acked"));
        self.settle(receipt, Settlement::Ack);
        self.later(of, &name("cancelled"), "");
        self.change(of, &name("cancelled"), ChangeKind::Cancel);
    }

    /// Puts jobs that are due.
    pub(crate) fn ready(&self, of: &str, with: &str) {
        for number in 0..3 {
            let body = text(&format!("ready {number}"));
            self.put(of, &format!("{with}-ready-{number}"), body, Due::Now, Mode::Replace);
            self.clock.advance(Duration::from_millis(1));
        }
    }

    /// Sets settings, and schedules: one that stays, one that ticked, one that is removed.
    pub(crate) fn settings_and_schedules(&self, of: &str, with: &str) {
        let mut settings = Settings::default();
        settings.lease = Duration::from_millis(45_500);
        settings.backoff = Backoff {
            base: Duration::from_millis(250),
            max: Duration::from_secs(90),
            jitter_percent: 35,
        };
        (settings.max_attempts, settings.concurrency) = (9, Some(100));
        settings.paused = of == "order.remind";
        settings.retention = Retention { age: 48 * HOUR, count: 1234 };
        let (config, secrets) =
            (r#"{"url":"https://example.com"}"#.into(), String::from("s").into());
        settings.push = (of == "order.remind").then_some(PushSetting { config, secrets });
        block_on(self.store.set(kind(of), settings)).unwrap();
        let next = Timestamp::from_millis(BEGAN_AT + 86_400_000);
        let schedule = |name: &str, missed| Schedule {
            id: id(&format!("{with}-{name}")),
            when: "0 6 * * *".into(),
            time_zone: "Europe/Berlin".into(),
            content: with_head(text("good morning")),
            missed,
            next,
        };
        for (name, missed) in [
            ("daily", Missed::One),
            ("ticked", Missed::Skip),
            ("all", Missed::All),
            ("gone", Missed::One),
        ] {
            let schedule = schedule(name, missed);
            block_on(self.store.set_schedule(kind(of), schedule, Default::default())).unwrap();
        }
        let moved = next.saturating_add(24 * HOUR);
        let tick = Tick {
            kind: kind(of),
            id: id(&format!("{with}-ticked")),
            expected: next,
            next: moved,
            put: None,
        };
        block_on(self.store.tick(tick)).unwrap();
        let gone = id(&format!("{with}-gone"));
        assert!(block_on(self.store.remove_schedule(kind(of), gone)).unwrap());
    }

    /// Restores a job of another store.
    fn restored(&self, of: &str, with: &str) {
        let (due, of) = (Timestamp::from_millis(BEGAN_AT + 99_000_000), kind(of));
        let (id, generation) = (id(&format!("{with}-restored")), Generation(7_000_000));
        let job = JobView::new(
            of.clone(),
            id,
            Version::new(text("from elsewhere"), due, Generation(6_000_000)),
        );
        let restore = Restore { kind: of, generation, fence: Fence(8_000_000), jobs: vec![job] };
        block_on(self.store.restore(restore)).unwrap().remove(0).unwrap();
    }

    fn lease_urgent(&mut self, of: &str, job: &str, priority: u8) -> Receipt {
        self.put_urgent(of, job, priority, Due::Now);
        self.claim(of, job)
    }

    /// Puts jobs with priorities into a kind that has a rate limit and keeps done jobs. No other job
    /// of the kind may be due.
    pub(crate) fn urgent_and_done(&mut self, of: &str, with: &str) {
        let name = |name: &str| format!("{with}-{name}");
        let mut settings = Settings::default();
        settings.rate = Some(Rate { jobs: 100, per: Duration::from_secs(60), burst: Some(90) });
        settings.ageing = Some(Duration::from_millis(90_500));
        settings.keep_done = Some(Retention { age: 1000 * 24 * HOUR, count: 4321 });
        block_on(self.store.set(kind(of), settings)).unwrap();
        for priority in 1..=9 {
            let waiting = name(&format!("waiting-{priority}"));
            self.put_urgent(of, &waiting, priority, Due::After(HOUR));
            let leased = name(&format!("leased-{priority}"));
            let receipt = self.lease_urgent(of, &leased, priority);
            self.receipts.push(receipt);
            self.clock.advance(Duration::from_millis(1));
        }
        let receipt = self.lease_urgent(of, &name("successor"), 2);
        self.put_urgent(of, &name("successor"), 6, Due::After(HOUR));
        self.settle(receipt.clone(), Settlement::Extend(Some(HOUR)));
        self.receipts.push(receipt);
        let receipt = self.lease_urgent(of, &name("dead"), 7);
        self.settle(receipt, Settlement::Bury { error: "no use".into() });
        let receipt = self.lease_urgent(of, &name("failed"), 5);
        self.settle(receipt, Settlement::Retry { delay: Some(HOUR), error: "later".into() });
        for (job, priority, result) in [
            ("done", 0, None),
            ("done-urgent", 4, None),
            ("done-empty", 0, Some(Body::octets([]).unwrap())),
            ("done-result", 0, Some(Body::new(*br#"{"sent":1}"#, "application/json").unwrap())),
            ("done-and-put", 0, Some(text("result"))),
            ("done-and-gone", 0, None),
        ] {
            let receipt = self.lease_urgent(of, &name(job), priority);
            self.clock.advance(Duration::from_millis(5));
            self.settle(receipt, result.map_or(Settlement::Ack, Settlement::AckWith));
        }
        self.put_urgent(of, &name("done-and-put"), 3, Due::After(HOUR));
        self.change(of, &name("done-and-gone"), ChangeKind::Cancel);
    }

    /// Uses up the rate limit of a kind, or finds it used up.
    pub(crate) fn throttled(&mut self, of: &str, with: &str) {
        let throttled = block_on(self.store.kind(kind(of))).unwrap().throttled_until.is_some();
        if !throttled {
            let mut settings = Settings::default();
            settings.rate = Some(Rate { jobs: 1, per: 10 * HOUR, burst: Some(2) });
            settings.ageing = None;
            block_on(self.store.set(kind(of), settings)).unwrap();
            for number in 0..2 {
                let receipt = self.lease(of, &format!("{with}-{number}"));
                self.receipts.push(receipt);
            }
        }
        for priority in [0, 9] {
            self.put_urgent(of, &format!("{with}-{priority}-throttled"), priority, Due::Now);
        }
        let worker = WorkerName::new("worker-3").unwrap();
        let claim = Claim { kinds: vec![kind(of)], max: 1, lease: None, worker, nonce: 1 };
        assert_eq!(block_on(self.store.claim(claim)).unwrap().jobs, []);
    }

    /// Writes all samples, into a few kinds, with ids that begin with `with`.
    pub(crate) fn put_samples(&mut self, with: &str) {
        self.every_state("order.close", with);
        self.settings_and_schedules("order.close", with);
        self.settings_and_schedules("order.remind", with);
        self.ready("mail", with);
        self.restored("restored", with);
        self.urgent_and_done("billing", with);
        self.throttled("sms", with);
    }
}
