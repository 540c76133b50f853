//! The one thread that changes anything.
//!
//! It takes what has been asked for, does it by the rules, writes it to the log as one group,
//! and answers when that is synced. What is asked meanwhile forms the next group: under load
//! groups grow by themselves, and nobody waits for a timer.

use crate::backup::Snapshot;
use crate::disk::Disk;
use crate::error::{chain, unavailable, unknown};
use crate::inbox::{Inbox, News, Op, Work};
use crate::lock::Lock;
use crate::log::{AppendError, Log, Use};
use crate::reply::Reply;
use crate::space::Space;
use crate::state::State;
use crate::upkeep::Upkeep;
use requeue_jobs::limits::MAX_ERROR_LEN;
use requeue_jobs::rules::ChangeNotifier;
use requeue_jobs::{
    Change, JobView, Put, Settle, Settlement, StoreError, Ticked, Timestamp, WallClock,
};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// A group has so many operations …
const GROUP_ENTRIES: usize = 1000;
/// … or so many bytes, or one call more.
const GROUP_BYTES: usize = 512 << 10;
/// So many bytes that the log would not take may wait for it.
const MAX_BACKLOG: usize = 8 << 20;

/// What the writer shares with those who ask.
pub(crate) struct Shared {
    pub(crate) state: Mutex<State>,
    pub(crate) inbox: Inbox,
    /// Rung when a claim may get something sooner than those who wait were told.
    pub(crate) changes: ChangeNotifier,
    pub(crate) wall_clock: WallClock,
}

/// Tells one who waits how it went.
type Tell = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

pub(crate) struct Writer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) space: Space,
    pub(crate) log: Log,
    pub(crate) upkeep: Upkeep,
    /// How many bytes of changed jobs are held in memory before they are flushed.
    pub(crate) memory: usize,
    /// How long a segment of the log is, and how much was logged since the last freeze.
    pub(crate) segment: u64,
    pub(crate) logged: u64,
    /// A group on its way into the log. Not empty in between only where the log did not take it:
    /// then it goes with the next.
    pub(crate) group: Vec<u8>,
    /// Given up last: whoever opens the directory next finds nobody writing.
    pub(crate) _lock: Option<Lock>,
}

impl Writer {
    pub(crate) fn run(mut self) {
        loop {
            self.upkeep.fill();
            self.flush_if_due();
            let Work { mut ops, news, over } =
                self.shared.inbox.wait(GROUP_ENTRIES, self.is_full());
            news.into_iter().for_each(|news| self.hear(news));
            let asked = !ops.is_empty();
            while !ops.is_empty() {
                self.one_group(&mut ops);
            }
            if asked {
                // Not without being asked for anything: on a full disk that would go on and on.
                self.upkeep.flush_again();
            }
            if over {
                break;
            }
        }
        self.upkeep.stop();
        // Nobody is left to tell; what was answered is safe without it.
        if !self.group.is_empty() {
            drop(self.write());
        }
        drop(self.log.close());
    }

    /// One group: done, written, answered.
    fn one_group(&mut self, ops: &mut VecDeque<Op>) {
        let now = self.shared.wall_clock.now();
        let doubt = self.log.retry().err().map(|error| chain(&error));
        let mut tells = Vec::new();
        let shared = self.shared.clone();
        let mut state = State::lock(&shared.state);
        let mut len = self.group.len();
        while let Some(op) = ops.pop_front() {
            match self.admit(&op, len, &state, doubt.as_deref()) {
                Ok(()) => tells.push(apply(&mut state, op, now)),
                Err(error) => op.refuse(error),
            }
            len = self.group.len() + state.end();
            if len >= GROUP_BYTES {
                break;
            }
        }
        let sooner = state.group(&mut self.group, now);
        drop(state);
        let safe = self.write();
        State::lock(&self.shared.state).unsynced = false;
        // Before anybody is answered: who waits has heard of a put when that returns.
        if sooner {
            self.shared.changes.notify();
        }
        for tell in tells {
            tell(safe.clone());
        }
    }

    fn write(&mut self) -> Result<(), StoreError> {
        if self.group.is_empty() {
            return Ok(());
        }
        match self.log.append(&self.group, Use::Settle) {
            Ok(_) => {}
            Err(AppendError::InDoubt(error)) => {
                // The log has it, and will write it again.
                self.group.clear();
                return Err(unknown(error));
            }
            Err(AppendError::Refused(error)) => return Err(unknown(error)),
        }
        self.logged += self.group.len() as u64;
        self.group.clear();
        self.group.shrink_to(2 * GROUP_BYTES);
        Ok(())
    }

