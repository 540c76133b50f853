//! The tasks and threads that wait on a queue. They are woken in the order in which they came.
//!
//! ```text
//!            register            notify
//!    (none) ----------> waiting --------> notified
//!       ^                  |                 |
//!       +------------------+-----------------+  leave
//! ```
//!
//! A notified waiter has been woken and has not checked the queue yet. A waiter that blocks a
//! thread always checks, so while one is notified, nobody else needs to be woken: it wakes the
//! next waiter when it takes a key. A task may be woken and never polled (for example the
//! losing branch of a `select!`), so tasks are woken one per ready key: a task that does not
//! respond delays at most one key, and any other getter can still take it.
//!
//! Nothing here calls a waker. Wakers are returned, to be woken or dropped once the queue's
//! lock is released. Dropping a waker may drop a task, and with it a guard that locks the same
//! queue.

use crate::keys::NIL;
use std::task::Waker;

/// The registration of a caller that waits on a queue. The queue fills it in.
///
/// Each getter and each drain creates one, passes it to every poll, and passes it to
/// [`WorkQueue::leave`](crate::WorkQueue::leave) if it stops waiting.
#[derive(Debug, Default)]
pub struct Waiter {
    id: u64,
    blocks_thread: bool,
}

impl Waiter {
    /// Creates an unregistered waiter for a task.
    #[inline]
    pub fn for_task() -> Self {
        Waiter::default()
    }

    /// Creates an unregistered waiter for a thread that does nothing but wait.
    #[inline]
    pub fn for_thread() -> Self {
        Waiter { id: 0, blocks_thread: true }
    }

    /// Returns the number that the queue stored with [`set_id`](Self::set_id), or 0 if the
    /// waiter is not registered.
    #[inline]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Stores the number by which the queue finds this waiter.
    #[inline]
    pub fn set_id(&mut self, id: u64) {
        self.id = id;
    }

    /// Returns `true` if the waker unblocks a thread, which is certain to poll again.
    #[inline]
    pub fn blocks_thread(&self) -> bool {
        self.blocks_thread
    }
}

/// A waiter to wake once the lock is released.
#[derive(Debug)]
pub(crate) struct Notice {
    pub(crate) id: u64,
    pub(crate) waker: Waker,
}

/// The waiters of one kind, in the order in which they came.
pub(crate) struct Waiters {
    /// Part of every id, so that the waiter of one kind is not found among those of another.
    kind: WaiterKind,
    slots: Vec<WaiterSlot>,
    free: Vec<u32>,
    /// The list of waiting slots, linked through `slots`.
    first: Option<u32>,
    last: Option<u32>,
    notified_threads: usize,
    notified_tasks: usize,
}

/// What a waiter waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaiterKind {
    Getters = 1,
    Drains = 2,
    WorkOffs = 3,
}

struct WaiterSlot {
    /// Distinguishes successive users of a slot, so that a stale `Waiter` is not found.
    generation: u32,
    prev: u32,
    next: u32,
    blocks_thread: bool,
    state: WaiterState,
}

enum WaiterState {
    Free,
    Waiting(Waker),
    Notified,
}

impl Waiters {
    pub(crate) fn new(kind: WaiterKind) -> Self {
        Waiters {
            kind,
            slots: Vec::new(),
            free: Vec::new(),
            first: None,
            last: None,
            notified_threads: 0,
            notified_tasks: 0,
        }
    }

    /// Appends `waiter` to the list, or replaces the waker if it is already in the list.
    /// Returns the old waker, for the caller to drop.
    #[inline]
    #[must_use = "drop it after the lock is released"]
    pub(crate) fn register(&mut self, waiter: &mut Waiter, waker: &Waker) -> Option<Waker> {
        if let Some(index) = self.find(waiter.id) {
            if let WaiterState::Waiting(old) = &mut self.slots[index as usize].state {
                if old.will_wake(waker) {
                    return None;
                }
                return Some(std::mem::replace(old, waker.clone()));
            }
            // It was notified, but another getter took the key: it goes to the end of the list.
            let none = self.leave(waiter);
            debug_assert!(none.is_none(), "a notified waiter has no waker");
        }
        let waker = waker.clone();
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(WaiterSlot {
                generation: 0,
                prev: NIL,
                next: NIL,
                blocks_thread: false,
                state: WaiterState::Free,
            });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        slot.blocks_thread = waiter.blocks_thread;
        slot.state = WaiterState::Waiting(waker);
        waiter.id = self.id_of_slot(index);
        self.append(index);
        None
    }

