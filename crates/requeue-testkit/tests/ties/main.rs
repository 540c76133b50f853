//! Stores that do not promise an order of jobs at the same millisecond pass everything all the
//! same; and nothing else is forgiven them.

mod store;

use requeue_jobs::rules::List;
use requeue_testkit::{check_histories, check_history, check_simulations, conformance};
use store::{Order, UnorderedFixture};

/// Orders that are right, but for ties.
const ORDERS: [Order; 2] = [Order::TiesById, Order::TiesLatestFirst];

#[test]
fn no_case_asks_for_an_order_of_ties_that_is_not_promised() {
    for order in ORDERS {
        assert_eq!(conformance::failures(|| UnorderedFixture::new(order)), [""; 0], "{order:?}");
    }
}

#[test]
fn no_history_asks_for_an_order_of_ties_that_is_not_promised() {
    for order in ORDERS {
        check_histories(|| UnorderedFixture::new(order), &[], 300);
    }
}

#[test]
fn no_simulation_asks_for_an_order_of_ties() {
    for order in ORDERS {
        check_simulations(|| UnorderedFixture::new(order), &[], 50);
    }
}

/// One of a few histories differs from the model.
fn differs(order: Order, orders_ties: bool) -> bool {
    let mut fixture = (0..300).map(|seed| (seed, UnorderedFixture::new(order)));
    fixture.any(|(seed, mut fixture)| {
        fixture.orders_ties = orders_ties;
        check_history(&fixture, seed).is_err()
    })
}

#[test]
fn who_promises_an_order_of_ties_must_keep_it() {
    for order in ORDERS {
        assert!(differs(order, true), "{order:?}");
    }
}

#[test]
fn who_promises_no_order_of_ties_must_keep_that_of_times() {
    for list in List::ALL {
        assert!(differs(Order::LastOf(list), false), "{list:?}");
    }
}
