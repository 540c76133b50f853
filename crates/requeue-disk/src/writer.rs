//! The writer changes the store. One thread uses it at a time, see [`shared_writer`].
//!
//! It takes the operations that are queued, applies them to the state, writes the changes to the
//! log as one group, syncs it, and then delivers the results. Operations that arrive meanwhile form
//! the next group. So groups grow with the load, and no operation waits for a timer.
//!
//! [`shared_writer`]: crate::shared_writer

use crate::backup::Snapshot;
use crate::error::{DiskError, chain, unavailable, unknown};
use crate::health::{Health, Problem};
use crate::inbox::{Inbox, Notice, Work};
use crate::lock::Lock;
use crate::log::{AppendError, Log, Purpose};
use crate::next_claims::NextClaims;
use crate::operations::{LogSpace, QueuedOperation};
use crate::shared_writer::LoneCaller;
use crate::space::Space;
use crate::state::State;
use crate::tables::Version;
use crate::upkeep::Upkeep;
use requeue_jobs::rules::ChangeNotifier;
use requeue_jobs::{StoreError, WallClock};
use std::collections::VecDeque;
use std::mem;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// A group ends after the operation with which it reaches this many entries …
const GROUP_ENTRIES: usize = 1000;
/// … or this many bytes.
pub(crate) const GROUP_BYTES: usize = 512 << 10;
/// How many bytes of groups that the log refused may wait for the next attempt.
const MAX_BACKLOG: usize = 8 << 20;

/// What the writer shares with callers and with the other threads.
pub(crate) struct Shared {
    pub(crate) state: Mutex<State>,
    pub(crate) inbox: Inbox,
    /// Notified when a claim may return a job sooner than callers that wait knew.
    pub(crate) changes: ChangeNotifier,
    /// What callers that wait look at.
    pub(crate) next_claims: Arc<NextClaims>,
    pub(crate) health: Health,
    pub(crate) wall_clock: WallClock,
}

pub(crate) struct Writer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) space: Space,
    pub(crate) log: Log,
    pub(crate) upkeep: Upkeep,
    /// How many bytes of changed jobs are kept in memory before they are flushed.
    pub(crate) memory: usize,
    /// The size of a segment of the log, and the bytes logged since the last freeze.
    pub(crate) segment: u64,
    pub(crate) logged: u64,
    /// The group that is being built. It is empty between two groups, unless the log refused the
    /// last one: then that one is written together with the next.
    pub(crate) group: Vec<u8>,
    pub(crate) lone_caller: LoneCaller,
    /// Released last, after the threads of the upkeep have ended: the next process to open the
    /// directory finds nobody who writes, even if this thread panics.
    pub(crate) _lock: Option<Lock>,
}

/// What remains to be done for a group that was written: its callers get their results.
pub(crate) struct Results {
    shared: Arc<Shared>,
    operations: Vec<Box<dyn QueuedOperation>>,
    synced: Result<(), StoreError>,
    /// Whether callers that wait have to be woken.
    sooner: bool,
    reads: Vec<Box<dyn FnOnce() + Send>>,
}

impl Results {
    pub(crate) fn deliver(self) {
        // Before results are delivered: when a put returns, callers that wait have been woken.
        if self.sooner {
            self.shared.changes.notify();
        }
        for operation in self.operations {
            operation.finish(self.synced.clone());
        }
        self.reads.into_iter().for_each(|deliver| deliver());
    }
}

impl Writer {
    /// To be called first. Returns whether only notices can be handled.
    pub(crate) fn begin(&mut self) -> bool {
        self.space.measure(&self.shared.health);
        self.prepare();
        self.is_full()
    }

