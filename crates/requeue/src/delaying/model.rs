//! Random operations on the delaying queue and on a naive one, compared after each step.

use super::*;
use crate::clock::ManualClock;
use crate::snapshot::{ReadyKey, WaitingKey};
use proptest::prelude::*;

/// A list of what waits, by linear search, over a queue of its own.
struct Naive {
    now: u64,
    /// (due, order of setting, key, since)
    waiting: Vec<(u64, usize, u8, u64)>,
    inner: Queue<u8>,
    open: bool,
}

impl Naive {
    fn add_after(&mut self, key: u8, delay: u64, merge: Merge, step: usize) -> Added {
        if !self.open {
            return Added::Refused;
        }
        let asked = self.now.saturating_add(delay);
        let old = self.waiting.iter().position(|&(_, _, waiting, _)| waiting == key);
        let Some(index) = old else {
            if delay == 0 {
                return self.inner.add(key);
            }
            self.waiting.push((asked, step, key, self.now));
            return Added::Waiting;
        };
        let (due, _, _, since) = self.waiting[index];
        let new = match merge {
            Merge::Earliest if delay == 0 => return self.inner.add(key),
            Merge::Earliest => due.min(asked),
            Merge::Latest => due.max(asked),
            Merge::Replace => asked,
            Merge::Debounce { max_wait } => asked.min(since + max_wait.as_nanos() as u64),
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
    Work,
    RequeueAfter(u64),
    Cancel(u8),
    ShutDown,
    Drain,
}

fn span() -> impl Strategy<Value = u64> {
    prop_oneof![1 => Just(0), 9 => (0..45u32, any::<u64>()).prop_map(|(bits, n)| n & ((1 << bits) - 1))]
}

fn op() -> impl Strategy<Value = Op> {
    let key = 0..12u8;
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
        12 => Just(Op::Work),
        6 => span().prop_map(Op::RequeueAfter),
        6 => key.prop_map(Op::Cancel),
        1 => Just(Op::ShutDown),
        1 => Just(Op::Drain),
    ]
}

fn keys(ready: Vec<ReadyKey<u8>>) -> Vec<u8> {
    ready.into_iter().map(|ready| ready.key).collect()
}

proptest! {
    #[test]
    fn the_delaying_queue_does_what_a_list_does(ops in prop::collection::vec(op(), 1..300)) {
        let clock = ManualClock::new();
        let queue = DelayingQueue::with(Options::new().clock(&clock));
        let mut naive = Naive { now: 0, waiting: Vec::new(), inner: Queue::new(), open: true };
        for (step, op) in ops.into_iter().enumerate() {
            match op {
                Op::Add(key) => prop_assert_eq!(queue.add(key), naive.inner.add(key)),
                Op::AddAfter(key, delay, merge) => {
                    let added = queue.add_after_with(key, Duration::from_nanos(delay), merge);
                    prop_assert_eq!(added, naive.add_after(key, delay, merge, step));
                }
                Op::Advance(by) => {
                    clock.advance(Duration::from_nanos(by));
                    naive.advance(by);
                }
                Op::AdvanceToNext => {
                    let next = naive.waiting.iter().map(|&(due, ..)| due - naive.now).min();
                    let next = next.filter(|_| naive.open);
                    prop_assert_eq!(clock.advance_to_next(), next.map(Duration::from_nanos));
                    naive.advance(next.unwrap_or(0));
                }
                Op::Work => {
                    let (ours, theirs) = (queue.try_get(), naive.inner.try_get());
                    let (ours, theirs) = (ours.map(Held::done_into_key), theirs.map(Held::done_into_key));
                    prop_assert_eq!(ours, theirs);
                }
                Op::RequeueAfter(delay) => {
                    if let Ok(held) = queue.try_get() {
                        let key = *held.key();
                        let added = held.requeue_after(Duration::from_nanos(delay));
                        let theirs = naive.inner.try_get().expect("ours had one");
                        prop_assert_eq!(*theirs.key(), key);
                        if delay == 0 {
                            prop_assert_eq!(theirs.requeue(), added);
                        } else {
                            theirs.done();
                            prop_assert_eq!(naive.add_after(key, delay, Merge::Earliest, step), added);
                        }
                    }
                }
                Op::Cancel(key) => {
                    let before = naive.waiting.len();
                    naive.waiting.retain(|&(_, _, waiting, _)| waiting != key);
                    let mut cancelled = naive.inner.cancel(&key);
                    cancelled.waiting = naive.waiting.len() < before;
                    prop_assert_eq!(queue.cancel(&key), cancelled);
                }
                Op::ShutDown => {
                    queue.shut_down();
                    naive.inner.shut_down();
                    naive.waiting.clear();
                    naive.open = false;
                }
                Op::Drain => {
                    let left = queue.drain(Duration::ZERO).wait();
                    let theirs = naive.inner.drain(Duration::ZERO).wait();
                    naive.waiting.sort_unstable();
                    let waiting = naive.waiting.drain(..);
                    let waiting = waiting.map(|(due, _, key, _)| (key, Duration::from_nanos(due - naive.now)));
                    prop_assert_eq!(left.waiting, waiting.collect::<Vec<_>>());
                    prop_assert_eq!(left.ready, theirs.ready);
                    naive.open = false;
                }
            }
            queue.shared.state.lock().check();
            let Snapshot { ready: ours, waiting, .. } = queue.snapshot();
            prop_assert_eq!(keys(ours), keys(naive.inner.snapshot().ready));
            prop_assert_eq!(waiting.len(), naive.waiting.len());
            for WaitingKey { key, due_in, .. } in waiting {
                let due = naive.waiting.iter().find(|&&(_, _, waiting, _)| waiting == key);
                let theirs = due.map(|&(due, ..)| Duration::from_nanos(due - naive.now));
                prop_assert_eq!(Some(due_in), theirs);
                prop_assert_eq!(queue.status(&key).due_in, theirs);
            }
        }
    }
}
