//! Durable jobs in a directory: every answer is on disk before it is given.
#![allow(dead_code, unused_imports, reason = "the store that uses it follows")]

mod bytes;
mod disk;
mod error;
mod log;
mod manifest;
mod tables;
#[cfg(test)]
#[path = "../tests/support/twin.rs"]
mod twin;

pub use disk::{Directory, Disk, DiskFile};
pub use error::{Corrupt, DiskError};

// The twin is written for tests outside the crate, too.
#[cfg(test)]
extern crate self as requeue_disk;
