//! The Rust client passes all scenarios, on disk, on Redis and on Postgres.

use requeue_scenarios::{Scenario, Store, WorkerProgram, run_all};
use requeue_testkit::servers::{PostgresServer, RedisServer};
use std::path::PathBuf;

/// The server binary: next to the programs of this package.
fn server() -> PathBuf {
    let worker = PathBuf::from(env!("CARGO_BIN_EXE_scenario-worker"));
    let server = worker.with_file_name("requeue");
    assert!(server.exists(), "{} is missing: cargo build -p requeue-cli", server.display());
    server
}

fn passes_all(store: &Store) {
    let program = WorkerProgram {
        client: "rust".to_owned(),
        command: vec![env!("CARGO_BIN_EXE_scenario-worker").to_owned()],
    };
    let failed = run_all(&Scenario::all(), &program, &server(), store);
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn the_rust_client_passes_all_scenarios_on_disk() {
    passes_all(&Store::Disk);
}

#[test]
fn the_rust_client_passes_all_scenarios_on_redis() {
    let redis = RedisServer::start();
    passes_all(&Store::Url(redis.url()));
}

#[test]
fn the_rust_client_passes_all_scenarios_on_postgres() {
    let postgres = PostgresServer::start();
    passes_all(&Store::Url(postgres.url()));
}
