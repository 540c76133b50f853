//! What the writer is asked to do, and told.

use crate::backup::Snapshot;
use crate::error::DiskError;
use crate::reply::Reply;
use crate::state::Frozen;
use requeue_jobs::{
    BatchResults, Change, ChangeError, Changed, Claim, Claimed, JobId, Kind, Placed, Put, PutError,
    Reaped, Restore, Restored, Schedule, Settings, Settle, SettleError, Settled, StoreError, Tick,
    Ticked,
};
use std::collections::VecDeque;
use std::sync::mpsc::Sender;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A change, and who waits for it.
pub(crate) enum Op {
    Put(Vec<Put>, Reply<BatchResults<Placed, PutError>>),
    Claim(Claim, Reply<Claimed>),
    Settle(Vec<Settle>, Reply<BatchResults<Settled, SettleError>>),
    Change(Vec<Change>, Reply<BatchResults<Changed, ChangeError>>),
    Restore(Restore, Reply<BatchResults<Restored, StoreError>>),
    Reap(usize, Reply<Reaped>),
    Set(Kind, Settings, Reply<()>),
    SetSchedule(Kind, Schedule, Reply<()>),
    RemoveSchedule(Kind, JobId, Reply<bool>),
    Tick(Tick, Reply<Ticked>),
    /// Nothing: answered when all before it is safe.
    Nothing(Reply<()>),
}

impl Op {
    /// How many operations it counts for in a group.
    pub(crate) fn entries(&self) -> usize {
        match self {
            Op::Put(puts, _) => puts.len(),
            Op::Claim(claim, _) => claim.max,
            Op::Settle(settlements, _) => settlements.len(),
            Op::Change(changes, _) => changes.len(),
            Op::Restore(restore, _) => restore.jobs.len(),
            Op::Reap(max, _) => *max,
            _ => 1,
        }
    }

    /// Answers that nothing was done.
    pub(crate) fn refuse(self, error: StoreError) {
        match self {
            Op::Put(_, reply) => reply.send(Err(error)),
            Op::Claim(_, reply) => reply.send(Err(error)),
            Op::Settle(_, reply) => reply.send(Err(error)),
            Op::Change(_, reply) => reply.send(Err(error)),
            Op::Restore(_, reply) => reply.send(Err(error)),
            Op::Reap(_, reply) => reply.send(Err(error)),
            Op::Set(_, _, reply) | Op::SetSchedule(_, _, reply) => reply.send(Err(error)),
            Op::RemoveSchedule(_, _, reply) => reply.send(Err(error)),
            Op::Tick(_, reply) => reply.send(Err(error)),
            Op::Nothing(reply) => reply.send(Err(error)),
        }
    }
}

/// What other threads tell the writer.
pub(crate) enum News {
    /// The frozen layer is in the tables.
    Flushed,
    /// It could not be written there, and is given back.
    NotFlushed(Frozen, DiskError),
    /// Tables were merged, or all merges are done.
    Merged,
    /// Somebody wants to know what there is, to copy it.
    Snapshot(Sender<Snapshot>),
}

#[derive(Default)]
pub(crate) struct Inbox {
    inside: Mutex<Inside>,
    arrived: Condvar,
}

#[derive(Default)]
struct Inside {
    ops: VecDeque<Op>,
    news: Vec<News>,
    /// No more operations are taken.
    closed: bool,
    /// Nobody hears news any more.
    ended: bool,
}

/// What there is to do.
pub(crate) struct Work {
    pub(crate) ops: VecDeque<Op>,
    pub(crate) news: Vec<News>,
    /// Nothing comes any more.
    pub(crate) over: bool,
}

impl Inbox {
    pub(crate) fn send(&self, op: Op) {
        let mut inside = self.lock();
        if inside.closed {
            drop(inside);
            return op.refuse(StoreError::Unavailable { reason: "the store is closed".to_owned() });
        }
        inside.ops.push_back(op);
        drop(inside);
        self.arrived.notify_one();
    }

    /// Tells the writer, if it is still there: otherwise whoever waits for an answer hears so.
    pub(crate) fn tell(&self, news: News) {
        let mut inside = self.lock();
        if inside.ended {
            drop(inside);
            return drop(news);
        }
        inside.news.push(news);
        drop(inside);
        self.arrived.notify_one();
    }

    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.arrived.notify_one();
    }

    /// Nobody is there any more: what was asked and not done is dropped, and says so.
    pub(crate) fn end(&self) {
        let mut inside = self.lock();
        (inside.closed, inside.ended) = (true, true);
        let rest = (std::mem::take(&mut inside.ops), std::mem::take(&mut inside.news));
        drop(inside);
        drop(rest);
    }

    /// Waits for something to do: operations for about one group, unless only `news` are wanted.
    pub(crate) fn wait(&self, max_entries: usize, only_news: bool) -> Work {
        let mut inside = self.lock();
        loop {
            let ready = !inside.news.is_empty() || (!only_news && !inside.ops.is_empty());
            if ready || (inside.closed && !only_news) {
                break;
            }
            inside = self.arrived.wait(inside).unwrap_or_else(PoisonError::into_inner);
        }
        let (mut ops, mut entries) = (VecDeque::new(), 0_usize);
        while !only_news && entries < max_entries {
            let Some(op) = inside.ops.pop_front() else { break };
            entries = entries.saturating_add(op.entries());
            ops.push_back(op);
        }
        let over = inside.closed && inside.ops.is_empty() && ops.is_empty();
        Work { ops, news: std::mem::take(&mut inside.news), over }
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::reply;
    use requeue_testkit::block_on;

    #[test]
    fn nobody_waits_for_what_is_abandoned() {
        let inbox = Inbox::default();
        let ((before, waits), (after, refused)) = (reply(), reply());
        inbox.send(Op::Nothing(before));
        inbox.end();
        inbox.send(Op::Nothing(after));
        assert!(matches!(block_on(waits), Err(StoreError::Unknown { .. })));
        assert!(matches!(block_on(refused), Err(StoreError::Unavailable { .. })));
    }
}
