//! Callers do not notice that jobs move from memory to tables and back.

use crate::support::simulated_disk::SimulatedDisk;
use crate::support::small;
use crate::support::workload::{clock_at, id, kinds};
use requeue_disk::DiskStore;
use requeue_jobs::{
    Body, Claim, ClaimedJob, Condition, Due, JobId, JobState, Kind, Page, Placed, Priority, Put,
    PutError, Query, Settings, Settle, SettleError, Settled, Settlement, Store, Timestamp,
    WorkerName,
};
use requeue_testkit::block_on;
use std::sync::Arc;
use std::time::Duration;

/// A store with a very small memory limit.
fn store() -> DiskStore {
    let (_, wall_clock) = clock_at(Timestamp::from_millis(1_700_000_000_000));
    DiskStore::open_on(Arc::new(SimulatedDisk::new()), small(&wall_clock)).expect("it opens")
}

fn job(name: &str) -> Put {
    Put::new(kinds().remove(0), id(name), Body::default())
}

fn put(store: &DiskStore, put: Put) -> Result<Placed, PutError> {
    block_on(store.put(vec![put])).expect("it is put").remove(0)
}

fn claim(store: &DiskStore) -> ClaimedJob {
    let worker = WorkerName::new("worker").expect("a valid name");
    let lease = Some(Duration::from_secs(60));
    let claim = Claim { kinds: vec![kinds().remove(0)], max: 1, lease, worker, nonce: 7 };
    block_on(store.claim(claim)).expect("it is claimed").jobs.remove(0)
}

fn settle(store: &DiskStore, job: &ClaimedJob, action: Settlement) -> Result<Settled, SettleError> {
    let settle = Settle { receipt: job.receipt.clone(), action };
    block_on(store.settle(vec![settle])).expect("it is settled").remove(0)
}

/// Fills the memory with other jobs, of another kind, so that all others are flushed to tables.
fn flush(store: &DiskStore) {
    let body = Body::octets([0; 5000]).expect("a small body");
    let other = |name: &str| Put::new(kinds().remove(1), id(name), body.clone());
    for name in ["x", "y", "z"] {
        block_on(store.put(vec![other(name)])).expect("it is put");
    }
}

#[test]
fn a_job_that_was_read_from_a_table_is_not_cached_for_later_operations() {
    let store = store();
    put(&store, job("a")).expect("without condition");
    flush(&store);
    // Reads the job from its table, and changes nothing.
    let again = Put { condition: Some(Condition::IfAbsent), ..job("a") };
    assert!(matches!(put(&store, again), Err(PutError::Exists { .. })));
    let claimed = claim(&store);
    flush(&store);
    assert_eq!(settle(&store, &claimed, Settlement::Ack), Ok(Settled::Done));
    store.check();
}

#[test]
fn kinds_with_ready_jobs_of_several_priorities_in_tables_are_viewed() {
    let of = |priority: u8, name: &str| {
        let priority = Priority::new(priority).expect("a valid priority");
        Put { priority, ..job(&format!("{name}-{priority}")) }
    };
    // In the tables, nothing is left of the one priority, and of the other something.
    for put_again in [0, 5] {
        let (_, wall_clock) = clock_at(Timestamp::from_millis(1_700_000_000_000));
        let disk = Arc::new(SimulatedDisk::new());
        let open = || DiskStore::open_on(disk.clone(), small(&wall_clock)).expect("it opens");
        let store = open();
        for name in ["a", "b", "c"] {
            put(&store, of(0, name)).expect("without condition");
            put(&store, of(5, name)).expect("without condition");
        }
        flush(&store);
        for name in ["a", "b", "c"] {
            put(&store, of(put_again, name)).expect("without condition");
        }
        drop(store);
        // A store that was just opened has read no list.
        let store = open();
        let view = block_on(store.kind(kinds().remove(0))).expect("it is read");
        assert_eq!((view.counts.pending, view.counts.ready), (6, 6));
        assert_eq!(view.oldest_ready, Some(Timestamp::from_millis(1_700_000_000_000)));
        store.check();
    }
}

#[test]
fn kinds_keep_their_turns_over_restarts() {
    let (clock, wall_clock) = clock_at(Timestamp::from_millis(1_700_000_000_000));
    let disk = SimulatedDisk::new();
    let open = || DiskStore::open_on(Arc::new(disk.clone()), small(&wall_clock)).expect("it opens");
    let kinds = kinds();
    for (number, kind) in kinds.iter().cycle().take(9).enumerate() {
        let job = Put::new(kind.clone(), id(number.to_string()), Body::default());
        put(&open(), job).expect("without condition");
    }
    let mut claimed = Vec::new();
    for _ in 0..9 {
        let worker = WorkerName::new("worker").expect("a valid name");
        let claim = Claim { kinds: kinds.clone(), max: 1, lease: None, worker, nonce: 7 };
        let jobs = block_on(open().claim(claim)).expect("it is claimed").jobs;
        claimed.push(jobs[0].kind().clone());
        clock.advance(Duration::from_millis(1));
    }
    let turns: Vec<_> = kinds.iter().cycle().take(9).cloned().collect();
    assert_eq!(claimed, turns, "each in its turn");
}

