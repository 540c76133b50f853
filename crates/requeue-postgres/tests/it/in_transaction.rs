//! A job that is put in a transaction of the application exists if and only if the transaction commits.

use crate::support::application::Application;
use crate::support::{
    LONG, SERVER, claimed, clients, connect, fresh, id, ids, is_whole, kind, put, put_after,
    put_all, settle, try_put,
};
use requeue_jobs::{
    Change, ChangeKind, Generation, JobState, Jobs, Placed, PutError, PutOutcome, Settled,
    Settlement, Store, StoreError,
};
use requeue_postgres::PostgresStore;
use requeue_testkit::block_on;
use requeue_testkit::servers::until;
use std::sync::Arc;
use std::time::Duration;

/// A new schema, and an application that uses it.
fn start() -> (PostgresStore, Jobs, Application) {
    let store = clients(&SERVER.url(), 1).remove(0);
    let jobs = Jobs::new(Arc::new(store.clone()));
    (store, jobs, Application::connect(&SERVER.url()))
}

fn pending(store: &PostgresStore) -> u64 {
    block_on(store.kind(kind())).expect("the server is up").counts.pending
}

#[test]
fn a_put_is_invisible_until_the_commit_and_then_claimable() {
    let (store, jobs, app) = start();
    app.run("begin");
    let placed = app.put(&store, jobs.put("mail", "a", "hello")).expect("the put succeeds");
    assert_eq!(placed.outcome, PutOutcome::Created);
    assert_eq!(block_on(store.get(kind(), id("a"))), Ok(None));
    assert_eq!(claimed(&store, 1, LONG).jobs.len(), 0);
    assert_eq!(pending(&store), 0);
    app.run("commit");
    is_whole(&store);
    let job = claimed(&store, 1, LONG).jobs.remove(0);
    assert_eq!((job.id().as_str(), job.body().bytes()), ("a", &b"hello"[..]));
    assert_eq!(job.version.generation, placed.generation);
    assert_eq!(settle(&store, &job, Settlement::Ack), Ok(Settled::Done));
    is_whole(&store);
}

#[test]
fn after_a_rollback_nothing_exists_and_the_counts_are_exact() {
    let (store, jobs, app) = start();
    put_all(&store, vec![put("before")]);
    for (begin, end) in [("begin", "rollback"), ("begin; savepoint s", "rollback to s; commit")] {
        app.run(begin);
        app.put(&store, jobs.put("mail", "new", "")).expect("the put succeeds");
        app.put(&store, jobs.put("mail", "before", "other").after(LONG)).expect("it exists");
        app.put(&store, jobs.put("other-kind", "a", "")).expect("the put succeeds");
        app.run(end);
        assert_eq!(ids(&store), ["before"]);
        let view = block_on(store.get(kind(), id("before"))).expect("the server is up");
        let view = view.expect("it exists");
        assert_eq!((view.body().bytes(), view.state), (&b"hello"[..], JobState::Ready));
        let kinds = block_on(store.kinds()).expect("the server is up");
        assert_eq!(kinds.iter().map(|view| view.kind.as_str()).collect::<Vec<_>>(), ["mail"]);
        is_whole(&store);
    }
}

#[test]
fn a_savepoint_that_is_released_keeps_its_put() {
    let (store, jobs, app) = start();
    app.run("begin; savepoint s");
    app.put(&store, jobs.put("mail", "a", "")).expect("the put succeeds");
    app.run("release s; savepoint t");
    app.put(&store, jobs.put("mail", "b", "")).expect("the put succeeds");
    app.run("rollback to t; commit");
    assert_eq!(ids(&store), ["a"]);
    is_whole(&store);
}

#[test]
fn two_transactions_that_put_one_job_wait_for_each_other() {
    let (store, jobs, first) = start();
    for (end, outcome) in [("commit", PutOutcome::Updated), ("rollback", PutOutcome::Created)] {
        first.run("begin");
        let before = first.put(&store, jobs.put("mail", end, "one")).expect("the put succeeds");
        let after = std::thread::scope(|scope| {
            let (store, jobs) = (&store, &jobs);
            let second = scope.spawn(move || {
                let second = Application::connect(&SERVER.url());
                second.run(&format!("set application_name = 'waits {end}'; begin"));
                let placed = second.put(store, jobs.put("mail", end, "two"));
                second.run("commit");
                placed
            });
            let waits = format!(
                "select count(*) from pg_stat_activity \
                 where application_name = 'waits {end}' and wait_event_type = 'Lock'"
            );
            until("the second waits", || SERVER.query(&waits) == "1");
            first.run(end);
            second.join().expect("no panic").expect("the put succeeds")
        });
        assert_eq!(after.outcome, outcome);
        assert!(after.generation > before.generation);
        let view = block_on(store.get(kind(), id(end))).expect("the server is up");
        assert_eq!(view.expect("it exists").body().bytes(), b"two");
        is_whole(&store);
    }
}

