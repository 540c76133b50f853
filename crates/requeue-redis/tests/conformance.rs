//! The store on one Redis keeps the contract.

mod support;

use support::RedisFixture;

requeue_testkit::conformance!(RedisFixture::new);
