//! The contract of durable jobs, case by case.
//!
//! Every sentence of `docs/jobs.md` that can be seen from outside is a case with a name: a
//! promise that a store keeps or breaks. [`conformance!`](crate::conformance!) makes one test of
//! each, for a store's own tests; [`failures`] runs all of them and answers which are broken.
//!
//! A case gets a fresh store, and moves its time itself: nothing sleeps. After every answer
//! the store [checks itself](crate::Fixture::check). What needs more than one store to see,
//! such as a restart, is for the store's own tests.

mod batches;
mod cancel;
mod claim;
mod conditions;
mod corners;
mod cron;
mod dead;
mod give_up;
mod kinds;
mod lease;
mod limits;
mod list;
mod modes;
mod put;
mod restore;
mod retry;
mod run_now;
mod successor;
mod wait;

use crate::fixture::{Fixture, block_on};
use crate::trial::Trial;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;

/// One promise.
#[derive(Clone, Copy)]
pub struct Case {
    /// Its topic and its name: `lease::an_ack_ends_the_job`.
    pub name: &'static str,
    run: for<'a> fn(&'a Trial) -> Pin<Box<dyn Future<Output = ()> + 'a>>,
}

impl Case {
    /// Tries a store.
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
    /// If the store does not keep the promise.
    pub async fn run(&self, fixture: impl Fixture + 'static) {
        (self.run)(&Trial::new(fixture)).await;
    }
}

/// Runs the case of this name on a fresh store; what the tests that
/// [`conformance!`](crate::conformance!) makes do.
///
/// ```
/// use requeue_testkit::{MemoryFixture, conformance};
///
/// conformance::run("lease::an_ack_ends_the_job", MemoryFixture::new);
/// ```
///
/// # Panics
///
/// If the store does not keep the promise, or there is none of this name.
pub fn run<F: Fixture + 'static>(name: &str, fixture: impl FnOnce() -> F) {
    let case = cases().find(|case| case.name == name);
    let case = case.unwrap_or_else(|| panic!("there is no case {name}"));
    block_on(case.run(fixture()));
}

/// Runs all cases, each on a fresh store, and answers the names of those that failed.
///
/// ```
/// use requeue_testkit::{MemoryFixture, conformance};
///
/// assert_eq!(conformance::failures(MemoryFixture::new), [""; 0]);
/// ```
pub fn failures<F: Fixture + 'static>(fixture: impl Fn() -> F) -> Vec<&'static str> {
    let fails = |case: &Case| {
        // What a failed case leaves behind goes with its store.
        catch_unwind(AssertUnwindSafe(|| block_on(case.run(fixture())))).is_err()
    };
    cases().filter(fails).map(|case| case.name).collect()
}

/// All cases, by topic.
pub fn cases() -> impl Iterator<Item = Case> {
    CASES.iter().copied()
}

macro_rules! table {
    ($($topic:ident { $($case:ident)* })*) => {
        const CASES: &[Case] = &[$($(Case {
            name: concat!(stringify!($topic), "::", stringify!($case)),
            run: |trial| Box::pin($topic::$case(trial)),
        },)*)*];
    };
}

each_case!(table);

/// Makes one test of each case, in a module per topic.
///
/// It is given what makes a [`Fixture`](crate::Fixture) with a fresh store. In `tests/` of a
/// store's crate this is all there is to write:
///
/// ```
/// requeue_testkit::conformance!(requeue_testkit::MemoryFixture::new);
/// ```
///
/// `cargo test lease::` then runs what is promised of leases.
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
