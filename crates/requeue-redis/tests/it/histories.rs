//! Random histories on Redis: as the model says.

use crate::support::RedisFixture;
use requeue_testkit::check_histories;

const FAILED_ONCE: [u64; 0] = [];

#[test]
fn the_redis_store_does_what_the_model_does() {
    check_histories(RedisFixture::new, &FAILED_ONCE, 100);
}
