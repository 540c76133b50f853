//! What is done beside the writer, on threads of their own: flushing, merging, and looking at
//! much at once.

use crate::error::{DiskError, chain};
use crate::flush::flush;
use crate::inbox::News;
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

/// How many merges may be behind before flushing waits for them: what is read goes through
/// every run.
const MAX_LAG: usize = 16;

/// How long after a flush failed it is tried again, at the soonest.
const RETRY: Duration = Duration::from_millis(100);

/// How often spare segments are made at most, and where that failed.
const FILL: Duration = Duration::from_millis(20);
const FILL_AGAIN: Duration = Duration::from_secs(1);

/// In the hands of the writer.
pub(crate) struct Upkeep {
    tables: Arc<Tables>,
    spares: Arc<Spares>,
    shared: Arc<Shared>,
    /// Whether a layer is being flushed, until that is heard.
    flushing: bool,
    /// A layer that could not be flushed, since when, and why.
    failed: Option<(Frozen, Instant, String)>,
    /// Whether tables are being merged.
    merging: Arc<AtomicBool>,
    /// When spare segments were last asked for, and whether they could not be had.
    filled: Option<Instant>,
    fill_failed: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    /// `None`: all is done by the writer itself.
    threads: Option<Threads>,
}

struct Threads {
    flush: Sender<Task>,
    merge: Sender<()>,
    handles: Vec<JoinHandle<()>>,
}

enum Task {
    Flush(Frozen),
    /// Spare segments are wanted.
    Fill,
    /// To be dropped, which takes long enough to keep the writer from it.
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
                    Task::Flush(frozen) => shared.inbox.tell(run_flush(&tables, frozen)),
                    // If it fails, puts will be refused and say why.
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
                // What cannot be merged now is tried again after the next flush. Should it panic,
                // this thread must go on: the writer may wait for it.
                let merge = || catch_unwind(AssertUnwindSafe(|| tables.compact(stop)));
                while !stop() && matches!(merge(), Ok(Ok(true))) {
                    shared.inbox.tell(News::Merged);
                }
                merging.store(false, Ordering::Relaxed);
                shared.inbox.tell(News::Merged);
            }
        };
        let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
            thread::Builder::new().name(name.to_owned()).spawn(run).expect("a thread can be had")
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

    /// Whether a layer is being flushed, or was and the writer has not heard of it.
    pub(crate) fn is_flushing(&self) -> bool {
        self.flushing
    }

    /// Why the frozen layer is still in memory, if it could not be flushed.
    pub(crate) fn trouble(&self) -> Option<&str> {
        self.failed.as_ref().map(|(.., why)| why.as_str())
    }

    pub(crate) fn tables(&self) -> &Arc<Tables> {
        &self.tables
    }

    /// Flushes a layer. The inbox is told when that is done.
    pub(crate) fn flush(&mut self, frozen: Frozen) {
        debug_assert!(!self.flushing && self.failed.is_none());
        self.flushing = true;
        match &self.threads {
            Some(threads) => drop(threads.flush.send(Task::Flush(frozen))),
            None => self.shared.inbox.tell(run_flush(&self.tables, frozen)),
        }
    }

    /// A flush failed.
    pub(crate) fn not_flushed(&mut self, frozen: Frozen, error: DiskError) {
        self.flushing = false;
        self.failed = Some((frozen, Instant::now(), chain(&error)));
    }

    /// Tries once more what failed, unless that was just now.
    pub(crate) fn flush_again(&mut self) {
        let due = |since: &Instant| self.threads.is_none() || since.elapsed() >= RETRY;
        if let Some((frozen, ..)) = self.failed.take_if(|(_, since, _)| due(since)) {
            self.flush(frozen);
        }
    }

    /// A flush has ended well, and the layers that it was of are not needed any more.
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
                    self.shared.inbox.tell(News::Merged);
                }
            }
        }
    }

    /// Makes spare segments, where there are too few.
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

    /// Ends the threads. A flush that is under way is finished; a merge goes on next time.
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

fn run_flush(tables: &Tables, frozen: Frozen) -> News {
    // The writer waits for an answer, whatever happens here.
    match catch_unwind(AssertUnwindSafe(|| flush(tables, &frozen))) {
        Ok(Ok(())) => News::Flushed,
        Ok(Err(error)) => News::NotFlushed(frozen, error),
        Err(_) => {
            let error = DiskError::io("write", "tables")(io::Error::other("it panicked"));
            News::NotFlushed(frozen, error)
        }
    }
}
