//! Edge cases that random histories found, and tables whose reads fail.

use super::{ClaimRoom, JobTable, KindState, Kinds, List, Position, Record};
use crate::limits::{MAX_DELAY, MAX_RESULT_BYTES};
use crate::memory::MemoryTable;
use crate::{
    Body, Change, ChangeError, ChangeKind, Claim, Claimed, ClaimedJob, Condition, Due, JobId,
    JobView, Kind, Missed, Mode, Priorities, Priority, Put, PutError, PutOutcome, Receipt,
    Schedule, ScheduleCondition, Settle, SettleError, Settled, Settlement, StoreError, Tick,
    TickJob, Ticked, Timestamp, WorkerName,
};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(1_000_000 + seconds * 1000)
}

fn kind() -> KindState<MemoryTable> {
    KindState::new(Kind::new("k").unwrap(), MemoryTable::default())
}

fn id() -> JobId {
    JobId::new("a").unwrap()
}

fn tick_job() -> TickJob {
    TickJob { id: id(), content: Body::default().into(), priority: Priority::default() }
}

/// Puts the job, due in ten seconds, but at most `max_wait` seconds after the first put.
fn debounced(kind: &mut KindState<impl JobTable>, max_wait: u32, now: Timestamp) -> PutOutcome {
    let mut put = Put::new(Kind::new("k").unwrap(), id(), Body::default());
    put.due = Due::After(10 * SECOND);
    put.mode = Mode::Debounce { max_wait: max_wait * SECOND };
    kind.put(put, now).unwrap().outcome
}

fn claim(kind: &mut KindState<impl JobTable>, now: Timestamp) -> ClaimedJob {
    let worker = WorkerName::new("w").unwrap();
    let claim = Claim { kinds: Vec::new(), max: 1, lease: None, worker, nonce: 7 };
    let mut claimed = Claimed::default();
    kind.claim(&claim, now, &mut ClaimRoom::new(1), &mut claimed).unwrap();
    claimed.jobs.pop().expect("a job is due")
}

fn settle(
    kind: &mut KindState<impl JobTable>,
    job: &ClaimedJob,
    action: Settlement,
    now: Timestamp,
) -> Settled {
    kind.settle(Settle { receipt: job.receipt.clone(), action }, now).unwrap()
}

fn cancel(kind: &mut KindState<impl JobTable>, now: Timestamp) {
    let change = Change { kind: Kind::new("k").unwrap(), id: id(), action: ChangeKind::Cancel };
    kind.change(change, now).unwrap();
}

fn view(kind: &mut KindState<impl JobTable>, now: Timestamp) -> JobView {
    kind.get(&id(), now).unwrap().expect("there is a job")
}

#[test]
fn the_first_debounced_put_waits_no_longer_than_the_maximum() {
    let mut kind = kind();
    assert_eq!(debounced(&mut kind, 5, at(0)), PutOutcome::Created);
    assert_eq!(view(&mut kind, at(0)).version.due, at(5));
}

#[test]
fn debounced_puts_during_a_lease_count_from_the_first_of_them() {
    let mut kind = kind();
    debounced(&mut kind, 0, at(0));
    let job = claim(&mut kind, at(0));
    debounced(&mut kind, 60, at(1));
    settle(&mut kind, &job, Settlement::Ack, at(2));
    // There was no put since the ack, so the next put is the first again.
    claim(&mut kind, at(11));
    debounced(&mut kind, 15, at(12));
    debounced(&mut kind, 15, at(20));
    assert_eq!(view(&mut kind, at(20)).next.map(|next| next.due), Some(at(27)));
}

#[test]
fn a_debounced_successor_is_not_due_before_it_was_put() {
    let mut kind = kind();
    debounced(&mut kind, 0, at(0));
    claim(&mut kind, at(0));
    debounced(&mut kind, 5, at(20));
    assert_eq!(view(&mut kind, at(20)).next.map(|next| next.due), Some(at(20)));
}

#[test]
fn extending_a_cancelled_lease_changes_nothing() {
    let mut kind = kind();
    debounced(&mut kind, 0, at(0));
    let job = claim(&mut kind, at(0));
    cancel(&mut kind, at(1));
    let before = view(&mut kind, at(2));
    assert_eq!(settle(&mut kind, &job, Settlement::Extend(None), at(2)), Settled::Cancelled);
    assert_eq!(view(&mut kind, at(2)), before);
}

