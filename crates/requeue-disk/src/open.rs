//! Brings a directory to life: tables, then the log on top, then the threads.

use crate::bytes::Malformed;
use crate::disk::Disk;
use crate::error::{Corrupt, DiskError};
use crate::inbox::Inbox;
use crate::lock::Lock;
use crate::log::{Group, Log, LogOptions};
use crate::options::Options;
use crate::space::Space;
use crate::state::{Replay, State};
use crate::tables::{self, Tables};
use crate::upkeep::Upkeep;
use crate::writer::{Shared, Writer};
use requeue_jobs::rules::ChangeNotifier;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

/// The threads of an open store. Dropped, they end, and what was asked for is done first.
pub(crate) struct Threads {
    shared: Arc<Shared>,
    look: Option<Sender<Look>>,
    /// What was damaged and passed over when it was opened.
    pub(crate) mended: Vec<Corrupt>,
    handles: Vec<JoinHandle<()>>,
}

type Look = Box<dyn FnOnce() + Send>;

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
            state.replay(group.payload).map_err(|replay| match replay {
                Replay::Malformed(Malformed(what)) => {
                    let what = format!("group {} makes no sense: {what}", group.number);
                    Corrupt::new(group.file, group.offset, what).into()
                }
                Replay::Disk(error) => error,
            })
        };
        let log = Log::open(disk.clone(), log_options, opened.flushed_through, replay)?;
        tables.clean();
        state.kinds.resume_turns();
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            inbox: Inbox::default(),
            changes: ChangeNotifier::default(),
            wall_clock: options.wall_clock,
        });
        let upkeep =
            Upkeep::start(tables, log.spares().clone(), shared.clone(), options.background);
        let writer = Writer {
            shared: shared.clone(),
            space: Space::new(options.memory as u64 + 2 * options.segment),
            disk,
            log,
            upkeep,
            memory: options.memory,
            segment: options.segment,
            logged,
            group: Vec::new(),
            _lock: lock,
        };
        let (look, looks) = mpsc::channel::<Look>();
        let handles = vec![
            spawn("requeue-write", move || writer.run())?,
            spawn("requeue-look", move || looks.into_iter().for_each(look_guarded))?,
        ];
        Ok((shared.clone(), Threads { shared, look: Some(look), mended: opened.notes, handles }))
    }

    /// Has something looked at, beside those who wait for it.
    pub(crate) fn look(&self, look: Look) {
        if let Some(looks) = &self.look {
            // If nobody is there to look, dropping it says so to who waits.
            drop(looks.send(look));
        }
    }
}

/// One look that panics must not be the last.
fn look_guarded(look: Look) {
    drop(catch_unwind(AssertUnwindSafe(look)));
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, DiskError> {
    let thread = thread::Builder::new().name(name.to_owned()).spawn(run);
    thread.map_err(DiskError::io("start the thread", name))
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.inbox.close();
        self.look.take();
        let here = thread::current().id();
        // Whoever was woken by one of them may have dropped the last handle right there.
        for handle in self.handles.drain(..).filter(|handle| handle.thread().id() != here) {
            // A thread that panicked has said so.
            drop(handle.join());
        }
    }
}
