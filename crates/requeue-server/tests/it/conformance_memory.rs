//! The store contract, on a store in memory behind a server.

use crate::support::Served;

requeue_testkit::conformance!(Served::memory);
