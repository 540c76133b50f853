//! The store contract, on a store on Redis behind a server.

use crate::support::Served;

requeue_testkit::conformance!(Served::redis);
