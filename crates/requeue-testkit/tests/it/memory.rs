//! The conformance suite on the memory store.

use requeue_testkit::MemoryFixture;

requeue_testkit::conformance!(MemoryFixture::new);