    /// Removes `waiter`, whatever its state. Returns its waker, for the caller to drop.
    #[inline]
    #[must_use = "drop it after the lock is released"]
    pub(crate) fn leave(&mut self, waiter: &mut Waiter) -> Option<Waker> {
        self.find(waiter.id)?;
        self.leave_id(std::mem::take(&mut waiter.id))
    }

    /// Does the same as [`leave`](Self::leave) for the id in a [`Notice`].
    #[inline]
    #[must_use = "drop it after the lock is released"]
    pub(crate) fn leave_id(&mut self, id: u64) -> Option<Waker> {
        let index = self.find(id)?;
        let state = std::mem::replace(&mut self.slots[index as usize].state, WaiterState::Free);
        self.free.push(index);
        match state {
            WaiterState::Free => None,
            WaiterState::Waiting(waker) => {
                self.unlink(index);
                Some(waker)
            }
            WaiterState::Notified => {
                *self.notified(index) -= 1;
                None
            }
        }
    }

    /// Whether `waiter` was notified and has not left yet.
    #[inline]
    pub(crate) fn is_notified(&self, waiter: &Waiter) -> bool {
        let state = self.find(waiter.id).map(|i| &self.slots[i as usize].state);
        matches!(state, Some(WaiterState::Notified))
    }

    /// Whether a waiter is waiting and not notified yet.
    #[inline]
    pub(crate) fn any_waiting(&self) -> bool {
        self.first.is_some()
    }

    /// Returns the next waiter to wake for `ready` ready keys, unless enough are notified
    /// already.
    #[inline]
    pub(crate) fn notify(&mut self, ready: usize) -> Option<Notice> {
        self.first?;
        if self.notified_threads > 0 || self.notified_tasks >= ready {
            return None;
        }
        self.notify_first()
    }

    /// Notifies all waiters.
    pub(crate) fn notify_all(&mut self) -> Vec<Notice> {
        std::iter::from_fn(|| self.notify_first()).collect()
    }

    #[inline]
    fn notify_first(&mut self) -> Option<Notice> {
        let index = self.first?;
        self.unlink(index);
        *self.notified(index) += 1;
        let id = self.id_of_slot(index);
        match std::mem::replace(&mut self.slots[index as usize].state, WaiterState::Notified) {
            WaiterState::Waiting(waker) => Some(Notice { id, waker }),
            WaiterState::Free | WaiterState::Notified => {
                unreachable!("only waiting slots are in the list")
            }
        }
    }

    #[inline]
    fn notified(&mut self, index: u32) -> &mut usize {
        if self.slots[index as usize].blocks_thread {
            &mut self.notified_threads
        } else {
            &mut self.notified_tasks
        }
    }

    /// Combines generation, index and kind into one number that is never 0.
    #[inline]
    fn id_of_slot(&self, index: u32) -> u64 {
        let generation = u64::from(self.slots[index as usize].generation);
        (generation << 32) | (u64::from(index) << 2) | self.kind as u64
    }

    #[inline]
    fn find(&self, id: u64) -> Option<u32> {
        if id & 3 != self.kind as u64 {
            return None;
        }
        let index = id as u32 >> 2;
        let found = self.slots.get(index as usize)?;
        let current =
            found.generation == (id >> 32) as u32 && !matches!(found.state, WaiterState::Free);
        current.then_some(index)
    }

