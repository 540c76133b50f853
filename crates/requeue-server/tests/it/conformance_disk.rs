//! The store contract, on a store on disk behind a server.

use crate::support::Served;

requeue_testkit::conformance!(Served::disk);
