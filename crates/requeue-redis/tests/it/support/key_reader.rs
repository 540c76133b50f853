//! Reads the keys of a deployment as `docs/redis-keys.md` documents them, without the code of the
//! crate.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use redis::{Commands, Connection};
use requeue_jobs::{
    Body, DoneView, FailedAttempt, Fence, Generation, JobId, JobState, JobView, Kind, LeaseView,
    Missed, Priority, Rate, Retention, Schedule, Settings, SuccessorView, Timestamp, WorkerName,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// All that the keys of a kind contain.
#[derive(Debug)]
pub(crate) struct KindContents {
    pub(crate) jobs: BTreeMap<String, Job>,
    pub(crate) generation: u64,
    pub(crate) fence: u64,
    pub(crate) settings: Settings,
    pub(crate) schedules: Vec<Schedule>,
}

/// A job, with the fields that views do not contain.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) view: JobView,
    pub(crate) fence_and_nonce: Option<(u64, u64)>,
    pub(crate) next_first: Option<u64>,
    pub(crate) past: Option<Past>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Past {
    attempts: u32,
    deaths: u32,
    pub(crate) floor: u64,
    pub(crate) first: u64,
    due: u64,
    updated: u64,
    failures: Vec<FailedAttempt>,
    /// Of a done job: when it was claimed, and by which worker.
    done: Option<(u64, WorkerName)>,
}

/// Each level of priority adds this to the score of a pending or leased job.
const LEVEL: u64 = 400_000_000_000_000;

type Hash = BTreeMap<String, Vec<u8>>;

/// The undecoded keys of a kind.
struct Keys {
    /// Pending, leased, dead and done jobs: id, and time and priority of the score.
    lists: [BTreeMap<String, (u64, u8)>; 4],
    job: Hash,
    lease: Hash,
    next: Hash,
    past: Hash,
    meta: BTreeMap<String, String>,
    schedules: Hash,
}

/// Reads a deployment as of `now`, and checks the documented invariants.
pub(crate) fn read(con: &mut Connection, prefix: &str, now: u64) -> BTreeMap<String, KindContents> {
    let names: BTreeSet<String> = con.smembers(format!("{{{prefix}}}:kinds")).unwrap();
    let format: String = con.get(format!("{{{prefix}}}:format")).unwrap();
    assert_eq!(format, "1");
    let kinds = kinds_with_keys(con, prefix);
    assert!(kinds.is_subset(&names), "6: {kinds:?} are all in {names:?}");
    let contents = |name: String| {
        let keys = Keys::read(con, &format!("{{{prefix}:{name}}}"));
        keys.check();
        let contents = keys.contents(&name, now);
        (name, contents)
    };
    kinds.into_iter().map(contents).collect()
}

/// Returns all kinds that have a key. Checks that there are only documented keys.
fn kinds_with_keys(con: &mut Connection, prefix: &str) -> BTreeSet<String> {
    let (of_deployment, of_kind) = (format!("{{{prefix}}}:"), format!("{{{prefix}:"));
    let keys: Vec<String> = con
        .scan_match(format!("{{{prefix}*"))
        .and_then(|keys| keys.collect())
        .expect("the server is up");
    let mut pipe = redis::pipe();
    for key in &keys {
        pipe.cmd("TYPE").arg(key).ttl(key);
    }
    let replies: Vec<redis::Value> = pipe.query(con).expect("the server is up");
    let mut kinds = BTreeSet::new();
    for (key, replies) in keys.iter().zip(replies.chunks(2)) {
        let kind: String = redis::from_redis_value(replies[0].clone()).expect("a type is a text");
        assert_eq!(replies[1], redis::Value::Int(-1), "{key} never expires");
        if let Some(name) = key.strip_prefix(&of_deployment) {
            let known = [
                ("format", "string"),
                ("kinds", "set"),
                ("registered", "hash"),
                ("removed", "hash"),
            ];
            assert!(known.contains(&(name, &kind)), "{key}");
        } else if let Some(rest) = key.strip_prefix(&of_kind) {
            let (of, name) = rest.split_once("}:").expect("the tag ends");
            kinds.insert(of.to_owned());
            let expected = match name {
                "due" | "leased" | "dead" | "done" => "zset",
                "job" | "lease" | "next" | "past" | "meta" | "schedules" => "hash",
                other => panic!("the key {other:?} is not documented"),
            };
            assert_eq!(kind, expected, "{key}");
        }
    }
    kinds
}

impl Keys {
    fn read(con: &mut Connection, tag: &str) -> Keys {
        let meta: BTreeMap<String, String> = con.hgetall(format!("{tag}:meta")).unwrap();
        let mut lists = [(); 4].map(|()| BTreeMap::new());
        for (name, list) in ["due", "leased", "dead", "done"].iter().zip(&mut lists) {
            let entries: Vec<(String, f64)> =
                con.zrange_withscores(format!("{tag}:{name}"), 0, -1).unwrap();
            for (id, score) in entries {
                let score = whole(score);
                list.insert(id, (score % LEVEL, (score / LEVEL) as u8));
            }
        }
        let mut hash = |name: &str| con.hgetall(format!("{tag}:{name}")).unwrap();
        let (job, lease, next, past) = (hash("job"), hash("lease"), hash("next"), hash("past"));
        let schedules = hash("schedules");
        Keys { lists, job, lease, next, past, meta, schedules }
    }

    /// Checks the documented invariants, by their numbers.
    fn check(&self) {
        let [due, leased, dead, done] = &self.lists;
        let mut listed = BTreeSet::new();
        for id in self.lists.iter().flat_map(BTreeMap::keys) {
            assert!(listed.insert(id), "1: {id} is in one list");
        }
        let levels = self.meta.get("levels").map_or("", String::as_str).as_bytes();
        assert!(levels.is_sorted_by(|a, b| a > b) && !levels.contains(&b'0'), "8: {levels:?}");
        let priorities = due.iter().chain(leased).map(|(id, (_, level))| {
            assert_eq!(self.job[id][19] >> 2, *level, "8: the score of {id} has its priority");
            *level
        });
        let next = self.next.values().map(|next| next[19] >> 2);
        for priority in priorities.chain(next) {
            assert!(priority == 0 || levels.contains(&(b'0' + priority)), "8: {priority}");
        }
        assert!(dead.values().chain(done.values()).all(|(_, level)| *level == 0), "8");
        let has = |hash: &Hash, id: &String| hash.contains_key(id);
        assert!(
            self.job.keys().eq(listed.iter().copied()),
            "1: exactly the listed jobs have records"
        );
        assert!(self.lease.keys().eq(leased.keys()), "2: exactly the leased jobs have leases");
        assert!(
            self.next.keys().all(|id| has(&self.lease, id)),
            "2: only leased jobs have successors"
        );
        assert!(self.past.keys().all(|id| has(&self.job, id)), "3: no past without a job");
        let ended = dead.keys().chain(done.keys());
        assert!(
            ended.into_iter().all(|id| has(&self.past, id)),
            "3: dead and done jobs have a past"
        );
        let (generation, fence) = (self.counter("generation"), self.counter("fence"));
        assert!(self.meta.contains_key("generation"), "6: the kind has a generation");
        for (id, record) in &self.job {
            let of_record = ByteReader(record).number(7);
            assert!(of_record <= generation, "4: the generation of {id}");
            if let Some(next) = self.next.get(id) {
                let of_next = ByteReader(&next[6..]).number(7);
                assert!(of_record < of_next && of_next <= generation, "4: the successor of {id}");
            }
        }
        let fences: BTreeSet<u64> =
            self.lease.values().map(|lease| ByteReader(lease).number(7)).collect();
        assert_eq!(fences.len(), self.lease.len(), "5: fences are unique");
        assert!(
            fences.last().is_none_or(|last| *last <= fence),
            "5: no fence is above the counter"
        );
    }

    fn counter(&self, field: &str) -> u64 {
        self.meta.get(field).map_or(0, |text| text.parse().expect("7: a whole number"))
    }

    fn contents(&self, name: &str, now: u64) -> KindContents {
        let kind = Kind::new(name).unwrap();
        let job = |id: &String| (id.clone(), self.job(&kind, id, now));
        let mut schedules: Vec<_> =
            self.schedules.iter().map(|(id, bytes)| schedule(id, bytes)).collect();
        schedules.sort_by(|a, b| a.id.cmp(&b.id));
        KindContents {
            jobs: self.job.keys().map(job).collect(),
            generation: self.counter("generation"),
            fence: self.counter("fence"),
            settings: settings(&self.meta),
            schedules,
        }
    }

    fn job(&self, kind: &Kind, id: &String, now: u64) -> Job {
        let mut record = ByteReader(&self.job[id]);
        let generation = Generation(record.number(7));
        let (created_at, updated) = (record.time(), record.number(6));
        let times = |list: &BTreeMap<String, (u64, u8)>| list.get(id).map(|(at, _)| *at);
        let [due, leased, dead, done] = self.lists.each_ref().map(times);
        let flags = record.0[0];
        let (body, priority, result) = match (done, flags & 64) {
            (None, _) => {
                let (body, priority) = record.content();
                (body, priority, None)
            }
            (Some(_), 0) => (Body::default(), Priority::new(flags >> 2).unwrap(), None),
            (Some(_), _) => {
                let mut bytes = record.0.to_vec();
                bytes[0] &= !64;
                let (result, priority) = ByteReader(&bytes).content();
                (Body::default(), priority, Some(result))
            }
        };
        let past = self.past.get(id).map(|bytes| past(bytes, done.is_some()));
        let known = past.clone().unwrap_or_default();
        let state = match (due, leased) {
            (Some(due), _) if due <= now => JobState::Ready,
            (Some(_), _) => JobState::Waiting,
            (None, Some(_)) => JobState::Leased,
            (None, None) if done.is_some() => JobState::Done,
            (None, None) => JobState::Dead,
        };
        let due = due.unwrap_or(known.due);
        let of = JobId::new(id.as_str()).unwrap();
        let mut view = JobView::new(kind.clone(), of, body, at(due), generation);
        (view.state, view.priority, view.created_at) = (state, priority, created_at);
        view.updated_at = at(updated.max(known.updated));
        (view.attempts, view.deaths, view.failures) =
            (known.attempts, known.deaths, known.failures);
        view.died_at = dead.map(at);
        view.done = done.zip(known.done).map(|(done, (started, worker))| DoneView {
            worker,
            started_at: at(started),
            done_at: at(done),
            result,
        });
        let fence_and_nonce = leased.map(|ends| self.read_lease(id, ends, &mut view));
        let next_first = self.next.get(id).map(|next| read_next(next, &mut view));
        Job { view, fence_and_nonce, next_first, past }
    }

    fn read_lease(&self, id: &String, ends: u64, view: &mut JobView) -> (u64, u64) {
        let mut lease = ByteReader(&self.lease[id]);
        let receipt = (lease.number(7), lease.number(8));
        view.due = lease.time();
        let claimed_at = lease.time();
        view.updated_at = lease.time();
        let cancelled = match lease.number(1) {
            0 => false,
            1 => true,
            other => panic!("{other} is neither of the documented values"),
        };
        let worker = WorkerName::new(lease.text(lease.0.len())).unwrap();
        view.lease = Some(LeaseView {
            worker,
            claimed_at,
            ends_at: at(ends),
            cancelled,
            fence: Fence(receipt.0),
        });
        receipt
    }
}

fn read_next(bytes: &[u8], view: &mut JobView) -> u64 {
    let mut next = ByteReader(bytes);
    let (due, generation) = (next.time(), Generation(next.number(7)));
    let first = next.number(6);
    let (body, priority) = next.content();
    view.next = Some(SuccessorView { body, due, priority, generation });
    first
}

fn past(bytes: &[u8], is_done: bool) -> Past {
    let mut input = ByteReader(bytes);
    let (attempts, deaths) = (input.number(4) as u32, input.number(4) as u32);
    let [floor, first, due, updated] = [(); 4].map(|()| input.number(6));
    let failures = (0..input.number(1)).map(|_| failure(&mut input)).collect();
    let done = is_done.then(|| {
        let started = input.number(6);
        (started, WorkerName::new(input.text(input.0.len())).unwrap())
    });
    assert!(input.0.is_empty(), "nothing follows");
    Past { attempts, deaths, floor, first, due, updated, failures, done }
}

fn failure(input: &mut ByteReader<'_>) -> FailedAttempt {
    let (started_at, ended_at) = (input.time(), input.time());
    let length = input.number(1) as usize;
    let worker = WorkerName::new(input.text(length)).unwrap();
    let length = input.number(2) as usize;
    let error = length.checked_sub(1).map(|length| input.text(length).into());
    FailedAttempt { worker, started_at, ended_at, error }
}

fn schedule(id: &str, bytes: &[u8]) -> Schedule {
    let mut input = ByteReader(bytes);
    let (next, begins) = (input.time(), input.number(2) as usize);
    let missed = match input.number(1) {
        0 => Missed::One,
        1 => Missed::Skip,
        other => panic!("{other} is neither of the documented values"),
    };
    let [when, time_zone] = [(); 2].map(|()| {
        let length = input.number(2) as usize;
        input.text(length)
    });
    assert_eq!(begins, bytes.len() - input.0.len() + 1);
    let (body, _) = input.content();
    Schedule { id: JobId::new(id).unwrap(), when, time_zone, body, missed, next }
}

fn settings(meta: &BTreeMap<String, String>) -> Settings {
    let known = [
        "generation",
        "fence",
        "concurrency",
        "paused",
        "levels",
        "rate_jobs",
        "rate_per",
        "rate_burst",
        "rate_parts",
        "rate_at",
        "ageing",
        "keep_done_age",
        "keep_done_count",
    ];
    let others = [
        "lease",
        "backoff_base",
        "backoff_max",
        "backoff_jitter",
        "max_attempts",
        "retention_age",
        "retention_count",
    ];
    let is_known = |field: &String| known.iter().chain(&others).any(|known| field == known);
    assert!(meta.keys().all(is_known), "{meta:?}");
    let is_set = meta.contains_key("lease");
    assert!(others.iter().all(|field| meta.contains_key(*field) == is_set), "all or none");
    let number = |field: &str, without: u64| -> u64 {
        meta.get(field).map_or(without, |text| text.parse().expect("7: a whole number"))
    };
    let duration = |field: &str, without: u64| -> Duration {
        let Some(text) = meta.get(field) else { return Duration::from_millis(without) };
        let (millis, nanos) = text.split_once('.').unwrap_or((text, "000000"));
        assert_eq!(nanos.len(), 6, "six decimals");
        Duration::from_millis(millis.parse().unwrap())
            + Duration::from_nanos(nanos.parse().unwrap())
    };
    let mut settings = Settings::default();
    settings.lease = duration("lease", 30_000);
    settings.backoff.base = duration("backoff_base", 1000);
    settings.backoff.max = duration("backoff_max", 3_600_000);
    settings.backoff.jitter_percent = number("backoff_jitter", 20) as u8;
    settings.max_attempts = number("max_attempts", 20) as u32;
    settings.concurrency = meta.get("concurrency").map(|text| text.parse().unwrap());
    settings.paused = meta.get("paused").is_some_and(|text| text == "1");
    settings.retention.age = duration("retention_age", 604_800_000);
    settings.retention.count = number("retention_count", 100_000) as usize;
    settings.rate = meta.get("rate_jobs").map(|_| Rate {
        jobs: number("rate_jobs", 0) as u32,
        per: duration("rate_per", 0),
        burst: Some(number("rate_burst", 0) as u32).filter(|burst| *burst > 0),
    });
    settings.ageing = Some(duration("ageing", 600_000)).filter(|ageing| !ageing.is_zero());
    settings.keep_done = meta.get("keep_done_age").map(|_| Retention {
        age: duration("keep_done_age", 0),
        count: number("keep_done_count", 0) as usize,
    });
    assert!(number("rate_at", 0) > 0 || !meta.contains_key("rate_parts"), "both or none");
    settings
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn whole(score: f64) -> u64 {
    assert!(score >= 0.0 && score.fract() == 0.0, "7: {score} is whole");
    score as u64
}

/// Reads bytes from the front.
struct ByteReader<'a>(&'a [u8]);

impl ByteReader<'_> {
    fn take(&mut self, count: usize) -> &[u8] {
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }

    fn number(&mut self, width: usize) -> u64 {
        self.take(width).iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    fn time(&mut self) -> Timestamp {
        at(self.number(6))
    }

    fn text(&mut self, length: usize) -> String {
        String::from_utf8(self.take(length).to_vec()).unwrap()
    }

    fn content(&mut self) -> (Body, Priority) {
        let flags = self.number(1) as u8;
        let priority = Priority::new(flags >> 2).unwrap();
        let content_type = match flags & 3 {
            0 => "application/octet-stream".to_owned(),
            1 => "application/json".to_owned(),
            2 => "text/plain".to_owned(),
            _ => {
                let length = self.number(1) as usize;
                self.text(length)
            }
        };
        (Body::new(self.take(self.0.len()).to_vec(), content_type).unwrap(), priority)
    }
}
