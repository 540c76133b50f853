//! Spare segments: created in advance by another thread than the writer, or released by the log.
//!
//! The writer asks for another one as soon as it takes one, and waits only if it needs the next
//! before that is ready. In tests without background threads it creates them itself.
//!
//! Two of them are a reserve. So jobs can be settled on a full disk, which frees space.

use super::segment::Segment;
use crate::disk::{Disk, DiskFile};
use crate::error::DiskError;
use std::io;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The number of segments that are kept for operations on existing jobs.
pub(crate) const RESERVE: usize = 2;

/// Bytes per write while a segment is created.
const CHUNK: usize = 1 << 20;

/// The shortest pause after a failed attempt to create segments.
const PAUSE: Duration = Duration::from_secs(1);

/// What a group contains, which decides whether it may use the reserve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// It adds jobs, and must leave the reserve alone.
    NewJobs,
    /// It claims, settles or changes jobs, and may use up the reserve.
    ExistingJobs,
}

/// Spare segments. The writer takes them, and another thread [fills](Spares::fill) them up.
pub(crate) struct Spares {
    disk: Arc<dyn Disk>,
    segment_bytes: u64,
    /// How many spares are kept when segments are released.
    keep: usize,
    /// Whether space is short: then no more than necessary are kept.
    short: AtomicBool,
    state: Mutex<State>,
    /// Notified when the state changes in a way that the writer or the maker waits for.
    changed: Condvar,
    /// Held while segments are created. The state is not locked meanwhile.
    maker: Mutex<()>,
}

#[derive(Default)]
struct State {
    ready: Vec<Spare>,
    /// Released segments that are not yet renamed or removed.
    released: Vec<Segment>,
    /// The number in the next name.
    next: u64,
    /// Why the last segment could not be created. There is no other attempt before the next
    /// [fill](Spares::fill): on a full disk every put would write a segment in vain.
    failed: Option<(io::ErrorKind, String)>,
    /// When the last attempt failed.
    failed_at: Option<Instant>,
    /// Whether the thread of a [`Maker`] creates the segments, and whether it is asked to.
    has_maker: bool,
    asked: bool,
    /// How often the maker has tried.
    attempts: u64,
}

/// The thread that creates spare segments. It ends when this is dropped.
pub(crate) struct Maker {
    spares: Arc<Spares>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Maker {
    fn drop(&mut self) {
        self.spares.state().has_maker = false;
        self.spares.changed.notify_all();
        // A panic was reported by the thread itself.
        drop(self.thread.take().map(JoinHandle::join));
    }
}

/// A file of the size of a segment. Its contents are irrelevant.
pub(super) struct Spare {
    pub(super) name: String,
    pub(super) file: Arc<dyn DiskFile>,
}

impl Spares {
    /// Opens the spare segments of a disk.
    pub(super) fn open(
        disk: Arc<dyn Disk>,
        segment_bytes: u64,
        keep: usize,
    ) -> Result<Spares, DiskError> {
        let (keep, mut state) = (keep.max(RESERVE + 1), State::default());
        for name in disk.names().map_err(DiskError::io("list", "the directory"))? {
            let Some(number) = name.strip_prefix("spare-") else { continue };
            state.next =
                state.next.max(number.parse().map_or(0, |number: u32| u64::from(number) + 1));
            let file = disk.open(&name).map_err(DiskError::io("open", &name))?;
            let size = file.size().map_err(DiskError::io("measure", &name))?;
            // A file of another size comes from other options, or from a process that was killed
            // while it created the file.
            if size == segment_bytes && state.ready.len() < keep {
                state.ready.push(Spare { name, file });
            } else {
                disk.remove(&name).map_err(DiskError::io("remove", &name))?;
            }
        }
        let (state, maker, short) = (Mutex::new(state), Mutex::new(()), AtomicBool::new(false));
        let changed = Condvar::new();
        Ok(Spares { disk, segment_bytes, keep, short, state, changed, maker })
    }

    /// Sets whether space is short.
    pub(crate) fn set_short(&self, short: bool) {
        self.short.store(short, Ordering::Relaxed);
    }

    fn keep(&self) -> usize {
        if self.short.load(Ordering::Relaxed) { RESERVE + 1 } else { self.keep }
    }

