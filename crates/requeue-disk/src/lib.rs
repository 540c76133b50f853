//! Durable jobs in a directory: every answer is on disk before it is given.
//!
//! A [`DiskStore`] is a [`Store`](requeue_jobs::Store) of `requeue-jobs` that needs no server: one
//! process opens a directory, and has it to itself. The contract is `docs/jobs.md`, the same as of
//! every store.
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
//! let job = jobs.get("order.close", "order-42").await?.expect("it was answered");
//! assert_eq!(job.body.bytes(), b"unpaid");
//! # drop(jobs);
//! # std::fs::remove_dir_all(&directory)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! | type | what it is |
//! |---|---|
//! | [`DiskStore`] | the store: open it, use it as a [`Store`](requeue_jobs::Store), [copy it](DiskStore::backup) |
//! | [`Options`] | how much memory it takes, how long its log's files are |
//! | [`verify`] | reads a directory that nobody has open, and says all that is wrong with it |
//! | [`DiskError`], [`Corrupt`] | why a directory could not be opened; what is damaged, and where |
//! | [`Disk`], [`DiskFile`], [`Directory`] | what is asked of a disk, for tests with one that fails |
//!
//! # What it promises
//!
//! - **What was answered stays.** Puts, claims and settlements are synced (`fdatasync`) before they
//!   are answered, so that neither `kill -9` nor a power cut undoes them. Those that are asked for at
//!   the same time share one sync: the more there are, the cheaper each is.
//! - **Half of something does not exist.** After a crash the store is what it was after some group of
//!   operations that has all that were answered. Each of the others happened, or did not.
//! - **Memory does not grow with the jobs.** Those that changed lately are in memory, and those that
//!   are next; the others are in sorted tables. Claiming costs microseconds with a thousand jobs
//!   and with ten million, also if all of them are due in the same millisecond.
//! - **Space does not grow with time.** Jobs that are done leave nothing behind.
//! - **Damage is found, and never handed out.** All that is read is checked. What is wrong is an error
//!   that names file and offset.
//!
//! # When something fails
//!
//! | | |
//! |---|---|
//! | the process is killed, the power fails | open it again. It reads the end of its log, and goes on: a matter of a second |
//! | the disk is full | new jobs are refused, as [unavailable](requeue_jobs::StoreError::Unavailable), with how much is left and is needed. Reading, claiming and settling go on: some space is kept for that. With space it works again by itself |
//! | a write or a sync fails | those it was for hear that it is [unknown](requeue_jobs::StoreError::Unknown). Reading goes on, and may show what a crash would then undo; the same is written again, elsewhere, before anything else |
//! | a table is missing or torn after a crash | it is made again from the log, which is kept until that is not needed; [`DiskStore::mended`] tells |
//! | bytes have changed | what cannot be made good is refused: at opening, or when it is read |
//! | somebody else has it open | [`DiskError::InUse`], with the directory and the process |
//! | a newer program wrote it | [`DiskError::Newer`]: nothing is touched |
//!
//! # Tools
//!
//! [`DiskStore::backup`] copies a store that is in use. [`verify`] checks a directory, or a copy of one.
//! `requeue_jobs::transfer` exports jobs as JSON Lines and imports them into any store: that is the
//! way to another store, and back from a newer format.
//!
//! `docs/disk-format.md` draws every byte. A directory of every released format can be opened by
//! every later version.

mod backup;
mod bytes;
mod codec;
mod disk;
mod due_buckets;
mod error;
mod flush;
mod inbox;
mod job_table;
mod listing;
mod lock;
mod log;
mod manifest;
mod open;
mod options;
mod progress;
mod read_ahead;
mod reply;
#[cfg(test)]
#[path = "../tests/it/support/simulated_disk.rs"]
mod simulated_disk;
mod space;
mod state;
mod store;
#[cfg_attr(not(test), expect(dead_code, reason = "tests measure what nobody asks"))]
mod tables;
mod upkeep;
mod verify;
mod writer;

pub use backup::Backup;
pub use disk::{Directory, Disk, DiskFile};
pub use error::{Corrupt, DiskError};
pub use options::Options;
pub use progress::Progress;
pub use store::DiskStore;
pub use verify::{Verified, verify, verify_on};

// The twin is written for tests outside the crate, too.
#[cfg(test)]
extern crate self as requeue_disk;
