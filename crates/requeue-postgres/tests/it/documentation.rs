//! What `docs/postgres.md` shows works.

use requeue_jobs::{Jobs, Rate, Store};
use requeue_postgres::{Options, PostgresStore, PutInTransaction};
use requeue_testkit::block_on;
use requeue_testkit::servers::{PostgresServer, PostgresVersion};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::{Client, NoTls};

const PAGE: &str = include_str!("../../../../docs/postgres.md");

/// The `sql` blocks of the page, with their line numbers.
fn blocks() -> Vec<(usize, String)> {
    let (mut blocks, mut lines) = (Vec::new(), PAGE.lines().zip(1..));
    while let Some((line, number)) = lines.next() {
        if line == "```sql" {
            let inside = lines.by_ref().map(|(line, _)| line).take_while(|line| *line != "```");
            blocks.push((number, inside.collect::<Vec<_>>().join("\n")));
        }
    }
    blocks
}

/// Returns the block that contains this text.
fn block(text: &str) -> String {
    let found = blocks().into_iter().find(|(_, block)| block.contains(text));
    found.expect("the page has this block").1
}

/// A server with the database `shop`, and a runtime for connections to it.
struct Shop {
    server: PostgresServer,
    runtime: Runtime,
}

impl Shop {
    fn new(version: &PostgresVersion) -> Self {
        let server = PostgresServer::with(version, &[]);
        server.create_database("shop");
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        Shop { server, runtime }
    }

    fn url(&self, role: &str) -> String {
        format!("postgres://{role}@{}/shop", self.server.address())
    }

    fn client(&self, role: &str) -> Client {
        let (client, connection) = self
            .runtime
            .block_on(tokio_postgres::connect(&self.url(role), NoTls))
            .expect("the server runs");
        drop(self.runtime.spawn(connection));
        client
    }

    fn run(&self, client: &Client, sql: &str) -> Result<(), String> {
        let text = |error: tokio_postgres::Error| match error.as_db_error() {
            Some(error) => error.message().to_owned(),
            None => error.to_string(),
        };
        self.runtime.block_on(client.batch_execute(sql)).map_err(text)
    }

    fn store(&self, role: &str, migrate: bool) -> PostgresStore {
        let mut options = Options::default();
        options.migrate = migrate;
        block_on(PostgresStore::connect_with(&self.url(role), options)).expect("it may connect")
    }
}

#[test]
fn every_statement_of_the_page_works() {
    for version in PostgresVersion::all() {
        let shop = Shop::new(&version);
        let store = shop.store("requeue", true);
        let client = shop.client("requeue");
        // The role has the name of the schema, which the page advises against.
        shop.run(&client, "set search_path = public").expect("valid");
        let blocks = blocks();
        assert!(blocks.len() > 10, "the page has {} blocks", blocks.len());
        for (line, sql) in blocks {
            if sql.starts_with("drop schema") {
                assert_eq!(block_on(store.check()).expect("the server runs"), [""; 0]);
            }
            shop.run(&client, &sql).unwrap_or_else(|error| panic!("line {line}: {error}\n{sql}"));
        }
        let left = "select 1 / count(*) from pg_tables where schemaname = 'public' \
                    and not exists (select from pg_namespace where nspname = 'requeue')";
        shop.run(&client, left).expect("the table of the application is left");
    }
}

#[test]
fn roles_with_the_privileges_of_the_page_can_do_their_work_and_nothing_else() {
    let shop = Shop::new(&PostgresVersion::chosen());
    shop.run(&shop.client("requeue"), &block("create role requeue_owner")).expect("valid");
    drop(shop.store("requeue_owner", true));
    let owner = shop.client("requeue_owner");
    shop.run(&owner, &block("grant usage on schema requeue")).expect("it is the owner");

    let application = shop.client("shop");
    for allowed in [
        r#"select requeue.put('mail', 'a', 'text', options => '{"notify": true}')"#,
        "select requeue.put('mail', 'b', '{}'::jsonb, delay => '1 hour')",
        "select requeue.put('mail', 'c', '\\x00'::bytea); select requeue.cancel('mail', 'c')",
    ] {
        shop.run(&application, allowed).expect(allowed);
    }
    for denied in [
        "select * from requeue.jobs",
        "select * from requeue.job",
        "delete from requeue.job",
        "update requeue.kind set paused = true",
        "select nextval('requeue.number')",
        "select requeue._recount()",
        "select requeue._claim(null, 1, 1, null, 1, 'w', 1000, 0, 0, 0, true, null, null, null)",
        "select requeue._reap(null, 1, 1, 0)",
        "create table requeue.mine (a int)",
    ] {
        let error = shop.run(&application, denied).expect_err(denied);
        assert!(error.contains("permission denied"), "{denied}: {error}");
    }

    let store = shop.store("requeue_service", false);
    let jobs = Jobs::new(Arc::new(store.clone()));
    block_on(async {
        let claimed = jobs.claim(["mail"], "w").await?.jobs;
        jobs.ack(&claimed[0].receipt).await?;
        jobs.put("mail", "b", "now").await?;
        let claimed = jobs.claim(["mail"], "w").await?.jobs;
        jobs.retry(&claimed[0].receipt, "later").await?;
        let rate = Rate { jobs: 10, per: Duration::from_secs(1), burst: Some(10) };
        jobs.change_settings("mail", |settings| settings.rate = Some(rate)).await?;
        jobs.run_now("mail", "b").await?;
        let claimed = jobs.claim(["mail"], "w").await?.jobs;
        jobs.bury(&claimed[0].receipt, "never").await?;
        jobs.cancel("mail", "b").await?;
        store.reap(100).await?;
        jobs.kinds().await?;
        Ok::<(), Box<dyn std::error::Error>>(())
    })
    .expect("the service may do all of this");
    let mut client = shop.client("requeue_service");
    shop.runtime
        .block_on(async {
            let transaction = client.transaction().await?;
            jobs.put("mail", "d", "").on(&store, &transaction).await?;
            store.cancel_on(&transaction, "mail", "d").await?;
            jobs.put("new.kind", "e", "").on(&store, &transaction).await?;
            transaction.commit().await?;
            Ok::<(), Box<dyn std::error::Error>>(())
        })
        .expect("the service may put in transactions");
    shop.run(&client, "select requeue._recount()").expect("the service may recount");
    assert_eq!(block_on(store.check()).expect("the server runs"), [""; 0]);
    let error = shop.run(&client, "drop table requeue.job").expect_err("it is not the owner");
    assert!(error.contains("must be owner"), "{error}");
}