    /// Does all that is queued. Returns whether the store is closed, and nothing is left to do.
    pub(crate) fn work(&mut self) -> bool {
        let Work { mut operations, notices, is_last } =
            self.shared.inbox.take(GROUP_ENTRIES, self.is_full());
        notices.into_iter().for_each(|notice| self.handle(notice));
        let (begun, count) = (Instant::now(), operations.len());
        let entries = operations.front().map_or(0, |operation| operation.entries());
        while !operations.is_empty() {
            let (results, needed) = self.run_group(&mut operations);
            if operations.is_empty() {
                // Before the caller gets its result: it may have the next operation.
                let alone = count == 1 && !self.shared.inbox.has_operations();
                self.lone_caller.ran(entries, alone, begun.elapsed());
            }
            results.deliver();
            // For the next group. Not before: reads must not wait for the disk.
            if let Some(space) = needed {
                self.make_space(space, &mut operations);
            }
        }
        if self.log.in_doubt() {
            // Immediately, even if no other operation comes: a failed write may have destroyed
            // groups that share a block with it. If it fails, the next operation tries again.
            drop(self.log.retry());
        }
        if count > 0 {
            // Only then: on a full disk an idle store would retry without end.
            self.upkeep.flush_again();
        }
        if !is_last {
            self.prepare();
        }
        is_last
    }

    /// Prepares for the next operations.
    fn prepare(&mut self) {
        self.upkeep.set_short(self.space.is_short());
        self.upkeep.fill();
        self.flush_if_due();
    }

    /// Whether this operation may run on its caller's thread: it is [alone](LoneCaller), nothing has
    /// to be done before, the log has space, and no lock has to be waited for.
    pub(crate) fn may_run_here(&self, operation: &dyn QueuedOperation) -> bool {
        if !self.lone_caller.may_run_here()
            || !self.shared.inbox.is_idle()
            || self.shared.health.has_any()
            || !self.group.is_empty()
            || self.is_full()
        {
            return false;
        }
        let Ok(state) = self.shared.state.try_lock() else { return false };
        let LogSpace { purpose, bytes, .. } = operation.log_space(&state);
        bytes > 0 && matches!(self.log.has_space(purpose, bytes), Ok(true))
    }

    /// Runs an operation on its caller's thread. Returns the results, which are to be delivered
    /// when the writer is released.
    pub(crate) fn run_here(&mut self, operation: Box<dyn QueuedOperation>) -> Results {
        let (begun, entries) = (Instant::now(), operation.entries());
        let (results, _) = self.run_group(&mut VecDeque::from([operation]));
        let alone = !self.shared.inbox.has_operations();
        self.lone_caller.ran(entries, alone, begun.elapsed());
        let has_more = self.log.in_doubt() || self.space.is_short() || self.upkeep.wants_spares();
        if has_more || self.is_flush_due() {
            // Before the next operation, and not on this thread.
            self.shared.inbox.notify(Notice::Prepare);
        }
        results
    }

    /// To be called last.
    pub(crate) fn finish(&mut self) {
        self.upkeep.stop();
        // There is no caller left for an error. Every operation that returned is synced already.
        if !self.group.is_empty() {
            drop(self.write());
        }
        if self.log.close().is_ok() {
            // If it fails, for example on a full disk, the log is closed all the same; only a
            // segment that is lost later would not be noticed.
            drop(self.upkeep.tables().record(self.log.end()));
        }
    }

    /// Runs operations for one group, writes it and syncs it. Also returns the space in the log
    /// that the next operation lacks.
    fn run_group(
        &mut self,
        operations: &mut VecDeque<Box<dyn QueuedOperation>>,
    ) -> (Results, Option<LogSpace>) {
        let now = self.shared.wall_clock.now();
        let unsynced = self.retry().err().map(|error| chain(&error));
        let (mut done, mut refused, mut needed) = (Vec::new(), Vec::new(), None);
        let shared = self.shared.clone();
        let mut state = State::lock(&shared.state);
        let mut len = self.group.len();
        while let Some(mut operation) = operations.pop_front() {
            let space = operation.log_space(&state);
            match self.admit(space, len, &state, unsynced.as_deref()) {
                Ok(true) => {
                    operation.run(&mut state, now);
                    done.push(operation);
                }
                Ok(false) => {
                    operations.push_front(operation);
                    needed = Some(space);
                    break;
                }
                Err(error) => refused.push((operation, error)),
            }
            len = self.group.len() + state.end();
            if len >= GROUP_BYTES {
                break;
            }
        }
        let sooner = state.group(&mut self.group, now);
        self.shared.health.measured.memory_bytes.store(state.weight() as u64, Ordering::Relaxed);
        drop(state);
        refused.into_iter().for_each(|(operation, error)| operation.finish(Err(error)));
        let synced = self.write();
        let reads = State::lock(&shared.state).synced();
        (Results { shared, operations: done, synced, sooner, reads }, needed)
    }

