//! The disk store keeps the contract, with hardly any memory.

use crate::support::DiskFixture;

requeue_testkit::conformance!(DiskFixture::new);
