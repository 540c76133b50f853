//! Random histories on Redis match the model.

use crate::support::RedisFixture;
use requeue_testkit::check_histories;

const FAILED_ONCE: [u64; 0] = [];

#[test]
fn histories_on_redis_match_the_model() {
    check_histories(RedisFixture::new, &FAILED_ONCE, 100);
}
