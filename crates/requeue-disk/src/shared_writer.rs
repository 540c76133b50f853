//! Who runs an operation: the writer thread, or the caller itself.
//!
//! The way to the writer thread and back takes two switches between threads, about 20 µs. Under load
//! many operations share them, and on a slow disk they do not matter. But for a single caller on a
//! fast disk they are a fifth of each operation. So a caller runs its operation itself, on its own
//! thread, if all of this holds:
//!
//! - Recent operations came one at a time, and were fast. See [`LoneCaller`].
//! - Nobody uses the writer, and nothing is queued. So operations keep their order, and a caller
//!   never waits for another one.
//! - The operation is small, the current segment of the log has space for it, and the store has no
//!   [problem](crate::health::Problem).
//!
//! In all other cases the operation is queued, and the writer thread runs it together with others
//! that came meanwhile. What is written to the disk, and in which order, is the same either way.

use crate::operations::QueuedOperation;
use crate::writer::{Results, Shared, Writer};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The largest operation that a caller runs itself, in entries and in bytes. A larger one would
/// occupy the caller's executor for longer, and the way to the writer thread is a small part of it.
const MAX_ENTRIES: usize = 32;
const MAX_BYTES: usize = 64 << 10;

/// The writer, and the lock that callers and the writer thread share.
pub(crate) struct SharedWriter {
    shared: Arc<Shared>,
    /// `None` once the writer thread has ended. Poisoned if an operation panicked.
    writer: Mutex<Option<Writer>>,
}

impl SharedWriter {
    pub(crate) fn new(writer: Writer) -> Self {
        SharedWriter { shared: writer.shared.clone(), writer: Mutex::new(Some(writer)) }
    }

    /// Runs an operation on this thread, or queues it for the writer thread.
    pub(crate) fn submit(&self, operation: Box<dyn QueuedOperation>) {
        if let Some(operation) = self.run_here(operation) {
            self.shared.inbox.send(operation);
        }
    }

    /// Runs an operation on this thread. Returns it if the writer thread has to run it.
    fn run_here(&self, operation: Box<dyn QueuedOperation>) -> Option<Box<dyn QueuedOperation>> {
        if operation.entries() > MAX_ENTRIES || operation.bytes() > MAX_BYTES {
            return Some(operation);
        }
        let Ok(mut guard) = self.writer.try_lock() else { return Some(operation) };
        let may_run = |writer: &mut Writer| writer.may_run_here(&*operation);
        if !guard.as_mut().is_some_and(may_run) {
            return Some(operation);
        }
        // The closure releases the lock, so that a panic poisons it.
        let results = catch_unwind(AssertUnwindSafe(move || {
            let mut guard = guard;
            guard.as_mut().map(|writer| writer.run_here(operation))
        }));
        match results {
            // Without the lock, because wakers are foreign code.
            Ok(results) => results.into_iter().for_each(Results::deliver),
            // As if the writer thread had panicked. It ends, and drops the writer.
            Err(_) => self.shared.inbox.end(),
        }
        None
    }

    /// The writer thread.
    pub(crate) fn run(&self) {
        let _drop_writer = DropWriter(self);
        let mut only_notices = match self.writer.lock() {
            Ok(mut guard) => guard.as_mut().is_some_and(Writer::begin),
            Err(_) => return,
        };
        loop {
            self.shared.inbox.wait(only_notices);
            let Ok(mut guard) = self.writer.lock() else { return };
            let Some(writer) = guard.as_mut() else { return };
            if writer.work() {
                return writer.finish();
            }
            only_notices = writer.is_full();
        }
    }
}

/// Drops the writer at the end, also if its thread panics: no caller must wait for ever.
struct DropWriter<'a>(&'a SharedWriter);

impl Drop for DropWriter<'_> {
    fn drop(&mut self) {
        let writer = self.0.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(writer);
    }
}

