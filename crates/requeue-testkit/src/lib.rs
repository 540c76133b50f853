//! The suite that every store of `requeue-jobs` passes.
//!
//! [`conformance!`] makes one test of each case, for the store of a [`Fixture`].
//! [`wrong`] has stores that must not pass: they test the suite.
//!
//! [`check_histories`] compares a store with a [`Model`], one step after the other;
//! [`check_simulations`] lets a whole system run on it in simulated time, and [`Concurrent`] many
//! clients in real time. [`Faulty`] and [`Proxy`] let things go wrong meanwhile. [`servers`] starts
//! real ones.

#[macro_use]
mod cases;
mod concurrent;
pub mod conformance;
mod faults;
mod fixture;
mod history;
mod model;
mod proxy;
mod random;
pub mod servers;
mod simulator;
mod trial;
pub mod wrong;

pub use concurrent::Concurrent;
pub use faults::{Fault, Faulty};
pub use fixture::{Fixture, MemoryFixture, block_on};
pub use history::{check_histories, check_history};
pub use model::Model;
pub use proxy::{Direction, Proxy};
pub use random::{Random, check_seeds};
pub use simulator::{check_simulations, simulate};