    // Flushing.

    /// Whether nothing more should be done until what is frozen is flushed.
    fn is_full(&self) -> bool {
        self.upkeep.is_busy() && self.is_past(2 * self.memory)
    }

    /// Whether more than this has changed since the last freeze.
    fn is_past(&self, memory: usize) -> bool {
        State::lock(&self.shared.state).is_past(memory)
    }

    fn flush_if_due(&mut self) {
        // Also where jobs come and go: the log must not grow for ever, nor take long to read. A
        // little less than two segments, for the next layer begins another.
        let logged_enough = self.logged >= 2 * self.segment - self.segment / 4;
        let due = self.is_past(self.memory) || logged_enough;
        // A group is frozen only once it has its place in the log.
        let written = !self.log.in_doubt() && self.group.is_empty();
        if due && written && !self.upkeep.is_busy() && self.upkeep.trouble().is_none() {
            self.log.roll();
            self.logged = 0;
            let frozen = State::lock(&self.shared.state).freeze(self.log.last_group());
            self.upkeep.flush(frozen);
        }
    }

    fn hear(&mut self, news: News) {
        let version = self.upkeep.tables().version();
        match news {
            // The newest version may have what is being flushed, before that is told here: with what
            // is frozen beside it, such jobs would be there twice.
            News::Merged if self.upkeep.is_flushing() => {}
            News::Merged => State::lock(&self.shared.state).moved(&version),
            News::Flushed => {
                let frozen = State::lock(&self.shared.state).flushed(&version);
                self.log.release(self.upkeep.tables().released_through());
                self.upkeep.flushed(frozen);
            }
            News::NotFlushed(frozen, error) => {
                State::lock(&self.shared.state).moved(&version);
                self.upkeep.not_flushed(frozen, error);
            }
            News::Snapshot(reply) => {
                // All that was answered is in one or the other; what is in doubt is in neither.
                let segments = self.log.segments(version.flushed_through);
                drop(reply.send(Snapshot { version, segments }));
            }
        }
    }

    /// Whether a change can be taken on, after so many bytes of others. `doubt` says why an
    /// earlier group could not be made safe.
    fn admit(
        &mut self,
        op: &Op,
        before: usize,
        state: &State,
        doubt: Option<&str>,
    ) -> Result<(), StoreError> {
        let (of, bytes) = needs(op, state);
        if bytes == 0 {
            return Ok(());
        }
        if let Some(why) = doubt {
            return Err(unavailable(format!("what was asked before is not safe yet: {why}")));
        }
        self.log.room(of, before + bytes).map_err(unavailable)?;
        if of == Use::Settle {
            return match self.group.len() {
                0..=MAX_BACKLOG => Ok(()),
                _ => Err(unavailable("too much waits for the log already")),
            };
        }
        if !self.group.is_empty() {
            return Err(unavailable("an earlier group is not in the log yet"));
        }
        self.space.check(&self.disk)?;
        match self.upkeep.trouble() {
            Some(why) if state.is_past(2 * self.memory) => Err(unavailable(format!(
                "the memory is full, and could not be written into tables: {why}"
            ))),
            _ => Ok(()),
        }
    }
}

impl Drop for Writer {
    /// Also where it panics: nobody must wait for ever.
    fn drop(&mut self) {
        self.shared.inbox.end();
    }
}

