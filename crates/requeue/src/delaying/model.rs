//! Runs random operations on the delaying queue and on a simple model, and compares both after
//! each step.

use super::*;
use crate::clock::ManualClock;
use crate::queue::{Queue, model::GivenFifo};
use crate::snapshot::{ReadyKey, WaitingKey};
use proptest::prelude::*;

const KEYS: u8 = 12;

/// A list of the waiting keys, searched linearly, on top of a plain queue.
struct DelayingModel {
    now: u64,
    /// The keys that were added and have not run since.
    owed: [bool; KEYS as usize],
    /// (due, order of setting, key, since)
    waiting: Vec<(u64, usize, u8, u64)>,
    inner: Queue<u8>,
    open: bool,
}

impl DelayingModel {
    fn add(&mut self, key: u8, step: usize) -> Added {
        self.add_after(key, 0, Merge::Earliest, step)
    }

    fn add_after(&mut self, key: u8, delay: u64, merge: Merge, step: usize) -> Added {
        if !self.open {
            return Added::Refused;
        }
        self.owed[usize::from(key)] = true;
        let requested = self.now + delay;
        let old = self.waiting.iter().position(|&(_, _, waiting, _)| waiting == key);
        let Some(index) = old else {
            if requested == self.now {
                return self.inner.add(key);
            }
            self.waiting.push((requested, step, key, self.now));
            return Added::Waiting;
        };
        let (due, _, _, since) = self.waiting[index];
        let new = match merge {
            Merge::Earliest if requested == self.now => return self.inner.add(key),
            Merge::Earliest => due.min(requested),
            Merge::Latest => due.max(requested),
            Merge::Replace => requested,
            Merge::Debounce { max_wait } => requested.min(since + max_wait.as_nanos() as u64),
        };
        if new == due {
            return Added::Coalesced;
        }
        self.waiting.remove(index);
        if new <= self.now {
            return self.inner.add(key);
        }
        self.waiting.push((new, step, key, since));
        Added::Waiting
    }

    fn take(&mut self) -> Result<Held<'static, Queue<u8>>, TryGetError> {
        let held = self.inner.try_get()?.into_owned();
        self.owed[usize::from(*held.key())] = false;
        Ok(held)
    }

    fn requeue_after(&mut self, held: Held<'static, Queue<u8>>, delay: u64, step: usize) -> Added {
        let key = *held.key();
        if delay == 0 {
            self.owed[usize::from(key)] = true;
            return held.requeue();
        }
        let added = self.add_after(key, delay, Merge::Earliest, step);
        held.done();
        added
    }

    fn advance(&mut self, by: u64) {
        self.now += by;
        self.waiting.sort_unstable();
        while self.open && self.waiting.first().is_some_and(|&(due, ..)| due <= self.now) {
            self.inner.add(self.waiting.remove(0).2);
        }
    }
}

#[derive(Debug, Clone)]
enum Op {
    Add(u8),
    AddAfter(u8, u64, Merge),
    Advance(u64),
    AdvanceToNext,
    Take,
    Done(usize),
    RequeueAfter(usize, u64),
    Cancel(u8),
    ShutDown,
    Drain,
}

fn span() -> impl Strategy<Value = u64> {
    prop_oneof![1 => Just(0), 9 => (0..45u32, any::<u64>()).prop_map(|(bits, n)| n & ((1 << bits) - 1))]
}

fn op() -> impl Strategy<Value = Op> {
    let (key, nth) = (0..KEYS, any::<usize>());
    let merge = prop_oneof![
        Just(Merge::Earliest),
        Just(Merge::Latest),
        Just(Merge::Replace),
        span().prop_map(|max_wait| Merge::Debounce { max_wait: Duration::from_nanos(max_wait) }),
    ];
    prop_oneof![
        6 => key.clone().prop_map(Op::Add),
        30 => (key.clone(), span(), merge).prop_map(|(key, delay, merge)| Op::AddAfter(key, delay, merge)),
        10 => span().prop_map(Op::Advance),
        6 => Just(Op::AdvanceToNext),
        14 => Just(Op::Take),
        10 => nth.prop_map(Op::Done),
        6 => (nth, span()).prop_map(|(nth, delay)| Op::RequeueAfter(nth, delay)),
        6 => key.prop_map(Op::Cancel),
        1 => Just(Op::ShutDown),
        1 => Just(Op::Drain),
    ]
}

/// Removes one of the held keys, if there is any.
fn nth<T>(held: &mut Vec<T>, nth: usize) -> Option<T> {
    let index = nth.checked_rem(held.len())?;
    Some(held.swap_remove(index))
}

fn keys(ready: Vec<ReadyKey<u8>>) -> Vec<u8> {
    ready.into_iter().map(|ready| ready.key).collect()
}

