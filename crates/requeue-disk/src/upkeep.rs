//! Work beside the writer, on threads of its own: flushing layers to tables, merging tables, and
//! creating spare segments for the log.
//!
//! Whatever fails is reported as a problem of the store, is tried again after a pause, and is
//! cleared when it succeeds:
//!
//! ```text
//!            fails: reported                fails: the pause doubles
//!   works ----------------------> pauses ----------------------------> pauses
//!     ^                             |
//!     +-----------------------------+ succeeds: cleared
//! ```

use crate::disk::Disk;
use crate::error::{DiskError, chain};
use crate::flush::flush;
use crate::health::Problem;
use crate::inbox::Notice;
use crate::log::{Maker, Spares};
use crate::space;
use crate::state::{Frozen, State};
use crate::tables::{MergeOptions, Tables};
use crate::writer::Shared;
use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How many merges may be outstanding before flushing waits for them: a read goes through every
/// run, so more runs make reads slower.
const MAX_LAG: usize = 16;

/// How many merges may be outstanding if merging fails. Then nothing is flushed, and new jobs are
/// refused when the memory is full: every read looks at every run, and every manifest lists all
/// tables.
const MAX_FAILED_LAG: usize = 128;

/// The shortest and the longest pause before a failed flush or a failed merge is tried again.
const RETRY: Duration = Duration::from_millis(100);
const MAX_RETRY: Duration = Duration::from_secs(5);

/// How often measurements are refreshed, and the writer is reminded of problems.
const REFRESH: Duration = Duration::from_secs(1);

/// Owned by the writer.
pub(crate) struct Upkeep {
    disk: Arc<dyn Disk>,
    tables: Arc<Tables>,
    spares: Arc<Spares>,
    shared: Arc<Shared>,
    /// Whether a layer is being flushed, until the writer handles the notice.
    flushing: bool,
    /// A layer that could not be flushed.
    failed: Option<FailedFlush>,
    /// The pause before the next attempt after a failed flush.
    flush_pause: Duration,
    /// Whether tables are being merged.
    merging: Arc<AtomicBool>,
    /// Whether space is short, so that merges have to free as much as they can.
    short: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    /// `None`: the writer does all the work itself.
    threads: Option<Threads>,
}

struct FailedFlush {
    frozen: Frozen,
    why: String,
    since: Instant,
}

struct Threads {
    flush: Sender<Task>,
    merge: Sender<()>,
    maker: Maker,
    handles: Vec<JoinHandle<()>>,
}

enum Task {
    Flush(Frozen),
    /// Removes files that nothing needs any more.
    Clean,
    /// Drops layers, which takes too long for the writer.
    Drop(Box<dyn Send>),
}

impl Upkeep {
    pub(crate) fn start(
        disk: Arc<dyn Disk>,
        tables: Arc<Tables>,
        spares: Arc<Spares>,
        shared: Arc<Shared>,
        background: bool,
    ) -> Self {
        let mut upkeep = Upkeep {
            disk,
            tables,
            spares,
            shared,
            flushing: false,
            failed: None,
            flush_pause: RETRY,
            merging: Arc::default(),
            short: Arc::default(),
            stop: Arc::default(),
            threads: None,
        };
        publish(&upkeep.tables, &upkeep.shared);
        if background {
            upkeep.threads = Some(upkeep.spawn());
        }
        upkeep
    }

    fn spawn(&self) -> Threads {
        let (flush, tasks) = mpsc::channel();
        let (merge, wanted) = mpsc::channel();
        let flusher = Flusher {
            disk: self.disk.clone(),
            tables: self.tables.clone(),
            shared: self.shared.clone(),
        };
        let merger = Merger {
            tables: self.tables.clone(),
            shared: self.shared.clone(),
            short: self.short.clone(),
            options: MergeOptions::default(),
        };
        let (merging, stop) = (self.merging.clone(), self.stop.clone());
        let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
            thread::Builder::new()
                .name(name.to_owned())
                .spawn(run)
                .expect("the system can start a thread")
        };
        let shared = self.shared.clone();
        let maker = self.spares.start(move |spares| run_fill(spares, &shared));
        let maker = maker.expect("the system can start a thread");
        let handles = vec![
            spawn("requeue-flush", Box::new(move || flusher.run(&tasks))),
            spawn("requeue-merge", Box::new(move || merger.run(&wanted, &merging, &stop))),
        ];
        Threads { flush, merge, maker, handles }
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

