//! Claims and pages end before their bodies exceed 16 MiB. Nothing is leased that is not returned.

use crate::support::{connect, fresh, insist, is_whole, settle};
use requeue::ManualClock;
use requeue_jobs::limits::{MAX_BODY_LEN, MAX_RESULT_BYTES};
use requeue_jobs::{
    Body, Claim, Claimed, Due, JobId, Kind, Mode, Put, Query, Schedule, Settlement, Store,
    Timestamp, WallClock, WorkerName,
};
use requeue_redis::RedisStore;
use requeue_testkit::block_on;
use requeue_testkit::servers::{RedisCluster, RedisServer};
use std::sync::LazyLock;
use std::time::Duration;

static SERVER: LazyLock<RedisServer> = LazyLock::new(RedisServer::start);
const LONG: Duration = Duration::from_secs(3600);
/// The number of the largest bodies in a result.
const FIT: usize = MAX_RESULT_BYTES / MAX_BODY_LEN;

fn kind(name: &str) -> Kind {
    Kind::new(name).expect("a valid kind")
}

/// Puts jobs with bodies of this size, each due a millisecond after the one before it.
fn put(store: &RedisStore, kind: &Kind, count: usize, size: usize) {
    for number in 0..count {
        let id = JobId::new(format!("{size:07}-{number:03}")).expect("a valid id");
        let body = Body::new(vec![b'x'; size], "text/x-large").expect("a valid body");
        let due = Due::At(Timestamp::from_millis(1 + number as u64));
        let put = Put { due, ..Put::new(kind.clone(), id, body) };
        block_on(store.put(vec![put])).expect("it is up").remove(0).expect("it is put");
    }
}

fn claim(store: &RedisStore, kinds: &[Kind], lease: Duration) -> Claimed {
    let worker = WorkerName::new("w").expect("a valid name");
    let claim = Claim { kinds: kinds.to_vec(), max: 1000, lease: Some(lease), worker, nonce: 7 };
    let claimed = block_on(store.claim(claim)).expect("it is up");
    assert_eq!(claimed.errors, []);
    let bytes: usize = claimed.jobs.iter().map(|job| job.body().len()).sum();
    assert!(bytes <= MAX_RESULT_BYTES, "{bytes} bytes");
    claimed
}

fn leased(store: &RedisStore, kinds: &[Kind]) -> usize {
    let view = |kind: &Kind| block_on(store.kind(kind.clone())).expect("it is up");
    kinds.iter().map(|kind| view(kind).counts.leased as usize).sum()
}

#[test]
fn a_claim_ends_before_its_bodies_exceed_the_limit() {
    let (store, kinds) = (connect(&SERVER.url(), fresh()), [kind("mail")]);
    put(&store, &kinds[0], 2 * FIT + 3, MAX_BODY_LEN);
    let mut seen = 0;
    for expected in [FIT, FIT, 3, 0] {
        let claimed = claim(&store, &kinds, LONG).jobs;
        seen += claimed.len();
        assert_eq!((claimed.len(), leased(&store, &kinds)), (expected, seen));
        assert!(claimed.iter().all(|job| job.attempt == 1));
    }
    is_whole(&store);
}

#[test]
fn a_claim_that_ends_at_a_large_job_leaves_it_for_the_next_one() {
    let (store, kinds) = (connect(&SERVER.url(), fresh()), [kind("mail")]);
    // Small jobs are before and behind the large ones.
    for (count, size) in [(40, 10), (FIT - 1, MAX_BODY_LEN), (1, MAX_BODY_LEN - 100), (2, 200)] {
        put(&store, &kinds[0], count, size);
    }
    let first = claim(&store, &kinds, LONG).jobs.len();
    assert_eq!(leased(&store, &kinds), first);
    let second = claim(&store, &kinds, LONG).jobs.len();
    assert_eq!((first + second, leased(&store, &kinds)), (FIT + 42, FIT + 42));
}

