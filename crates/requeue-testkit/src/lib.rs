//! The suite that every store of `requeue-jobs` passes.

mod fixture;

pub use fixture::{Fixture, MemoryFixture, block_on};
