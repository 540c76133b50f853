//! Kinds, generations and cancels in transactions of the application.

use crate::support::application::Application;
use crate::support::{
    LONG, SERVER, claimed, clients, id, ids, is_whole, kind, put, settle, try_put,
};
use requeue_jobs::{
    ChangeError, Changed, Jobs, PutOutcome, Settled, Settlement, Store, StoreError,
};
use requeue_postgres::PostgresStore;
use requeue_testkit::block_on;
use std::sync::Arc;

fn start() -> (PostgresStore, Jobs, [Application; 2]) {
    let store = clients(&SERVER.url(), 1).remove(0);
    let jobs = Jobs::new(Arc::new(store.clone()));
    (store, jobs, [(); 2].map(|()| Application::connect(&SERVER.url())))
}

#[test]
fn a_kind_whose_first_put_is_rolled_back_can_be_used() {
    let (store, jobs, [app, _]) = start();
    app.run("begin");
    app.put(&store, jobs.put("mail", "lost", "")).expect("the put succeeds");
    app.run("rollback");
    let placed = try_put(&store, put("a")).expect("the server is up");
    assert_eq!(placed.outcome, PutOutcome::Created);
    assert_eq!(claimed(&store, 10, LONG).jobs.len(), 1);
    assert_eq!(ids(&store), ["a"]);
    is_whole(&store);
}

#[test]
fn generations_of_a_job_rise_although_transactions_commit_in_another_order() {
    let (store, jobs, [one, other]) = start();
    try_put(&store, put("x")).expect("the server is up");
    one.run("begin");
    let early = one.put(&store, jobs.put("mail", "a", "")).expect("the put succeeds");
    other.run("begin");
    let late = other.put(&store, jobs.put("mail", "b", "")).expect("the put succeeds");
    assert!(early.generation < late.generation);
    other.run("commit");
    one.run("commit");
    let again = try_put(&store, put("a")).expect("the server is up");
    assert!(again.generation > late.generation);
    is_whole(&store);
}

#[test]
fn a_cancel_takes_effect_with_the_commit() {
    let (store, _, [app, _]) = start();
    try_put(&store, put("a")).expect("the server is up");
    let exists = || block_on(store.get(kind(), id("a"))).expect("the server is up").is_some();
    for (end, is_left) in [("rollback", true), ("commit", false)] {
        app.run("begin");
        assert_eq!(app.cancel(&store, "mail", "a"), Ok(Changed::Removed));
        let absent = app.cancel(&store, "mail", "a");
        assert!(matches!(absent, Err(ChangeError::Absent { .. })), "{absent:?}");
        let invalid = app.cancel(&store, "mail", "");
        assert!(matches!(invalid, Err(ChangeError::Store(StoreError::Invalid(_)))), "{invalid:?}");
        assert!(exists());
        app.run(end);
        assert_eq!(exists(), is_left);
    }
    try_put(&store, put("b")).expect("the server is up");
    let job = claimed(&store, 1, LONG).jobs.remove(0);
    app.run("begin");
    assert_eq!(app.cancel(&store, "mail", "b"), Ok(Changed::Ending));
    app.run("commit");
    assert_eq!(settle(&store, &job, Settlement::Ack), Ok(Settled::Cancelled));
    assert_eq!(ids(&store), Vec::<String>::new());
    is_whole(&store);
}
