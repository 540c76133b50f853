//! Two nodes on one server: one stops while it holds leases.

use crate::support::{LONG, SERVER, claimed, clients, ids, is_whole, kind, put, put_all, settle};
use requeue_jobs::{SettleError, Settled, Settlement, Store};
use requeue_testkit::block_on;
use std::collections::BTreeMap;
use std::time::Duration;

const LEASE: Duration = Duration::from_millis(300);

#[test]
fn the_jobs_of_a_node_that_stops_come_back_when_their_leases_expire() {
    let mut nodes = clients(&SERVER.url(), 2);
    let (staying, stopping) = (nodes.remove(0), nodes.remove(0));
    put_all(&staying, (0..5).map(|n| put(&format!("job-{n}"))).collect());
    let held = claimed(&stopping, 3, LEASE).jobs;
    assert_eq!(held.len(), 3);
    drop(stopping);
    assert_eq!(claimed(&staying, 5, LONG).jobs.len(), 2, "the others are leased");
    let mut back = BTreeMap::new();
    while back.len() < 3 {
        // Nobody else is there: the wait ends because a lease does.
        block_on(staying.wait(vec![kind()], LONG)).expect("the server is up");
        for job in claimed(&staying, 5, LONG).jobs {
            back.insert(job.id().as_str().to_owned(), job);
        }
    }
    for old in &held {
        let new = &back[old.id().as_str()];
        assert_eq!((old.attempt, new.attempt), (1, 2));
        assert!(new.receipt.fence() > old.receipt.fence());
        assert_eq!(new.version.generation, old.version.generation);
        let lost = settle(&staying, old, Settlement::Ack);
        assert!(matches!(lost, Err(SettleError::LeaseLost { .. })), "{lost:?}");
        assert_eq!(settle(&staying, new, Settlement::Ack), Ok(Settled::Done));
    }
    assert_eq!(ids(&staying).len(), 2);
    is_whole(&staying);
}

#[test]
fn a_reap_of_another_node_ends_the_leases_of_a_node_that_stops() {
    let mut nodes = clients(&SERVER.url(), 2);
    let (staying, stopping) = (nodes.remove(0), nodes.remove(0));
    put_all(&stopping, (0..3).map(|n| put(&format!("job-{n}"))).collect());
    assert_eq!(claimed(&stopping, 3, LEASE).jobs.len(), 3);
    drop(stopping);
    let mut reaped = 0;
    requeue_testkit::servers::until("all leases are ended", || {
        reaped += block_on(staying.reap(10)).expect("the server is up").expired.len();
        reaped == 3
    });
    let counts = block_on(staying.kind(kind())).expect("the server is up").counts;
    assert_eq!((counts.pending, counts.leased), (3, 0));
    is_whole(&staying);
}
