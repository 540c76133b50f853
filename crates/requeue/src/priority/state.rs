//! The rules of the priority queue, without lock, clock or waiters.

use super::AddOptions;
use super::item::{HELD, Item, READY, WAITS};
use super::ready_list::{ReadyEntry, ReadyList};
use crate::backoff::Backoff;
use crate::clock::Moment;
use crate::ending::{Ending, Load, Stop};
use crate::keys::Keys;
use crate::metrics::Recorder;
use crate::shell::{Finished, Rules};
use crate::snapshot::{Added, Cancelled, Limited, Remains};
use crate::timers::{BATCH, TimedRules, Timers};
use crate::wheel::Node;
use crate::work_queue::{Key, StopMode, Taken};
use std::borrow::Borrow;
use std::hash::Hash;
use std::time::Duration;

/// The times of one call.
#[derive(Clone, Copy)]
pub(super) struct Time {
    /// For delays. Not used if there is none.
    pub(super) now: Moment,
    /// For ageing and for the metrics of a queue with a name.
    pub(super) stamp: Moment,
}

pub(crate) struct State<K> {
    pub(super) keys: Keys<K, Item>,
    /// Invariant: exactly the keys that are `READY` and not `HELD`.
    pub(super) ready_list: ReadyList,
    /// Invariant: exactly the keys that are `WAITS`.
    timers: Timers,
    /// The number of `READY` keys, held or not.
    pub(super) ready: usize,
    /// The number of `HELD` keys.
    held: usize,
    /// The number of holds so far. Wraps around.
    holds: u32,
    /// The number of positions given out so far.
    numbered: u64,
    /// Keys that their holders requeued during a drain.
    kept: Vec<K>,
    ending: Ending,
    backoff: Backoff<K>,
    /// The number of adds that had a delay.
    pub(super) retries: u64,
    /// Present if the queue has a name.
    pub(super) recorder: Option<Box<Recorder>>,
}

/// What the queue must do after an add.
pub(super) struct Outcome {
    pub(super) limited: Limited,
    /// A key became ready.
    pub(super) came_ready: bool,
    /// Arm the clock for this time, unless it is the end.
    pub(super) arm: Moment,
}

impl Outcome {
    fn unchanged(delay: Duration, added: Added) -> Self {
        Outcome { limited: Limited { delay, added }, came_ready: false, arm: Moment::END }
    }
}

impl<K: Key> Rules for State<K> {
    #[inline]
    fn load(&self) -> Load {
        Load { ready: self.ready_list.len(), held: self.held }
    }

    #[inline]
    fn ending(&self) -> &Ending {
        &self.ending
    }

    fn ending_mut(&mut self) -> &mut Ending {
        &mut self.ending
    }

    fn len(&self) -> usize {
        self.ready
    }

    #[inline]
    fn add(&mut self, hash: u32, key: K, stamp: Moment) -> (Added, Option<K>) {
        let mut key = Some(key);
        let time = Time { now: Moment::default(), stamp };
        let outcome = self.add_with(hash, &mut key, AddOptions::new(), time);
        (outcome.limited.added, key)
    }

    #[inline]
    fn take(&mut self, stamp: Moment) -> Option<Taken<K>> {
        let slot = self.ready_list.first()?;
        let (key, item) = self.keys.entry(slot)?;
        // If `clone` panics, nothing has changed.
        let key = key.clone();
        let hold = self.holds.wrapping_add(1);
        let priority = item.priority;
        (item.flags, item.hold, item.held_priority) = (HELD, hold, priority);
        self.holds = hold;
        self.ready_list.pop_first();
        self.ready -= 1;
        self.held += 1;
        if let Some(recorder) = &mut self.recorder {
            recorder.taken(slot, stamp);
        }
        let token = (u64::from(hold) << 32) | u64::from(slot);
        Some(Taken { key, token, priority })
    }