/// Such a job is not read ahead: it is read when it is claimed.
#[test]
fn a_large_job_among_many_kinds_is_claimed_from_its_table() {
    let (_, wall_clock) = clock_at(Timestamp::from_millis(1_700_000_000_000));
    let disk = SimulatedDisk::new();
    let open = || DiskStore::open_on(Arc::new(disk.clone()), small(&wall_clock)).expect("it opens");
    let first = open();
    for number in 0..40 {
        let kind = Kind::new(format!("kind-{number}")).expect("a valid kind");
        put(&first, Put::new(kind, id("small"), Body::default())).expect("without condition");
    }
    let body = |byte| Body::octets(vec![byte; 1 << 20]).expect("the largest body");
    for byte in 1..=3 {
        let large = Put::new(kinds().remove(0), id(byte.to_string()), body(byte));
        put(&first, large).expect("without condition");
    }
    flush(&first);
    drop(first);
    let store = open();
    for byte in 1..=3 {
        let claimed = claim(&store);
        assert_eq!(claimed.version.content.body, body(byte));
        assert_eq!(settle(&store, &claimed, Settlement::Ack), Ok(Settled::Done));
        store.check();
    }
}

#[test]
fn a_list_of_few_among_many_in_memory_is_whole() {
    let (_, wall_clock) = clock_at(Timestamp::from_millis(1_700_000_000_000));
    let mut options = small(&wall_clock);
    (options.memory, options.segment) = (64 << 20, 16 << 20);
    let store = DiskStore::open_on(Arc::new(SimulatedDisk::new()), options).expect("it opens");
    let all: Vec<String> = (0..10_000).map(|n| format!("{n:05}")).collect();
    for ids in all.chunks(1000) {
        let later = |id: &String| Put { due: Due::After(Duration::from_secs(60)), ..job(id) };
        block_on(store.put(ids.iter().map(later).collect())).expect("they are put");
    }
    let now = ["00001", "05000", "09999"];
    for id in now {
        put(&store, job(id)).expect("without condition");
    }
    let list = |state, after: Option<JobId>| {
        let query = Query { state, after, limit: 1000, ..Query::new(kinds().remove(0)) };
        block_on(store.list(query)).expect("it is read")
    };
    let ids = |page: &Page| page.jobs.iter().map(|job| job.id.to_string()).collect::<Vec<_>>();
    assert_eq!(ids(&list(Some(JobState::Ready), None)), now);
    assert_eq!(ids(&list(Some(JobState::Dead), None)), [] as [&str; 0]);
    let (mut found, mut page) = (Vec::new(), list(None, None));
    while let Some(after) = page.cursor.take() {
        found.extend(ids(&page));
        page = list(None, Some(after));
    }
    found.extend(ids(&page));
    assert_eq!(found, all);
}

#[test]
fn a_claim_that_meets_thousands_of_dead_jobs_is_a_small_change() {
    let (clock, wall_clock) = clock_at(Timestamp::from_millis(1_700_000_000_000));
    let store = DiskStore::open_on(Arc::new(SimulatedDisk::new()), small(&wall_clock));
    let (store, kind) = (store.expect("it opens"), kinds().remove(0));
    let mut settings = Settings::default();
    settings.max_attempts = 1;
    block_on(store.set(kind.clone(), settings)).expect("they are valid");
    for number in 0..2500 {
        put(&store, job(&number.to_string())).expect("without condition");
    }
    let claim = |max| {
        let worker = WorkerName::new("worker").expect("a valid name");
        let claim = Claim { kinds: vec![kind.clone()], max, lease: None, worker, nonce: 7 };
        block_on(store.claim(claim)).expect("it is claimed").jobs.len()
    };
    assert_eq!([claim(1000), claim(1000), claim(500)], [1000, 1000, 500]);
    clock.advance(Duration::from_secs(3600));
    put(&store, job("alive")).expect("without condition");
    let dead = || block_on(store.kinds()).expect("they are read")[0].counts.dead;
    assert_eq!((claim(10), dead()), (0, 1000));
    let reaped = block_on(store.reap(usize::MAX)).expect("they are reaped").count;
    assert_eq!((reaped, dead()), (1000, 2000));
    assert_eq!((claim(10), dead()), (1, 2500));
}
