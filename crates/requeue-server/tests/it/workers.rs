//! The list of workers.

use crate::support::instrumented::{InstrumentedFixture, LEASE, START, job, kind, retry};
use requeue_jobs::{Kind, Settlement, Store, WorkerName};
use requeue_server::WorkerInfo;
use requeue_testkit::block_on;
use std::time::Duration;

fn worker(fixture: &InstrumentedFixture, name: &str) -> WorkerInfo {
    let workers = fixture.store.workers().list();
    workers.into_iter().find(|worker| worker.name.as_str() == name).expect("the worker is listed")
}

fn held(fixture: &InstrumentedFixture, name: &str) -> u64 {
    worker(fixture, name).held
}

#[test]
fn a_worker_has_counts_of_claimed_acked_failed_and_held_jobs() {
    let fixture = InstrumentedFixture::new();
    for name in ["a", "b", "c", "d", "e"] {
        fixture.put(job("mail", name)).unwrap();
    }
    fixture.advance(1);
    let jobs = fixture.claim("mail", "w", Some(LEASE));
    fixture.advance(1);
    fixture.settle(&jobs[0], Settlement::Ack).unwrap();
    fixture.settle(&jobs[0], Settlement::Ack).unwrap_err();
    fixture.settle(&jobs[1], retry()).unwrap();
    fixture.settle(&jobs[2], Settlement::Bury { error: "no".into() }).unwrap();
    fixture.settle(&jobs[3], Settlement::Release).unwrap();
    fixture.claim("sms", "idle", None);
    let at = |seconds| START.saturating_add(Duration::from_secs(seconds));
    let listed = worker(&fixture, "w");
    let expected = WorkerInfo {
        name: WorkerName::new("w").unwrap(),
        kinds: vec!["mail".into()],
        first_seen: at(1),
        last_seen: at(2),
        waiting: 0,
        claimed: 5,
        acked: 1,
        failed: 2,
        held: 1,
        expired: 0,
        expired_in_a_row: 0,
    };
    assert_eq!(listed, expected);
    assert_eq!(
        serde_json::to_string(&listed).unwrap(),
        concat!(
            r#"{"name":"w","kinds":["mail"],"first_seen":"2023-11-14T22:13:21.000Z","#,
            r#""last_seen":"2023-11-14T22:13:22.000Z","waiting":0,"claimed":5,"acked":1,"#,
            r#""failed":2,"held":1,"expired":0,"expired_in_a_row":0}"#
        )
    );
    let names: Vec<_> =
        fixture.store.workers().list().into_iter().map(|worker| worker.name).collect();
    assert_eq!(names, ["idle", "w"].map(|name| WorkerName::new(name).unwrap()));
}

#[test]
fn a_lease_is_held_until_it_expires_or_is_settled() {
    let fixture = InstrumentedFixture::new();
    fixture.put(job("mail", "a")).unwrap();
    let first = fixture.claim("mail", "w", Some(LEASE)).remove(0);
    fixture.advance(20);
    fixture.settle(&first, Settlement::Extend(Some(LEASE))).unwrap();
    fixture.advance(29);
    assert_eq!(held(&fixture, "w"), 1);
    fixture.advance(1);
    assert_eq!(held(&fixture, "w"), 0, "the lease has expired");
    let second = fixture.claim("mail", "other", Some(LEASE)).remove(0);
    assert_eq!((held(&fixture, "w"), held(&fixture, "other")), (0, 1));
    fixture.settle(&first, Settlement::Ack).unwrap_err();
    assert_eq!((worker(&fixture, "w").acked, held(&fixture, "other")), (0, 1));
    fixture.settle(&second, Settlement::Ack).unwrap();
    assert_eq!((worker(&fixture, "other").acked, held(&fixture, "other")), (1, 0));
}

#[test]
fn expired_leases_are_counted_until_the_worker_settles_one() {
    let fixture = InstrumentedFixture::new();
    let expired = || {
        let worker = worker(&fixture, "w");
        (worker.expired, worker.expired_in_a_row)
    };
    for name in ["a", "b", "c"] {
        fixture.put(job("mail", name)).unwrap();
    }
    let lost = fixture.claim("mail", "w", Some(LEASE));
    assert_eq!((lost.len(), expired()), (3, (0, 0)));
    fixture.advance(30);
    // A reap ends one, and the claim of another worker the others.
    assert_eq!(block_on(fixture.store.reap(1)).unwrap().count, 1);
    assert_eq!(expired(), (1, 1));
    fixture.claim("mail", "other", Some(LEASE));
    assert_eq!(expired(), (3, 3));
    assert_eq!(worker(&fixture, "other").expired, 0);
    // What comes too late settles nothing.
    fixture.settle(&lost[0], Settlement::Ack).unwrap_err();
    assert_eq!(expired(), (3, 3));
    fixture.put(job("sms", "d")).unwrap();
    let next = fixture.claim("sms", "w", Some(LEASE)).remove(0);
    assert_eq!(expired(), (3, 3), "a claim is no sign of life of those who do the work");
    fixture.settle(&next, retry()).unwrap();
    assert_eq!(expired(), (3, 0));
}

#[test]
fn waiting_claims_are_counted() {
    let fixture = InstrumentedFixture::new();
    let name = WorkerName::new("w").unwrap();
    let kinds: Vec<Kind> = (0..150).map(|n| kind(&format!("k{n}"))).collect();
    let waiting = [fixture.store.waiting(&name, &kinds), fixture.store.waiting(&name, &kinds)];
    let listed = worker(&fixture, "w");
    assert_eq!((listed.waiting, listed.claimed, listed.kinds.len()), (2, 0, 16));
    fixture.advance(3600);
    assert_eq!(worker(&fixture, "w").waiting, 2, "a waiting worker stays listed");
    drop(waiting);
    assert_eq!(worker(&fixture, "w").waiting, 0);
    fixture.advance(600);
    assert_eq!(fixture.store.workers().list(), []);
}

#[test]
fn a_worker_that_holds_a_lease_stays_listed() {
    let fixture = InstrumentedFixture::new();
    fixture.put(job("mail", "a")).unwrap();
    fixture.claim("mail", "w", Some(Duration::from_secs(700)));
    fixture.advance(650);
    assert_eq!(held(&fixture, "w"), 1);
    fixture.advance(50);
    assert_eq!(fixture.store.workers().list(), []);
}
