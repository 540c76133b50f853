//! One step of a history, made up at random.

use super::History;
use crate::random::Random;
use requeue_jobs::limits::MAX_DELAY;
use requeue_jobs::{
    Backoff, Body, Change, ChangeKind, Claim, Condition, Due, Fence, Generation, JobId, JobState,
    Kind, Missed, Mode, Put, Query, Receipt, Retention, Schedule, Settings, Settle, Settlement,
    Spans, Tick, Timestamp, WorkerName,
};
use std::time::Duration;

#[derive(Debug, Clone)]
pub(super) enum Step {
    Advance(Duration),
    Put(Vec<Put>),
    Claim(Claim),
    Settle(Vec<Settle>),
    Change(Vec<Change>),
    Reap(usize),
    Set(Kind, Settings),
    SetSchedule(Kind, Schedule),
    RemoveSchedule(Kind, JobId),
    Tick(Tick),
    List(Query),
    Get(Kind, JobId),
    Upcoming(Kind, Spans),
}

const KINDS: [&str; 2] = ["mail", "order.close"];
pub(super) const IDS: [&str; 5] = ["a", "ab", "b", "ü/1", "1.2.mail/a"];
const WORKERS: [&str; 2] = ["w1", "w2"];
/// Few, and sums of each other, so that many things happen at the same time.
const MILLIS: [u64; 6] = [0, 1, 10, 1000, 2000, 5000];

pub(super) fn kinds() -> Vec<Kind> {
    KINDS.into_iter().map(|kind| Kind::new(kind).expect("a valid kind")).collect()
}

/// What a history is about: some are about many jobs, some about one that much happens to.
pub(super) struct Range {
    kinds: usize,
    ids: usize,
    /// Nothing succeeds, so that jobs fail often.
    unlucky: bool,
}

impl Range {
    pub(super) fn random(random: &mut Random) -> Self {
        let (kinds, ids) = (1 + random.below(KINDS.len()), 1 + random.below(IDS.len()));
        Range { kinds, ids, unlucky: random.chance(20) }
    }

    fn kind(&self, random: &mut Random) -> Kind {
        random.pick(&kinds()[..self.kinds]).clone()
    }

    fn id(&self, random: &mut Random) -> JobId {
        JobId::new(*random.pick(&IDS[..self.ids])).expect("a valid id")
    }
}

fn length(random: &mut Random) -> Duration {
    // Now and then not a whole number of milliseconds: it is rounded up.
    let nanos = if random.chance(5) { 1 } else { 0 };
    Duration::from_millis(*random.pick(&MILLIS)) + Duration::from_nanos(nanos)
}

fn lease(random: &mut Random) -> Option<Duration> {
    let millis = *random.pick(&[0, 0, 10, 1000, 5000]);
    (millis > 0).then(|| Duration::from_millis(millis))
}

/// One or a few.
fn batch<T>(random: &mut Random, mut one: impl FnMut(&mut Random) -> T) -> Vec<T> {
    let count = if random.chance(70) { 1 } else { random.below(4) };
    (0..count).map(|_| one(random)).collect()
}

