//! Who waits on a queue, first come first woken.
//!
//! ```text
//!            register            notify
//!    (none) ----------> waiting --------> notified
//!       ^                  |                 |
//!       +------------------+-----------------+  leave
//! ```
//!
//! A notified waiter has been told to look, and has not looked yet. One that
//! blocks a thread always comes, so while one is under way nobody else need be
//! woken: it passes the wake-up on when it takes a key. A task may be told and
//! never polled (a `select!` arm that lost, say), so tasks are told one per
//! ready key: a task that sleeps through its turn holds up one key at the most,
//! and any other getter still takes it.
//!
//! Nothing here calls a waker: wakers are handed out, to be woken or dropped
//! once the queue's lock is released. Dropping one may drop a task, and with it
//! a guard that locks the same queue.

use crate::keys::NIL;
use std::task::Waker;

/// A caller's place among those who wait on a queue; the queue's to fill in.
///
/// One is made by each getter and drain, passed to every poll, and handed back
/// with [`WorkQueue::leave`](crate::WorkQueue::leave).
#[derive(Debug, Default)]
pub struct Waiter {
    id: u64,
    blocks_thread: bool,
}

impl Waiter {
    /// A waiter without a place, for a task.
    pub fn for_task() -> Self {
        Waiter::default()
    }

    /// A waiter without a place, for a thread that does nothing but wait.
    pub fn for_thread() -> Self {
        Waiter { id: 0, blocks_thread: true }
    }

    /// What the queue stored with [`set_id`](Self::set_id); 0 is "none".
    #[inline]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Remembers a place.
    #[inline]
    pub fn set_id(&mut self, id: u64) {
        self.id = id;
    }

    /// Whether the waker unblocks a thread, which then surely comes back.
    pub fn blocks_thread(&self) -> bool {
        self.blocks_thread
    }
}

/// Somebody to wake once the lock is released.
#[derive(Debug)]
pub(crate) struct Notice {
    pub(crate) id: u64,
    pub(crate) waker: Waker,
}

/// One line of those who wait.
pub(crate) struct Waiters {
    /// Part of every place, so that a waiter of one line means nothing to another.
    kind: WaiterKind,
    slots: Vec<WaiterSlot>,
    free: Vec<u32>,
    /// The line of those waiting, linked through `slots`.
    first: Option<u32>,
    last: Option<u32>,
    notified_threads: usize,
    notified_tasks: usize,
}

/// What one waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaiterKind {
    Getters = 1,
    Drains = 2,
    WorkOffs = 3,
}

struct WaiterSlot {
    /// Tells users of one place apart, so that a stale `Waiter` names nobody.
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

    /// Puts `waiter` at the end of the line, or gives it a new waker where it stands.
    /// Answers the waker it had, for the caller to drop.
    #[must_use = "drop it after the lock is released"]
    pub(crate) fn register(&mut self, waiter: &mut Waiter, waker: &Waker) -> Option<Waker> {
        if let Some(index) = self.find(waiter.id) {
            if let WaiterState::Waiting(old) = &mut self.slots[index as usize].state {
                if old.will_wake(waker) {
                    return None;
                }
                return Some(std::mem::replace(old, waker.clone()));
            }
            // It was notified and came too late: to the end of the line.
            let none = self.leave(waiter);
            debug_assert!(none.is_none(), "who was notified has left its waker");
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

    /// Takes `waiter` out, whatever its state. Answers its waker, to be dropped.
    #[must_use = "drop it after the lock is released"]
    pub(crate) fn leave(&mut self, waiter: &mut Waiter) -> Option<Waker> {
        self.find(waiter.id)?;
        self.leave_id(std::mem::take(&mut waiter.id))
    }

    /// As [`leave`](Self::leave), by the place that a [`Notice`] names.
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

    /// Whether `waiter` was told and has not left yet.
    pub(crate) fn is_notified(&self, waiter: &Waiter) -> bool {
        let state = self.find(waiter.id).map(|i| &self.slots[i as usize].state);
        matches!(state, Some(WaiterState::Notified))
    }

    /// Whether somebody stands in line.
    #[inline]
    pub(crate) fn any_waiting(&self) -> bool {
        self.first.is_some()
    }

    /// The next one to tell that `ready` keys are there, if those already told do not suffice.
    #[inline]
    pub(crate) fn notify(&mut self, ready: usize) -> Option<Notice> {
        self.first?;
        if self.notified_threads > 0 || self.notified_tasks >= ready {
            return None;
        }
        self.notify_first()
    }

    /// Tells everybody.
    pub(crate) fn notify_all(&mut self) -> Vec<Notice> {
        std::iter::from_fn(|| self.notify_first()).collect()
    }

    fn notify_first(&mut self) -> Option<Notice> {
        let index = self.first?;
        self.unlink(index);
        *self.notified(index) += 1;
        let id = self.id_of_slot(index);
        match std::mem::replace(&mut self.slots[index as usize].state, WaiterState::Notified) {
            WaiterState::Waiting(waker) => Some(Notice { id, waker }),
            WaiterState::Free | WaiterState::Notified => {
                unreachable!("only who waits stands in line")
            }
        }
    }

    fn notified(&mut self, index: u32) -> &mut usize {
        if self.slots[index as usize].blocks_thread {
            &mut self.notified_threads
        } else {
            &mut self.notified_tasks
        }
    }

    /// Round, index and line in one number that is never 0.
    fn id_of_slot(&self, index: u32) -> u64 {
        let generation = u64::from(self.slots[index as usize].generation);
        (generation << 32) | (u64::from(index) << 2) | self.kind as u64
    }

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

    fn append(&mut self, index: u32) {
        let prev = self.last.replace(index);
        self.slots[index as usize].prev = prev.unwrap_or(NIL);
        self.slots[index as usize].next = NIL;
        match prev {
            Some(prev) => self.slots[prev as usize].next = index,
            None => self.first = Some(index),
        }
    }

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
    fn first_come_first_woken_whoever_leaves() {
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
    fn one_thread_under_way_is_enough_but_tasks_are_told_one_per_key() {
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
    fn a_stale_waiter_names_nobody() {
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
    fn a_place_in_one_line_is_none_in_another() {
        let (mut getters, mut drains) =
            (Waiters::new(WaiterKind::Getters), Waiters::new(WaiterKind::Drains));
        let mut getter = joined(&mut getters, Waiter::for_task());
        let drain = joined(&mut drains, Waiter::for_task());
        assert!(drains.leave(&mut getter).is_none());
        assert_eq!(id_of(drains.notify(1)), Some(drain.id()));
    }

    #[test]
    fn who_was_told_and_comes_again_without_a_key_goes_last() {
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
