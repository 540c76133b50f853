//! Work beside the writer, on threads of its own: flushing layers to tables, merging tables, and
//! making spare segments for the log.

use crate::error::{DiskError, chain};
use crate::flush::flush;
use crate::inbox::Notice;
use crate::log::Spares;
use crate::state::Frozen;
use crate::tables::Tables;
use crate::writer::Shared;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How many merges may be outstanding before flushing waits for them: a read goes through every
/// run, so more runs make reads slower.
const MAX_LAG: usize = 16;

/// The shortest pause before a failed flush is tried again.
const RETRY: Duration = Duration::from_millis(100);

/// The shortest pause between two attempts to make spare segments, and after a failed one.
const FILL: Duration = Duration::from_millis(20);
const FILL_AGAIN: Duration = Duration::from_secs(1);

/// Owned by the writer.
pub(crate) struct Upkeep {
    tables: Arc<Tables>,
    spares: Arc<Spares>,
    shared: Arc<Shared>,
    /// Whether a layer is being flushed, until the writer handles the notice.
    flushing: bool,
    /// A layer that could not be flushed, the time of the last attempt, and its error.
    failed: Option<(Frozen, Instant, String)>,
    /// Whether tables are being merged.
    merging: Arc<AtomicBool>,
    /// When spare segments were last requested, and whether making them failed.
    filled: Option<Instant>,
    fill_failed: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    /// `None`: the writer does all the work itself.
    threads: Option<Threads>,
}

struct Threads {
    flush: Sender<Task>,
    merge: Sender<()>,
    handles: Vec<JoinHandle<()>>,
}

enum Task {
    Flush(Frozen),
    /// Makes spare segments.
    Fill,
    /// Drops layers, which takes too long for the writer.
    Drop(Box<dyn Send>),
}

impl Upkeep {
    pub(crate) fn start(
        tables: Arc<Tables>,
        spares: Arc<Spares>,
        shared: Arc<Shared>,
        background: bool,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut upkeep = Upkeep {
            tables,
            spares,
            shared,
            flushing: false,
            failed: None,
            merging: Arc::default(),
            filled: None,
            fill_failed: Arc::default(),
            stop,
            threads: None,
        };
        if background {
            upkeep.threads = Some(upkeep.spawn());
        }
        upkeep
    }