impl History<'_> {
    pub(super) fn random_step(&mut self) -> Step {
        let mut random = self.random.clone();
        let step = match random.below(100) {
            0..=14 => Step::Advance(length(&mut random)),
            15..=36 => Step::Put(batch(&mut random, |random| self.random_put(random))),
            37..=54 => Step::Claim(self.random_claim(&mut random)),
            55..=76 => Step::Settle(batch(&mut random, |random| self.random_settle(random))),
            77..=83 => Step::Change(batch(&mut random, |random| self.random_change(random))),
            84..=86 => Step::Reap(*random.pick(&[0, 1, 1000])),
            87..=90 => Step::Set(self.range.kind(&mut random), random_settings(&mut random)),
            91 => self.random_schedule(&mut random),
            92 => Step::RemoveSchedule(self.range.kind(&mut random), self.range.id(&mut random)),
            93..=95 => self.random_tick(&mut random),
            96 => Step::List(self.random_query(&mut random)),
            97 => Step::Get(self.range.kind(&mut random), self.range.id(&mut random)),
            _ => {
                let length = length(&mut random).max(Duration::from_millis(1));
                let length = Duration::from_millis(length.as_millis() as u64);
                let spans = Spans { from: self.fixture.now(), length, count: random.below(5) };
                Step::Upcoming(self.range.kind(&mut random), spans)
            }
        };
        self.random = random;
        step
    }

    fn random_put(&self, random: &mut Random) -> Put {
        let bytes = random.number().to_le_bytes();
        let body = Body::octets(bytes).expect("a small body");
        let mut put = Put::new(self.range.kind(random), self.range.id(random), body);
        put.due = match random.below(3) {
            0 => Due::Now,
            1 => Due::After(length(random)),
            _ => {
                let second_ago = Timestamp::from_millis(self.fixture.now().as_millis() - 1000);
                Due::At(second_ago.saturating_add(length(random)))
            }
        };
        put.mode = match random.below(6) {
            0 => Mode::Earliest,
            1 => Mode::Keep,
            2 | 3 => Mode::Debounce { max_wait: length(random) },
            _ => Mode::Replace,
        };
        put.condition = match random.below(8) {
            0 => Some(Condition::IfAbsent),
            1 | 2 => {
                let job = self.model.get(&put.kind, &put.id, self.fixture.now());
                let newest = job.map_or(Generation(1), |job| job.newest_generation());
                let off_by = u64::from(random.chance(30));
                Some(Condition::IfGeneration(Generation(newest.0.saturating_sub(off_by))))
            }
            _ => None,
        };
        put
    }

    /// Mostly a late one; now and then any that there ever was, or almost one.
    fn random_receipt(&self, random: &mut Random) -> Receipt {
        let late = self.receipts.len().saturating_sub(4);
        let among = if random.chance(80) { &self.receipts[late..] } else { &self.receipts[..] };
        if among.is_empty() {
            return Receipt::new(self.range.kind(random), self.range.id(random), Fence(1), 1);
        }
        let receipt = random.pick(among).clone();
        let (fence, nonce) = match random.below(20) {
            0 => (receipt.fence().0 + 1, receipt.nonce()),
            1 => (receipt.fence().0, receipt.nonce() ^ 1),
            _ => return receipt,
        };
        Receipt::new(receipt.kind().clone(), receipt.id().clone(), Fence(fence), nonce)
    }

    fn random_settle(&mut self, random: &mut Random) -> Settle {
        let receipt = self.random_receipt(random);
        let action = match random.below(12) {
            0..=2 if !self.range.unlucky => Settlement::Ack,
            10 => Settlement::Bury { error: format!("error {}", random.below(100)) },
            11 => Settlement::RequeueAfter(length(random)),
            0..=5 => {
                // Where a successor's due time hides what jitter made of the backoff, the
                // model could not know it.
                let settings = self.model.settings(receipt.kind());
                let job = self.model.get(receipt.kind(), receipt.id(), self.fixture.now());
                let hides = settings.backoff.jitter_percent > 0
                    && job.is_some_and(|job| job.next.is_some());
                let delay = (hides || random.chance(50)).then(|| length(random));
                Settlement::Retry { delay, error: format!("error {}", random.below(100)) }
            }
            6 | 7 => Settlement::Release,
            _ => Settlement::Extend(lease(random)),
        };
        Settle { receipt, action }
    }

    fn random_schedule(&self, random: &mut Random) -> Step {
        let (when, time_zone) = ("0 3 * * *".to_owned(), "UTC".to_owned());
        let body = Body::octets(*b"tick").expect("a small body");
        // Now and then too far away: then a tick is refused, and must not move it.
        let delay = if random.chance(10) { MAX_DELAY * 2 } else { length(random) };
        let next = self.fixture.now().saturating_add(delay);
        let schedule = Schedule {
            id: self.range.id(random),
            when,
            time_zone,
            body,
            missed: Missed::One,
            next,
        };
        Step::SetSchedule(self.range.kind(random), schedule)
    }

    fn random_tick(&mut self, random: &mut Random) -> Step {
        let kind = self.range.kind(random);
        let schedules = self.model.schedules(&kind);
        let (id, next) = match schedules.first() {
            Some(schedule) => (schedule.id.clone(), schedule.next),
            None => (self.range.id(random), self.fixture.now()),
        };
        let expected = if random.chance(80) { next } else { next.saturating_add(length(random)) };
        let next = expected.saturating_add(length(random));
        Step::Tick(Tick { kind, id, expected, next, put: random.chance(70) })
    }

    fn random_claim(&self, random: &mut Random) -> Claim {
        let kinds = if random.chance(70) { vec![self.range.kind(random)] } else { kinds() };
        let max = *random.pick(&[0, 1, 1, 2, 10]);
        let lease = lease(random);
        let worker = WorkerName::new(*random.pick(&WORKERS)).expect("a valid name");
        Claim { kinds, max, lease, worker, nonce: random.number() }
    }

    fn random_change(&self, random: &mut Random) -> Change {
        let from = usize::from(self.range.unlucky);
        let action =
            *random.pick(&[ChangeKind::Cancel, ChangeKind::RunNow, ChangeKind::Revive][from..]);
        Change { kind: self.range.kind(random), id: self.range.id(random), action }
    }

    fn random_query(&self, random: &mut Random) -> Query {
        let states = [JobState::Waiting, JobState::Ready, JobState::Leased, JobState::Dead];
        let mut query = Query::new(self.range.kind(random));
        query.state = random.chance(70).then(|| *random.pick(&states));
        query.prefix = (*random.pick(&["", "a", "ab", "ü", "z"])).to_owned();
        query.after = random.chance(30).then(|| self.range.id(random));
        query.limit = *random.pick(&[0, 1, 2, 100]);
        query
    }
}

fn random_settings(random: &mut Random) -> Settings {
    let mut settings = Settings::default();
    if random.chance(10) {
        return settings;
    }
    settings.lease = Duration::from_millis(*random.pick(&[10, 1000, 5000]));
    settings.backoff = Backoff {
        base: length(random),
        max: Duration::from_secs(4),
        jitter_percent: *random.pick(&[0, 0, 50, 200]),
    };
    settings.max_attempts = *random.pick(&[0, 1, 2, 3, 20]);
    settings.concurrency = *random.pick(&[None, None, Some(0), Some(1), Some(2)]);
    settings.paused = random.chance(10);
    let age = Duration::from_millis(*random.pick(&[0, 1000, 86_400_000]));
    settings.retention = Retention { age, count: *random.pick(&[0, 1, 100]) };
    settings
}