/// For what a change needs the log, and about how many bytes of it at most.
fn needs(op: &Op, state: &State) -> (Use, usize) {
    // Times, numbers, names: what a job has besides its id and body.
    const EACH: usize = 400;
    match op {
        Op::Put(puts, _) => {
            let each = |put: &Put| EACH + put.id.as_str().len() + put.body.len();
            (Use::Put, puts.iter().map(each).sum())
        }
        Op::Claim(claim, _) => (Use::Settle, claim.max * EACH),
        Op::Settle(settlements, _) => {
            let each = |settle: &Settle| {
                let error = match &settle.action {
                    Settlement::Retry { error, .. } | Settlement::Bury { error } => {
                        error.len().min(MAX_ERROR_LEN)
                    }
                    _ => 0,
                };
                EACH + settle.receipt.id().as_str().len() + error
            };
            (Use::Settle, settlements.iter().map(each).sum())
        }
        Op::Change(changes, _) => {
            let each = |change: &Change| EACH + change.id.as_str().len();
            (Use::Settle, changes.iter().map(each).sum())
        }
        Op::Restore(restore, _) => {
            let failures = |job: &JobView| {
                let errors = job.failures.iter().filter_map(|failure| failure.error.as_ref());
                errors.map(|error| EACH + error.len()).sum::<usize>()
            };
            let each = |job: &JobView| {
                let next = job.next.as_ref().map_or(0, |next| next.body.len());
                EACH + job.id.as_str().len() + job.body.len() + next + failures(job)
            };
            (Use::Put, EACH + restore.jobs.iter().map(each).sum::<usize>())
        }
        Op::Reap(max, _) => (Use::Settle, max.saturating_mul(EACH).min(GROUP_BYTES)),
        Op::Set(..) | Op::RemoveSchedule(..) => (Use::Put, 4 * EACH),
        Op::SetSchedule(_, schedule, _) => (Use::Put, 4 * EACH + schedule.body.len()),
        Op::Tick(tick, _) => {
            let schedules = state.kinds.kind(&tick.kind).map(|kind| &kind.schedules);
            let body =
                schedules.and_then(|schedules| schedules.get(&tick.id)).map(|s| s.body.len());
            // It is written with the job, and with the schedule that has moved.
            (Use::Put, 4 * EACH + 2 * body.unwrap_or(0))
        }
        Op::Nothing(_) => (Use::Settle, 0),
    }
}

/// Does what is asked, in memory. Answers how to tell, once that is safe.
fn apply(state: &mut State, op: Op, now: Timestamp) -> Tell {
    /// Answers what came of it, unless it could not be made safe.
    fn tell<T: Send + 'static>(reply: Reply<T>, answer: Result<T, StoreError>) -> Tell {
        Box::new(move |safe| reply.send(safe.and(answer)))
    }
    match op {
        Op::Put(puts, reply) => {
            let mut put = |put: Put| {
                state.touch(&put.kind);
                state.kinds.put(put, now)
            };
            tell(reply, Ok(puts.into_iter().map(&mut put).collect()))
        }
        Op::Claim(claim, reply) => {
            claim.kinds.iter().for_each(|kind| state.touch(kind));
            tell(reply, state.kinds.claim(&claim, now).map_err(StoreError::from))
        }
        Op::Settle(settlements, reply) => {
            let mut settle = |settle: Settle| {
                state.touch(settle.receipt.kind());
                state.kinds.settle(settle, now)
            };
            tell(reply, Ok(settlements.into_iter().map(&mut settle).collect()))
        }
        Op::Change(changes, reply) => {
            let mut change = |change: Change| {
                state.touch(&change.kind);
                state.kinds.change(change, now)
            };
            tell(reply, Ok(changes.into_iter().map(&mut change).collect()))
        }
        Op::Restore(restore, reply) => {
            let kind = restore.kind.clone();
            let restored = state.kinds.restore(restore, now);
            if restored.is_ok() {
                state.counters_changed(&kind);
            }
            tell(reply, restored.map_err(StoreError::from))
        }
        Op::Reap(max, reply) => {
            let reaped = state.reap(max, GROUP_BYTES, now);
            tell(reply, reaped)
        }
        Op::Set(kind, settings, reply) => {
            let set = state.kinds.set(&kind, settings);
            if set.is_ok() {
                state.settings_changed(&kind);
            }
            tell(reply, set.map_err(StoreError::from))
        }
        Op::SetSchedule(kind, schedule, reply) => {
            let id = schedule.id.clone();
            let set = state.kinds.set_schedule(&kind, schedule);
            if set.is_ok() {
                state.schedule_changed(&kind, &id);
            }
            tell(reply, set.map_err(StoreError::from))
        }
        Op::RemoveSchedule(kind, id, reply) => {
            let removed = state.kinds.remove_schedule(&kind, &id);
            if removed {
                state.schedule_changed(&kind, &id);
            }
            tell(reply, Ok(removed))
        }
        Op::Tick(tick, reply) => {
            let (kind, id) = (tick.kind.clone(), tick.id.clone());
            let ticked = state.kinds.tick(tick, now);
            if let Ok(Ticked::Put(_) | Ticked::Skipped) = ticked {
                state.schedule_changed(&kind, &id);
            }
            tell(reply, ticked)
        }
        Op::Nothing(reply) => tell(reply, Ok(())),
    }
}
