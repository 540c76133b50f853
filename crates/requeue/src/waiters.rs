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
    place: u64,
    blocks_thread: bool,
}

impl Waiter {
    /// A waiter without a place, for a task.
    pub fn for_task() -> Self {
        Waiter::default()
    }

    /// A waiter without a place, for a thread that does nothing but wait.
    pub fn for_thread() -> Self {
        Waiter { place: 0, blocks_thread: true }
    }

    /// What the queue stored with [`set_place`](Self::set_place); 0 is "none".
    #[inline]
    pub fn place(&self) -> u64 {
        self.place
    }

    /// Remembers a place.
    #[inline]
    pub fn set_place(&mut self, place: u64) {
        self.place = place;
    }

    /// Whether the waker unblocks a thread, which then surely comes back.
    pub fn blocks_thread(&self) -> bool {
        self.blocks_thread
    }
}

/// Somebody to wake once the lock is released.
#[derive(Debug)]
pub(crate) struct Notice {
    pub(crate) place: u64,
    pub(crate) waker: Waker,
}

/// One line of those who wait.
pub(crate) struct Waiters {
    /// Part of every place, so that a waiter of one line means nothing to another.
    line: Line,
    places: Vec<Place>,
    free: Vec<u32>,
    /// The line of those waiting, linked through `places`.
    first: Option<u32>,
    last: Option<u32>,
    notified_threads: usize,
    notified_tasks: usize,
}

/// What one waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Getters = 1,
    Drains = 2,
    WorkOffs = 3,
}

struct Place {
    /// Tells users of one place apart, so that a stale `Waiter` names nobody.
    round: u32,
    before: u32,
    behind: u32,
    blocks_thread: bool,
    stage: Stage,
}

enum Stage {
    Free,
    Waiting(Waker),
    Notified,
}

