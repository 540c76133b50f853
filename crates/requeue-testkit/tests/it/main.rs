//! Tests of the test kit: the stores in memory pass all checks, and every check finds the stores
//! with flaws that it is meant to find.

mod concurrent;
mod fixture;
mod flaws;
mod histories;
mod memory;
mod proxy;
mod servers;
mod simulations;
mod ties;
