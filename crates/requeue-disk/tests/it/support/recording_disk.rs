//! A disk that records power cuts: before each operation it passes on the disk that a power cut
//! during that operation would leave, together with the progress of the workload.

use super::simulated_disk::SimulatedDisk;
use super::workload::OperationResult;
use requeue_disk::{Disk, DiskFile};
use requeue_jobs::Store;
use requeue_testkit::Operation;
use std::collections::BTreeMap;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

/// The progress of the workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// So many steps have returned, and no other was begun.
    Returned(usize),
    /// So many steps have returned, and the next was begun.
    Begun(usize),
}

/// A power cut.
pub(crate) struct Cut {
    /// The number of the operation during which the power is cut; the first is 0.
    pub(crate) operation: u64,
    pub(crate) stage: Stage,
    /// That operation, as text.
    pub(crate) during: String,
    /// The disk, without power.
    pub(crate) disk: SimulatedDisk,
}

/// Called for every cut.
pub(crate) type OnCut = Box<dyn Fn(Cut) + Send + Sync>;

#[derive(Clone)]
pub(crate) struct RecordingDisk {
    disk: SimulatedDisk,
    names: Arc<Mutex<Names>>,
    progress: Arc<StepProgress>,
    on_cut: Arc<OnCut>,
}

/// The names of files.
#[derive(Default)]
struct Names {
    /// The current names of open files.
    now: BTreeMap<String, Name>,
    /// How often each operation was done, by verb and type of file: `create table`.
    counts: BTreeMap<String, usize>,
}

/// The name of a file; empty after it was removed.
type Name = Arc<Mutex<String>>;

#[derive(Default)]
struct StepProgress {
    /// Twice the number of steps that returned, plus one while another is in flight.
    half_steps: AtomicUsize,
    /// Closed while a step is submitted: the disk must not do anything before the caller waits.
    gate: Mutex<bool>,
    opened: Condvar,
}

impl StepProgress {
    fn stage(&self) -> Stage {
        match self.half_steps.load(Ordering::SeqCst) {
            half if half % 2 == 0 => Stage::Returned(half / 2),
            half => Stage::Begun(half / 2),
        }
    }

    fn set_gate(&self, closed: bool) {
        *self.gate.lock().expect("the lock is not poisoned") = closed;
        self.opened.notify_all();
    }

    fn pass_gate(&self) {
        let closed = self.gate.lock().expect("the lock is not poisoned");
        drop(self.opened.wait_while(closed, |closed| *closed).expect("the lock is not poisoned"));
    }
}

/// A waker that notes that a step has returned. It runs on the thread that delivers the result,
/// before that thread does anything else.
struct StepWaker {
    progress: Arc<StepProgress>,
    half_steps: usize,
    waits: Thread,
}

impl Wake for StepWaker {
    fn wake(self: Arc<Self>) {
        self.progress.half_steps.store(self.half_steps, Ordering::SeqCst);
        self.waits.unpark();
    }
}

impl RecordingDisk {
    pub(crate) fn new(disk: SimulatedDisk, on_cut: OnCut) -> Self {
        let (names, progress) = (Arc::default(), Arc::default());
        RecordingDisk { disk, names, progress, on_cut: Arc::new(on_cut) }
    }

    /// The number of operations so far.
    pub(crate) fn operations(&self) -> u64 {
        self.disk.operations()
    }

    /// How often an operation was done, such as `create table`.
    pub(crate) fn count(&self, what: &str) -> usize {
        self.names.lock().expect("the lock is not poisoned").counts.get(what).copied().unwrap_or(0)
    }

    /// Runs one step on a store that is on this disk.
    pub(crate) fn step(&self, operation: &Operation, store: &dyn Store) -> OperationResult {
        let progress = &self.progress;
        let answered = 2 * (progress.half_steps.load(Ordering::SeqCst) / 2 + 1);
        let waker = Waker::from(Arc::new(StepWaker {
            progress: progress.clone(),
            half_steps: answered,
            waits: thread::current(),
        }));
        progress.set_gate(true);
        progress.half_steps.store(answered - 1, Ordering::SeqCst);
        let mut result = pin!(operation.call(store));
        loop {
            let poll = result.as_mut().poll(&mut Context::from_waker(&waker));
            progress.set_gate(false);
            match poll {
                Poll::Ready(result) => {
                    progress.half_steps.store(answered, Ordering::SeqCst);
                    return result;
                }
                Poll::Pending => thread::park(),
            }
        }
    }

    /// Records the cut during the next operation, which is `call`.
    fn before(&self, verb: &str, name: &str, call: impl FnOnce(&SimulatedDisk)) {
        self.progress.pass_gate();
        let stage = self.progress.stage();
        let disk = self.disk.snapshot();
        let operation = disk.operations();
        disk.cut_at(operation);
        call(&disk);
        let what = name.split('-').next().unwrap_or_default();
        *self
            .names
            .lock()
            .expect("the lock is not poisoned")
            .counts
            .entry(format!("{verb} {what}"))
            .or_default() += 1;
        (self.on_cut)(Cut { operation, stage, during: format!("{verb} {name}"), disk });
    }

    fn file(&self, name: &str, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        let mut names = self.names.lock().expect("the lock is not poisoned");
        let shared = names.now.entry(name.to_owned()).or_default().clone();
        *shared.lock().expect("the lock is not poisoned") = name.to_owned();
        Arc::new(RecordedFile { disk: self.clone(), name: shared, file })
    }
}

impl Disk for RecordingDisk {
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.before("create", name, |disk| drop(disk.create(name)));
        let file = self.disk.create(name)?;
        if let Some(before) = self.names.lock().expect("the lock is not poisoned").now.remove(name)
        {
            before.lock().expect("the lock is not poisoned").clear();
        }
        Ok(self.file(name, file))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.file(name, self.disk.open(name)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.before("rename", from, |disk| drop(disk.rename(from, to)));
        self.disk.rename(from, to)?;
        let mut names = self.names.lock().expect("the lock is not poisoned");
        if let Some(before) = names.now.remove(to) {
            before.lock().expect("the lock is not poisoned").clear();
        }
        if let Some(name) = names.now.remove(from) {
            *name.lock().expect("the lock is not poisoned") = to.to_owned();
            names.now.insert(to.to_owned(), name);
        }
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.before("remove", name, |disk| drop(disk.remove(name)));
        self.disk.remove(name)?;
        if let Some(name) = self.names.lock().expect("the lock is not poisoned").now.remove(name) {
            name.lock().expect("the lock is not poisoned").clear();
        }
        Ok(())
    }

    fn names(&self) -> io::Result<Vec<String>> {
        self.disk.names()
    }

    fn sync_names(&self) -> io::Result<()> {
        self.before("sync", "names", |disk| drop(disk.sync_names()));
        self.disk.sync_names()
    }

    fn free(&self) -> io::Result<u64> {
        self.disk.free()
    }
}

struct RecordedFile {
    disk: RecordingDisk,
    name: Name,
    file: Arc<dyn DiskFile>,
}

impl RecordedFile {
    fn before(&self, verb: &str, call: impl FnOnce(&dyn DiskFile)) {
        let name = self.name.lock().expect("the lock is not poisoned").clone();
        // A removed file is not found after a cut, whatever is written to it.
        self.disk.before(verb, &name, |disk| drop(disk.open(&name).map(|file| call(&*file))));
    }
}

impl DiskFile for RecordedFile {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_at(bytes, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.before("write", |file| drop(file.write_at(bytes, offset)));
        self.file.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.before("sync", |file| drop(file.sync()));
        self.file.sync()
    }

    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }
}
