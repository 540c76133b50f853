//! Runs random operations on the priority queue and on a simple model, and compares both after
//! each step.

use super::*;
use crate::clock::ManualClock;
use crate::limiter::ExponentialFailure;
use crate::snapshot::Remains;
use proptest::prelude::*;
use std::collections::BTreeMap;

const BASE: u64 = 4;
const LONGEST: u64 = 50;

/// The contract of the queue, implemented by linear search.
struct PriorityModel {
    now: u64,
    items: Vec<Item>,
    /// The held keys, each with its priority.
    held: Vec<(u8, i32)>,
    failures: BTreeMap<u8, u32>,
    kept: Vec<u8>,
    numbered: u64,
    stop: Stop,
    step: Option<u64>,
}

#[derive(Debug, Clone)]
struct Item {
    key: u8,
    priority: i32,
    number: u64,
    /// `None` if the key is ready.
    due: Option<u64>,
    /// Since when the key is ready, if it is.
    since: u64,
}

#[derive(PartialEq, Clone, Copy)]
enum Stop {
    Open,
    WorkingOff,
    Down,
}

impl PriorityModel {
    fn new(step: Option<u64>) -> Self {
        PriorityModel {
            now: 0,
            items: Vec::new(),
            held: Vec::new(),
            failures: BTreeMap::new(),
            kept: Vec::new(),
            numbered: 0,
            stop: Stop::Open,
            step,
        }
    }

    fn number(&mut self) -> u64 {
        self.numbered += 1;
        self.numbered
    }

    fn is_held(&self, key: u8) -> bool {
        self.held.iter().any(|&(held, _)| held == key)
    }

    fn limit(&mut self, key: u8) -> u64 {
        let failures = self.failures.entry(key).or_default();
        *failures += 1;
        BASE.saturating_mul(1 << (*failures - 1).min(20)).min(LONGEST)
    }

    fn add(&mut self, key: u8, priority: i32, after: Option<u64>, limited: bool) -> (Added, u64) {
        if self.stop != Stop::Open {
            return (Added::Refused, 0);
        }
        let limit = limited.then(|| self.limit(key));
        let delay = after.into_iter().chain(limit).min().unwrap_or(0);
        (self.schedule(key, priority, delay), delay)
    }

    fn schedule(&mut self, key: u8, priority: i32, delay: u64) -> Added {
        let (now, held) = (self.now, self.is_held(key));
        let due = (delay > 0).then_some(now + delay);
        let ready = if held { Added::Rerun } else { Added::Queued };
        let number = self.number();
        let Some(item) = self.items.iter_mut().find(|item| item.key == key) else {
            self.items.push(Item { key, priority, number, due, since: now });
            return if due.is_none() { ready } else { Added::Waiting };
        };
        if priority > item.priority {
            (item.priority, item.number) = (priority, number);
        }
        match (item.due, due) {
            (None, _) => Added::Coalesced,
            (Some(_), None) => {
                (item.due, item.since) = (None, now);
                ready
            }
            (Some(old), Some(new)) if new < old => {
                item.due = due;
                Added::Waiting
            }
            _ => Added::Coalesced,
        }
    }

    /// Returns the ready keys by their current priority, which grows with ageing.
    fn ready_order(&self) -> Vec<Item> {
        let ready = |item: &&Item| item.due.is_none() && !self.is_held(item.key);
        let mut ready: Vec<Item> = self.items.iter().filter(ready).cloned().collect();
        let worth = |item: &Item| match self.step {
            None => i128::from(item.priority),
            Some(step) => {
                i128::from(item.priority) * i128::from(step) + i128::from(self.now - item.since)
            }
        };
        ready.sort_by_key(|item| (std::cmp::Reverse(worth(item)), item.number));
        ready
    }

    fn get(&mut self) -> Option<(u8, i32)> {
        let ready = self.ready_order();
        let first = ready.first()?;
        if let Some(step) = self.step {
            // No key is overtaken for longer than documented.
            for other in &ready[1..] {
                let ahead = i64::from(first.priority - other.priority) * step as i64;
                assert!(first.since as i64 - other.since as i64 <= ahead, "{first:?} {other:?}");
            }
        }
        let got = (first.key, first.priority);
        self.items.retain(|item| item.key != got.0);
        self.held.push(got);
        Some(got)
    }

    fn done(&mut self, index: usize) {
        self.held.remove(index);
        self.settle();
    }