#[test]
fn a_successor_put_after_a_cancel_is_updated_when_it_replaces_the_job() {
    let mut kind = kind();
    debounced(&mut kind, 0, at(0));
    let job = claim(&mut kind, at(0));
    cancel(&mut kind, at(1));
    debounced(&mut kind, 60, at(2));
    debounced(&mut kind, 60, at(3));
    assert_eq!(settle(&mut kind, &job, Settlement::Ack, at(4)), Settled::Cancelled);
    let job = view(&mut kind, at(4));
    assert_eq!((job.created_at, job.updated_at), (at(2), at(4)));
}

#[test]
fn a_tick_whose_put_is_rejected_does_not_advance_the_schedule() {
    let mut state = Kinds::new(|_| MemoryTable::default());
    let name = Kind::new("k").unwrap();
    let expected = at(0).saturating_add(MAX_DELAY + SECOND);
    let (when, time_zone) = (String::new(), String::new());
    let (body, missed) = (Body::default(), Missed::One);
    let schedule =
        Schedule { id: id(), when, time_zone, content: body.into(), missed, next: expected };
    assert_eq!(state.set_schedule(&name, schedule, ScheduleCondition::Always), Ok(true));
    let next = expected.saturating_add(SECOND);
    let tick = Tick { kind: name, id: id(), expected, next, put: Some(tick_job()) };
    assert!(state.tick(tick.clone(), at(0)).is_err());
    assert!(matches!(state.tick(tick, at(1)), Ok(Ticked::Put(_))));
}

#[test]
fn the_first_kind_of_a_claim_rotates_even_with_claims_of_other_kinds_between() {
    let mut state = Kinds::new(|_| MemoryTable::default());
    let names = ["x", "y", "z"].map(|name| Kind::new(name).unwrap());
    for name in &names {
        for number in 0..4 {
            let id = JobId::new(number.to_string()).unwrap();
            let put = Put::new(name.clone(), id, Body::default());
            state.put(put, at(0)).unwrap();
        }
    }
    let mut claim = |kinds: &[Kind]| {
        let worker = WorkerName::new("w").unwrap();
        let claim = Claim { kinds: kinds.to_vec(), max: 1, lease: None, worker, nonce: 7 };
        state.claim(&claim, at(0)).unwrap().jobs[0].kind().clone()
    };
    let mut firsts = Vec::new();
    for _ in 0..4 {
        firsts.push(claim(&names[..2]));
        claim(&names[2..]);
    }
    assert_eq!(firsts, [&names[0], &names[1], &names[0], &names[1]].map(Kind::clone));
}

#[test]
fn fences_increase_even_if_the_clock_shows_the_latest_timestamp() {
    let mut kind = kind();
    let end = Timestamp::from_millis(u64::MAX);
    let mut fence = 0;
    for _ in 0..3 {
        kind.put(Put::new(Kind::new("k").unwrap(), id(), Body::default()), end).unwrap();
        let job = claim(&mut kind, end);
        assert!(job.receipt.fence().0 > fence);
        fence = job.receipt.fence().0;
        settle(&mut kind, &job, Settlement::Ack, end);
    }
}

#[test]
fn a_release_uses_no_generation() {
    let mut kind = kind();
    let put = |kind: &mut KindState<MemoryTable>| {
        kind.put(Put::new(Kind::new("k").unwrap(), id(), Body::default()), at(0))
            .unwrap()
            .generation
    };
    put(&mut kind);
    let job = claim(&mut kind, at(0));
    let successor = put(&mut kind);
    settle(&mut kind, &job, Settlement::Release, at(0));
    assert_eq!(put(&mut kind).0, successor.0 + 1);
}

/// A table in memory that counts changes. Some of its reads can be made to fail.
#[derive(Default)]
struct FailingTable {
    inner: MemoryTable,
    kept: usize,
    /// Reading or taking a job by its id fails.
    fail_jobs: bool,
    /// Reading this list, or taking its first job, fails.
    fail_list: Option<List>,
}

fn read_error() -> StoreError {
    StoreError::Unavailable { reason: "the read failed".into() }
}

impl FailingTable {
    fn jobs(&mut self) -> Result<&mut MemoryTable, StoreError> {
        if self.fail_jobs { Err(read_error()) } else { Ok(&mut self.inner) }
    }

    fn list(&mut self, list: List) -> Result<&mut MemoryTable, StoreError> {
        if self.fail_list == Some(list) { Err(read_error()) } else { Ok(&mut self.inner) }
    }
}

