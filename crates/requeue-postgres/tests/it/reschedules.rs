//! Reschedules in a transaction of the application follow the same rules as those of the store.

use crate::support::application::Application;
use crate::support::hostile::HOSTILE;
use crate::support::{
    LONG, PostgresFixture, SERVER, claimed, connect, fresh, id, is_whole, kind, put_all,
};
use crate::support::{put, put_after, settle};
use requeue_jobs::{
    BatchResults, Change, ChangeError, ChangeKind, Changed, Due, Generation, JobState, JobView,
    Layered, Priority, PutOutcome, Reschedule, Settlement, Store, StoreFuture, Timestamp,
    check_changes,
};
use requeue_postgres::PostgresStore;
use requeue_testkit::{Fixture, block_on, check_history, conformance};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A store that reschedules each job in a transaction of an application.
struct InTransaction {
    store: PostgresStore,
    app: Mutex<Application>,
}

impl InTransaction {
    fn change_one(&self, change: Change) -> Result<Changed, ChangeError> {
        let Change { kind, id, action } = change;
        let set = match action {
            ChangeKind::Reschedule(set) => set,
            action => {
                let changes = vec![Change { kind, id, action }];
                return block_on(self.store.change(changes)).expect("the server is up").remove(0);
            }
        };
        let app = self.app.lock().expect("no test panics while it holds this");
        app.run("begin");
        let placed = app.reschedule(&self.store, kind.as_str(), id.as_str(), set);
        // An error of the contract does not end the transaction.
        app.run("select 1");
        app.run("commit");
        placed.map(Changed::Rescheduled)
    }
}

impl Layered for InTransaction {
    fn inner(&self) -> &dyn Store {
        &self.store
    }

    fn change(&self, changes: Vec<Change>) -> StoreFuture<'_, BatchResults<Changed, ChangeError>> {
        Box::pin(async move {
            check_changes(&changes)?;
            Ok(changes.into_iter().map(|change| self.change_one(change)).collect())
        })
    }
}

struct InTransactionFixture {
    fixture: PostgresFixture,
    store: Arc<InTransaction>,
}

impl InTransactionFixture {
    fn new() -> Self {
        let fixture = PostgresFixture::new();
        // In the database of the fixture.
        let app = Mutex::new(Application::connect(&HOSTILE));
        let store = Arc::new(InTransaction { store: fixture.postgres(), app });
        InTransactionFixture { fixture, store }
    }
}

impl Fixture for InTransactionFixture {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    fn now(&self) -> Timestamp {
        self.fixture.now()
    }

    fn advance(&self, by: Duration) {
        self.fixture.advance(by);
    }

    fn check(&self) {
        self.fixture.check();
    }

    fn patience(&self) -> Duration {
        self.fixture.patience()
    }
}

#[test]
fn every_rule_of_a_reschedule_holds_in_a_transaction_of_the_application() {
    let cases = conformance::cases().filter(|case| case.name.contains("reschedule"));
    let mut count = 0;
    for case in cases {
        block_on(case.run(InTransactionFixture::new()));
        count += 1;
    }
    assert!(count > 20);
}

#[test]
fn random_histories_with_such_reschedules_equal_those_of_the_model() {
    for seed in 0..10 {
        if let Err(difference) = check_history(&InTransactionFixture::new(), seed) {
            panic!("seed {seed}: {difference}");
        }
    }
}

/// A new schema, its name, and an application.
fn start() -> (PostgresStore, String, Application) {
    let options = fresh();
    let schema = options.schema.clone();
    (connect(&SERVER.url(), options), schema, Application::connect(&SERVER.url()))
}

fn view(store: &PostgresStore, name: &str) -> JobView {
    block_on(store.get(kind(), id(name))).expect("the server is up").expect("it exists")
}

