//! Opens a store: reads the tables, replays the log, and starts the threads.

use crate::disk::Disk;
use crate::error::{Corrupt, DiskError};
use crate::health::Health;
use crate::inbox::Inbox;
use crate::lock::Lock;
use crate::log::{Group, Log, LogOptions};
use crate::operations::QueuedOperation;
use crate::options::Options;
use crate::shared_writer::{LoneCaller, SharedWriter};
use crate::space::Space;
use crate::state::State;
use crate::tables::{self, Tables};
use crate::upkeep::Upkeep;
use crate::writer::{Shared, Writer};
use requeue_jobs::rules::ChangeNotifier;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

/// The threads of an open store. When this is dropped they end; operations and reads that are
/// queued by then are finished first.
pub(crate) struct Threads {
    shared: Arc<Shared>,
    writer: Arc<SharedWriter>,
    /// Reads of one job or one kind, and reads of many jobs. They have a thread each, so that
    /// short reads do not queue up behind long ones. `None` once the store is closing.
    reads: Option<Sender<ReadTask>>,
    scans: Option<Sender<ReadTask>>,
    /// Damage that was found, and repaired from the log, when the store was opened.
    pub(crate) repaired: Vec<Corrupt>,
    handles: Vec<JoinHandle<()>>,
}

type ReadTask = Box<dyn FnOnce() + Send>;

impl Threads {
    pub(crate) fn start(
        disk: Arc<dyn Disk>,
        options: Options,
        lock: Option<Lock>,
    ) -> Result<(Arc<Shared>, Self), DiskError> {
        let (tables, opened) =
            Tables::open(disk.clone(), tables::Options::for_memory(options.memory))?;
        let tables = Arc::new(tables);
        let mut state = State::open(tables.version(), &opened.blob)?;
        let log_options = LogOptions { segment_bytes: options.segment, ..LogOptions::default() };
        let mut logged = 0;
        let replay = |group: Group<'_>| {
            logged += group.payload.len() as u64;
            state.replay(&group)
        };
        let (after, recorded) = (opened.flushed_through, tables.version().log_end);
        let log = Log::open(disk.clone(), log_options, after, recorded, replay)?;
        tables.clean();
        state.replayed();
        let next_claims = state.next_claims().clone();
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            inbox: Inbox::default(),
            changes: ChangeNotifier::default(),
            next_claims,
            health: Health::new(options.wall_clock.clone()),
            wall_clock: options.wall_clock,
        });
        let (spares, background) = (log.spares().clone(), options.background);
        let upkeep = Upkeep::start(disk.clone(), tables, spares, shared.clone(), background);
        let writer = Writer {
            shared: shared.clone(),
            space: Space::new(disk, options.memory as u64 + 2 * options.segment),
            log,
            upkeep,
            memory: options.memory,
            segment: options.segment,
            logged,
            group: Vec::new(),
            lone_caller: LoneCaller::new(),
            _lock: lock,
        };
        let writer = Arc::new(SharedWriter::new(writer));
        let (reads, read_tasks) = mpsc::channel();
        let (scans, scan_tasks) = mpsc::channel();
        let mut threads = Threads {
            shared: shared.clone(),
            writer: writer.clone(),
            reads: Some(reads),
            scans: Some(scans),
            repaired: opened.notes,
            handles: Vec::new(),
        };
        // If one cannot be started, those that were are ended, and the lock is released.
        threads.handles.push(spawn("requeue-write", move || writer.run())?);
        threads.handles.push(spawn("requeue-read", move || run_all(read_tasks))?);
        threads.handles.push(spawn("requeue-scan", move || run_all(scan_tasks))?);
        Ok((shared, threads))
    }

    /// Runs an operation on this thread or on the writer thread.
    pub(crate) fn submit(&self, operation: Box<dyn QueuedOperation>) {
        self.writer.submit(operation);
    }

    /// Runs a read of one job or one kind on a thread of the store.
    pub(crate) fn read(&self, task: ReadTask) {
        send(self.reads.as_ref(), task);
    }

    /// Runs a read of many jobs on another thread of the store.
    pub(crate) fn scan(&self, task: ReadTask) {
        send(self.scans.as_ref(), task);
    }
}

fn send(tasks: Option<&Sender<ReadTask>>, task: ReadTask) {
    if let Some(tasks) = tasks {
        // If the thread is gone the task is dropped, and its caller gets an error.
        drop(tasks.send(task));
    }
}

fn run_all(tasks: Receiver<ReadTask>) {
    for task in tasks {
        // A read that panics must not end the thread.
        drop(catch_unwind(AssertUnwindSafe(task)));
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, DiskError> {
    let thread = thread::Builder::new().name(name.to_owned()).spawn(run);
    thread.map_err(DiskError::io("start the thread", name))
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.inbox.close();
        (self.reads, self.scans) = (None, None);
        let here = thread::current().id();
        // A task that was woken by one of them may have dropped the last handle on that thread.
        for handle in self.handles.drain(..).filter(|handle| handle.thread().id() != here) {
            // A panic was reported by the thread itself.
            drop(handle.join());
        }
    }
}
