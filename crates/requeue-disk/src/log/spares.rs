//! Segments that wait to be used: made ahead, outside the writer's way, or used before.
//!
//! Two of them are a reserve. On a full disk jobs can still be settled, which is how a full
//! disk gets emptier.

use super::segment::Segment;
use crate::disk::{Disk, DiskFile};
use crate::error::DiskError;
use std::io;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Segments that new jobs do not get.
pub(crate) const RESERVE: usize = 2;

/// How much is written at once to make a segment.
const CHUNK: usize = 1 << 20;

/// What a group is written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// It adds jobs, and must leave the reserve alone.
    NewJobs,
    /// It claims, settles or changes jobs, and may use up the reserve.
    ExistingJobs,
}

/// Spare segments, shared by the writer, which takes them, and whoever [fills](Spares::fill)
/// them up.
pub(crate) struct Spares {
    disk: Arc<dyn Disk>,
    segment_bytes: u64,
    /// How many are kept when segments are released.
    keep: usize,
    state: Mutex<State>,
    /// Held by the one who makes some. The state is free meanwhile.
    maker: Mutex<()>,
}

#[derive(Default)]
struct State {
    ready: Vec<Spare>,
    /// Not yet renamed or removed.
    released: Vec<Segment>,
    /// The next name's number.
    next: u64,
    /// Why the last one could not be made. Until the next [fill](Spares::fill) nobody tries
    /// again: on a full disk every put would write a segment in vain.
    failed: Option<(io::ErrorKind, String)>,
}

/// A file as long as a segment. What it has in it does not matter.
pub(super) struct Spare {
    pub(super) name: String,
    pub(super) file: Arc<dyn DiskFile>,
}

impl Spares {
    /// Takes over the spare segments that are there.
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
            // One of another length is of other options, or of a process that died making it.
            if size == segment_bytes && state.ready.len() < keep {
                state.ready.push(Spare { name, file });
            } else {
                disk.remove(&name).map_err(DiskError::io("remove", &name))?;
            }
        }
        let (state, maker) = (Mutex::new(state), Mutex::new(()));
        Ok(Spares { disk, segment_bytes, keep, state, maker })
    }

    /// Whether [`fill`](Spares::fill) has something to do.
    pub(crate) fn wanted(&self) -> bool {
        let state = self.state();
        !state.released.is_empty() || state.ready.len() <= RESERVE
    }

    /// Makes spare segments until there is one beside the reserve, and tidies up those that were
    /// released. It may be called on any thread, and takes as long as writing them takes.
    ///
    /// After it failed, puts are refused as soon as they would need the reserve, until a later
    /// call succeeds.
    pub(crate) fn fill(&self) -> Result<(), DiskError> {
        self.fill_to(RESERVE + 1)
    }

    fn fill_to(&self, want: usize) -> Result<(), DiskError> {
        let _one_at_a_time = self.maker.lock().unwrap_or_else(PoisonError::into_inner);
        let tidied = self.tidy();
        while self.state().ready.len() < want {
            match self.make(self.segment_bytes) {
                Ok(spare) => self.state().ready.push(spare),
                Err(error) => {
                    self.state().failed = Some(failure(&error));
                    return Err(error);
                }
            }
        }
        self.state().failed = None;
        tidied
    }

    pub(super) fn segment_bytes(&self) -> u64 {
        self.segment_bytes
    }

    /// Checks that so many are left for puts, besides the reserve; makes them if need be.
    pub(super) fn check(&self, beside_reserve: usize) -> Result<(), DiskError> {
        let want = RESERVE + beside_reserve;
        {
            let state = self.state();
            if state.ready.len() >= want {
                return Ok(());
            }
            if let (Some((kind, text)), true) = (&state.failed, state.released.is_empty()) {
                return Err(DiskError::Full { source: io::Error::new(*kind, text.clone()) });
            }
        }
        match self.fill_to(want) {
            Err(DiskError::Io { source, .. }) if self.state().ready.len() < want => {
                Err(DiskError::Full { source })
            }
            _ => Ok(()),
        }
    }

    /// One to write to, of the usual size or of a larger one.
    pub(super) fn take(&self, bytes: u64) -> Result<(Spare, u64), DiskError> {
        if bytes > self.segment_bytes {
            let bytes = bytes.next_multiple_of(4096);
            return Ok((self.make(bytes)?, bytes));
        }
        if let Some(spare) = self.state().ready.pop() {
            return Ok((spare, self.segment_bytes));
        }
        self.fill_to(1)?;
        let spare = self.state().ready.pop().expect("only the writer takes spares");
        Ok((spare, self.segment_bytes))
    }

    /// Takes over segments that are needed no more.
    pub(super) fn release(&self, segments: impl Iterator<Item = Segment>) {
        self.state().released.extend(segments);
    }

    /// Writes zeros, so that to sync what is written over them later needs no change of the
    /// file's size or blocks.
    fn make(&self, bytes: u64) -> Result<Spare, DiskError> {
        let name = self.name();
        let made = self.write_zeros(&name, bytes);
        if made.is_err() {
            // It may take the last space. If this fails too, the next start removes it.
            let _ = self.disk.remove(&name);
        }
        Ok(Spare { file: made?, name })
    }

    fn write_zeros(&self, name: &str, bytes: u64) -> Result<Arc<dyn DiskFile>, DiskError> {
        let free = self.disk.free().map_err(DiskError::io("measure the space for", name))?;
        if free < bytes {
            let source = io::Error::new(
                io::ErrorKind::StorageFull,
                format!("{free} bytes are left on the disk, and a segment has {bytes}"),
            );
            return Err(DiskError::io("make", name)(source));
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

    /// Renames released segments to spares, as many as are kept, and removes the others.
    fn tidy(&self) -> Result<(), DiskError> {
        let released = mem::take(&mut self.state().released);
        if released.is_empty() {
            return Ok(());
        }
        let room = self.keep.saturating_sub(self.state().ready.len());
        let (mut kept, mut result) = (Vec::new(), Ok(()));
        for segment in released {
            // Nobody else may be reading it, and only the log hands out further references.
            let usable = !segment.failed
                && segment.header.bytes == self.segment_bytes
                && Arc::strong_count(&segment.file) == 1;
            let done = if usable && kept.len() < room {
                let name = self.name();
                let renamed = self.disk.rename(&segment.name, &name);
                renamed.map(|()| kept.push(Spare { name, file: segment.file.clone() }))
            } else {
                self.disk.remove(&segment.name)
            };
            if let Err(source) = done {
                result = Err(DiskError::io("release", &segment.name)(source));
                self.state().released.push(segment);
            }
        }
        // A spare gets another header before it is renamed again. Were its first renaming
        // undone by a power cut, that header would be in a segment it does not belong to.
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