#[test]
fn expired_leases_that_do_not_fit_are_not_ended_and_returned_next() {
    let clock = ManualClock::new();
    let wall_clock = WallClock::manual(&clock, Timestamp::from_millis(1_700_000_000_000));
    let url = SERVER.url();
    let store =
        block_on(RedisStore::connect_at(&url, fresh(), Some(wall_clock))).expect("it is up");
    let kinds = [kind("mail")];
    put(&store, &kinds[0], FIT + 4, MAX_BODY_LEN);
    let short = Duration::from_secs(1);
    assert_eq!(claim(&store, &kinds, short).jobs.len(), FIT);
    assert_eq!(claim(&store, &kinds, short).jobs.len(), 4);
    clock.advance(short);
    let first = claim(&store, &kinds, LONG).jobs;
    assert_eq!((first.len(), leased(&store, &kinds)), (FIT, FIT + 4));
    let after = first.last().map(|job| job.id().clone());
    let left = Query { after, ..Query::new(kinds[0].clone()) };
    let left = block_on(store.list(left)).expect("it is up").jobs;
    assert_eq!(left.iter().filter(|job| job.attempts == 0).count(), 4);
    let second = claim(&store, &kinds, LONG).jobs;
    assert_eq!((second.len(), leased(&store, &kinds)), (4, FIT + 4));
    // The lease that has expired counts as one failed attempt, whichever claim returns the job.
    assert!(first.iter().chain(&second).all(|job| job.attempt == 2));
    is_whole(&store);
}

fn several_kinds(store: &RedisStore) {
    let kinds: Vec<Kind> = (0..6).map(|n| kind(&format!("k{n}"))).collect();
    for kind in &kinds {
        insist("the kind is made", || {
            put(store, kind, 5, MAX_BODY_LEN);
            Ok::<_, String>(())
        });
    }
    let mut seen = 0;
    for expected in [FIT, 30 - FIT, 0] {
        let claimed = claim(store, &kinds, LONG).jobs;
        seen += claimed.len();
        assert_eq!((claimed.len(), leased(store, &kinds)), (expected, seen));
        for job in &claimed {
            settle(store, job, Settlement::Extend(None)).expect("the lease is held");
        }
    }
}

#[test]
fn the_limit_applies_to_all_kinds_of_a_claim_together() {
    several_kinds(&connect(&SERVER.url(), fresh()));
}

#[test]
fn the_limit_applies_to_all_nodes_of_a_cluster_together() {
    let cluster = RedisCluster::start(3, 0);
    several_kinds(&connect(&cluster.url(), fresh()));
}

#[test]
fn a_page_ends_before_its_bodies_exceed_the_limit() {
    let (store, kind) = (connect(&SERVER.url(), fresh()), kind("mail"));
    // Jobs of 1 MiB, half of them leased and with a successor of 1 MiB.
    put(&store, &kind, FIT, MAX_BODY_LEN);
    assert_eq!(claim(&store, std::slice::from_ref(&kind), LONG).jobs.len(), FIT);
    for number in 0..FIT {
        let id = JobId::new(format!("{MAX_BODY_LEN:07}-{number:03}")).expect("a valid id");
        let body = Body::octets(vec![1; MAX_BODY_LEN]).expect("a valid body");
        let put = Put { mode: Mode::Replace, ..Put::new(kind.clone(), id, body) };
        block_on(store.put(vec![put])).expect("it is up").remove(0).expect("it is put");
    }
    put(&store, &kind, 500, 10);
    let mut query = Query { limit: 1000, ..Query::new(kind) };
    let mut pages = Vec::new();
    loop {
        let page = block_on(store.list(query.clone())).expect("it is up");
        let body = |job: &requeue_jobs::JobView| {
            job.body().len() + job.next.as_ref().map_or(0, |next| next.content.body.len())
        };
        let bytes: usize = page.jobs.iter().map(body).sum();
        assert!(bytes <= MAX_RESULT_BYTES, "{bytes} bytes");
        pages.push(page.jobs.len());
        query.after = page.cursor;
        if query.after.is_none() {
            break;
        }
    }
    // The small jobs have the lower ids, and take five thousand bytes.
    assert_eq!(pages, [500 + FIT / 2 - 1, FIT / 2, 1]);
}

#[test]
fn many_large_schedules_are_read_in_small_replies() {
    let (store, kind) = (connect(&SERVER.url(), fresh()), kind("mail"));
    for number in 0..15 {
        let id = JobId::new(format!("{number:02}")).expect("a valid id");
        let body = Body::octets(vec![1; MAX_BODY_LEN]).expect("a valid body");
        let (when, time_zone) = ("0 6 * * *".to_owned(), "UTC".to_owned());
        let (missed, next) = (requeue_jobs::Missed::One, Timestamp::from_millis(1));
        let schedule = Schedule { id, when, time_zone, content: body.into(), missed, next };
        block_on(store.set_schedule(kind.clone(), schedule, Default::default())).expect("it is up");
    }
    let schedules = block_on(store.schedules(kind)).expect("it is up");
    let ids: Vec<_> = schedules.iter().map(|schedule| schedule.id.as_str().to_owned()).collect();
    assert_eq!(ids, (0..15).map(|number| format!("{number:02}")).collect::<Vec<_>>());
    assert!(schedules.iter().all(|schedule| schedule.content.body.len() == MAX_BODY_LEN));
}
