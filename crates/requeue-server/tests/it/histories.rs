//! Random histories through a server: as the model says.

use crate::support::Served;
use requeue_testkit::check_histories;

const FAILED_ONCE: [u64; 0] = [];

#[test]
fn behind_a_server_a_store_does_what_the_model_does() {
    check_histories(Served::memory, &FAILED_ONCE, 10);
}
