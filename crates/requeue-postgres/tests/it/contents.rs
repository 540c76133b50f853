//! Contents in the tables: every column is read and written, and heads count and are checked.

use crate::support::application::Application;
use crate::support::{
    LONG, SERVER, claim, connect, fresh, id, is_whole, kind, put, put_all, try_put,
};
use requeue_jobs::json::HeadJson;
use requeue_jobs::limits::MAX_BODY_LEN;
use requeue_jobs::{
    Body, Content, Envelope, Head, HeadFields, Invalid, Jobs, Missed, Put, PutError, Query,
    Schedule, ScheduleCondition, Store, StoreError, Timestamp,
};
use requeue_postgres::PostgresStore;
use requeue_testkit::block_on;
use std::sync::Arc;

/// A head with all fields: a new one does not compile here.
fn head(of_type: &str, bytes: &[u8]) -> Head {
    let envelope = Some(Envelope::new(bytes, of_type).expect("it is short"));
    HeadFields { envelope }.into()
}

fn put_with(name: &str, head: Head) -> Put {
    let put = put(name);
    Put { content: Content { body: put.content.body, head }, ..put }
}

/// A new schema, its name, and an application.
fn start() -> (PostgresStore, String, Application) {
    let options = fresh();
    let schema = options.schema.clone();
    (connect(&SERVER.url(), options), schema, Application::connect(&SERVER.url()))
}

#[test]
fn every_column_of_a_job_is_read_and_written() {
    let (store, schema, app) = start();
    let statements = store.statements();
    let from = format!(" from \"{schema}\"._lock(");
    let mut columns: Vec<&str> = statements
        .iter()
        .find_map(|(sql, _)| sql.strip_prefix("select ")?.split_once(&from))
        .map(|(columns, _)| columns.split(", ").collect())
        .expect("there is such a statement");
    columns.sort_unstable();
    let of_table = app.run(&format!(
        "select string_agg(column_name, ' ' order by column_name collate \"C\") from information_schema.columns \
         where table_schema = '{schema}' and table_name = 'job' and column_name not in ('kind_id', 'heads_len')"
    ));
    assert_eq!(columns.join(" "), of_table, "columns.rs and tables.sql");
}

#[test]
fn a_head_counts_as_many_bytes_in_sql_as_in_rust() {
    let (store, schema, app) = start();
    for len in [0, 1, 2, 3, 4, 5, 300] {
        let head = head("application/x", &vec![7; len]);
        put_all(&store, vec![put_with("a", head.clone())]);
        let json = app.run(&format!("select head from {schema}.job"));
        let read: HeadJson = serde_json::from_str(&json).expect("the JSON of exports");
        assert_eq!(read.into_head(), Ok(head.clone()));
        let counted = app.run(&format!("select heads_len from {schema}.job"));
        assert_eq!(counted, head.len().to_string(), "{json}");
    }
    // What is not known here counts, too.
    let count = |json: &str| app.run(&format!("select {schema}._head_len('{json}')"));
    assert_eq!(count(r#"{"new": "field"}"#), r#""new": "field""#.len().to_string());
    assert_eq!(app.run(&format!("select {schema}._head_len(null)")), "0");
    put_all(&store, vec![put("a")]);
    let nothing =
        format!("select coalesce(head::text, heads_len::text, 'nothing') from {schema}.job");
    assert_eq!(app.run(&nothing), "nothing");
}

#[test]
fn a_head_that_cannot_be_read_is_an_error_that_names_the_job() {
    let (store, schema, app) = start();
    put_all(&store, vec![put_with("broken", head("application/x", b"x"))]);
    let schedule = Schedule {
        id: id("daily"),
        when: "0 6 * * *".to_owned(),
        time_zone: "UTC".to_owned(),
        content: put_with("a", head("application/x", b"x")).content,
        missed: Missed::One,
        next: Timestamp::from_millis(1),
    };
    let always = ScheduleCondition::Always;
    block_on(store.set_schedule(kind(), schedule, always)).expect("the server is up");
    for table in ["job", "schedule"] {
        app.run(&format!(r#"update {schema}.{table} set head = '{{"envelope": 1}}'"#));
    }
    let names = |error: StoreError, what: &str| {
        assert!(error.to_string().contains(&format!("the head of {what:?}: ")), "{error}");
    };
    names(block_on(store.get(kind(), id("broken"))).expect_err("it is damaged"), "broken");
    names(block_on(store.list(Query::new(kind()))).expect_err("it is damaged"), "broken");
    names(block_on(store.claim(claim(1, LONG))).expect_err("it is damaged"), "broken");
    names(block_on(store.schedules(kind())).expect_err("it is damaged"), "daily");
    // A put replaces it.
    put_all(&store, vec![put("broken")]);
    is_whole(&store);
}

#[test]
fn a_put_that_is_too_long_fails_alone_and_creates_no_kind() {
    let (store, _, app) = start();
    let large = |name: &str| {
        let body = Body::octets(vec![7; MAX_BODY_LEN]).expect("it is within the limit");
        let head = head("application/x", &[7; 16 << 10]);
        Put { content: Content { body, head }, ..put(name) }
    };
    let is_too_long = |result: &Result<_, PutError>| {
        let too_long = |invalid: &Invalid| matches!(invalid, Invalid::TooLong { .. });
        matches!(result, Err(PutError::Store(StoreError::Invalid(invalid))) if too_long(invalid))
    };
    assert!(is_too_long(&try_put(&store, large("a"))));
    assert_eq!(block_on(store.kinds()).expect("the server is up"), []);
    let puts = vec![put("a"), large("b"), put("c"), large("a")];
    let placed = block_on(store.put(puts)).expect("the server is up");
    let failed: Vec<bool> = placed.iter().map(is_too_long).collect();
    assert_eq!(failed, [false, true, false, true]);
    assert!(placed[0].is_ok() && placed[2].is_ok());
    assert_eq!(crate::support::ids(&store), ["a", "c"]);

    let jobs = Jobs::new(Arc::new(store.clone()));
    let envelope = |len| Envelope::new(vec![7; len], "application/x").expect("it is short");
    let put = |len| jobs.put("mail", "d", vec![7; MAX_BODY_LEN]).envelope(envelope(len));
    app.run("begin");
    assert!(is_too_long(&app.put(&store, put(16 << 10))));
    app.put(&store, put(1 << 10)).expect("an error of the contract does not end the transaction");
    app.run("commit");
    let view = block_on(store.get(kind(), id("d"))).expect("the server is up");
    assert_eq!(view.expect("it was put").version.content.head.envelope, Some(envelope(1 << 10)));
    is_whole(&store);
}