impl JobTable for FailingTable {
    fn peek(&mut self, id: &JobId) -> Result<Option<&Record>, StoreError> {
        self.jobs()?.peek(id)
    }

    fn take(&mut self, id: &JobId) -> Result<Option<Box<Record>>, StoreError> {
        self.jobs()?.take(id)
    }

    fn take_first(&mut self, list: List) -> Result<Option<(JobId, Box<Record>)>, StoreError> {
        self.list(list)?.take_first(list)
    }

    fn keep(&mut self, id: JobId, record: Box<Record>) {
        self.kept += 1;
        self.inner.keep(id, record);
    }

    fn put_back(&mut self, id: JobId, record: Box<Record>) {
        self.inner.keep(id, record);
    }

    fn first(&mut self, list: List) -> Result<Option<Position>, StoreError> {
        self.list(list)?.first(list)
    }

    fn count(&self, list: List) -> u64 {
        self.inner.count(list)
    }

    fn priorities(&self) -> Priorities {
        self.inner.priorities()
    }

    fn unexpired(
        &mut self,
        priority: Priority,
        now: Timestamp,
        limit: usize,
    ) -> Result<usize, StoreError> {
        self.list(List::Leased(priority))?.unexpired(priority, now, limit)
    }

    fn first_to_end(
        &mut self,
        priority: Priority,
        now: Timestamp,
    ) -> Result<Option<Timestamp>, StoreError> {
        self.list(List::Leased(priority))?.first_to_end(priority, now)
    }
}

fn failing() -> KindState<FailingTable> {
    KindState::new(Kind::new("k").unwrap(), FailingTable::default())
}

fn put_now() -> Put {
    Put::new(Kind::new("k").unwrap(), id(), Body::default())
}

#[test]
fn a_job_that_cannot_be_read_is_not_changed() {
    let mut kind = failing();
    kind.put(put_now(), at(0)).unwrap();
    let job = claim(&mut kind, at(0));
    let (before, counters, kept) = (view(&mut kind, at(1)), kind.counters, kind.table.kept);
    kind.table.fail_jobs = true;
    let settle = Settle { receipt: job.receipt.clone(), action: Settlement::Ack };
    let change = Change { kind: Kind::new("k").unwrap(), id: id(), action: ChangeKind::Cancel };
    assert_eq!(kind.put(put_now(), at(1)), Err(PutError::Store(read_error())));
    let conditional = Put { condition: Some(Condition::IfAbsent), ..put_now() };
    assert_eq!(kind.put(conditional, at(1)), Err(PutError::Store(read_error())));
    assert_eq!(kind.settle(settle, at(1)), Err(SettleError::Store(read_error())));
    assert_eq!(kind.change(change, at(1)), Err(ChangeError::Store(read_error())));
    kind.table.fail_jobs = false;
    assert_eq!((kind.counters, kind.table.kept), (counters, kept));
    assert_eq!(view(&mut kind, at(1)), before);
}

#[test]
fn a_schedule_does_not_advance_if_its_job_cannot_be_read() {
    let mut kind = failing();
    let (when, time_zone) = (String::new(), String::new());
    let (body, missed) = (Body::default(), Missed::One);
    let schedule =
        Schedule { id: id(), when, time_zone, content: body.into(), missed, next: at(1) };
    kind.set_schedule(schedule).unwrap();
    let tick = || Tick {
        kind: Kind::new("k").unwrap(),
        id: id(),
        expected: at(1),
        next: at(2),
        put: Some(tick_job()),
    };
    kind.table.fail_jobs = true;
    assert_eq!(kind.tick(tick(), at(1)), Err(read_error()));
    kind.table.fail_jobs = false;
    assert!(matches!(kind.tick(tick(), at(1)), Ok(Ticked::Put(_))));
}

