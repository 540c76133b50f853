//! The memory store keeps the contract.

use requeue_testkit::MemoryFixture;

requeue_testkit::conformance!(MemoryFixture::new);
