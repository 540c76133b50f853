//! The suite that every store of `requeue-jobs` passes.
//!
//! [`conformance!`] makes one test of each case, for the store of a [`Fixture`].
//! [`wrong`] has stores that must not pass: they test the suite.

#[macro_use]
mod cases;
pub mod conformance;
mod faults;
mod fixture;
mod history;
mod model;
mod random;
mod simulator;
mod trial;
pub mod wrong;

pub use faults::{Fault, Faulty};
pub use fixture::{Fixture, MemoryFixture, block_on};
pub use history::{check_histories, check_history};
pub use model::Model;
pub use random::{Random, check_seeds};
pub use simulator::{check_simulations, simulate};