    /// `None` uses the limiter's delay.
    fn requeue(&mut self, index: usize, delay: Option<u64>) -> (Added, u64) {
        let (key, priority) = self.held[index];
        let result = match self.stop {
            Stop::Down => (Added::Refused, 0),
            stop => {
                let delay = delay.unwrap_or_else(|| self.limit(key));
                let ready = |item: &Item| item.key == key && item.due.is_none();
                let rerun = self.items.iter().any(ready);
                if stop == Stop::WorkingOff && delay == 0 && !rerun {
                    self.items.retain(|item| item.key != key);
                    self.kept.push(key);
                    (Added::Kept, delay)
                } else {
                    let added = match self.schedule(key, priority, delay) {
                        Added::Rerun => Added::Queued,
                        Added::Waiting if stop == Stop::WorkingOff => Added::Kept,
                        Added::Coalesced if stop == Stop::WorkingOff && !rerun => Added::Kept,
                        added => added,
                    };
                    (added, delay)
                }
            }
        };
        self.done(index);
        result
    }

    fn advance(&mut self, by: u64) {
        let end = self.now + by;
        while self.stop == Stop::Open {
            let due = self.items.iter().filter_map(|item| item.due).min();
            let Some(due) = due.filter(|&due| due <= end) else { break };
            self.now = due;
            let mut fired: Vec<usize> =
                (0..self.items.len()).filter(|&i| self.items[i].due == Some(due)).collect();
            fired.sort_by_key(|&i| (-self.items[i].priority, self.items[i].number));
            for i in fired {
                let number = self.number();
                let item = &mut self.items[i];
                (item.due, item.since, item.number) = (None, due, number);
            }
        }
        self.now = end;
    }

    fn cancel(&mut self, key: u8) -> Cancelled {
        let mut cancelled = Cancelled::default();
        let held = self.is_held(key);
        if let Some(index) = self.items.iter().position(|item| item.key == key) {
            let ready = self.items.remove(index).due.is_none();
            cancelled.waiting = !ready;
            (cancelled.ready, cancelled.rerun) = (ready && !held, ready && held);
        }
        self.settle();
        cancelled
    }

    fn shut_down(&mut self, mode: StopMode) {
        if mode != StopMode::WorkOff && self.stop == Stop::Open {
            self.items.retain(|item| item.due.is_none());
        }
        self.stop = match (mode, self.stop) {
            (StopMode::Now, _) | (StopMode::WithDrain, Stop::Open) => Stop::Down,
            (StopMode::WorkOff, Stop::Open) => Stop::WorkingOff,
            (_, stop) => stop,
        };
        self.settle();
    }

    fn settle(&mut self) {
        if self.stop == Stop::WorkingOff && self.ready_order().is_empty() && self.held.is_empty() {
            self.stop = Stop::Down;
        }
    }

    fn take_remaining(&mut self) -> Remains<u8> {
        let mut remains = Remains::default();
        remains.held.extend(self.held.iter().map(|&(key, _)| key));
        remains.ready.extend(self.ready_order().into_iter().map(|item| item.key));
        remains.ready.append(&mut self.kept);
        let mut items = std::mem::take(&mut self.items);
        let reruns = items.iter().filter(|item| item.due.is_none() && self.is_held(item.key));
        remains.ready.extend(reruns.map(|item| item.key));
        items.sort_by_key(|item| (item.due, item.number));
        remains.waiting.extend(items.iter().filter_map(|item| {
            Some((item.key, Duration::from_nanos(item.due?.saturating_sub(self.now))))
        }));
        self.stop = Stop::Down;
        remains
    }
}

#[derive(Debug, Clone)]
enum Op {
    Add { keys: Vec<u8>, priority: i32, after: Option<u64>, limited: bool },
    Get,
    Done(usize),
    Again { held: usize, delay: Option<u64> },
    Forget(u8),
    Cancel(u8),
    Advance(u64),
    ShutDown(StopMode),
    TakeRemaining,
}

const KEYS: u8 = 12;

fn op() -> impl Strategy<Value = Op> {
    let key = 0..KEYS;
    let keys = prop_oneof![
        4 => key.clone().prop_map(|key| vec![key]),
        1 => prop::collection::vec(key.clone(), 0..5),
    ];
    let after = prop::option::of(0..20u64);
    let add = (keys, -2..3i32, after, prop::bool::weighted(0.2));
    let add =
        add.prop_map(|(keys, priority, after, limited)| Op::Add { keys, priority, after, limited });
    let again = (any::<usize>(), prop::option::of(0..20u64));
    let mode = prop_oneof![Just(StopMode::Now), Just(StopMode::WithDrain), Just(StopMode::WorkOff)];
    prop_oneof![
        30 => add,
        20 => Just(Op::Get),
        10 => any::<usize>().prop_map(Op::Done),
        10 => again.prop_map(|(held, delay)| Op::Again { held, delay }),
        3 => key.clone().prop_map(Op::Forget),
        3 => key.prop_map(Op::Cancel),
        15 => (1..15u64).prop_map(Op::Advance),
        1 => mode.prop_map(Op::ShutDown),
        1 => Just(Op::TakeRemaining),
    ]
}

