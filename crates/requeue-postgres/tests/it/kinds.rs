//! Kinds without jobs are removed if there are many, whatever transactions are open.

use crate::support::application::Application;
use crate::support::{SERVER, connect, fresh, is_whole, kind_named, put_of, try_put};
use requeue_jobs::Store;
use requeue_testkit::block_on;

#[test]
fn an_open_transaction_that_puts_into_idle_kinds_does_not_keep_the_others_from_being_removed() {
    let options = fresh();
    let schema = options.schema.clone();
    let store = connect(&SERVER.url(), options);
    let count = || SERVER.query(&format!("select count(*) from {schema}.kind"));
    SERVER.query(&format!(
        "select count({schema}._kind_id('kind-' || n)) from generate_series(1, 5200) n"
    ));
    assert_eq!(count(), "5200");
    let app = Application::connect(&SERVER.url());
    app.run("begin");
    app.run(&format!("select {schema}.put('kind-' || n, 'a', '') from generate_series(1, 100) n"));
    for _ in 0..3 {
        block_on(store.reap(10)).expect("it does not wait");
    }
    assert_eq!(count(), "5000");
    app.run("rollback");
    try_put(&store, put_of(&kind_named("kind-1"), "a")).expect("it exists, or is created again");
    is_whole(&store);
}

#[test]
fn calls_that_wait_for_a_new_kind_leave_connections_for_others() {
    let options = fresh();
    let schema = options.schema.clone();
    let store = connect(&SERVER.url(), options);
    try_put(&store, put_of(&kind_named("known"), "a")).expect("the server is up");
    let app = Application::connect(&SERVER.url());
    app.run(&format!("begin; select {schema}.put('new', 'a', '')"));
    // More than there are connections.
    let new = || put_of(&kind_named("new"), "b");
    let waiting: Vec<_> = (0..20).map(|_| store.put(vec![new()])).collect();
    for n in 0..20 {
        try_put(&store, put_of(&kind_named("known"), &n.to_string())).expect("it does not wait");
    }
    // Together with others.
    let both = block_on(store.put(vec![put_of(&kind_named("known"), "c"), new()]));
    let both = both.expect("one is put");
    assert!(both[0].is_ok(), "{both:?}");
    let reason = both[1].as_ref().expect_err("the transaction is open").to_string();
    assert!(reason.contains("an open transaction is creating kind new"), "{reason}");
    for put in waiting {
        let reason = block_on(put).expect_err("the transaction is open").to_string();
        assert!(reason.contains("an open transaction is creating kind new"), "{reason}");
    }
    app.run("commit");
    try_put(&store, new()).expect("the kind exists");
    is_whole(&store);
}
