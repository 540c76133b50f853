//! A disk that is watched: before each operation, what a power cut would leave behind is put
//! aside, together with how far the work was by then.

use super::simulated_disk::SimulatedDisk;
use super::workload::{Act, Told};
use requeue_disk::{Disk, DiskFile};
use requeue_jobs::Store;
use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

/// How far the work is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// So many steps were answered, and no other was begun.
    Answered(usize),
    /// So many were answered, and the next was begun.
    Begun(usize),
}

/// The power was cut.
pub(crate) struct Cut {
    /// During this operation, the first being 0.
    pub(crate) operation: u64,
    pub(crate) stage: Stage,
    /// What that operation was.
    pub(crate) during: String,
    /// The disk, the power of which is off.
    pub(crate) disk: SimulatedDisk,
}

/// Where it is told of every cut.
pub(crate) type Each = Box<dyn Fn(Cut) + Send + Sync>;

#[derive(Clone)]
pub(crate) struct RecordingDisk {
    disk: SimulatedDisk,
    names: Arc<Mutex<Names>>,
    progress: Arc<Progress>,
    each: Arc<Each>,
}

/// What is seen of the names.
#[derive(Default)]
struct Names {
    /// What open files are called now.
    now: BTreeMap<String, Name>,
    /// How often something was done to files that are called like this: `create table`.
    counts: BTreeMap<String, usize>,
}

/// What a file is called; empty once it is removed.
type Name = Arc<Mutex<String>>;

#[derive(Default)]
struct Progress {
    /// Twice the number of answered steps, and one more while another is under way.
    half_steps: AtomicUsize,
    /// Closed while a step is being asked for: nothing is to happen before whoever asks listens.
    gate: Mutex<bool>,
    opened: Condvar,
}

impl Progress {
    fn stage(&self) -> Stage {
        match self.half_steps.load(Ordering::SeqCst) {
            half if half % 2 == 0 => Stage::Answered(half / 2),
            half => Stage::Begun(half / 2),
        }
    }

    fn set_gate(&self, closed: bool) {
        *self.gate.lock().expect("nobody panics with it") = closed;
        self.opened.notify_all();
    }

    fn pass_gate(&self) {
        let closed = self.gate.lock().expect("nobody panics with it");
        drop(self.opened.wait_while(closed, |closed| *closed).expect("nobody panics with it"));
    }
}

/// Notes that a step was answered on the very thread that answers it, before that does anything
/// else.
struct Answered {
    progress: Arc<Progress>,
    half_steps: usize,
    waits: Thread,
}

impl Wake for Answered {
    fn wake(self: Arc<Self>) {
        self.progress.half_steps.store(self.half_steps, Ordering::SeqCst);
        self.waits.unpark();
    }
}

impl RecordingDisk {
    pub(crate) fn new(disk: SimulatedDisk, each: Each) -> Self {
        let (names, progress) = (Arc::default(), Arc::default());
        RecordingDisk { disk, names, progress, each: Arc::new(each) }
    }

    /// How many operations there were.
    pub(crate) fn operations(&self) -> u64 {
        self.disk.operations()
    }

    /// How often this was done to files whose names begin like this.
    pub(crate) fn count(&self, what: &str) -> usize {
        self.names.lock().expect("nobody panics with it").counts.get(what).copied().unwrap_or(0)
    }

    /// Takes one step on a store that is on this disk.
    pub(crate) fn step(&self, act: &Act, store: &dyn Store) -> Told {
        let progress = &self.progress;
        let answered = 2 * (progress.half_steps.load(Ordering::SeqCst) / 2 + 1);
        let waker = Waker::from(Arc::new(Answered {
            progress: progress.clone(),
            half_steps: answered,
            waits: thread::current(),
        }));
        progress.set_gate(true);
        progress.half_steps.store(answered - 1, Ordering::SeqCst);
        let mut told: Pin<Box<dyn Future<Output = Told> + '_>> = Box::pin(act.on(store));
        loop {
            let poll = told.as_mut().poll(&mut Context::from_waker(&waker));
            progress.set_gate(false);
            match poll {
                Poll::Ready(told) => {
                    progress.half_steps.store(answered, Ordering::SeqCst);
                    return told;
                }
                Poll::Pending => thread::park(),
            }
        }
    }

    /// Tells of the cut during what comes now, which `act` would do.
    fn before(&self, verb: &str, name: &str, act: impl FnOnce(&SimulatedDisk)) {
        self.progress.pass_gate();
        let stage = self.progress.stage();
        let disk = self.disk.snapshot();
        let operation = disk.operations();
        disk.cut_at(operation);
        act(&disk);
        let what = name.split('-').next().unwrap_or_default();
        *self
            .names
            .lock()
            .expect("nobody panics with it")
            .counts
            .entry(format!("{verb} {what}"))
            .or_default() += 1;
        (self.each)(Cut { operation, stage, during: format!("{verb} {name}"), disk });
    }

    fn file(&self, name: &str, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        let mut names = self.names.lock().expect("nobody panics with it");
        let shared = names.now.entry(name.to_owned()).or_default().clone();
        *shared.lock().expect("nobody panics with it") = name.to_owned();
        Arc::new(RecordedFile { disk: self.clone(), name: shared, file })
    }
}

impl Disk for RecordingDisk {
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.before("create", name, |disk| drop(disk.create(name)));
        let file = self.disk.create(name)?;
        if let Some(before) = self.names.lock().expect("nobody panics with it").now.remove(name) {
            before.lock().expect("nobody panics with it").clear();
        }
        Ok(self.file(name, file))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.file(name, self.disk.open(name)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.before("rename", from, |disk| drop(disk.rename(from, to)));
        self.disk.rename(from, to)?;
        let mut names = self.names.lock().expect("nobody panics with it");
        if let Some(before) = names.now.remove(to) {
            before.lock().expect("nobody panics with it").clear();
        }
        if let Some(name) = names.now.remove(from) {
            *name.lock().expect("nobody panics with it") = to.to_owned();
            names.now.insert(to.to_owned(), name);
        }
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.before("remove", name, |disk| drop(disk.remove(name)));
        self.disk.remove(name)?;
        if let Some(name) = self.names.lock().expect("nobody panics with it").now.remove(name) {
            name.lock().expect("nobody panics with it").clear();
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
    fn before(&self, verb: &str, act: impl FnOnce(&dyn DiskFile)) {
        let name = self.name.lock().expect("nobody panics with it").clone();
        // What was removed is not found after a cut, whatever is written to it.
        self.disk.before(verb, &name, |disk| drop(disk.open(&name).map(|file| act(&*file))));
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