    /// Makes space in the log for the next operation, or refuses it.
    fn make_space(
        &mut self,
        LogSpace { purpose, bytes, .. }: LogSpace,
        operations: &mut VecDeque<Box<dyn QueuedOperation>>,
    ) {
        if !self.log.in_doubt()
            && let Err(error) = self.log.reserve(purpose, self.group.len() + bytes)
            && let Some(operation) = operations.pop_front()
        {
            operation.finish(match purpose {
                Purpose::NewJobs => self.space.check(bytes, Err(error), &self.shared.health),
                Purpose::ExistingJobs => Err(unavailable(error)),
            });
        }
    }

    fn write(&mut self) -> Result<(), StoreError> {
        if self.group.is_empty() {
            return Ok(());
        }
        let begun = Instant::now();
        match self.log.append(&self.group, Purpose::ExistingJobs) {
            Ok(_) => self.wrote(self.group.len(), begun),
            Err(AppendError::InDoubt(error)) => {
                // The log keeps the group, and will write it again.
                self.group.clear();
                self.not_written(&error);
                return Err(unknown(error));
            }
            Err(AppendError::Refused(error)) => {
                self.not_written(&error);
                return Err(unknown(error));
            }
        }
        self.logged += self.group.len() as u64;
        self.group.clear();
        self.group.shrink_to(2 * GROUP_BYTES);
        Ok(())
    }

    /// Writes the last group again, if it is not known to be synced.
    fn retry(&mut self) -> Result<(), DiskError> {
        let retried = self.log.retry();
        match &retried {
            Ok(()) if self.group.is_empty() => self.shared.health.clear(Problem::LogWriteFailed),
            Ok(()) => {}
            Err(error) => self.not_written(error),
        }
        retried
    }

    fn wrote(&self, bytes: usize, begun: Instant) {
        let health = &self.shared.health;
        health.clear(Problem::LogWriteFailed);
        health.synced(bytes, begun.elapsed());
        let (segments, bytes) = self.log.size();
        health.measured.log_segments.store(segments, Ordering::Relaxed);
        health.measured.log_bytes.store(bytes, Ordering::Relaxed);
    }

    fn not_written(&self, error: &DiskError) {
        let detail = format!(
            "the log cannot be written: {}. No operation can change anything until a later attempt \
             succeeds; reading continues",
            chain(error)
        );
        self.shared.health.report(Problem::LogWriteFailed, detail);
    }

    // Flushing.

    /// Whether operations have to wait until the frozen layer is flushed.
    pub(crate) fn is_full(&self) -> bool {
        self.upkeep.is_busy() && self.is_past_limit(&State::lock(&self.shared.state))
    }

    /// Whether so much has changed since the last freeze that no new jobs are accepted until more
    /// can be frozen. The log counts too: jobs that come and go do not fill the memory.
    fn is_past_limit(&self, state: &State) -> bool {
        state.is_past(2 * self.memory) || self.logged >= 2 * self.memory as u64 + 4 * self.segment
    }

    fn flush_if_due(&mut self) {
        if self.is_flush_due() {
            self.log.roll();
            self.logged = 0;
            self.space.flushed();
            let frozen = State::lock(&self.shared.state).freeze(self.log.last_group());
            self.shared.health.measured.memory_bytes.store(0, Ordering::Relaxed);
            self.upkeep.flush(frozen);
        }
    }

    fn is_flush_due(&mut self) -> bool {
        // Also if jobs come and go and memory does not fill: the log must not grow without end, nor
        // take long to replay. A little less than two segments, because the next layer begins a
        // new one.
        let logged_enough = self.logged >= 2 * self.segment - self.segment / 4;
        let (is_past, gain) = {
            let state = State::lock(&self.shared.state);
            (state.is_past(self.memory), state.flush_gain(self.logged))
        };
        let due = is_past || logged_enough || self.space.should_flush(gain, &self.shared.health);
        // A layer is frozen only if all its groups are in the log.
        let written = !self.log.in_doubt() && self.group.is_empty();
        due && written && !self.upkeep.is_busy() && self.upkeep.flush_error().is_none()
    }

