//! The conformance suite, on a disk store with a very small memory limit.

use crate::support::DiskFixture;

requeue_testkit::conformance!(DiskFixture::new);