proptest! {
    #[test]
    fn the_delaying_queue_behaves_like_the_model(
        ops in prop::collection::vec(op(), 1..300),
        has_order in any::<bool>(),
    ) {
        let clock = ManualClock::new();
        let options = Options::new().clock(&clock);
        let queue = match has_order {
            false => DelayingQueue::with(options),
            true => DelayingQueue::with_order(GivenFifo::default(), options),
        };
        let mut model = DelayingModel {
            now: 0,
            owed: Default::default(),
            waiting: Vec::new(),
            inner: Queue::new(),
            open: true,
        };
        let mut held = Vec::new();
        for (step, op) in ops.into_iter().enumerate() {
            match op {
                Op::Add(key) => prop_assert_eq!(queue.add(key), model.add(key, step)),
                Op::AddAfter(key, delay, merge) => {
                    let added = queue.add_after_with(key, Duration::from_nanos(delay), merge);
                    prop_assert_eq!(added, model.add_after(key, delay, merge, step));
                }
                Op::Advance(by) => {
                    clock.advance(Duration::from_nanos(by));
                    model.advance(by);
                }
                Op::AdvanceToNext => {
                    let next = model.waiting.iter().map(|&(due, ..)| due - model.now).min();
                    let next = next.filter(|_| model.open);
                    prop_assert_eq!(clock.advance_to_next(), next.map(Duration::from_nanos));
                    model.advance(next.unwrap_or(0));
                }
                Op::Take => match (queue.try_get(), model.take()) {
                    (Ok(ours), Ok(theirs)) => {
                        prop_assert_eq!(ours.key(), theirs.key());
                        held.push((ours, theirs));
                    }
                    (ours, theirs) => prop_assert_eq!(ours.err(), theirs.err()),
                }
                Op::Done(index) => drop(nth(&mut held, index)),
                Op::RequeueAfter(index, delay) => {
                    if let Some((ours, theirs)) = nth(&mut held, index) {
                        let added = ours.requeue_after(Duration::from_nanos(delay));
                        prop_assert_eq!(model.requeue_after(theirs, delay, step), added);
                    }
                }
                Op::Cancel(key) => {
                    let before = model.waiting.len();
                    model.waiting.retain(|&(_, _, waiting, _)| waiting != key);
                    let mut cancelled = model.inner.cancel(&key);
                    cancelled.waiting = model.waiting.len() < before;
                    model.owed[usize::from(key)] = false;
                    prop_assert_eq!(queue.cancel(&key), cancelled);
                }
                Op::ShutDown => {
                    queue.shut_down();
                    model.inner.shut_down();
                    model.waiting.clear();
                    model.open = false;
                }
                Op::Drain => {
                    let mut left = queue.drain(Duration::ZERO).wait();
                    let mut theirs = model.inner.drain(Duration::ZERO).wait();
                    // Held keys that would have run again are in no particular order.
                    left.ready.sort_unstable();
                    theirs.ready.sort_unstable();
                    model.waiting.sort_unstable();
                    let waiting = model.waiting.drain(..);
                    let waiting = waiting.map(|(due, _, key, _)| (key, Duration::from_nanos(due - model.now)));
                    prop_assert_eq!(left.waiting, waiting.collect::<Vec<_>>());
                    prop_assert_eq!(left.ready, theirs.ready);
                    prop_assert_eq!(left.held.len(), theirs.held.len());
                    model.open = false;
                }
            }
            queue.shared.shell.lock().state.check();
            let Snapshot { ready: ours, waiting, held, .. } = queue.snapshot();
            let theirs = model.inner.snapshot();
            let (mut ours, mut theirs_ready) = (keys(ours), keys(theirs.ready));
            if has_order {
                // A snapshot then lists ready keys in no particular order.
                ours.sort_unstable();
                theirs_ready.sort_unstable();
            }
            prop_assert_eq!(ours, theirs_ready);
            prop_assert_eq!(held.len(), theirs.held.len());
            prop_assert_eq!(waiting.len(), model.waiting.len());
            for WaitingKey { key, due_in, .. } in waiting {
                let due = model.waiting.iter().find(|&&(_, _, waiting, _)| waiting == key);
                let theirs = due.map(|&(due, ..)| Duration::from_nanos(due - model.now));
                prop_assert_eq!(Some(due_in), theirs);
                prop_assert_eq!(queue.status(&key).due_in, theirs);
            }
        }
        // Nothing is lost: every key that was added eventually runs.
        drop(held);
        while model.open {
            for theirs in std::iter::from_fn(|| model.take().ok()) {
                prop_assert_eq!(queue.try_get().map(Held::done_into_key), Ok(*theirs.key()));
            }
            let Some(next) = clock.advance_to_next() else { break };
            model.advance(next.as_nanos() as u64);
        }
        prop_assert!(!model.open || model.owed == [false; KEYS as usize]);
    }
}
