//! Kinds, generations and cancels in transactions of the application.

use crate::support::{SERVER, fresh};
use requeue_jobs::{
    ChangeError, Changed, ClaimedJob, Generation, Jobs, Placed, PutOutcome, StoreError,
};
use requeue_postgres::{PostgresStore, PutInTransaction};
use requeue_testkit::block_on;
use std::sync::Arc;
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::{Client, NoTls, Transaction};

struct App {
    store: PostgresStore,
    jobs: Jobs,
    runtime: Runtime,
}

impl App {
    fn new() -> Self {
        let store = block_on(PostgresStore::connect_with(&SERVER.url(), fresh()));
        let store = store.expect("the server runs");
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        App { jobs: Jobs::new(Arc::new(store.clone())), store, runtime }
    }

    fn client(&self) -> Client {
        let url = SERVER.url();
        let connected = tokio_postgres::connect(&url, NoTls);
        let (client, connection) = self.runtime.block_on(connected).expect("the server runs");
        drop(self.runtime.spawn(connection));
        client
    }

    fn begin<'a>(&self, client: &'a mut Client) -> Transaction<'a> {
        self.runtime.block_on(client.transaction()).expect("the server runs")
    }

    fn put(&self, transaction: &Transaction<'_>, id: &str) -> Placed {
        let put = self.jobs.put("mail", id, "body").on(&self.store, transaction);
        self.runtime.block_on(put).expect("valid")
    }

    fn commit(&self, transaction: Transaction<'_>) {
        self.runtime.block_on(transaction.commit()).expect("the server runs");
    }

    fn roll_back(&self, transaction: Transaction<'_>) {
        self.runtime.block_on(transaction.rollback()).expect("the server runs");
    }

    fn exists(&self, id: &str) -> bool {
        block_on(self.jobs.get("mail", id)).expect("the server runs").is_some()
    }

    /// Puts a job that exists from then on, in a transaction of its own.
    fn put_before(&self, id: &str) -> Placed {
        block_on(self.jobs.put("mail", id, "before").into_future()).expect("valid")
    }

    fn claim(&self) -> Vec<ClaimedJob> {
        block_on(self.jobs.claim(["mail"], "worker").max(10).into_future())
            .expect("the server runs")
            .jobs
    }

    fn claimed_ids(&self) -> Vec<String> {
        self.claim().iter().map(|job| job.id().as_str().to_owned()).collect()
    }

    fn check(&self) {
        assert_eq!(block_on(self.store.check()).expect("the server runs"), [""; 0]);
    }
}

#[test]
fn a_kind_whose_first_put_is_rolled_back_can_be_used() {
    let app = App::new();
    let mut client = app.client();
    let transaction = app.begin(&mut client);
    app.put(&transaction, "lost");
    app.roll_back(transaction);
    assert_eq!(app.put_before("a").outcome, PutOutcome::Created);
    assert_eq!(app.claimed_ids(), ["a"]);
    app.check();
}

#[test]
fn generations_of_a_job_rise_although_transactions_commit_in_another_order() {
    let app = App::new();
    let (mut one, mut other) = (app.client(), app.client());
    app.put_before("x");
    let first = app.begin(&mut one);
    let early = app.put(&first, "a").generation;
    let second = app.begin(&mut other);
    let late = app.put(&second, "b").generation;
    assert!(early < late);
    app.commit(second);
    app.commit(first);
    let again: Generation = app.put_before("a").generation;
    assert!(again > late);
    app.check();
}

#[test]
fn a_cancel_takes_effect_with_the_commit() {
    let app = App::new();
    let mut client = app.client();
    app.put_before("a");
    for commits in [false, true] {
        let transaction = app.begin(&mut client);
        let cancel = |id| app.runtime.block_on(app.store.cancel_on(&transaction, "mail", id));
        assert_eq!(cancel("a"), Ok(Changed::Removed));
        assert!(matches!(cancel("a"), Err(ChangeError::Absent { .. })));
        assert!(matches!(cancel(""), Err(ChangeError::Store(StoreError::Invalid(_)))));
        assert!(app.exists("a"));
        match commits {
            true => app.commit(transaction),
            false => app.roll_back(transaction),
        }
        assert_eq!(app.exists("a"), !commits);
    }
    app.put_before("b");
    let job = app.claim().pop().expect("a job");
    let transaction = app.begin(&mut client);
    let cancelled = app.runtime.block_on(app.store.cancel_on(&transaction, "mail", "b"));
    assert_eq!(cancelled, Ok(Changed::Ending));
    app.commit(transaction);
    drop(block_on(app.jobs.ack(&job.receipt)));
    assert!(!app.exists("b"));
    app.check();
}