    #[inline]
    fn finish(&mut self, token: u64, stamp: Moment) -> Finished<K> {
        let Some(slot) = self.held_slot(token) else {
            return Finished { added: Added::Refused, came_back: false, key: None };
        };
        self.held -= 1;
        if let Some(recorder) = &mut self.recorder {
            recorder.done(slot, stamp);
        }
        let item = &mut self.keys[slot];
        item.flags &= !HELD;
        let came_back = item.is(READY);
        if came_back {
            self.ready_list.insert(self.ready_entry(slot));
        }
        Finished { added: Added::Refused, came_back, key: self.remove_idle(slot) }
    }

    #[inline]
    fn finish_and_add(&mut self, token: u64, key: &mut Option<K>, stamp: Moment) -> Finished<K> {
        let time = Time { now: Moment::default(), stamp };
        let mode = RequeueMode::After(Duration::ZERO);
        let (outcome, finished) = self.finish_and_requeue(token, key, mode, time);
        Finished { added: outcome.limited.added, ..finished }
    }

    fn stop_waiting(&mut self, mode: StopMode) -> Vec<K> {
        if mode == StopMode::WorkOff || !self.ending.is_open() {
            return Vec::new();
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.dropped(self.timers.wheel.len());
        }
        self.timers.clear();
        let waiting = self.keys.iter().filter(|(_, _, item)| item.is(WAITS));
        let waiting: Vec<u32> = waiting.map(|(slot, ..)| slot).collect();
        let stopped = waiting.into_iter().filter_map(|slot| {
            self.keys[slot].flags &= !WAITS;
            self.remove_idle(slot)
        });
        stopped.collect()
    }

    fn take_remaining(&mut self, now: Moment) -> (Remains<K>, Vec<K>) {
        // Cloning may panic, so it happens before anything changes.
        let with = |flags| {
            let keys = self.keys.iter().filter(move |(.., item)| item.flags & flags == flags);
            keys.map(|(_, key, _)| key.clone()).collect::<Vec<K>>()
        };
        let (held, reruns) = (with(HELD), with(HELD | READY));
        let ready = self.ready_list.slots().into_iter().filter_map(|slot| self.keys.key(slot));
        let mut ready: Vec<K> = ready.cloned().collect();
        let waiting = self.waiting_keys(now).into_iter().map(|w| (w.key, w.due_in)).collect();
        ready.append(&mut self.kept);
        ready.extend(reruns);
        self.timers.clear();
        self.ready_list.clear();
        self.ready = 0;
        let slots: Vec<u32> = self.keys.iter().map(|(slot, ..)| slot).collect();
        let removed = slots.into_iter().filter_map(|slot| {
            self.keys[slot].flags &= HELD;
            self.remove_idle(slot)
        });
        let removed = removed.collect();
        (Remains { ready, waiting, held }, removed)
    }

    #[inline]
    fn forget_stale(&mut self, now: Moment, dropped: &mut Vec<K>) {
        while let Some(slot) = self.backoff.pop_stale(now) {
            dropped.extend(self.forget(slot));
        }
    }

    fn cancel<B>(&mut self, hash: u32, key: &B) -> (Cancelled, Option<K>)
    where
        K: Borrow<B>,
        B: ?Sized + Hash + Eq,
    {
        let mut cancelled = Cancelled::default();
        let Some(slot) = self.keys.find(hash, key) else {
            return (cancelled, None);
        };
        let flags = self.keys[slot].flags;
        if flags & WAITS != 0 {
            cancelled.waiting = true;
            self.timers.wheel.remove(&mut self.keys, slot);
        }
        if flags & READY != 0 {
            (cancelled.ready, cancelled.rerun) = (flags == READY, flags != READY);
            self.ready -= 1;
            if flags == READY {
                self.ready_list.remove(self.ready_entry(slot));
            }
        }
        self.keys[slot].flags &= HELD;
        (cancelled, self.remove_idle(slot))
    }
}

