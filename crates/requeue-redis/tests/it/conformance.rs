//! The store on one Redis keeps the contract.

use crate::support::RedisFixture;

requeue_testkit::conformance!(RedisFixture::new);