fn nanos(delay: Duration) -> u64 {
    delay.as_nanos() as u64
}

fn compare(ops: Vec<Op>, step: Option<u64>) {
    let clock = ManualClock::new();
    let mut options = Options::new().clock(&clock);
    if let Some(step) = step {
        options = options.ageing(Duration::from_nanos(step));
    }
    let limits = (Duration::from_nanos(BASE), Duration::from_nanos(LONGEST));
    let queue = PriorityQueue::with(ExponentialFailure::new(limits.0, limits.1), options);
    let mut model = PriorityModel::new(step);
    // In the order of the model: oldest first.
    let mut held: Vec<Held<'_, PriorityQueue<u8>>> = Vec::new();
    for op in ops {
        let index = |n: usize| (!held.is_empty()).then(|| n % held.len());
        match op {
            Op::Add { keys, priority, after, limited } => {
                let mut options = AddOptions::new().priority(priority);
                options.after = after.map(Duration::from_nanos);
                options.rate_limited = limited;
                let ours = queue.add_many(keys.iter().copied(), options);
                let ours: Vec<_> = ours.iter().map(|l| (l.added, nanos(l.delay))).collect();
                let theirs = keys.iter().map(|&key| model.add(key, priority, after, limited));
                assert_eq!(ours, theirs.collect::<Vec<_>>());
            }
            Op::Get => {
                let ours = queue.try_get();
                let down = matches!(ours, Err(TryGetError::ShutDown));
                let got = ours.as_ref().ok().map(|held| (*held.key(), held.priority()));
                assert_eq!(got, model.get());
                assert!(got.is_some() || down == (model.stop == Stop::Down));
                held.extend(ours);
            }
            Op::Done(n) => {
                if let Some(index) = index(n) {
                    held.remove(index).done();
                    model.done(index);
                }
            }
            Op::Again { held: n, delay } => {
                if let Some(index) = index(n) {
                    let guard = held.remove(index);
                    let (added, by_limiter) = model.requeue(index, delay);
                    match delay {
                        Some(0) => assert_eq!(guard.requeue(), added),
                        Some(delay) => {
                            assert_eq!(guard.requeue_after(Duration::from_nanos(delay)), added);
                        }
                        None => {
                            let ours = guard.retry();
                            assert_eq!((ours.added, nanos(ours.delay)), (added, by_limiter));
                        }
                    }
                }
            }
            Op::Forget(key) => {
                queue.forget(&key);
                model.failures.remove(&key);
            }
            Op::Cancel(key) => assert_eq!(queue.cancel(&key), model.cancel(key)),
            Op::Advance(by) => {
                clock.advance(Duration::from_nanos(by));
                model.advance(by);
            }
            Op::ShutDown(mode) => {
                queue.stop(mode);
                model.shut_down(mode);
            }
            Op::TakeRemaining => {
                let mut ours = queue.take_remaining();
                let mut theirs = model.take_remaining();
                // Re-runs and held keys come in any order.
                for remains in [&mut ours, &mut theirs] {
                    remains.held.sort_unstable();
                    remains.ready.sort_unstable();
                }
                assert_eq!(ours, theirs);
            }
        }
        compare_keys(&queue, &model);
    }
}

fn compare_keys(queue: &PriorityQueue<u8>, model: &PriorityModel) {
    queue.shared.shell.lock().state.check();
    let ready = model.items.iter().filter(|item| item.due.is_none()).count();
    assert_eq!((queue.len(), queue.waiting()), (ready, model.items.len() - ready));
    assert_eq!(queue.shutting_down(), model.stop != Stop::Open);
    let snapshot = queue.snapshot();
    let ready: Vec<_> = snapshot.ready.iter().map(|ready| (ready.key, ready.priority)).collect();
    assert_eq!(ready, model.ready_order().iter().map(|i| (i.key, i.priority)).collect::<Vec<_>>());
    for key in 0..KEYS {
        let status = queue.status(&key);
        let item = model.items.iter().find(|item| item.key == key);
        let ready = item.is_some_and(|item| item.due.is_none());
        let due_in = item.and_then(|item| item.due).map(|due| due.saturating_sub(model.now));
        assert_eq!(status.held, model.is_held(key));
        assert_eq!((status.ready, status.rerun), (ready && !status.held, ready && status.held));
        assert_eq!(status.due_in.map(nanos), due_in);
        assert_eq!(status.failures, model.failures.get(&key).copied().unwrap_or(0));
    }
}

proptest! {
    #[test]
    fn the_queue_behaves_like_the_model(ops in prop::collection::vec(op(), 1..300)) {
        compare(ops, None);
    }

    #[test]
    fn the_queue_with_ageing_behaves_like_the_model(
        ops in prop::collection::vec(op(), 1..300),
        step in 0..30u64,
    ) {
        compare(ops, Some(step));
    }
}