/// Detects that there is a single caller, for which it is better to run its operations itself.
///
/// A caller that runs its operation blocks its thread during the sync. If that thread is an executor
/// with other tasks, these cannot submit operations that would share the sync, and nobody sees that
/// they want to. So now and then an operation goes through the writer thread as a probe: then the
/// other tasks continue, and the next operations come together, or as a larger batch.
///
/// With these limits, 2, 4 and 16 tasks on one or two executor threads put as many jobs as with the
/// writer thread alone, and a single task puts twice as many (a disk in memory, with and without
/// other processes that keep all cores busy).
pub(crate) struct LoneCaller {
    /// How many operations in a row came alone, with the same number of entries.
    in_row: u64,
    /// How many have to before a caller runs the next one itself.
    needed: u64,
    /// The number of entries of the last operation.
    entries: usize,
    /// How long an operation takes, on average over the last few.
    average: Duration,
}

/// The limits of `needed`. It doubles whenever it turns out that there are more callers.
const MIN_NEEDED: u64 = 8;
const MAX_NEEDED: u64 = 1024;

/// One of so many operations is a probe.
const PROBE: u64 = 32;

/// If operations take this long, the way to the writer thread is a small part of it, and executors
/// should not be blocked for that long.
const SLOW: Duration = Duration::from_micros(500);

impl LoneCaller {
    pub(crate) fn new() -> Self {
        LoneCaller { in_row: 0, needed: MIN_NEEDED, entries: 0, average: SLOW }
    }

    /// Whether the next operation may run on its caller's thread.
    pub(crate) fn may_run_here(&self) -> bool {
        self.in_row >= self.needed && !self.in_row.is_multiple_of(PROBE) && self.average < SLOW
    }

    /// Operations have run and are synced. `alone` is `false` if there was more than one, or if
    /// others were queued meanwhile.
    pub(crate) fn ran(&mut self, entries: usize, alone: bool, took: Duration) {
        self.average = (7 * self.average + took) / 8;
        let is_same = entries == mem::replace(&mut self.entries, entries);
        let had_enough = self.in_row >= self.needed;
        if alone && is_same {
            self.in_row += 1;
            if had_enough && self.in_row % PROBE == 1 {
                self.needed = (self.needed / 2).max(MIN_NEEDED);
            }
        } else {
            self.in_row = 0;
            if had_enough {
                self.needed = (2 * self.needed).min(MAX_NEEDED);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: Duration = Duration::from_micros(50);

    /// A caller that has been alone for long enough to run its operations itself.
    fn lone() -> LoneCaller {
        let mut lone = LoneCaller::new();
        while !lone.may_run_here() {
            lone.ran(1, true, FAST);
        }
        lone
    }

    #[test]
    fn a_lone_caller_runs_all_but_the_probes() {
        let mut lone = lone();
        let mut here = 0;
        for _ in 0..10 * PROBE {
            here += u64::from(lone.may_run_here());
            lone.ran(1, true, FAST);
        }
        assert_eq!(here, 10 * (PROBE - 1));
    }

    #[test]
    fn more_callers_are_noticed_and_remembered() {
        // Others came meanwhile, or as a larger batch.
        for (entries, alone) in [(1, false), (15, true)] {
            let mut lone = lone();
            lone.ran(entries, alone, FAST);
            lone.ran(1, true, FAST);
            let mut waits = 0;
            while !lone.may_run_here() {
                lone.ran(1, true, FAST);
                waits += 1;
            }
            assert!(waits > MIN_NEEDED, "{waits}");
            (0..100 * PROBE).for_each(|_| lone.ran(1, true, FAST));
            assert_eq!(lone.needed, MIN_NEEDED, "that was long ago");
        }
    }

    #[test]
    fn nobody_runs_operations_that_are_slow() {
        let mut lone = lone();
        lone.ran(1, true, 100 * SLOW);
        assert!(!lone.may_run_here());
        (0..100).for_each(|_| lone.ran(1, true, 2 * SLOW));
        assert!(!lone.may_run_here());
        (0..PROBE + 1).for_each(|_| lone.ran(1, true, FAST));
        assert!(lone.may_run_here() || lone.in_row.is_multiple_of(PROBE));
    }
}
