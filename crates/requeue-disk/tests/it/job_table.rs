//! Jobs that move between memory and tables.

use crate::support::{simulated_disk::SimulatedDisk, small};
use requeue::ManualClock;
use requeue_disk::DiskStore;
use requeue_jobs::*;
use requeue_testkit::block_on;
use std::sync::Arc;
use std::time::Duration;

fn store() -> DiskStore {
    let wall_clock =
        WallClock::manual(&ManualClock::new(), Timestamp::from_millis(1_700_000_000_000));
    DiskStore::open_on(Arc::new(SimulatedDisk::new()), small(&wall_clock)).expect("it is empty")
}

fn put(store: &DiskStore, kind: &str, id: &str, condition: Option<Condition>) -> bool {
    let body = Body::octets(vec![1; 100]).expect("it is valid");
    let mut put =
        Put::new(Kind::new(kind).expect("it is valid"), JobId::new(id).expect("it is valid"), body);
    put.condition = condition;
    block_on(store.put(vec![put])).expect("it is open")[0].is_ok()
}

/// Fills the memory with jobs of another kind, so that all others leave it.
fn flush(store: &DiskStore) {
    (0..40).for_each(|n| assert!(put(store, "filler", &n.to_string(), None)));
}

fn claim(store: &DiskStore, kind: &str) -> Vec<ClaimedJob> {
    let (kinds, worker) =
        (vec![Kind::new(kind).expect("it is valid")], WorkerName::new("w").expect("it is valid"));
    let lease = Some(Duration::from_secs(60));
    block_on(store.claim(Claim { kinds, max: 10, lease, worker, nonce: 7 }))
        .expect("it is open")
        .jobs
}

#[test]
fn a_job_that_a_condition_read_is_read_again_after_a_flush() {
    let store = store();
    assert!(put(&store, "mail", "a", None));
    flush(&store);
    // A claim reads ahead, and so does not search the job by its id.
    assert!(!put(&store, "mail", "a", Some(Condition::IfAbsent)));
    let job = claim(&store, "mail").pop().expect("it is due");
    flush(&store);
    let settle = Settle { receipt: job.receipt, action: Settlement::Ack };
    assert_eq!(block_on(store.settle(vec![settle])).unwrap(), [Ok(Settled::Done)]);
    store.check();
}

#[test]
fn a_list_of_few_among_many_in_memory_is_whole() {
    let wall_clock =
        WallClock::manual(&ManualClock::new(), Timestamp::from_millis(1_700_000_000_000));
    let mut options = small(&wall_clock);
    (options.memory, options.segment) = (64 << 20, 16 << 20);
    let store = DiskStore::open_on(Arc::new(SimulatedDisk::new()), options).unwrap();
    let kind = || Kind::new("mail").unwrap();
    let all: Vec<String> = (0..10_000).map(|n| format!("{n:05}")).collect();
    for ids in all.chunks(1000) {
        let put = |id: &String| {
            let id = JobId::new(id.as_str()).unwrap();
            let mut put = Put::new(kind(), id, Body::default());
            put.due = Due::After(Duration::from_secs(60));
            put
        };
        block_on(store.put(ids.iter().map(put).collect())).unwrap();
    }
    let now = ["00001", "05000", "09999"];
    now.iter().for_each(|id| assert!(put(&store, "mail", id, None)));
    let list = |state, after: Option<JobId>| {
        let query = Query { state, after, limit: 1000, ..Query::new(kind()) };
        block_on(store.list(query)).unwrap()
    };
    let ids = |page: &Page| page.jobs.iter().map(|job| job.id.to_string()).collect::<Vec<_>>();
    assert_eq!(ids(&list(Some(JobState::Ready), None)), now);
    assert_eq!(ids(&list(Some(JobState::Dead), None)), [] as [&str; 0]);
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = list(None, after);
        found.extend(ids(&page));
        after = page.cursor;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(found, all);
}

#[test]
fn a_claim_that_meets_thousands_of_dead_jobs_is_a_small_change() {
    let clock = ManualClock::new();
    let wall_clock = WallClock::manual(&clock, Timestamp::from_millis(1_700_000_000_000));
    let store = DiskStore::open_on(Arc::new(SimulatedDisk::new()), small(&wall_clock)).unwrap();
    let kind = || Kind::new("mail").unwrap();
    let mut settings = Settings::default();
    settings.max_attempts = 1;
    block_on(store.set(kind(), settings)).unwrap();
    (0..2500).for_each(|n| assert!(put(&store, "mail", &n.to_string(), None)));
    let claim = |max| {
        let worker = WorkerName::new("w").unwrap();
        let claim = Claim { kinds: vec![kind()], max, lease: None, worker, nonce: 7 };
        block_on(store.claim(claim)).unwrap().jobs.len()
    };
    assert_eq!([claim(1000), claim(1000), claim(500)], [1000, 1000, 500]);
    clock.advance(Duration::from_secs(3600));
    assert!(put(&store, "mail", "alive", None));
    let dead = || block_on(store.kinds()).unwrap()[0].counts.dead;
    assert_eq!((claim(10), dead()), (0, 1000));
    assert_eq!((block_on(store.reap(usize::MAX)).unwrap().count, dead()), (1000, 2000));
    assert_eq!((claim(10), dead()), (1, 2500));
}
