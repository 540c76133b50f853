//! A connection is used again only in a state in which the next call can rely on it.

use crate::support::{LONG, SERVER, connect, fresh, id, kind, put, put_after, put_all, try_put};
use requeue_jobs::{Body, Missed, Schedule, Store, StoreError, Tick, Timestamp};
use requeue_testkit::block_on;

const NEXT: Timestamp = Timestamp::from_millis(1_900_000_000_000);

/// Rows that cannot be read make a call panic in the middle of its transaction.
#[test]
fn a_call_that_panics_leaves_no_open_transaction_behind() {
    let mut options = fresh();
    options.max_connections = 1;
    let (schema, store) = (options.schema.clone(), connect(&SERVER.url(), options));
    put_all(&store, vec![put_after("first", LONG)]);
    let (when, time_zone) = ("0 6 * * *".into(), "Europe/Berlin".into());
    let (body, missed) = (Body::default(), Missed::One);
    let schedule =
        Schedule { id: id("daily"), when, time_zone, content: body.into(), missed, next: NEXT };
    block_on(store.set_schedule(kind(), schedule, Default::default())).expect("the server is up");

    let change = |to: &str| {
        // A transaction that is still open would keep the table locked.
        let alter = format!("alter table {schema}.schedule alter column missed type {to}");
        SERVER.query(&format!("set lock_timeout = '10s'; {alter}"));
    };
    change("int");
    let tick = Tick { kind: kind(), id: id("daily"), expected: NEXT, next: NEXT, put: None };
    let failed = block_on(store.tick(tick));
    assert!(matches!(failed, Err(StoreError::Unknown { .. })), "{failed:?}");
    change("smallint");

    try_put(&store, put("second")).expect("the server is up");
    let count = format!("select count(*) from {schema}.job");
    assert_eq!(SERVER.query(&count), "2", "the put is committed");
}