#[test]
fn a_claim_and_a_reap_read_no_more_than_sixteen_mebibytes_of_expired_jobs() {
    let mut kind = kind();
    kind.settings.max_attempts = 1;
    let body = Body::octets(vec![7; 1 << 20]).unwrap();
    for number in 0..40 {
        let id = JobId::new(format!("{number:02}")).unwrap();
        kind.put(Put { id, content: body.clone().into(), ..put_now() }, at(0)).unwrap();
        claim(&mut kind, at(0));
    }
    let worker = WorkerName::new("w").unwrap();
    let again = Claim { kinds: Vec::new(), max: 40, lease: None, worker, nonce: 7 };
    let mut claimed = Claimed::default();
    kind.claim(&again, at(3600), &mut ClaimRoom::new(40), &mut claimed).unwrap();
    assert_eq!((claimed.jobs.len(), claimed.expired.len()), (0, 16));
    assert_eq!(kind.next_claimable(at(3600)).unwrap(), Some(at(30)), "the next claim continues");
    let mut bytes = MAX_RESULT_BYTES;
    let reaped = kind.reap(1000, &mut bytes, at(3600)).unwrap();
    assert_eq!((reaped.expired.len(), bytes), (16, 0));
    assert_eq!(kind.reap(1000, &mut { MAX_RESULT_BYTES }, at(3600)).unwrap().expired.len(), 8);
}

#[test]
fn a_job_is_buried_even_if_the_dead_jobs_cannot_be_read() {
    let mut kind = failing();
    kind.settings.retention.count = 0;
    kind.put(put_now(), at(0)).unwrap();
    let job = claim(&mut kind, at(0));
    kind.table.fail_list = Some(List::Dead);
    assert_eq!(
        settle(&mut kind, &job, Settlement::Bury { error: "no".into() }, at(1)),
        Settled::Dead
    );
    assert_eq!(kind.table.count(List::Dead), 1);
    assert_eq!(kind.reap(1, &mut 1, at(1)), Err(read_error()));
    kind.table.fail_list = None;
    assert_eq!(kind.reap(1, &mut 1, at(1)).map(|reaped| reaped.count), Ok(1));
    assert_eq!(kind.table.count(List::Dead), 0);
}

#[test]
fn jobs_are_claimed_even_if_another_kind_cannot_be_read() {
    let mut kinds = Kinds::new(|kind: &Kind| {
        let fail_list = (kind.as_str() == "bad").then_some(List::Leased(Priority::default()));
        FailingTable { fail_list, ..FailingTable::default() }
    });
    let names = ["bad", "good"].map(|name| Kind::new(name).unwrap());
    for name in &names {
        kinds.put(Put { kind: name.clone(), ..put_now() }, at(0)).unwrap();
    }
    let worker = WorkerName::new("w").unwrap();
    let claim = Claim { kinds: names.to_vec(), max: 2, lease: None, worker, nonce: 7 };
    let claimed = kinds.claim(&claim, at(0)).unwrap();
    assert_eq!(claimed.errors, [(names[0].clone(), read_error())]);
    assert_eq!(claimed.jobs.iter().map(ClaimedJob::kind).collect::<Vec<_>>(), [&names[1]]);
    assert_eq!(kinds.reap(1, at(3600)), Err(read_error()));
    assert_eq!(kinds.get(&names[1], &id(), at(3600)).unwrap().unwrap().attempts, 1);
}

#[test]
fn an_operation_without_effect_puts_the_job_back_unchanged() {
    let mut kind = failing();
    let mut keep = put_now();
    keep.mode = Mode::Keep;
    kind.put(put_now(), at(0)).unwrap();
    assert_eq!(kind.put(keep.clone(), at(1)).unwrap().outcome, PutOutcome::Kept);
    let job = claim(&mut kind, at(1));
    let change = |action| Change { kind: Kind::new("k").unwrap(), id: id(), action };
    assert!(kind.change(change(ChangeKind::RunNow), at(1)).is_err());
    assert!(kind.change(change(ChangeKind::Revive), at(1)).is_err());
    let other = Receipt::new(Kind::new("k").unwrap(), id(), job.receipt.fence(), 8);
    assert!(kind.settle(Settle { receipt: other, action: Settlement::Ack }, at(1)).is_err());
    assert_eq!(kind.table.kept, 2);
    cancel(&mut kind, at(1));
    assert_eq!(settle(&mut kind, &job, Settlement::Extend(None), at(1)), Settled::Cancelled);
    assert_eq!(kind.table.kept, 3);
    assert_eq!(kind.table.count(List::Leased(Priority::default())), 1);
}

#[test]
fn each_list_has_a_number_of_its_own() {
    let numbers: Vec<usize> = List::all().map(List::index).collect();
    let mut sorted = numbers.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!((sorted.len(), sorted.last()), (numbers.len(), Some(&(List::END - 1))));
    assert!(List::all().all(|list| List::by_index(list.index()) == Some(list)));
    assert_eq!(List::by_index(3), None);
}
