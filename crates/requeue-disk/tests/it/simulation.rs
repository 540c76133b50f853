//! The whole system, simulated, on disk: with faults, and with the store closed and the power cut
//! on the way.

use crate::support::DiskFixture;
use requeue_testkit::{check_histories, check_schedules, check_seeds, check_simulations};
use std::sync::Arc;
use std::time::Duration;

const FAILED_ONCE: [u64; 0] = [];

#[test]
fn the_invariants_hold_on_disk_whatever_happens() {
    check_simulations(|| DiskFixture::reopened_after(usize::MAX), &FAILED_ONCE, 30);
}

#[test]
fn the_invariants_hold_over_restarts() {
    check_simulations(|| DiskFixture::reopened_after(40), &FAILED_ONCE, 30);
}

#[test]
fn the_invariants_hold_over_power_cuts() {
    check_simulations(|| DiskFixture::cut_after(40), &FAILED_ONCE, 30);
}

#[test]
fn histories_go_on_over_power_cuts() {
    check_histories(|| DiskFixture::cut_after(7), &FAILED_ONCE, 100);
}

#[test]
fn each_run_of_a_schedule_is_started_once_over_power_cuts() {
    check_seeds(&FAILED_ONCE, "REQUEUE_SCHEDULES", 3, |seed| {
        let fixture = Arc::new(DiskFixture::cut_after(40));
        check_schedules(fixture, seed, Duration::from_secs(10 * 86_400))
    });
}