    /// Starts the thread that creates segments: it calls `fill`, which calls [`Spares::fill`] and
    /// reports the result.
    pub(crate) fn start(
        self: &Arc<Self>,
        fill: impl Fn(&Spares) + Send + 'static,
    ) -> io::Result<Maker> {
        self.state().has_maker = true;
        let spares = self.clone();
        let run = move || {
            while spares.wait_until_asked() {
                fill(&spares);
                spares.state().attempts += 1;
                spares.changed.notify_all();
            }
        };
        let thread = thread::Builder::new().name("requeue-spares".to_owned()).spawn(run);
        if thread.is_err() {
            self.state().has_maker = false;
        }
        Ok(Maker { spares: self.clone(), thread: Some(thread?) })
    }

    /// Waits until the writer asks for segments. Returns `false` at the end.
    fn wait_until_asked(&self) -> bool {
        let idle = |state: &mut State| state.has_maker && !state.asked;
        let state = self.changed.wait_while(self.state(), idle);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        state.asked = false;
        state.has_maker
    }

    /// Asks the [maker](Spares::start) for spare segments, without waiting for them.
    pub(crate) fn ask(&self) {
        let mut state = self.state();
        if state.failed_at.is_none_or(|at| at.elapsed() >= PAUSE) {
            state.asked = true;
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Creates segments until there are `want`, or waits until the maker has.
    fn fill_or_wait(&self, want: usize) -> Result<(), DiskError> {
        let mut state = self.state();
        if !state.has_maker {
            drop(state);
            return self.fill_to(want);
        }
        state.asked = true;
        self.changed.notify_all();
        let attempts = state.attempts;
        // An attempt that was under way may have been for fewer, so one more has to end.
        let waits = |state: &mut State| {
            state.ready.len() < want
                && state.attempts < attempts + 2
                && state.has_maker
                && (state.failed.is_none() || state.attempts == attempts)
        };
        let state = self.changed.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner);
        if state.ready.len() >= want {
            return Ok(());
        }
        let (kind, text) = state
            .failed
            .clone()
            .unwrap_or_else(|| (io::ErrorKind::Other, "no segment was created".to_owned()));
        Err(DiskError::Full { source: io::Error::new(kind, text) })
    }

    /// Whether [`fill`](Spares::fill) has something to do.
    pub(crate) fn wanted(&self) -> bool {
        let state = self.state();
        let count = state.ready.len();
        !state.released.is_empty() || count <= RESERVE || count > self.keep()
    }

    /// Creates spare segments until there is one beside the reserve, and renames or removes
    /// released segments. It may be called on any thread, and blocks until the files are written.
    ///
    /// After a failure, puts are refused as soon as they would need the reserve, until a later call
    /// succeeds.
    pub(crate) fn fill(&self) -> Result<(), DiskError> {
        self.fill_to(RESERVE + 1)
    }

    fn fill_to(&self, want: usize) -> Result<(), DiskError> {
        let _one_at_a_time = self.maker.lock().unwrap_or_else(PoisonError::into_inner);
        let tidied = self.tidy();
        while self.state().ready.len() > want.max(self.keep()) {
            let Some(spare) = self.state().ready.pop() else { break };
            // If this fails, the next open removes it.
            let _ = self.disk.remove(&spare.name);
        }
        while self.state().ready.len() < want {
            match self.make(self.segment_bytes) {
                Ok(spare) => {
                    self.state().ready.push(spare);
                    self.changed.notify_all();
                }
                Err(error) => {
                    let mut state = self.state();
                    (state.failed, state.failed_at) = (Some(failure(&error)), Some(Instant::now()));
                    return Err(error);
                }
            }
        }
        let mut state = self.state();
        (state.failed, state.failed_at) = (None, None);
        tidied
    }

    pub(super) fn segment_bytes(&self) -> u64 {
        self.segment_bytes
    }

    /// Whether so many spares are left besides the reserve, without creating any. Fails if the last
    /// attempt to create one failed.
    pub(super) fn has(&self, beside_reserve: usize) -> Result<bool, DiskError> {
        let state = self.state();
        if state.ready.len() >= RESERVE + beside_reserve {
            return Ok(true);
        }
        if let (Some((kind, text)), true) = (&state.failed, state.released.is_empty()) {
            return Err(DiskError::Full { source: io::Error::new(*kind, text.clone()) });
        }
        Ok(false)
    }

    /// Checks that so many spares are left besides the reserve. Creates them if necessary, or waits
    /// for them.
    pub(super) fn check(&self, beside_reserve: usize) -> Result<(), DiskError> {
        let want = RESERVE + beside_reserve;
        if self.has(beside_reserve)? {
            return Ok(());
        }
        match self.fill_or_wait(want) {
            Err(DiskError::Io { source, .. } | DiskError::Full { source })
                if self.state().ready.len() < want =>
            {
                Err(DiskError::Full { source })
            }
            _ => Ok(()),
        }
    }

    /// Takes a file for a segment, of the usual size or larger.
    pub(super) fn take(&self, bytes: u64) -> Result<(Spare, u64), DiskError> {
        if bytes > self.segment_bytes {
            let bytes = bytes.next_multiple_of(4096);
            return Ok((self.make(bytes)?, bytes));
        }
        if let Some(spare) = self.state().ready.pop() {
            return Ok((spare, self.segment_bytes));
        }
        self.fill_or_wait(1)?;
        let spare =
            self.state().ready.pop().expect("only the writer takes spares, and it checked before");
        Ok((spare, self.segment_bytes))
    }

    /// Takes segments that the log does not need any more.
    pub(super) fn release(&self, segments: impl Iterator<Item = Segment>) {
        self.state().released.extend(segments);
    }

    /// Creates a file and fills it with zeros, so that later writes change neither its size nor its
    /// allocated blocks, and are cheap to sync.
    fn make(&self, bytes: u64) -> Result<Spare, DiskError> {
        let name = self.name();
        let made = self.write_zeros(&name, bytes);
        if made.is_err() {
            // The file may occupy the last space. If removing it fails too, the next open does it.
            let _ = self.disk.remove(&name);
        }
        Ok(Spare { file: made?, name })
    }

    fn write_zeros(&self, name: &str, bytes: u64) -> Result<Arc<dyn DiskFile>, DiskError> {
        let free = self.disk.free().map_err(DiskError::io("measure the space for", name))?;
        if free < bytes {
            let source = io::Error::new(
                io::ErrorKind::StorageFull,
                format!("{free} bytes are free on the disk, but a segment needs {bytes}"),
            );
            return Err(DiskError::io("create", name)(source));
        }
        let file = self.disk.create(name).map_err(DiskError::io("create", name))?;
        let zeros = vec![0; CHUNK.min(bytes as usize)];
        let mut offset = 0;
        while offset < bytes {
            let length = zeros.len().min((bytes - offset) as usize);
            file.write_at(&zeros[..length], offset).map_err(DiskError::io("write", name))?;
            offset += length as u64;
        }
        file.sync().map_err(DiskError::io("sync", name))?;
        Ok(file)
    }

    /// Renames released segments to spares, up to the number that is kept, and removes the others.
    fn tidy(&self) -> Result<(), DiskError> {
        let released = mem::take(&mut self.state().released);
        if released.is_empty() {
            return Ok(());
        }
        let room = self.keep().saturating_sub(self.state().ready.len());
        let (mut kept, mut result) = (Vec::new(), Ok(()));
        for segment in released {
            // Only the log makes views, and it does not have the segment any more.
            if Arc::strong_count(&segment.file) > 1 {
                self.state().released.push(segment);
                continue;
            }
            let usable = !segment.failed && segment.header.bytes == self.segment_bytes;
            let done = if usable && kept.len() < room {
                let name = self.name();
                self.disk.rename(&segment.name, &name).map(|()| match self.disk.open(&name) {
                    Ok(file) => kept.push(Spare { name, file }),
                    // The process has too many open files. If this fails too, the next open
                    // removes it.
                    Err(_) => drop(self.disk.remove(&name)),
                })
            } else {
                self.disk.remove(&segment.name)
            };
            if let Err(source) = done {
                result = Err(DiskError::io("release", &segment.name)(source));
                self.state().released.push(segment);
            }
        }
        // A spare gets a new header before it is renamed again. If a power cut undid its first
        // renaming, that header would be in the wrong segment.
        match self.disk.sync_names() {
            Ok(()) => self.state().ready.extend(kept),
            Err(source) => {
                for spare in kept {
                    let _ = self.disk.remove(&spare.name);
                }
                result = Err(DiskError::io("sync", "the directory")(source));
            }
        }
        result
    }

    fn name(&self) -> String {
        let mut state = self.state();
        state.next += 1;
        format!("spare-{:010}", state.next - 1)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn failure(error: &DiskError) -> (io::ErrorKind, String) {
    match error {
        DiskError::Io { source, .. } => (source.kind(), format!("{error}: {source}")),
        _ => (io::ErrorKind::Other, error.to_string()),
    }
}