/// Puts a batch that takes its numbers, and then waits for a transaction. Meanwhile makes other calls. A call of the store would
/// wait only for a moment: this is another application, which waits for as long as it takes.
fn put_late<T>(
    store: &PostgresStore,
    schema: &str,
    meanwhile: impl FnOnce() -> T,
) -> (Vec<Placed>, T) {
    let jobs = Jobs::new(Arc::new(store.clone()));
    let app = Application::connect(&SERVER.url());
    app.run("begin");
    app.put(store, jobs.put("mail", "a", "")).expect("the put succeeds");
    let batch = format!(
        "select string_agg(p.outcome || ' ' || p.generation, ',' order by array_position(array['d', 'c', 'a'], p.job_id)) \
         from \"{schema}\".kind k cross join lateral \"{schema}\"._put(null, k.kind_id, array['d', 'c', 'a'], \
         array['', '', '']::bytea[], null, null, null, null, null, null, null, null) p where k.name = 'mail'"
    );
    let (results, other) = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| Application::connect(&SERVER.url()).run(&batch));
        let waits = format!(
            "select count(*) from pg_stat_activity where wait_event_type = 'Lock' \
             and query like '%\"{schema}\"._put%' and pid <> pg_backend_pid()"
        );
        until("the batch waits", || SERVER.query(&waits) == "1");
        let other = meanwhile();
        app.run("commit");
        (waiting.join().expect("no panic"), other)
    });
    let placed = results.split(',').map(|result| {
        let (outcome, generation) = result.split_once(' ').expect("two numbers");
        let outcome = match outcome {
            "0" => PutOutcome::Created,
            "1" => PutOutcome::Updated,
            "3" => PutOutcome::Coalesced,
            other => panic!("{other}"),
        };
        Placed { outcome, generation: Generation(generation.parse().expect("a number")) }
    });
    (placed.collect(), other)
}

fn cancel(store: &PostgresStore, name: &str) {
    let cancel = Change { kind: kind(), id: id(name), action: ChangeKind::Cancel };
    block_on(store.change(vec![cancel])).expect("the server is up").remove(0).expect("it exists");
}

#[test]
fn a_batch_that_has_waited_creates_a_job_with_a_later_generation_than_a_removed_one() {
    for is_acked in [true, false] {
        let options = fresh();
        let (schema, store) = (options.schema.clone(), connect(&SERVER.url(), options));
        put_all(&store, vec![put_after("first", LONG)]);
        let (placed, removed) = put_late(&store, &schema, || {
            let removed = try_put(&store, put("c")).expect("the server is up");
            if is_acked {
                let job = claimed(&store, 1, LONG).jobs.remove(0);
                settle(&store, &job, Settlement::Ack).expect("the lease is held");
            } else {
                cancel(&store, "c");
            }
            removed
        });
        let outcomes: Vec<_> = placed.iter().map(|placed| placed.outcome).collect();
        assert_eq!(outcomes, [PutOutcome::Created, PutOutcome::Created, PutOutcome::Updated]);
        assert!(placed[1].generation > removed.generation, "{placed:?} after {removed:?}");
        assert!(placed[0].generation < placed[1].generation, "{placed:?}");
        let stored = block_on(store.get(kind(), id("c"))).expect("the server is up");
        assert_eq!(stored.expect("it exists").version.generation, placed[1].generation);
        // In the order of the entries.
        let order = claimed(&store, 3, LONG).jobs;
        let order: Vec<_> = order.iter().map(|job| job.id().as_str()).collect();
        assert_eq!(order[order.len() - 2..], ["d", "c"]);
        is_whole(&store);
    }
}

