//! Random histories on disk match the model, also if the store is reopened on the way.

use crate::support::DiskFixture;
use requeue_testkit::check_histories;

const FAILED_ONCE: [u64; 0] = [];

#[test]
fn the_disk_store_does_what_the_model_does() {
    check_histories(DiskFixture::new, &FAILED_ONCE, 300);
}

#[test]
fn a_reopened_store_does_what_the_model_does() {
    check_histories(|| DiskFixture::reopened_after(5), &FAILED_ONCE, 300);
}
