//! The contract of durable jobs, case by case.
//!
//! Every sentence of `docs/jobs.md` that a caller can observe is a case: a promise that a store
//! keeps or breaks. [`conformance!`](crate::conformance!) generates one test for each, for the tests
//! of a store. [`failures`] runs all of them and returns those that fail.
//!
//! A case gets a fresh store and moves its clock itself: nothing sleeps. After every call the store
//! [checks itself](crate::Fixture::check). The tests of each store check what needs more than one
//! store, such as a restart.

mod batches;
mod by_time;
mod cancel;
mod claim;
mod conditions;
mod content;
mod corners;
mod cron;
mod dead;
mod done;
mod give_up;
mod kinds;
mod lease;
mod limits;
mod list;
mod modes;
mod priority;
mod put;
mod rate;
mod reschedule;
mod restore;
mod retry;
mod run_now;
mod successor;
mod wait;

use crate::fixture::{Fixture, block_on};
use crate::harness::Harness;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;

/// A promise of the contract.
#[derive(Clone, Copy)]
pub struct Case {
    /// Its topic and name, such as `lease::an_ack_ends_the_job`.
    pub name: &'static str,
    run: for<'a> fn(&'a Harness) -> Pin<Box<dyn Future<Output = ()> + 'a>>,
}

impl Case {
    /// Runs the case on a store.
    ///
    /// ```
    /// use requeue_testkit::conformance::cases;
    /// use requeue_testkit::{MemoryFixture, block_on};
    ///
    /// let case = cases().find(|case| case.name == "lease::an_ack_ends_the_job");
    /// block_on(case.unwrap().run(MemoryFixture::new()));
    /// ```
    ///
    /// # Panics
    ///
    /// If the store breaks the promise.
    pub async fn run(&self, fixture: impl Fixture + 'static) {
        (self.run)(&Harness::new(fixture)).await;
    }
}

/// Runs the case with this name on a fresh store, like the tests that
/// [`conformance!`](crate::conformance!) generates.
///
/// ```
/// use requeue_testkit::{MemoryFixture, conformance};
///
/// conformance::run("lease::an_ack_ends_the_job", MemoryFixture::new);
/// ```
///
/// # Panics
///
/// If the store breaks the promise, or there is no case with this name.
pub fn run<F: Fixture + 'static>(name: &str, fixture: impl FnOnce() -> F) {
    let case = cases().find(|case| case.name == name);
    let case = case.unwrap_or_else(|| panic!("there is no case {name}"));
    block_on(case.run(fixture()));
}

/// Runs all cases, each on a fresh store, and returns the names of those that fail.
///
/// ```
/// use requeue_testkit::{MemoryFixture, conformance};
///
/// assert_eq!(conformance::failures(MemoryFixture::new), [""; 0]);
/// ```
pub fn failures<F: Fixture + 'static>(fixture: impl Fn() -> F) -> Vec<&'static str> {
    let fails = |case: &Case| {
        // The store that a failed case leaves behind is dropped.
        catch_unwind(AssertUnwindSafe(|| block_on(case.run(fixture())))).is_err()
    };
    cases().filter(fails).map(|case| case.name).collect()
}

/// Returns all cases, by topic.
pub fn cases() -> impl Iterator<Item = Case> {
    CASES.iter().copied()
}

macro_rules! table {
    ($($topic:ident { $($case:ident)* })*) => {
        const CASES: &[Case] = &[$($(Case {
            name: concat!(stringify!($topic), "::", stringify!($case)),
            run: |harness| Box::pin($topic::$case(harness)),
        },)*)*];
    };
}

each_case!(table);

/// Generates one test for each case, in one module per topic.
///
/// The argument is a function that returns a [`Fixture`](crate::Fixture) with a fresh store. The
/// tests of a store only need this line:
///
/// ```
/// requeue_testkit::conformance!(requeue_testkit::MemoryFixture::new);
/// ```
///
/// `cargo test lease::` then runs all cases about leases.
#[macro_export]
macro_rules! conformance {
    ($fixture:expr) => {
        $crate::each_case!($crate::conformance_tests, $fixture);
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! conformance_tests {
    ($fixture:expr; $($topic:ident { $($case:ident)* })*) => {
        $(mod $topic {
            #[allow(unused_imports)]
            use super::*;
            $(#[test]
            fn $case() {
                let name = concat!(stringify!($topic), "::", stringify!($case));
                $crate::conformance::run(name, $fixture);
            })*
        })*
    };
}
