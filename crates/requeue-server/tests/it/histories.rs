//! Random histories through a server, compared with the model.

use crate::support::Served;
use requeue_testkit::check_histories;

const FAILED_ONCE: [u64; 0] = [];

#[test]
fn a_store_behind_a_server_behaves_like_the_model() {
    check_histories(Served::memory, &FAILED_ONCE, 10);
}
