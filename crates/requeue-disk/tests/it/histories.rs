//! Random histories on disk: as the model says, also when it is closed and opened on the way.

use crate::support::DiskFixture;
use requeue_testkit::check_histories;

const FAILED_ONCE: [u64; 0] = [];

#[test]
fn the_disk_store_does_what_the_model_does() {
    check_histories(DiskFixture::new, &FAILED_ONCE, 300);
}

#[test]
fn opened_again_it_is_what_it_was() {
    check_histories(|| DiskFixture::reopened_after(5), &FAILED_ONCE, 300);
}
