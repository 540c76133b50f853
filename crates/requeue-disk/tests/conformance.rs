//! The disk store keeps the contract, with hardly any memory.

mod support;

use support::DiskFixture;

requeue_testkit::conformance!(DiskFixture::new);