impl Waiters {
    pub(crate) fn new(line: Line) -> Self {
        Waiters {
            line,
            places: Vec::new(),
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
        if let Some(index) = self.find(waiter.place) {
            if let Stage::Waiting(old) = &mut self.places[index as usize].stage {
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
            self.places.push(Place {
                round: 0,
                before: NIL,
                behind: NIL,
                blocks_thread: false,
                stage: Stage::Free,
            });
            self.places.len() as u32 - 1
        });
        let place = &mut self.places[index as usize];
        place.round = place.round.wrapping_add(1);
        place.blocks_thread = waiter.blocks_thread;
        place.stage = Stage::Waiting(waker);
        waiter.place = self.place_id(index);
        self.append(index);
        None
    }

    /// Takes `waiter` out, whatever its stage. Answers its waker, to be dropped.
    #[must_use = "drop it after the lock is released"]
    pub(crate) fn leave(&mut self, waiter: &mut Waiter) -> Option<Waker> {
        self.find(waiter.place)?;
        self.leave_place(std::mem::take(&mut waiter.place))
    }

    /// As [`leave`](Self::leave), by the place that a [`Notice`] names.
    #[must_use = "drop it after the lock is released"]
    pub(crate) fn leave_place(&mut self, place: u64) -> Option<Waker> {
        let index = self.find(place)?;
        let stage = std::mem::replace(&mut self.places[index as usize].stage, Stage::Free);
        self.free.push(index);
        match stage {
            Stage::Free => None,
            Stage::Waiting(waker) => {
                self.unlink(index);
                Some(waker)
            }
            Stage::Notified => {
                *self.notified(index) -= 1;
                None
            }
        }
    }

    /// Whether `waiter` was told and has not left yet.
    pub(crate) fn is_notified(&self, waiter: &Waiter) -> bool {
        let stage = self.find(waiter.place).map(|i| &self.places[i as usize].stage);
        matches!(stage, Some(Stage::Notified))
    }

    /// Whether somebody stands in line.
    #[inline]
    pub(crate) fn anyone(&self) -> bool {
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
        let place = self.place_id(index);
        match std::mem::replace(&mut self.places[index as usize].stage, Stage::Notified) {
            Stage::Waiting(waker) => Some(Notice { place, waker }),
            Stage::Free | Stage::Notified => unreachable!("only who waits stands in line"),
        }
    }

    fn notified(&mut self, index: u32) -> &mut usize {
        if self.places[index as usize].blocks_thread {
            &mut self.notified_threads
        } else {
            &mut self.notified_tasks
        }
    }

    /// Round, index and line in one number that is never 0.
    fn place_id(&self, index: u32) -> u64 {
        let round = u64::from(self.places[index as usize].round);
        (round << 32) | (u64::from(index) << 2) | self.line as u64
    }

    fn find(&self, place: u64) -> Option<u32> {
        if place & 3 != self.line as u64 {
            return None;
        }
        let index = place as u32 >> 2;
        let found = self.places.get(index as usize)?;
        let current = found.round == (place >> 32) as u32 && !matches!(found.stage, Stage::Free);
        current.then_some(index)
    }

    fn append(&mut self, index: u32) {
        let before = self.last.replace(index);
        self.places[index as usize].before = before.unwrap_or(NIL);
        self.places[index as usize].behind = NIL;
        match before {
            Some(before) => self.places[before as usize].behind = index,
            None => self.first = Some(index),
        }
    }

    fn unlink(&mut self, index: u32) {
        let Place { before, behind, .. } = self.places[index as usize];
        match before {
            NIL => self.first = (behind != NIL).then_some(behind),
            _ => self.places[before as usize].behind = behind,
        }
        match behind {
            NIL => self.last = (before != NIL).then_some(before),
            _ => self.places[behind as usize].before = before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place_of(notice: Option<Notice>) -> Option<u64> {
        notice.map(|n| n.place)
    }

    fn joined(waiters: &mut Waiters, mut waiter: Waiter) -> Waiter {
        assert!(waiters.register(&mut waiter, Waker::noop()).is_none());
        waiter
    }

    #[test]
    fn first_come_first_woken_whoever_leaves() {
        let mut waiters = Waiters::new(Line::Getters);
        let a = joined(&mut waiters, Waiter::for_task());
        let mut b = joined(&mut waiters, Waiter::for_task());
        let c = joined(&mut waiters, Waiter::for_task());
        assert!(waiters.leave(&mut b).is_some());
        assert_eq!(place_of(waiters.notify(2)), Some(a.place()));
        assert_eq!(place_of(waiters.notify(2)), Some(c.place()));
        assert!(waiters.notify(2).is_none());
    }

    #[test]
    fn one_thread_under_way_is_enough_but_tasks_are_told_one_per_key() {
        let mut waiters = Waiters::new(Line::Getters);
        let mut thread = joined(&mut waiters, Waiter::for_thread());
        let first = joined(&mut waiters, Waiter::for_task());
        let second = joined(&mut waiters, Waiter::for_task());
        assert_eq!(place_of(waiters.notify(9)), Some(thread.place()));
        assert!(waiters.notify(9).is_none());
        assert!(waiters.leave(&mut thread).is_none());
        assert_eq!(place_of(waiters.notify(1)), Some(first.place()));
        assert!(waiters.notify(1).is_none());
        assert_eq!(place_of(waiters.notify(2)), Some(second.place()));
    }

    #[test]
    fn a_stale_waiter_names_nobody() {
        let mut waiters = Waiters::new(Line::Getters);
        let mut a = joined(&mut waiters, Waiter::for_task());
        let mut stale = Waiter::for_task();
        stale.set_place(a.place());
        assert!(waiters.leave(&mut a).is_some());
        let b = joined(&mut waiters, Waiter::for_task());
        assert!(waiters.leave(&mut stale).is_none());
        assert_eq!(place_of(waiters.notify(1)), Some(b.place()));
    }

    #[test]
    fn a_place_in_one_line_is_none_in_another() {
        let (mut getters, mut drains) = (Waiters::new(Line::Getters), Waiters::new(Line::Drains));
        let mut getter = joined(&mut getters, Waiter::for_task());
        let drain = joined(&mut drains, Waiter::for_task());
        assert!(drains.leave(&mut getter).is_none());
        assert_eq!(place_of(drains.notify(1)), Some(drain.place()));
    }

    #[test]
    fn who_was_told_and_comes_again_without_a_key_goes_last() {
        let mut waiters = Waiters::new(Line::Getters);
        let mut a = joined(&mut waiters, Waiter::for_task());
        let b = joined(&mut waiters, Waiter::for_task());
        assert!(waiters.notify(1).is_some());
        assert!(waiters.is_notified(&a));
        assert!(waiters.register(&mut a, Waker::noop()).is_none());
        assert!(!waiters.is_notified(&a));
        assert_eq!(place_of(waiters.notify(1)), Some(b.place()));
        assert_eq!(place_of(waiters.notify(2)), Some(a.place()));
    }
}
