//! The targets that a clock calls, and when.

use super::{Fire, Moment};
use crate::guarded::{discard, guarded};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::task::Waker;

/// What a clock calls.
#[derive(Clone)]
pub(super) enum Target {
    /// A weak reference: a timer does not keep a queue alive.
    Queue(Weak<dyn Fire>),
    /// Shared, so that cloning it under the clock's lock runs no foreign code.
    Waker(Arc<Waker>),
}

impl Target {
    /// Calls the target. Returns when to call it again, or the panic of the called code.
    pub(super) fn call(self, now: Moment) -> std::thread::Result<Option<Moment>> {
        match self {
            Target::Queue(queue) => catch_unwind(AssertUnwindSafe(|| queue.upgrade()?.fire(now))),
            Target::Waker(waker) => {
                // It is not called again after a panic: it would only panic again.
                drop(guarded(|| waker.wake_by_ref()));
                discard(waker);
                Ok(None)
            }
        }
    }
}

/// Targets, each armed for one time or not armed.
#[derive(Default)]
pub(super) struct Timetable {
    targets: BTreeMap<u64, (Target, Option<Moment>)>,
    /// Invariant: contains exactly the armed targets, with their times.
    armed: BTreeSet<(Moment, u64)>,
    next_id: u64,
}

impl Timetable {
    pub(super) const fn new() -> Self {
        Timetable { targets: BTreeMap::new(), armed: BTreeSet::new(), next_id: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    pub(super) fn register(&mut self, target: Target) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.targets.insert(id, (target, None));
        id
    }

    /// Returns the target, to be dropped once the lock is released.
    pub(super) fn remove(&mut self, id: u64) -> Option<Target> {
        let (target, at) = self.targets.remove(&id)?;
        if let Some(at) = at {
            self.armed.remove(&(at, id));
        }
        Some(target)
    }

    /// Arms a target. If it is armed already, the earlier time wins.
    pub(super) fn arm(&mut self, id: u64, at: Moment) {
        let Some((_, armed)) = self.targets.get_mut(&id) else { return };
        if armed.is_some_and(|armed| armed <= at) {
            return;
        }
        if let Some(later) = armed.replace(at) {
            self.armed.remove(&(later, id));
        }
        self.armed.insert((at, id));
    }

    /// Returns the earliest armed time.
    pub(super) fn next(&self) -> Option<Moment> {
        self.armed.first().map(|&(at, _)| at)
    }

    /// Disarms and returns the earliest target that is armed for `now` or before.
    pub(super) fn pop(&mut self, now: Moment) -> Option<(Moment, u64, Target)> {
        let &(at, id) = self.armed.first().filter(|&&(at, _)| at <= now)?;
        self.armed.pop_first();
        let (target, armed) = self.targets.get_mut(&id)?;
        *armed = None;
        Some((at, id, target.clone()))
    }

    pub(super) fn targets(&self) -> impl Iterator<Item = &(Target, Option<Moment>)> {
        self.targets.values()
    }
}