    /// Why nothing can be flushed: the last flush failed, and its layer is still in memory; or
    /// merging fails, and there are too many tables.
    pub(crate) fn flush_error(&self) -> Option<String> {
        if let Some(failed) = &self.failed {
            return Some(format!("writing it to tables failed: {}", failed.why));
        }
        let health = &self.shared.health;
        if !health.has(Problem::MergeFailed) || self.tables.lag() <= MAX_FAILED_LAG {
            return None;
        }
        Some(format!("there are too many tables: {}", health.detail(Problem::MergeFailed)?))
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
        let why = chain(&error);
        let detail = format!(
            "changed jobs cannot be written from memory to tables: {why}. When the memory is full, \
             new jobs are refused. It is tried again every few seconds"
        );
        self.shared.health.upkeep_failed(Problem::FlushFailed, detail);
        self.failed = Some(FailedFlush { frozen, why, since: Instant::now() });
    }

    /// Tries a failed flush again, unless the last attempt was a short time ago.
    pub(crate) fn flush_again(&mut self) {
        let (background, pause) = (self.threads.is_some(), self.flush_pause);
        let is_due = |failed: &mut FailedFlush| !background || failed.since.elapsed() >= pause;
        if let Some(failed) = self.failed.take_if(is_due) {
            self.flush_pause = longer(pause);
            self.flush(failed.frozen);
        }
    }

    /// A flush has succeeded: drops its layers, and merges tables.
    pub(crate) fn flushed(&mut self, layers: Box<dyn Send>) {
        self.flushing = false;
        self.flush_pause = RETRY;
        self.shared.health.clear(Problem::FlushFailed);
        self.shared.health.measured.flushes.fetch_add(1, Ordering::Relaxed);
        if let Some(threads) = &self.threads {
            let _ = threads.flush.send(Task::Drop(layers));
        }
        self.merge();
    }

    /// Merges tables, if that is needed.
    pub(crate) fn merge(&mut self) {
        if let Some(threads) = &self.threads {
            self.merging.store(true, Ordering::Relaxed);
            let _ = threads.merge.send(());
            return;
        }
        let mut merger = Merger {
            tables: self.tables.clone(),
            shared: self.shared.clone(),
            short: self.short.clone(),
            options: MergeOptions::default(),
        };
        merger.merge(&|| false, &mut || {
            // This is the writer itself.
            State::lock(&self.shared.state).moved(&self.tables.version());
            self.tables.clean();
        });
        self.shared.inbox.notify(Notice::Merged);
    }

    /// Whether space is short: then merges free as much as they can, and few spare segments are
    /// kept. If it was not short before, merges tables.
    pub(crate) fn set_short(&mut self, short: bool) {
        let was_short = self.short.swap(short, Ordering::Relaxed);
        self.spares.set_short(short);
        if short && !was_short {
            self.merge();
        }
    }

    /// Removes the files that nothing needs any more, after a version is gone.
    pub(crate) fn clean(&self) {
        match &self.threads {
            Some(threads) => drop(threads.flush.send(Task::Clean)),
            None => self.tables.clean(),
        }
    }

    /// Whether [`fill`](Self::fill) has something to do.
    pub(crate) fn wants_spares(&self) -> bool {
        self.spares.wanted()
    }

    /// Creates spare segments if there are too few.
    pub(crate) fn fill(&self) {
        if !self.spares.wanted() {
            // Segments may have been released since an attempt failed.
            self.shared.health.clear(Problem::LogSegmentFailed);
        } else if self.threads.is_some() {
            self.spares.ask();
        } else {
            run_fill(&self.spares, &self.shared);
        }
    }

    /// Ends the threads. A flush that is under way is finished; a merge continues after the next
    /// open.
    pub(crate) fn stop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(Threads { flush, merge, maker, handles }) = self.threads.take() {
            drop((flush, merge, maker));
            for handle in handles {
                drop(handle.join());
            }
        }
        // A reader that has ended since the last time may have had the last version of some tables.
        self.tables.clean();
    }
}

fn longer(pause: Duration) -> Duration {
    (2 * pause).min(MAX_RETRY)
}

/// The thread that flushes.
struct Flusher {
    disk: Arc<dyn Disk>,
    tables: Arc<Tables>,
    shared: Arc<Shared>,
}

