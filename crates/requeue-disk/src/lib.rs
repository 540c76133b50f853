//! A durable job store in a local directory. No server is needed.
//!
//! A [`DiskStore`] is a [`Store`](requeue_jobs::Store) of `requeue-jobs`. One process opens a
//! directory and uses it exclusively. An operation returns when its change is on disk. The store
//! keeps the same contract as every other store; it is described in `docs/jobs.md`.
//!
//! ```
//! use requeue_disk::DiskStore;
//! use requeue_jobs::Jobs;
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! # let directory = std::env::temp_dir().join(format!("requeue-disk-{}", std::process::id()));
//! # requeue_testkit::block_on(async {
//! let jobs = Jobs::new(Arc::new(DiskStore::open(&directory)?));
//! jobs.put("order.close", "order-42", "unpaid").after(Duration::from_secs(86_400)).await?;
//! drop(jobs); // the process ends here, or the power fails
//!
//! let jobs = Jobs::new(Arc::new(DiskStore::open(&directory)?));
//! let job = jobs.get("order.close", "order-42").await?.expect("the put has returned");
//! assert_eq!(job.body().bytes(), b"unpaid");
//! # drop(jobs);
//! # std::fs::remove_dir_all(&directory)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! | item | purpose |
//! |---|---|
//! | [`DiskStore`] | the store: open it, use it as a [`Store`](requeue_jobs::Store), [back it up](DiskStore::backup) |
//! | [`Options`] | memory limit, size of log segments, clock |
//! | [`verify`](verify()) | checks a directory that is not in use, and reports all damage |
//! | [`Salvage`], [`Loss`] | reads what is left of a damaged directory, and names what is lost |
//! | [`RESERVED_FILES`] | how many files a store has open at most |
//! | [`DiskError`], [`Corrupt`] | why a directory cannot be opened; which file is damaged, and where |
//! | [`Disk`], [`DiskFile`], [`Directory`] | the interface to the file system, for tests on a disk that fails |
//!
//! # Guarantees
//!
//! - **Durability.** Puts, claims and settlements are synced (`fdatasync`) before they return.
//!   Neither `kill -9` nor a power cut undoes them. Concurrent operations share one sync, so the
//!   cost of each operation falls as the load rises.
//! - **Atomicity.** Operations are written in groups. After a crash the store is in the state after
//!   one of these groups, and that group or an earlier one contains every operation that has
//!   returned. Every other operation happened completely or not at all.
//! - **Memory does not grow with the number of jobs.** Jobs that changed recently and jobs that are
//!   due next are in memory. All others are in sorted tables on disk. A claim takes microseconds
//!   with a thousand jobs and with ten million, also if all of them are due in the same
//!   millisecond.
//! - **Disk space does not grow with time.** Jobs that are done leave nothing behind.
//! - **Damage is detected.** Everything that is read is checked. Damaged data is never returned: the
//!   call fails with an error that names the file and the offset.
//!
//! # Failures
//!
//! | failure | behaviour |
//! |---|---|
//! | the process is killed, or the power fails | Open the store again. It replays the end of its log, which takes about a second. |
//! | the disk is full | New jobs are refused with [`StoreError::Unavailable`](requeue_jobs::StoreError::Unavailable), which reports the free and the required space. Reading, claiming and settling continue, because the store keeps a reserve for them. When jobs are settled or deleted, the store frees their space within seconds. When there is enough, it accepts new jobs without further action. |
//! | a write or a sync fails | The operations of that group fail with [`StoreError::Unknown`](requeue_jobs::StoreError::Unknown). Reading continues, and may show changes that a crash would undo. The store writes the same group again, to another place, before it writes anything else. |
//! | tables cannot be written or merged | Nothing is lost: the log contains everything. When the memory is full, or there are too many tables, new jobs are refused, and later claims too. The store tries again after pauses of at most 5 seconds. |
//! | a table is missing or incomplete after a crash | The store rebuilds it from the log, which is kept until it is no longer needed for that. [`DiskStore::repaired`] lists such tables. |
//! | bytes on disk have changed | If the store cannot repair the damage, it fails when the directory is opened or when the damaged part is read. |
//! | another process has the directory open | Opening fails with [`DiskError::InUse`], which names the directory and the process. |
//! | a version with another format wrote the directory | Opening fails with [`DiskError::Format`] or [`DiskError::Features`]. Nothing is changed. |
//!
//! [`Store::status`](requeue_jobs::Store::status) reports what is wrong at the moment, since when, and
//! why, and measurements of the disk, the log, the tables and the memory.
//!
//! # Tools
//!
//! [`DiskStore::backup`] copies a store while it is in use. [`verify`](verify()) checks a directory
//! or a backup. [`Salvage`] reads what is left of a damaged directory. `requeue_jobs::transfer` exports jobs as JSON Lines and imports them into any
//! store: use it to move to another store, or to a version with another format.
//!
//! `docs/disk-format.md` specifies every byte of the files.

mod backup;
mod bytes;
mod codec;
mod disk;
mod due_buckets;
mod error;
mod file_names;
mod flush;
mod format;
#[cfg(test)]
#[path = "../tests/it/support/forwarding.rs"]
mod forwarding;
mod health;
mod inbox;
mod job_table;
mod listing;
mod lock;
mod log;
mod log_entry;
mod manifest;
mod next_claims;
mod open;
mod operations;
mod options;
mod per_list;
mod progress;
mod read_ahead;
mod reply;
mod salvage;
mod shared_writer;
#[cfg(test)]
#[path = "../tests/it/support/simulated_disk.rs"]
mod simulated_disk;
mod space;
mod state;
mod store;
mod stored_kinds;
#[cfg_attr(not(test), expect(dead_code, reason = "some accessors are for tests only"))]
mod tables;
mod upkeep;
mod verify;
mod writer;

pub use backup::Backup;
pub use disk::{Directory, Disk, DiskFile};
pub use error::{Corrupt, DiskError};
pub use options::Options;
pub use progress::ByteProgress;
pub use salvage::{Loss, Salvage};
pub use store::DiskStore;
pub use verify::{Verified, verify, verify_on};

/// The largest number of files that a [`DiskStore`] has open at the same time, however many jobs
/// there are.
///
/// A process that limits its connections to the files that it may open (`ulimit -n`) leaves this
/// many to the store. If the store cannot open a file, operations fail with
/// [`StoreError::Unavailable`](requeue_jobs::StoreError::Unavailable).
///
/// These are, at most: 16 tables that were read recently, a table for each of 5 threads that read
/// others, 3 tables that are written, a manifest, 9 segments of the log and its spare segments, the
/// directory for each of 3 threads that sync it, and the lock. A [backup](DiskStore::backup) and a
/// store that is being opened use a few more. The rest is a margin.
pub const RESERVED_FILES: usize = 48;

// The simulated disk is also used by the integration tests, and imports this crate by its name.
#[cfg(test)]
extern crate self as requeue_disk;

/// The Rust program of the project's README is compiled as a doc test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
