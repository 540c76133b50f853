//! Random histories on Redis match the model.

use crate::support::RedisFixture;
use requeue_testkit::{check_histories, check_schedules, check_seeds};
use std::sync::Arc;
use std::time::Duration;

const FAILED_ONCE: [u64; 0] = [];

#[test]
fn histories_on_redis_match_the_model() {
    check_histories(RedisFixture::new, &FAILED_ONCE, 100);
}

#[test]
fn two_nodes_on_redis_start_each_run_of_a_schedule_once() {
    check_seeds(&FAILED_ONCE, "REQUEUE_SCHEDULES", 1, |seed| {
        check_schedules(Arc::new(RedisFixture::new()), seed, Duration::from_secs(5 * 86_400))
    });
}