#[test]
fn a_batch_that_has_waited_puts_a_successor_with_a_later_generation_than_a_removed_one() {
    let options = fresh();
    let (schema, store) = (options.schema.clone(), connect(&SERVER.url(), options));
    put_all(&store, vec![put("c")]);
    let job = claimed(&store, 1, LONG).jobs.remove(0);
    let (placed, removed) = put_late(&store, &schema, || {
        let removed = try_put(&store, put("c")).expect("the server is up");
        cancel(&store, "c");
        removed
    });
    assert_eq!(placed[1].outcome, PutOutcome::Coalesced);
    assert!(placed[1].generation > removed.generation, "{placed:?} after {removed:?}");
    assert_eq!(settle(&store, &job, Settlement::Ack), Ok(Settled::Cancelled));
    is_whole(&store);
}

/// Claims of the store pass the place of the job before it is committed, and waits precede all of them.
#[test]
fn a_job_that_is_committed_long_after_its_due_time_is_late_and_not_lost() {
    let (store, jobs, app) = start();
    app.run("begin");
    app.put(&store, jobs.put("mail", "late", "")).expect("the put succeeds");
    let began = std::time::Instant::now();
    let mut number = 0;
    // Longer than transactions usually take to commit.
    while began.elapsed() < Duration::from_secs(1) {
        number += 1;
        try_put(&store, put(&format!("other-{number}"))).expect("the server is up");
        for job in claimed(&store, 10, LONG).jobs {
            settle(&store, &job, Settlement::Ack).expect("the lease is held");
        }
    }
    app.run("commit");
    let mut found = Vec::new();
    until("it is claimed", || {
        block_on(store.wait(vec![kind()], LONG)).expect("the server is up");
        found = claimed(&store, 10, LONG).jobs;
        !found.is_empty()
    });
    assert_eq!(found[0].id().as_str(), "late");
    is_whole(&store);
}

#[test]
fn transactions_of_every_isolation_level_can_put() {
    for level in ["read committed", "repeatable read", "serializable"] {
        let (store, jobs, app) = start();
        // The snapshot is older than the kind.
        app.run(&format!("begin isolation level {level}; select 1"));
        app.put(&store, jobs.put("mail", "new", "")).expect("the put succeeds");
        app.put(&store, jobs.put("mail", "new", "again")).expect("the put succeeds");
        app.run("commit");
        assert_eq!(ids(&store), ["new"]);
        app.run(&format!("begin isolation level {level}; select 1"));
        let other = try_put(&store, put("new")).expect("the server is up");
        let placed = app.put(&store, jobs.put("mail", "new", "changed"));
        match placed {
            Ok(placed) => {
                assert_eq!((level, placed.outcome), ("read committed", PutOutcome::Updated));
                assert!(placed.generation > other.generation);
                app.run("commit");
            }
            Err(PutError::Store(StoreError::Unavailable { reason })) => {
                assert_ne!(level, "read committed");
                assert!(reason.contains("could not serialize access"), "{reason}");
                app.run("rollback");
            }
            Err(other) => panic!("{other}"),
        }
        is_whole(&store);
    }
}

#[test]
fn ids_may_contain_control_characters() {
    let (store, jobs, app) = start();
    app.run("begin");
    for name in ["\0", "\u{1}", "\u{1}\u{1}", "\u{1}\u{2}", "a\0b"] {
        app.put(&store, jobs.put("mail", name, "")).expect("the put succeeds");
    }
    app.run("commit");
    assert_eq!(ids(&store), ["\0", "\u{1}", "\u{1}\u{1}", "\u{1}\u{2}", "a\0b"]);
    is_whole(&store);
}

#[test]
fn a_condition_that_fails_leaves_the_transaction_usable() {
    let (store, jobs, app) = start();
    put_all(&store, vec![put("a")]);
    app.run("begin");
    let exists = app.put(&store, jobs.put("mail", "a", "").if_absent());
    assert!(matches!(exists, Err(PutError::Exists { .. })), "{exists:?}");
    app.put(&store, jobs.put("mail", "b", "").if_absent()).expect("it is absent");
    app.run("commit");
    assert_eq!(ids(&store), ["a", "b"]);
    is_whole(&store);
}

#[test]
fn the_schema_of_the_store_is_used() {
    let mut options = fresh();
    options.schema = "another_schema".to_owned();
    let store = connect(&SERVER.url(), options);
    let (jobs, app) = (Jobs::new(Arc::new(store.clone())), Application::connect(&SERVER.url()));
    app.run("begin");
    app.put(&store, jobs.put("mail", "a", "")).expect("the put succeeds");
    app.run("commit");
    assert_eq!(SERVER.query("select kind, id from another_schema.jobs"), "mail|a");
}
