//! The contract on the newest version of Postgres. A part of it is tested there behind a pooler. The tests of the contract run on
//! the oldest version.

use crate::bouncer::TOPICS;
use crate::support::PostgresFixture;
use crate::support::hostile::{self, nothing_was_hijacked};
use requeue_testkit::servers::{PostgresServer, PostgresVersion};
use requeue_testkit::{block_on, check_histories, conformance};
use std::sync::LazyLock;

static NEWEST: LazyLock<PostgresServer> = LazyLock::new(|| {
    let [_, newest] = PostgresVersion::all();
    let server = PostgresServer::with(&newest, &[]);
    hostile::plant(&server);
    server
});

#[test]
fn the_contract_holds_on_the_newest_version() {
    let url = NEWEST.url_of(hostile::DATABASE);
    let is_tested_there =
        |name: &str| TOPICS.iter().any(|topic| name.starts_with(&format!("{topic}::")));
    // Limits do not depend on the version, and take long.
    let cases = conformance::cases()
        .filter(|case| !is_tested_there(case.name) && !case.name.starts_with("limits::"));
    for case in cases {
        println!("{}", case.name);
        block_on(case.run(PostgresFixture::unchecked(&url)));
    }
    nothing_was_hijacked(&NEWEST);
}

#[test]
fn histories_on_the_newest_version_match_the_model() {
    check_histories(|| PostgresFixture::at(&NEWEST.url()), &[], 5);
}
