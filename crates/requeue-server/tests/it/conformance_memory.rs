//! A store in memory keeps the contract behind a server, too.

use crate::support::Served;

requeue_testkit::conformance!(Served::memory);
