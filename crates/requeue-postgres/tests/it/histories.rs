//! Random histories on Postgres match the model.

use crate::support::PostgresFixture;
use requeue_testkit::{check_histories, check_schedules, check_seeds};
use std::sync::Arc;
use std::time::Duration;

const FAILED_ONCE: [u64; 0] = [];

#[test]
fn histories_on_postgres_match_the_model() {
    check_histories(PostgresFixture::new, &FAILED_ONCE, 15);
}

#[test]
fn two_nodes_on_postgres_start_each_run_of_a_schedule_once() {
    check_seeds(&FAILED_ONCE, "REQUEUE_SCHEDULES", 1, |seed| {
        check_schedules(Arc::new(PostgresFixture::new()), seed, Duration::from_secs(2 * 86_400))
    });
}
