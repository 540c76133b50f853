//! A store on disk keeps the contract behind a server, too.

use crate::support::Served;

requeue_testkit::conformance!(Served::disk);
