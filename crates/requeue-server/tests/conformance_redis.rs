//! A store on Redis keeps the contract behind a server, too.

mod support;

use support::Served;

requeue_testkit::conformance!(Served::redis);