    fn handle(&mut self, notice: Notice) {
        let version = self.upkeep.tables().version();
        match notice {
            Notice::Prepare => self.prepare(),
            // The newest version may contain the flush that is under way, before its notice comes.
            // Together with the frozen layer, its jobs would be there twice.
            Notice::Merged if self.upkeep.is_flushing() => {}
            Notice::Merged => {
                State::lock(&self.shared.state).moved(&version);
                self.log.release(self.upkeep.tables().released_through());
                self.upkeep.clean();
            }
            Notice::Flushed => {
                let frozen = State::lock(&self.shared.state).flushed(&version);
                self.log.release(self.upkeep.tables().released_through());
                self.upkeep.flushed(frozen);
                self.upkeep.clean();
            }
            Notice::NotFlushed(frozen, error) => {
                State::lock(&self.shared.state).moved(&version);
                self.space.write_failed(&error, &self.shared.health);
                self.upkeep.not_flushed(frozen, error);
            }
            Notice::Remind => {
                // As if a job were put.
                let reserved = self.log.reserve(Purpose::NewJobs, 0);
                drop(self.space.check(0, reserved, &self.shared.health));
                if self.space.is_short() && !self.upkeep.is_busy() {
                    self.upkeep.merge();
                }
                drop(self.retry());
                self.upkeep.flush_again();
            }
            Notice::Snapshot(reply) => {
                // Every operation that returned is in the tables or in the log. A group whose sync
                // failed is in neither.
                let segments = self.log.segments(version.flushed_through);
                let log_end = self.log.end();
                let version = Arc::new(Version { log_end, ..Version::clone(&version) });
                drop(reply.send(Snapshot { version, segments }));
            }
        }
    }

    /// Decides whether an operation may run that needs so much space, after `before` bytes of
    /// others in the same group. `unsynced` is the reason if an earlier group could not be synced.
    ///
    /// An operation that needs no space is always admitted. Returns `false` if the log needs another
    /// segment first: that takes a while, and the state must not be locked meanwhile.
    fn admit(
        &mut self,
        LogSpace { purpose, bytes, fills_memory }: LogSpace,
        before: usize,
        state: &State,
        unsynced: Option<&str>,
    ) -> Result<bool, StoreError> {
        if bytes == 0 {
            return Ok(true);
        }
        if let Some(why) = unsynced {
            return Err(unavailable(format!("an earlier group is not synced yet: {why}")));
        }
        let space = match self.log.has_space(purpose, before + bytes) {
            Ok(false) => return Ok(false),
            Ok(true) => Ok(()),
            Err(error) => Err(error),
        };
        let is_new = purpose == Purpose::NewJobs;
        if is_new {
            self.space.check(bytes, space, &self.shared.health)?;
        } else {
            space.map_err(unavailable)?;
        }
        match self.group.len() {
            0 => {}
            1..=MAX_BACKLOG if !is_new => {}
            _ if is_new => {
                return Err(unavailable("an earlier group is not written to the log yet"));
            }
            bytes => {
                return Err(unavailable(format!(
                    "{bytes} bytes wait to be written to the log, the limit is {MAX_BACKLOG}"
                )));
            }
        }
        // Claims may go on for longer: jobs that are settled leave the memory.
        let is_full = match is_new {
            true => self.is_past_limit(state),
            false => fills_memory && state.is_past(4 * self.memory),
        };
        match self.upkeep.flush_error().filter(|_| is_full) {
            Some(why) => Err(unavailable(format!("the memory is full, and {why}"))),
            None => Ok(true),
        }
    }
}

impl Drop for Writer {
    /// Also if the writer panics: no caller must wait for ever.
    fn drop(&mut self) {
        self.shared.inbox.end();
        let reads = mem::take(&mut State::lock(&self.shared.state).after_sync);
        drop(reads);
    }
}