    fn spawn(&self) -> Threads {
        let (flush, tasks) = mpsc::channel();
        let (merge, wanted) = mpsc::channel();
        let (tables, spares, shared) =
            (self.tables.clone(), self.spares.clone(), self.shared.clone());
        let fill_failed = self.fill_failed.clone();
        let flusher = move || {
            for task in tasks {
                match task {
                    Task::Flush(frozen) => shared.inbox.notify(run_flush(&tables, frozen)),
                    // If this fails, puts are refused with the reason.
                    Task::Fill => {
                        let filled = catch_unwind(AssertUnwindSafe(|| spares.fill()));
                        fill_failed.store(!matches!(filled, Ok(Ok(()))), Ordering::Relaxed);
                    }
                    Task::Drop(layers) => drop(layers),
                }
            }
        };
        let (tables, shared, stop) = (self.tables.clone(), self.shared.clone(), self.stop.clone());
        let merging = self.merging.clone();
        let merger = move || {
            for () in wanted {
                let stop = || stop.load(Ordering::Relaxed);
                // A merge that fails is tried again after the next flush. If it panics, this
                // thread must continue: the writer may wait for it.
                let merge = || catch_unwind(AssertUnwindSafe(|| tables.compact(stop)));
                while !stop() && matches!(merge(), Ok(Ok(true))) {
                    shared.inbox.notify(Notice::Merged);
                }
                merging.store(false, Ordering::Relaxed);
                shared.inbox.notify(Notice::Merged);
            }
        };
        let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
            thread::Builder::new()
                .name(name.to_owned())
                .spawn(run)
                .expect("the system can start a thread")
        };
        let handles = vec![
            spawn("requeue-flush", Box::new(flusher)),
            spawn("requeue-merge", Box::new(merger)),
        ];
        Threads { flush, merge, handles }
    }

    /// Whether the writer has to wait before more can be frozen: a layer is being flushed, or
    /// merges are far behind.
    pub(crate) fn is_busy(&self) -> bool {
        let merging = self.merging.load(Ordering::Relaxed);
        self.flushing || (merging && self.tables.lag() > MAX_LAG)
    }

    /// Whether a layer is being flushed, or was and the writer has not handled the notice.
    pub(crate) fn is_flushing(&self) -> bool {
        self.flushing
    }

    /// The error of the last flush, if it failed: then the frozen layer is still in memory.
    pub(crate) fn flush_error(&self) -> Option<&str> {
        self.failed.as_ref().map(|(.., why)| why.as_str())
    }

    pub(crate) fn tables(&self) -> &Arc<Tables> {
        &self.tables
    }

    /// Flushes a layer. The writer gets a notice when that is done.
    pub(crate) fn flush(&mut self, frozen: Frozen) {
        debug_assert!(!self.flushing && self.failed.is_none());
        self.flushing = true;
        match &self.threads {
            Some(threads) => drop(threads.flush.send(Task::Flush(frozen))),
            None => self.shared.inbox.notify(run_flush(&self.tables, frozen)),
        }
    }

    /// Keeps a layer whose flush failed, for the next attempt.
    pub(crate) fn not_flushed(&mut self, frozen: Frozen, error: DiskError) {
        self.flushing = false;
        self.failed = Some((frozen, Instant::now(), chain(&error)));
    }

    /// Tries a failed flush again, unless the last attempt is less than [`RETRY`] ago.
    pub(crate) fn flush_again(&mut self) {
        let due = |since: &Instant| self.threads.is_none() || since.elapsed() >= RETRY;
        if let Some((frozen, ..)) = self.failed.take_if(|(_, since, _)| due(since)) {
            self.flush(frozen);
        }
    }

    /// A flush has succeeded: drops its layers, and merges tables.
    pub(crate) fn flushed(&mut self, layers: Box<dyn Send>) {
        self.flushing = false;
        match &self.threads {
            Some(threads) => {
                let _ = threads.flush.send(Task::Drop(layers));
                self.merging.store(true, Ordering::Relaxed);
                let _ = threads.merge.send(());
            }
            None => {
                while matches!(self.tables.compact(|| false), Ok(true)) {
                    self.shared.inbox.notify(Notice::Merged);
                }
            }
        }
    }

    /// Makes spare segments if there are too few.
    pub(crate) fn fill(&mut self) {
        if !self.spares.wanted() {
            return;
        }
        let Some(threads) = &self.threads else {
            drop(self.spares.fill());
            return;
        };
        let pause = if self.fill_failed.load(Ordering::Relaxed) { FILL_AGAIN } else { FILL };
        if self.filled.is_none_or(|filled| filled.elapsed() >= pause) {
            self.filled = Some(Instant::now());
            let _ = threads.flush.send(Task::Fill);
        }
    }

    /// Ends the threads. A flush that is under way is finished; a merge continues after the next
    /// open.
    pub(crate) fn stop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(Threads { flush, merge, handles }) = self.threads.take() {
            drop((flush, merge));
            for handle in handles {
                drop(handle.join());
            }
        }
    }
}

fn run_flush(tables: &Tables, frozen: Frozen) -> Notice {
    // The writer waits for a notice, whatever happens here.
    match catch_unwind(AssertUnwindSafe(|| flush(tables, &frozen))) {
        Ok(Ok(())) => Notice::Flushed,
        Ok(Err(error)) => Notice::NotFlushed(frozen, error),
        Err(_) => {
            let error = DiskError::io("write", "tables")(io::Error::other("the flush panicked"));
            Notice::NotFlushed(frozen, error)
        }
    }
}