#[test]
fn reschedule_has_all_options_in_sql() {
    let (store, schema, app) = start();
    put_all(&store, vec![put_after("a", LONG)]);
    let run =
        |arguments: &str| app.run(&format!("select outcome from {schema}.reschedule({arguments})"));
    let body = |name: &str| {
        let body = view(&store, name).version.content.body;
        (String::from_utf8_lossy(body.bytes()).into_owned(), body.content_type().to_owned())
    };
    let of = |body: &str, content_type: &str| (body.to_owned(), content_type.to_owned());
    let first = view(&store, "a");
    assert_eq!(run(r#"'mail', 'a', options => '{"priority": 7}'"#), "updated");
    assert_eq!(
        (view(&store, "a").version.due, view(&store, "a").version.priority.get()),
        (first.version.due, 7)
    );
    assert_eq!(view(&store, "a").version.content.body, first.version.content.body);
    assert_eq!(run("'mail', 'a', 'text'"), "updated");
    assert_eq!(body("a"), of("text", "text/plain"));
    assert_eq!(run(r#"'mail', 'a', '{"a": 1}'::jsonb"#), "updated");
    assert_eq!(body("a"), of(r#"{"a": 1}"#, "application/json"));
    assert_eq!(run("'mail', 'a', 'x'::bytea"), "updated");
    assert_eq!(body("a"), of("x", "application/octet-stream"));
    assert_eq!(
        run(r#"'mail', 'a', 'y'::bytea, options => '{"content_type": "image/png"}'"#),
        "updated"
    );
    assert_eq!(body("a"), of("y", "image/png"));
    assert_eq!(run(r#"'mail', 'a', delay => '0 s', options => '{"notify": true}'"#), "updated");
    assert_eq!((view(&store, "a").state, body("a")), (JobState::Ready, of("y", "image/png")));
    assert_eq!(run("'mail', 'a', due => '2030-01-01Z'"), "updated");
    assert_eq!(view(&store, "a").version.due.as_millis(), 1_893_456_000_000);
    let of_generation = |generation: u64| {
        let options = format!(r#"{{"priority": 1, "if_generation": {generation}}}"#);
        run(&format!("'mail', 'a', options => '{options}'"))
    };
    assert_eq!(of_generation(1), "other_generation");
    let Generation(newest) = view(&store, "a").version.generation;
    assert_eq!(of_generation(newest), "updated");
    assert_eq!(run("'mail', 'absent', delay => '1 h'"), "absent");
    assert_eq!(run("'other', 'a', delay => '1 h'"), "absent");
    assert_eq!(run("'mail', 'a', delay => '0 s'"), "updated");
    let job = claimed(&store, 1, LONG).jobs.remove(0);
    assert_eq!(run("'mail', 'a', 'next'"), "coalesced");
    settle(&store, &job, Settlement::Bury { error: "no".into() }).expect("the lease is held");
    let job = claimed(&store, 1, LONG).jobs.remove(0);
    assert_eq!(job.body().bytes(), b"next");
    settle(&store, &job, Settlement::Bury { error: "no".into() }).expect("the lease is held");
    assert_eq!(run("'mail', 'a', 'dead'"), "updated");
    assert_eq!(view(&store, "a").state, JobState::Dead);
    assert_eq!(run("'mail', 'a', delay => '1 h'"), "revived");
    assert_eq!((view(&store, "a").state, body("a").0), (JobState::Waiting, "dead".to_owned()));
    is_whole(&store);
}

#[test]
fn every_invalid_argument_of_reschedule_is_a_clear_error_and_changes_nothing() {
    let (store, schema, app) = start();
    put_all(&store, vec![put_after("a", LONG)]);
    let before = view(&store, "a");
    let cases = [
        ("'', 'a', 'x'", "kind '' must have 1 to 128 characters"),
        ("null, 'a', 'x'", "kind NULL must have 1 to 128 characters"),
        ("'requeue.x', 'a', 'x'", "kind 'requeue.x' is reserved"),
        ("'mail', '', 'x'", "the id must not be empty"),
        ("'mail', null, 'x'", "the id must not be empty"),
        ("'mail', 'a'", "nothing to change: set delay, due, priority or body"),
        (r#"'mail', 'a', null::jsonb, options => '{"if_generation": 1}'"#, "nothing to change"),
        (r#"'mail', 'a', options => '{"content_type": "x/y"}'"#, "nothing to change"),
        (
            r#"'mail', 'a', options => '{"priority": 1, "content_type": "x/y"}'"#,
            "content_type belongs to the body",
        ),
        ("'mail', 'a', repeat('x', 1048577)", "the body has 1048577 bytes; the limit is 1048576"),
        ("'mail', 'a', delay => '1 s', due => now()", "delay and due exclude each other"),
        ("'mail', 'a', delay => '-1 s'", "it must not be negative"),
        ("'mail', 'a', delay => '11 years'", "the limit is 316224000000 (ten years)"),
        ("'mail', 'a', due => now() + '11 years'", "the limit is 316224000000 (ten years)"),
        ("'mail', 'a', due => '-infinity'", "must not be infinite"),
    ];
    for (arguments, message) in cases {
        let failed = app.try_run(&format!("select {schema}.reschedule({arguments})"));
        let (code, text) = failed.expect_err(arguments);
        assert!(text.starts_with("reschedule: ") && text.contains(message), "{arguments}: {text}");
        assert_eq!(code, "22023", "{arguments}: {text}");
    }
    assert_eq!(view(&store, "a"), before);
}

#[test]
fn a_reschedule_takes_effect_with_the_commit() {
    let (store, schema, app) = start();
    put_all(&store, vec![put("a")]);
    let due = view(&store, "a").version.due;
    for (end, moved) in [("rollback", false), ("commit", true)] {
        app.run("begin");
        let set = Reschedule { due: Some(Due::After(LONG)), ..Reschedule::default() };
        let placed = app.reschedule(&store, "mail", "a", set).expect("the job exists");
        assert_eq!(placed.outcome, PutOutcome::Updated);
        assert_eq!(
            (view(&store, "a").version.due, view(&store, "a").state),
            (due, JobState::Ready)
        );
        // It is locked until the end.
        assert_eq!(claimed(&store, 1, LONG).jobs.len(), 0);
        app.run(end);
        assert_eq!(view(&store, "a").version.due > due, moved);
        assert_eq!(view(&store, "a").body().bytes(), b"hello");
        is_whole(&store);
    }
    // A trigger, as in an application.
    app.run(&format!(
        "create table {schema}.orders (id text primary key, promised timestamptz); \
         create function {schema}.moved() returns trigger language plpgsql as $$ begin \
         perform {schema}.reschedule('mail', new.id, due => new.promised); return new; end $$; \
         create trigger moved after update on {schema}.orders for each row execute function {schema}.moved(); \
         insert into {schema}.orders values ('a', now()); \
         update {schema}.orders set promised = '2030-01-01Z'"
    ));
    assert_eq!(view(&store, "a").version.due.as_millis(), 1_893_456_000_000);
    let priority = Some(Priority::new(3).expect("valid"));
    let set = Reschedule { priority, ..Reschedule::default() };
    let absent = app.reschedule(&store, "mail", "b", set);
    assert!(matches!(absent, Err(ChangeError::Absent { .. })), "{absent:?}");
}