impl<K: Key> TimedRules for State<K> {
    fn fire(&mut self, now: Moment, stamp: Moment) -> usize {
        if !self.ending.is_open() {
            return 0;
        }
        let wheel = &mut self.timers.wheel;
        let due = std::iter::from_fn(|| wheel.pop(&mut self.keys, now.as_nanos()));
        let mut due: Vec<u32> = due.take(BATCH).collect();
        // Like controller-runtime. The wheel knows which key was delayed first, not which was
        // added first.
        let keys = &self.keys;
        due.sort_by_key(|&slot| {
            (keys[slot].time(), -i64::from(keys[slot].priority), keys[slot].number)
        });
        for &slot in &due {
            if let Some(recorder) = &mut self.recorder {
                recorder.late(self.keys[slot].time(), now);
            }
            self.numbered += 1;
            self.keys[slot].number = self.numbered;
            self.make_ready(slot, stamp);
        }
        due.len()
    }

    fn rearm(&mut self, now: Moment) -> Option<Moment> {
        if self.ending.is_open() { self.timers.rearm(&mut self.keys, now) } else { None }
    }

    fn next_due(&mut self) -> Option<Moment> {
        if self.ending.is_open() { self.timers.next_due(&mut self.keys) } else { None }
    }

    fn waiting(&self) -> usize {
        self.timers.wheel.len()
    }

    fn find<B>(&self, hash: u32, key: &B) -> Option<u32>
    where
        K: Borrow<B>,
        B: ?Sized + Hash + Eq,
    {
        self.keys.find(hash, key)
    }

    #[inline]
    fn held_slot(&self, token: u64) -> Option<u32> {
        let (slot, hold) = (token as u32, (token >> 32) as u32);
        let item = self.keys.get(slot)?;
        (item.is(HELD) && item.hold == hold).then_some(slot)
    }

    fn failures(&self, slot: u32) -> u32 {
        self.keys[slot].failures
    }

    fn forgets_by_time(&self) -> bool {
        self.backoff.is_bounded()
    }

    fn forget(&mut self, slot: u32) -> Option<K> {
        self.backoff.forget(slot);
        self.keys[slot].failures = 0;
        self.remove_idle(slot)
    }

    fn count_failures(&mut self) {
        self.backoff.count_always();
    }

    /// After a shutdown, the limiter is not called.
    fn fail(&mut self, slot: u32, key: &K, now: Moment) -> Duration {
        if self.ending.stop() == Stop::Down {
            return Duration::ZERO;
        }
        let failures = self.keys[slot].failures;
        self.count_failure(slot, now);
        self.backoff.when(key, failures, now)
    }
}

impl<K: Key> State<K> {
    pub(super) fn new(
        backoff: Backoff<K>,
        ready_list: ReadyList,
        recorder: Option<Box<Recorder>>,
    ) -> Self {
        State {
            keys: Keys::default(),
            ready_list,
            timers: Timers::default(),
            ready: 0,
            held: 0,
            holds: 0,
            numbered: 0,
            kept: Vec::new(),
            ending: Ending::new(),
            backoff,
            retries: 0,
            recorder,
        }
    }

    fn count_failure(&mut self, slot: u32, now: Moment) {
        if self.backoff.counts() {
            let item = &mut self.keys[slot];
            item.failures = item.failures.saturating_add(1);
            self.backoff.failed(slot, now);
        }
    }

