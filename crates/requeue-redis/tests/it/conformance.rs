//! The store contract on one Redis server.

use crate::support::RedisFixture;

requeue_testkit::conformance!(RedisFixture::new);
