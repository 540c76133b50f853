//! The test kit for stores of `requeue-jobs`.
//!
//! [`conformance!`] generates one test for each case of the contract, for the store of a
//! [`Fixture`].
//!
//! [`check_histories`] compares a store with a [`Model`], operation by operation.
//! [`check_simulations`] runs a whole system on a store in simulated time, and [`Concurrent`] runs
//! many clients in real time; [`Load`] records what they know for certain. [`Faulty`] and [`Proxy`] inject faults. [`Operations`] generates
//! random calls. [`servers`] starts real servers.

#[macro_use]
mod cases;
mod concurrent;
pub mod conformance;
mod examples;
mod faults;
mod fixture;
mod harness;
mod history;
mod load;
mod model;
mod operations;
mod proxy;
mod random;
mod schedules;
pub mod servers;
mod simulator;
mod tokens;
mod wake_flag;

pub use concurrent::Concurrent;
pub use examples::example;
pub use faults::{Fault, Faulty};
pub use fixture::{Fixture, MemoryFixture, block_on};
pub use history::{check_histories, check_history};
pub use load::{Confirmed, Load};
pub use model::Model;
pub use operations::{
    ActionKind, ConditionKind, DueKind, ModeKind, Operation, OperationKind, Operations, Response,
    SettlementKind, Weights, random_head,
};
pub use proxy::{Direction, Proxy};
pub use random::{Random, check_seeds};
pub use schedules::check_schedules;
pub use simulator::{check_simulations, simulate};
