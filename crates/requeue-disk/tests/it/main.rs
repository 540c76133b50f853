//! The integration tests of the disk store, in one program: linking one is much faster than
//! linking one per file.
#![allow(clippy::unwrap_used, reason = "a test that cannot continue fails")]

mod support;

mod backup;
mod closing;
mod compare_with_memory_store;
mod conformance;
mod directories;
mod faults;
mod flips;
mod format;
mod histories;
mod kinds;
mod layers;
mod lone_caller;
mod lost_groups;
mod power_cut;
mod process;
mod salvage;
mod simulated_disk;
mod simulation;
mod spares;
mod threads;
mod upkeep;
mod verify;