    #[inline]
    fn append(&mut self, index: u32) {
        let prev = self.last.replace(index);
        self.slots[index as usize].prev = prev.unwrap_or(NIL);
        self.slots[index as usize].next = NIL;
        match prev {
            Some(prev) => self.slots[prev as usize].next = index,
            None => self.first = Some(index),
        }
    }

    #[inline]
    fn unlink(&mut self, index: u32) {
        let WaiterSlot { prev, next, .. } = self.slots[index as usize];
        match prev {
            NIL => self.first = (next != NIL).then_some(next),
            _ => self.slots[prev as usize].next = next,
        }
        match next {
            NIL => self.last = (prev != NIL).then_some(prev),
            _ => self.slots[next as usize].prev = prev,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id_of(notice: Option<Notice>) -> Option<u64> {
        notice.map(|n| n.id)
    }

    fn joined(waiters: &mut Waiters, mut waiter: Waiter) -> Waiter {
        assert!(waiters.register(&mut waiter, Waker::noop()).is_none());
        waiter
    }

    #[test]
    fn waiters_are_woken_in_order_even_if_one_leaves() {
        let mut waiters = Waiters::new(WaiterKind::Getters);
        let a = joined(&mut waiters, Waiter::for_task());
        let mut b = joined(&mut waiters, Waiter::for_task());
        let c = joined(&mut waiters, Waiter::for_task());
        assert!(waiters.leave(&mut b).is_some());
        assert_eq!(id_of(waiters.notify(2)), Some(a.id()));
        assert_eq!(id_of(waiters.notify(2)), Some(c.id()));
        assert!(waiters.notify(2).is_none());
    }

    #[test]
    fn one_woken_thread_is_enough_but_tasks_are_woken_one_per_key() {
        let mut waiters = Waiters::new(WaiterKind::Getters);
        let mut thread = joined(&mut waiters, Waiter::for_thread());
        let first = joined(&mut waiters, Waiter::for_task());
        let second = joined(&mut waiters, Waiter::for_task());
        assert_eq!(id_of(waiters.notify(9)), Some(thread.id()));
        assert!(waiters.notify(9).is_none());
        assert!(waiters.leave(&mut thread).is_none());
        assert_eq!(id_of(waiters.notify(1)), Some(first.id()));
        assert!(waiters.notify(1).is_none());
        assert_eq!(id_of(waiters.notify(2)), Some(second.id()));
    }

    #[test]
    fn a_stale_waiter_is_not_found() {
        let mut waiters = Waiters::new(WaiterKind::Getters);
        let mut a = joined(&mut waiters, Waiter::for_task());
        let mut stale = Waiter::for_task();
        stale.set_id(a.id());
        assert!(waiters.leave(&mut a).is_some());
        let b = joined(&mut waiters, Waiter::for_task());
        assert!(waiters.leave(&mut stale).is_none());
        assert_eq!(id_of(waiters.notify(1)), Some(b.id()));
    }

    #[test]
    fn a_waiter_of_one_kind_is_not_found_among_another() {
        let (mut getters, mut drains) =
            (Waiters::new(WaiterKind::Getters), Waiters::new(WaiterKind::Drains));
        let mut getter = joined(&mut getters, Waiter::for_task());
        let drain = joined(&mut drains, Waiter::for_task());
        assert!(drains.leave(&mut getter).is_none());
        assert_eq!(id_of(drains.notify(1)), Some(drain.id()));
    }

    #[test]
    fn a_notified_waiter_that_got_no_key_goes_to_the_end() {
        let mut waiters = Waiters::new(WaiterKind::Getters);
        let mut a = joined(&mut waiters, Waiter::for_task());
        let b = joined(&mut waiters, Waiter::for_task());
        assert!(waiters.notify(1).is_some());
        assert!(waiters.is_notified(&a));
        assert!(waiters.register(&mut a, Waker::noop()).is_none());
        assert!(!waiters.is_notified(&a));
        assert_eq!(id_of(waiters.notify(1)), Some(b.id()));
        assert_eq!(id_of(waiters.notify(2)), Some(a.id()));
    }
}
