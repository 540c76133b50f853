//! Export of a whole store to JSON Lines, and import into another store. Needs the feature `serde`.
//!
//! Use it to move from one kind of store to another, or to read jobs with tools that read text.
//! `docs/transfer.md` describes the format.
//!
//! ```
//! use requeue_jobs::{Jobs, MemoryStore, transfer};
//! use std::sync::Arc;
//!
//! # requeue_testkit::block_on(async {
//! let (old, new) = (MemoryStore::new(), MemoryStore::new());
//! Jobs::new(Arc::new(old.clone())).put("mail", "a", "hello").await?;
//!
//! let mut file = Vec::new();
//! transfer::export(&old, &mut file, |_| {}).await?;
//! let done = transfer::import(&new, &mut &file[..], |so_far| println!("{so_far:?}")).await?;
//! assert_eq!((done.kinds, done.jobs, done.kept), (1, 1, 0));
//!
//! let job = Jobs::new(Arc::new(new)).get("mail", "a").await?.expect("the job was imported");
//! assert_eq!(job.body().bytes(), b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```

mod error;
mod import;
mod job;
mod kind;
mod lines;
mod object;

pub use error::TransferError;
pub use import::import;

use crate::limits::MAX_RESTORED;
use crate::query::{KindView, Query};
use crate::store::Store;
use kind::KindLine;
use object::ObjectWriter;
use std::io::Write;

/// The type of the first line. It shows that a file is an export.
const FORMAT: &str = "requeue-export";

/// The version of the format that an export writes, and the newest that an import reads.
const VERSION: u64 = 1;

/// Jobs per page of an export. All bodies of a page are in memory at the same time.
const PAGE: usize = 100;

/// The progress of an export or an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TransferProgress {
    /// Number of kinds whose export or import has begun.
    pub kinds: u64,
    /// Number of schedules that were written or read.
    pub schedules: u64,
    /// Number of jobs that were written or read.
    pub jobs: u64,
    /// Approximate total number of jobs: the number that existed when the export began.
    pub jobs_in_all: u64,
    /// Import: number of settings, schedules and jobs that the store already had and that were left
    /// unchanged.
    pub kept: u64,
    /// Import: number of jobs that were not imported because they were cancelled.
    pub ended: u64,
    /// Bytes of the lines that were written or read.
    pub bytes: u64,
}

/// Returns a generation or fence as an export contains it: at most the highest one that an import accepts, so
/// that whatever was imported, the export of a store can be imported.
fn importable(number: u64) -> u64 {
    number.min(MAX_RESTORED)
}

/// Writes the settings, schedules and jobs of all kinds of a store.
///
/// Returns the final counts. `progress` is called after each page of jobs and after each kind.
/// Writing blocks the thread, so use a buffered writer. If the future is dropped, the export stops,
/// and an import of the incomplete output fails with [`TransferError::Incomplete`].
///
/// An export is not a snapshot. A job that does not change during the export is written exactly
/// once. A job that changes is written as it was before or after the change.
pub async fn export(
    store: &dyn Store,
    out: &mut (impl Write + ?Sized),
    mut progress: impl FnMut(TransferProgress),
) -> Result<TransferProgress, TransferError> {
    let mut done = TransferProgress::default();
    let mut write = |line: ObjectWriter, done: &mut TransferProgress| {
        let line = line.into_line();
        done.bytes += line.len() as u64;
        out.write_all(&line).map_err(TransferError::Write)
    };
    let mut kinds = store.kinds().await?;
    // Timers are made anew from the schedules.
    kinds.retain(|view| !view.kind.is_reserved());
    let count = |kind: &KindView| kind.counts.pending + kind.counts.leased + kind.counts.dead;
    done.jobs_in_all = kinds.iter().map(count).sum();
    let header = ObjectWriter::with_type(FORMAT).with("version", VERSION);
    write(header.with("jobs", done.jobs_in_all), &mut done)?;
    for view in kinds {
        let kind = view.kind;
        let settings = store.settings(kind.clone()).await?;
        let (generation, fence) = (view.generation, view.fence);
        let line = KindLine { kind: kind.clone(), generation, fence, settings };
        write(line.write(), &mut done)?;
        done.kinds += 1;
        for schedule in store.schedules(kind.clone()).await? {
            write(kind::write_schedule(&kind, &schedule), &mut done)?;
            done.schedules += 1;
        }
        let mut query = Query { limit: PAGE, ..Query::new(kind) };
        loop {
            let page = store.list(query.clone()).await?;
            for job in &page.jobs {
                write(job::write_job(job), &mut done)?;
                done.jobs += 1;
            }
            progress(done);
            let Some(cursor) = page.cursor else { break };
            query.after = Some(cursor);
        }
    }
    let end = ObjectWriter::with_type("end").with("kinds", done.kinds);
    let end = end.with("schedules", done.schedules).with("jobs", done.jobs);
    write(end, &mut done)?;
    out.flush().map_err(TransferError::Write)?;
    progress(done);
    Ok(done)
}
