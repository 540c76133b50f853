//! The store contract, on a store on Postgres behind a server.

use crate::support::Served;

requeue_testkit::conformance!(Served::postgres);
