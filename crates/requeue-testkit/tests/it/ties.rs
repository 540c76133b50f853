//! A store may return jobs with the same due time in any order, if its fixture says so.

use crate::fixture::ManualFixture;
use crate::flaws::unordered::{Order, UnorderedStore};
use requeue_testkit::{check_histories, check_simulations, conformance};

/// Correct orders, except for jobs with the same time.
const ORDERS: [Order; 2] = [Order::TiesById, Order::TiesLatestFirst];

fn fixture(order: Order) -> ManualFixture {
    ManualFixture::new(false, |clock| UnorderedStore::create(clock, order))
}

#[test]
fn no_conformance_case_requires_an_order_of_ties() {
    for order in ORDERS {
        assert_eq!(conformance::failures(|| fixture(order)), [""; 0], "{order:?}");
    }
}

#[test]
fn no_history_requires_an_order_of_ties() {
    for order in ORDERS {
        check_histories(|| fixture(order), &[], 300);
    }
}

#[test]
fn no_simulation_requires_an_order_of_ties() {
    for order in ORDERS {
        check_simulations(|| fixture(order), &[], 50);
    }
}
