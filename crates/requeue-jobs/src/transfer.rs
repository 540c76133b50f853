//! A whole store as JSON Lines, and back: the way from one store to another, and into tools that
//! read text. Needs the feature `serde`. `docs/transfer.md` is the format.
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
//! let job = Jobs::new(Arc::new(new)).get("mail", "a").await?.expect("it has arrived");
//! assert_eq!(job.body.bytes(), b"hello");
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

use crate::query::{KindView, Query};
use crate::store::Store;
use kind::KindLine;
use object::Object;
use std::io::Write;

/// What the first line says, so that no other file is taken for an export.
const FORMAT: &str = "requeue-export";

/// The format that is written, and the newest that is read.
const VERSION: u64 = 1;

/// Jobs of a page that is exported: all of their bodies are in memory at a time.
const PAGE: usize = 100;

/// How far an export or an import is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Progress {
    /// Kinds that were begun.
    pub kinds: u64,
    /// Schedules that were written or read.
    pub schedules: u64,
    /// Jobs that were written or read.
    pub jobs: u64,
    /// About how many jobs there are in all: those that there were when the export began.
    pub jobs_in_all: u64,
    /// Of the settings, schedules and jobs that were read, those that the store had already.
    pub kept: u64,
    /// Of the jobs that were read, those that were cancelled and do not arrive.
    pub ended: u64,
    /// Bytes of the lines that were written or read.
    pub bytes: u64,
}

/// Writes all kinds that a store shows: settings, schedules and jobs.
///
/// `progress` is called after each page of jobs, and each kind. Writing blocks the thread: give
/// it a buffer. Dropping the future ends the export, and what was written is seen to be cut.
///
/// It is not one moment of the store: a job that nobody touches meanwhile is there exactly once, one
/// that is changed is there as it was before or after.
pub async fn export(
    store: &dyn Store,
    out: &mut (impl Write + ?Sized),
    mut progress: impl FnMut(Progress),
) -> Result<Progress, TransferError> {
    let mut done = Progress::default();
    let mut write = |line: Object, done: &mut Progress| {
        let line = line.into_line();
        done.bytes += line.len() as u64;
        out.write_all(&line).map_err(TransferError::Write)
    };
    let kinds = store.kinds().await?;
    let count = |kind: &KindView| kind.counts.pending + kind.counts.leased + kind.counts.dead;
    done.jobs_in_all = kinds.iter().map(count).sum();
    let header = Object::of_type(FORMAT).with("version", VERSION);
    write(header.with("jobs", done.jobs_in_all), &mut done)?;
    for view in kinds {
        let kind = view.kind;
        let settings = store.settings(kind.clone()).await?;
        let (generation, fence) = (view.generation, view.fence);
        let line = KindLine { kind: kind.clone(), generation, fence, settings };
        write(line.written(), &mut done)?;
        done.kinds += 1;
        for schedule in store.schedules(kind.clone()).await? {
            write(kind::schedule_written(&kind, &schedule), &mut done)?;
            done.schedules += 1;
        }
        let mut query = Query { limit: PAGE, ..Query::new(kind) };
        loop {
            let page = store.list(query.clone()).await?;
            for job in &page.jobs {
                write(job::written(job), &mut done)?;
                done.jobs += 1;
            }
            progress(done);
            let Some(cursor) = page.cursor else { break };
            query.after = Some(cursor);
        }
    }
    let end = Object::of_type("end").with("kinds", done.kinds);
    let end = end.with("schedules", done.schedules).with("jobs", done.jobs);
    write(end, &mut done)?;
    out.flush().map_err(TransferError::Write)?;
    progress(done);
    Ok(done)
}
