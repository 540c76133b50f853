//! The queue of the writer: operations of callers, and notices of other threads.

use crate::backup::Snapshot;
use crate::error::{DiskError, unavailable};
use crate::operations::QueuedOperation;
use crate::state::Frozen;
use std::collections::VecDeque;
use std::sync::mpsc::Sender;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// How many bytes of arguments may be queued. An operation that would exceed this is refused, unless
/// the queue is empty: a disk that stalls must not fill the memory with puts that wait for it.
const MAX_QUEUED_BYTES: usize = 256 << 20;

/// What other threads notify the writer of.
pub(crate) enum Notice {
    /// The frozen layer was written to tables.
    Flushed,
    /// The frozen layer could not be written to tables, and is returned.
    NotFlushed(Frozen, DiskError),
    /// Tables were merged, or all merges are done.
    Merged,
    /// Something was wrong a while ago: it may work now.
    Remind,
    /// A caller ran an operation itself, and something has to be done before the next one.
    Prepare,
    /// A caller wants a list of the files, to copy them.
    Snapshot(Sender<Snapshot>),
}

#[derive(Default)]
pub(crate) struct Inbox {
    queues: Mutex<Queues>,
    arrived: Condvar,
}

#[derive(Default)]
struct Queues {
    operations: VecDeque<Box<dyn QueuedOperation>>,
    /// The [size](QueuedOperation::bytes) of the queued operations.
    bytes: usize,
    notices: Vec<Notice>,
    /// No more operations are accepted.
    closed: bool,
    /// The writer is gone: no more notices are accepted.
    ended: bool,
}

/// What the writer has to do next.
pub(crate) struct Work {
    pub(crate) operations: VecDeque<Box<dyn QueuedOperation>>,
    pub(crate) notices: Vec<Notice>,
    /// The inbox is closed and empty.
    pub(crate) is_last: bool,
}

impl Inbox {
    /// Queues an operation. If the store is closed, or the queue is too large, it is refused.
    pub(crate) fn send(&self, operation: Box<dyn QueuedOperation>) {
        let bytes = operation.bytes();
        let mut queues = self.lock();
        if bytes > 0 && queues.bytes > 0 && queues.bytes + bytes > MAX_QUEUED_BYTES {
            let queued = queues.bytes;
            drop(queues);
            let why = format!(
                "the disk is too slow: {queued} bytes of new jobs wait to be written, the limit is \
                 {MAX_QUEUED_BYTES}"
            );
            return operation.finish(Err(unavailable(why)));
        }
        if queues.closed {
            drop(queues);
            return operation.finish(Err(unavailable("the store is closed")));
        }
        queues.operations.push_back(operation);
        queues.bytes += bytes;
        drop(queues);
        self.arrived.notify_one();
    }

    /// Notifies the writer. If it is gone, the notice is dropped; a thread that waits for a reply
    /// sees that.
    pub(crate) fn notify(&self, notice: Notice) {
        let mut queues = self.lock();
        if queues.ended {
            drop(queues);
            return drop(notice);
        }
        queues.notices.push(notice);
        drop(queues);
        self.arrived.notify_one();
    }

    /// Sends [`Notice::Remind`], unless one is queued already.
    pub(crate) fn remind(&self) {
        let mut queues = self.lock();
        let is_queued = queues.notices.iter().any(|notice| matches!(notice, Notice::Remind));
        if !is_queued && !queues.ended {
            queues.notices.push(Notice::Remind);
            drop(queues);
            self.arrived.notify_one();
        }
    }

    /// Whether the writer is gone.
    pub(crate) fn has_ended(&self) -> bool {
        self.lock().ended
    }

    /// Accepts no more operations.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.arrived.notify_one();
    }

    /// Whether operations are queued.
    pub(crate) fn has_operations(&self) -> bool {
        !self.lock().operations.is_empty()
    }

    /// Whether nothing is queued, and the store is not closed.
    pub(crate) fn is_idle(&self) -> bool {
        let queues = self.lock();
        queues.operations.is_empty() && queues.notices.is_empty() && !queues.closed
    }

    /// The writer is gone. Operations that it did not run are dropped, which reports an unknown
    /// outcome to their callers.
    pub(crate) fn end(&self) {
        let mut queues = self.lock();
        (queues.closed, queues.ended) = (true, true);
        let rest = (std::mem::take(&mut queues.operations), std::mem::take(&mut queues.notices));
        drop(queues);
        self.arrived.notify_one();
        drop(rest);
    }

    /// Waits until there is something to [take](Self::take).
    pub(crate) fn wait(&self, only_notices: bool) {
        let waits = |queues: &mut Queues| {
            let has_operations = !only_notices && !queues.operations.is_empty();
            let is_over = queues.ended || (queues.closed && !only_notices);
            !has_operations && queues.notices.is_empty() && !is_over
        };
        drop(self.arrived.wait_while(self.lock(), waits));
    }

    /// Takes the notices, and operations for about one group, unless `only_notices` is set.
    pub(crate) fn take(&self, max_entries: usize, only_notices: bool) -> Work {
        let mut queues = self.lock();
        let (mut operations, mut entries) = (VecDeque::new(), 0_usize);
        while !only_notices && entries < max_entries {
            let Some(operation) = queues.operations.pop_front() else { break };
            entries = entries.saturating_add(operation.entries());
            queues.bytes -= operation.bytes();
            operations.push_back(operation);
        }
        let is_last = queues.closed && queues.operations.is_empty() && operations.is_empty();
        Work { operations, notices: std::mem::take(&mut queues.notices), is_last }
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operations::{ReadNextClaims, submit};
    use requeue_jobs::{Body, JobId, Kind, Put, StoreError};
    use requeue_testkit::block_on;

    #[test]
    fn the_queue_refuses_puts_beyond_its_limit_in_bytes() {
        let inbox = Inbox::default();
        let body = Body::octets(vec![7; 1 << 20]).unwrap();
        // All of them share one body.
        let put = Put::new(Kind::new("mail").unwrap(), JobId::new("1").unwrap(), body);
        let puts = || submit(vec![put.clone(); 10]);
        let mut waiting = Vec::new();
        for _ in 0..25 {
            let (operation, result) = puts();
            inbox.send(operation);
            waiting.push(result);
        }
        let (operation, refused) = puts();
        inbox.send(operation);
        let error = block_on(refused).unwrap_err();
        assert!(
            matches!(&error, StoreError::Unavailable { reason } if reason.contains("268435456"))
        );
        // Operations that carry no bodies are not refused, nor is anything once the queue is empty.
        let (settle, _) = submit(ReadNextClaims(vec![]));
        inbox.send(settle);
        while inbox.lock().operations.len() > 1 {
            inbox.take(10, false);
        }
        assert_eq!(inbox.take(10, false).operations.len(), 1);
        assert_eq!(inbox.lock().bytes, 0);
        let (operation, _) = puts();
        inbox.send(operation);
        assert_eq!(inbox.take(10, false).operations.len(), 1);
    }

    #[test]
    fn callers_do_not_wait_for_a_writer_that_is_gone() {
        let inbox = Inbox::default();
        let ((before, waits), (after, refused)) =
            (submit(ReadNextClaims(vec![])), submit(ReadNextClaims(vec![])));
        inbox.send(before);
        inbox.end();
        inbox.send(after);
        assert!(matches!(block_on(waits), Err(StoreError::Unknown { .. })));
        assert!(matches!(block_on(refused), Err(StoreError::Unavailable { .. })));
    }
}
