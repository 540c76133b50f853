//! A store on Redis keeps the contract behind a server, too.

use crate::support::Served;

requeue_testkit::conformance!(Served::redis);