    /// Adds `key`. If the key is not needed, it stays with the caller, who drops it once the
    /// lock is released, also if the limiter panics.
    #[inline(always)]
    pub(super) fn add_with(
        &mut self,
        hash: u32,
        key: &mut Option<K>,
        options: AddOptions,
        time: Time,
    ) -> Outcome {
        let Some(offered) = key.as_ref().filter(|_| self.ending.is_open()) else {
            return self.refuse();
        };
        let found = self.keys.find(hash, offered);
        let failures = found.map_or(0, |slot| self.keys[slot].failures);
        let AddOptions { priority, after, rate_limited } = options;
        let limit = rate_limited.then(|| self.backoff.when(offered, failures, time.now));
        let slot = match found {
            Some(slot) => slot,
            None => {
                let key = key.take().expect("an offered key is there");
                self.keys.insert(hash, key, Item::new())
            }
        };
        if limit.is_some() {
            self.count_failure(slot, time.now);
        }
        self.schedule(slot, priority, shorter(after, limit), time)
    }

    /// Ends a hold and adds the key again in the same step, with the priority it had. The key
    /// is passed by reference as in [`add_with`](Self::add_with).
    pub(super) fn finish_and_requeue(
        &mut self,
        token: u64,
        key: &mut Option<K>,
        mode: RequeueMode,
        time: Time,
    ) -> (Outcome, Finished<K>) {
        let outcome = match (self.held_slot(token), self.ending.stop()) {
            (None, _) | (_, Stop::Down) => self.refuse(),
            (Some(slot), stop) => self.add_held(slot, key, mode, stop == Stop::Open, time),
        };
        (outcome, self.finish(token, time.stamp))
    }

    /// Adds a key for its holder. During a drain, the key does not run again; the drain returns
    /// it.
    fn add_held(
        &mut self,
        slot: u32,
        key: &mut Option<K>,
        mode: RequeueMode,
        open: bool,
        time: Time,
    ) -> Outcome {
        let Item { held_priority, flags, .. } = self.keys[slot];
        let delay = match (mode, &key) {
            (RequeueMode::Limited, Some(key)) => self.fail(slot, key, time.now),
            (RequeueMode::After(delay), _) => delay,
            (RequeueMode::Limited, None) => Duration::ZERO,
        };
        if !open && delay.is_zero() && flags & READY == 0 {
            if flags & WAITS != 0 {
                self.timers.wheel.remove(&mut self.keys, slot);
                self.keys[slot].flags &= !WAITS;
            }
            self.kept.extend(key.take());
            return Outcome::unchanged(delay, Added::Kept);
        }
        let mut outcome = self.schedule(slot, held_priority, delay, time);
        outcome.limited.added = match outcome.limited.added {
            Added::Rerun => Added::Queued,
            Added::Waiting if !open => Added::Kept,
            // The drain would have returned it anyway.
            Added::Coalesced if !open && flags & WAITS != 0 => Added::Kept,
            added => added,
        };
        outcome
    }

    #[cold]
    fn refuse(&mut self) -> Outcome {
        if let Some(recorder) = &mut self.recorder {
            recorder.dropped(1);
        }
        Outcome::unchanged(Duration::ZERO, Added::Refused)
    }

    /// Schedules the key in `slot` after `delay`. A higher priority and an earlier time replace
    /// those that it has.
    #[inline(always)]
    fn schedule(&mut self, slot: u32, priority: i32, delay: Duration, time: Time) -> Outcome {
        self.retries += u64::from(!delay.is_zero());
        let due = time.now.saturating_add(delay);
        let item = &self.keys[slot];
        let (held, was) = (item.is(HELD), item.flags & (READY | WAITS));
        if was == 0 {
            self.set_priority(slot, priority);
        } else if priority > item.priority {
            self.raise(slot, priority);
        }
        let added = match was {
            READY => Added::Coalesced,
            WAITS if delay.is_zero() => {
                self.timers.wheel.remove(&mut self.keys, slot);
                self.make_ready(slot, time.stamp);
                Added::Queued
            }
            WAITS if due < self.keys[slot].time() => {
                self.timers.wheel.reset(&mut self.keys, slot, due.as_nanos());
                Added::Waiting
            }
            WAITS => Added::Coalesced,
            _ if delay.is_zero() => {
                self.make_ready(slot, time.stamp);
                Added::Queued
            }
            _ => {
                let item = &mut self.keys[slot];
                item.node = Node::new(due.as_nanos());
                item.flags |= WAITS;
                self.timers.wheel.insert(&mut self.keys, slot, time.now.as_nanos());
                Added::Waiting
            }
        };
        let arms = added == Added::Waiting && self.ending.is_open();
        let arm = if arms { self.timers.arm(due) } else { Moment::END };
        if let (Added::Coalesced, Some(recorder)) = (added, &mut self.recorder) {
            recorder.coalesced();
        }
        let added = if held && added == Added::Queued { Added::Rerun } else { added };
        let came_ready = added == Added::Queued;
        Outcome { limited: Limited { delay, added }, came_ready, arm }
    }