impl Flusher {
    fn run(&self, tasks: &Receiver<Task>) {
        let mut refreshed = Instant::now();
        loop {
            match tasks.recv_timeout(REFRESH.saturating_sub(refreshed.elapsed())) {
                Ok(Task::Flush(frozen)) => {
                    let notice = run_flush(&self.tables, frozen);
                    publish(&self.tables, &self.shared);
                    self.shared.inbox.notify(notice);
                }
                Ok(Task::Clean) => self.tables.clean(),
                Ok(Task::Drop(layers)) => drop(layers),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if refreshed.elapsed() >= REFRESH {
                self.refresh();
                refreshed = Instant::now();
            }
        }
    }

    fn refresh(&self) {
        // A reader may have had the last version that contained some table.
        self.tables.clean();
        let health = &self.shared.health;
        let free = space::measure(&*self.disk, health);
        let is_short = free < health.measured.reserved_bytes.load(Ordering::Relaxed);
        if is_short || health.has_any() {
            self.shared.inbox.remind();
        }
    }
}

impl Drop for Upkeep {
    /// Also if the writer panics: the threads must not write when the lock of the directory is
    /// released.
    fn drop(&mut self) {
        self.stop();
    }
}

fn run_flush(tables: &Tables, frozen: Frozen) -> Notice {
    // The writer waits for a notice, whatever happens here.
    match catch_unwind(AssertUnwindSafe(|| flush(tables, &frozen))) {
        Ok(Ok(())) => Notice::Flushed,
        Ok(Err(error)) => Notice::NotFlushed(frozen, error),
        Err(panic) => {
            let error = io::Error::other(format!("the flush panicked: {}", message(&*panic)));
            Notice::NotFlushed(frozen, DiskError::io("write", "tables")(error))
        }
    }
}

/// Creates spare segments. If this fails, new jobs are refused when the others are used up.
fn run_fill(spares: &Spares, shared: &Shared) {
    let why = match catch_unwind(AssertUnwindSafe(|| spares.fill())) {
        Ok(Ok(())) => return shared.health.clear(Problem::LogSegmentFailed),
        Ok(Err(error)) => chain(&error),
        Err(panic) => format!("it panicked: {}", message(&*panic)),
    };
    let detail = format!(
        "no segment for the log can be created: {why}. When the others are used up, new jobs are \
         refused"
    );
    shared.health.upkeep_failed(Problem::LogSegmentFailed, detail);
}

/// The thread that merges.
struct Merger {
    tables: Arc<Tables>,
    shared: Arc<Shared>,
    short: Arc<AtomicBool>,
    options: MergeOptions,
}

impl Merger {
    fn run(mut self, wanted: &Receiver<()>, merging: &AtomicBool, stop: &AtomicBool) {
        // The pause after a failure, and when it ends.
        let mut retry: Option<(Duration, Instant)> = None;
        loop {
            let timeout = retry.map(|(_, at)| at.saturating_duration_since(Instant::now()));
            let received = match timeout {
                None => wanted.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(timeout) => wanted.recv_timeout(timeout),
            };
            match received {
                Ok(()) => {}
                Err(RecvTimeoutError::Timeout) => self.options.skip_none(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let shared = self.shared.clone();
            let is_sound = self.merge(&|| stop.load(Ordering::Relaxed), &mut || {
                shared.inbox.notify(Notice::Merged);
            });
            retry = match (is_sound, retry) {
                (true, _) => None,
                // It was not tried again.
                (false, Some((pause, at))) if at > Instant::now() => Some((pause, at)),
                (false, retry) => {
                    let pause = retry.map_or(RETRY, |(pause, _)| longer(pause));
                    Some((pause, Instant::now() + pause))
                }
            };
            merging.store(false, Ordering::Relaxed);
            self.shared.inbox.notify(Notice::Merged);
        }
    }

    /// Does all merges that are needed, and calls `merged` after each. If one fails, the others are
    /// done nevertheless, and it is skipped until [`MergeOptions::skip_none`] is called. Returns
    /// whether none was skipped.
    fn merge(&mut self, stop: &dyn Fn() -> bool, merged: &mut dyn FnMut()) -> bool {
        self.options.short_of_space = self.short.load(Ordering::Relaxed);
        while !stop() {
            // If it panics, this thread must continue: the writer may wait for it.
            let options = &mut self.options;
            let step = catch_unwind(AssertUnwindSafe(|| self.tables.compact(stop, options)));
            let why = match step {
                Ok(Ok(true)) => {
                    self.shared.health.measured.merges.fetch_add(1, Ordering::Relaxed);
                    publish(&self.tables, &self.shared);
                    merged();
                    continue;
                }
                Ok(Ok(false)) => break,
                Ok(Err(error)) => chain(&error),
                Err(panic) => {
                    self.options.skip_all();
                    format!("it panicked: {}", message(&*panic))
                }
            };
            let detail = format!(
                "tables cannot be merged: {why}. Meanwhile the tables take more space, and reads \
                 become slower; with {MAX_FAILED_LAG} runs too many, new jobs are refused. It is \
                 tried again every few seconds. If the file is damaged, export the jobs or restore \
                 a backup"
            );
            self.shared.health.upkeep_failed(Problem::MergeFailed, detail);
        }
        let is_sound = !self.options.skips();
        if is_sound {
            self.shared.health.clear(Problem::MergeFailed);
        }
        is_sound
    }
}

/// Publishes the measurements of the tables.
fn publish(tables: &Tables, shared: &Shared) {
    let version = tables.version();
    let (count, bytes) =
        version.tables().fold((0, 0), |(count, bytes), table| (count + 1, bytes + table.bytes));
    shared.health.measured.tables.store(count, Ordering::Relaxed);
    shared.health.measured.table_bytes.store(bytes, Ordering::Relaxed);
}

/// The message of a panic.
fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
