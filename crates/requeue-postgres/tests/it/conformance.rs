//! The store contract on one Postgres server.

use crate::support::PostgresFixture;

requeue_testkit::conformance!(PostgresFixture::new);