    fn set_priority(&mut self, slot: u32, priority: i32) {
        self.numbered += 1;
        let item = &mut self.keys[slot];
        (item.priority, item.number) = (priority, self.numbered);
    }

    /// A raised key goes behind the other keys of its new priority.
    fn raise(&mut self, slot: u32, priority: i32) {
        let in_line = self.keys[slot].flags == READY;
        if in_line {
            self.ready_list.remove(self.ready_entry(slot));
        }
        self.set_priority(slot, priority);
        if in_line {
            self.ready_list.insert(self.ready_entry(slot));
        }
    }

    #[inline]
    fn ready_entry(&self, slot: u32) -> ReadyEntry {
        let item = &self.keys[slot];
        let Item { priority, number, .. } = *item;
        ReadyEntry { priority, since: item.time(), number, slot }
    }

    #[inline]
    fn make_ready(&mut self, slot: u32, stamp: Moment) {
        let item = &mut self.keys[slot];
        item.node = Node::new(stamp.as_nanos());
        item.flags = (item.flags & !WAITS) | READY;
        self.ready += 1;
        if self.keys[slot].flags == READY {
            self.ready_list.insert(self.ready_entry(slot));
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.added(slot, stamp);
        }
    }

    /// Removes and returns a key that is neither to run nor held, and has not failed.
    #[inline]
    fn remove_idle(&mut self, slot: u32) -> Option<K> {
        let item = &self.keys[slot];
        if item.flags == 0 && item.failures == 0 { self.keys.remove(slot) } else { None }
    }

    /// Checks all invariants.
    #[cfg(test)]
    pub(super) fn check(&self) {
        self.keys.check();
        let count = |flag| self.keys.iter().filter(|(.., item)| item.is(flag)).count();
        assert_eq!((count(READY), count(HELD)), (self.ready, self.held));
        let mut in_line = self.ready_list.slots();
        assert_eq!(in_line.len(), self.ready_list.len());
        assert_eq!(in_line.first().copied(), self.ready_list.first());
        in_line.sort_unstable();
        let ready = self.keys.iter().filter(|(.., item)| item.flags == READY);
        assert_eq!(in_line, ready.map(|(slot, ..)| slot).collect::<Vec<_>>());
        for (_, _, item) in self.keys.iter() {
            assert!(item.flags & (READY | WAITS) != READY | WAITS);
            assert!(item.flags != 0 || item.failures > 0, "a key has a reason to be here");
        }
        let waiting = self.keys.iter().filter(|(.., item)| item.is(WAITS));
        let dues = waiting.map(|(.., item)| item.time());
        self.timers.check(&self.keys, dues, self.ending.is_open());
    }
}

/// When a key that its holder requeues runs again.
#[derive(Clone, Copy)]
pub(super) enum RequeueMode {
    After(Duration),
    Limited,
}

/// Returns the delay of an add: the shorter one if both are given.
#[inline]
fn shorter(after: Option<Duration>, limit: Option<Duration>) -> Duration {
    match (after, limit) {
        (Some(after), Some(limit)) => after.min(limit),
        (after, limit) => after.or(limit).unwrap_or_default(),
    }
}
