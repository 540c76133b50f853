//! Runs random operations on the queue and on a simple model, and compares both after each
//! step.

use super::*;
use crate::waiters::Waiter;
use crate::work_queue::Taken;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::task::Poll;

/// The contract of the queue, implemented by linear search.
#[derive(Default)]
struct QueueModel {
    ready: Vec<u8>,
    /// Each key, and whether it runs again.
    held: Vec<(u8, bool)>,
    kept: Vec<u8>,
    stop: ModelStop,
}

#[derive(Default, PartialEq, Clone, Copy)]
enum ModelStop {
    #[default]
    Open,
    WorkingOff,
    Down,
}

impl QueueModel {
    fn add(&mut self, key: u8) -> Added {
        if self.stop != ModelStop::Open {
            return Added::Refused;
        }
        if self.ready.contains(&key) {
            return Added::Coalesced;
        }
        match self.held.iter_mut().find(|(held, _)| *held == key) {
            None => {
                self.ready.push(key);
                Added::Queued
            }
            Some((_, true)) => Added::Coalesced,
            Some((_, rerun)) => {
                *rerun = true;
                Added::Rerun
            }
        }
    }

    fn get(&mut self) -> Poll<Option<u8>> {
        if self.ready.is_empty() {
            let over = self.stop == ModelStop::Down;
            return if over { Poll::Ready(None) } else { Poll::Pending };
        }
        let key = self.ready.remove(0);
        self.held.push((key, false));
        Poll::Ready(Some(key))
    }

    fn done(&mut self, index: usize) {
        let (key, rerun) = self.held.remove(index);
        if rerun {
            self.ready.push(key);
        }
        self.settle();
    }

    fn requeue(&mut self, index: usize) -> Added {
        let (key, rerun) = self.held[index];
        let added = match self.stop {
            ModelStop::Down => Added::Refused,
            _ if rerun => Added::Coalesced,
            ModelStop::Open => {
                self.held[index].1 = true;
                Added::Queued
            }
            ModelStop::WorkingOff => {
                self.kept.push(key);
                Added::Kept
            }
        };
        self.done(index);
        added
    }

    fn cancel(&mut self, key: u8) -> Cancelled {
        let mut cancelled = Cancelled::default();
        if let Some(index) = self.ready.iter().position(|&ready| ready == key) {
            self.ready.remove(index);
            cancelled.ready = true;
        }
        if let Some((_, rerun)) = self.held.iter_mut().find(|(held, _)| *held == key) {
            cancelled.rerun = std::mem::take(rerun);
        }
        self.settle();
        cancelled
    }

    fn settle(&mut self) {
        if self.stop == ModelStop::WorkingOff && self.ready.is_empty() && self.held.is_empty() {
            self.stop = ModelStop::Down;
        }
    }

    fn take_remaining(&mut self) -> (Vec<u8>, Vec<u8>) {
        let mut ready = std::mem::take(&mut self.ready);
        ready.append(&mut self.kept);
        let reruns =
            self.held.iter_mut().filter_map(|(key, rerun)| std::mem::take(rerun).then_some(*key));
        let mut reruns: Vec<u8> = reruns.collect();
        reruns.sort_unstable();
        ready.append(&mut reruns);
        let mut held: Vec<u8> = self.held.iter().map(|&(key, _)| key).collect();
        held.sort_unstable();
        (ready, held)
    }
}

#[derive(Debug, Clone)]
enum Op {
    Add(u8),
    Get,
    GetMany(usize),
    Done(usize),
    Next(usize),
    Requeue(usize),
    Cancel(u8),
    ShutDown(StopMode),
    TakeRemaining,
}

fn op() -> impl Strategy<Value = Op> {
    // More keys than the order frees at a time, so that it is compacted too.
    let key = 0..100u8;
    let mode = prop_oneof![Just(StopMode::Now), Just(StopMode::WithDrain), Just(StopMode::WorkOff)];
    prop_oneof![
        40 => key.clone().prop_map(Op::Add),
        15 => Just(Op::Get),
        3 => (1..5usize).prop_map(Op::GetMany),
        10 => (0..100usize).prop_map(Op::Done),
        5 => (0..100usize).prop_map(Op::Next),
        5 => (0..100usize).prop_map(Op::Requeue),
        20 => key.prop_map(Op::Cancel),
        1 => mode.prop_map(Op::ShutDown),
        1 => Just(Op::TakeRemaining),
    ]
}

/// First in, first out, as a custom order.
#[derive(Default)]
pub(crate) struct GivenFifo(VecDeque<crate::order::Slot>);

impl<K> Order<K> for GivenFifo {
    fn push(&mut self, _: &K, slot: crate::order::Slot) {
        self.0.push_back(slot);
    }
    fn pop(&mut self) -> Option<crate::order::Slot> {
        self.0.pop_front()
    }
    fn remove(&mut self, _: &K, slot: crate::order::Slot) {
        self.0.retain(|&other| other != slot);
    }
}

/// Stores the taken key and returns a copy of the key.
fn hold(held: &mut Vec<Taken<u8>>, polled: Poll<Option<Taken<u8>>>) -> Poll<Option<u8>> {
    polled.map(|taken| {
        let key = taken.as_ref().map(|taken| taken.key);
        held.extend(taken);
        key
    })
}

fn compare(queue: &Queue<u8>, ops: Vec<Op>, ordered: bool) {
    let mut model = QueueModel::default();
    // In the order of the model: oldest first.
    let mut held: Vec<Taken<u8>> = Vec::new();
    for op in ops {
        let index = |n: usize| (!held.is_empty()).then(|| n % held.len());
        match op {
            Op::Add(key) => assert_eq!(queue.add(key), model.add(key)),
            Op::Get => {
                let polled = queue.poll_take(&mut Waiter::for_task(), None);
                assert_eq!(hold(&mut held, polled), model.get());
            }
            Op::GetMany(max) => {
                let before = held.len();
                queue.take_ready(max, &mut held);
                for taken in &held[before..] {
                    assert_eq!(model.get(), Poll::Ready(Some(taken.key)));
                }
                assert!(held.len() - before == max || model.ready.is_empty());
            }
            Op::Done(n) => {
                if let Some(index) = index(n) {
                    queue.done(held.remove(index).token);
                    model.done(index);
                }
            }
            Op::Next(n) => {
                if let Some(index) = index(n) {
                    let next = queue.next_now(held.remove(index).token, |taken| taken);
                    model.done(index);
                    let theirs = match model.get() {
                        Poll::Ready(key) => key,
                        Poll::Pending => None,
                    };
                    assert_eq!(hold(&mut held, Poll::Ready(next)), Poll::Ready(theirs));
                }
            }
            Op::Requeue(n) => {
                if let Some(index) = index(n) {
                    assert_eq!(queue.requeue(held.remove(index)), model.requeue(index));
                }
            }
            Op::Cancel(key) => assert_eq!(queue.cancel(&key), model.cancel(key)),
            Op::ShutDown(mode) => {
                queue.stop(mode);
                model.stop = match (mode, model.stop) {
                    (StopMode::Now, _) | (StopMode::WithDrain, ModelStop::Open) => ModelStop::Down,
                    (StopMode::WorkOff, ModelStop::Open) => ModelStop::WorkingOff,
                    (_, stop) => stop,
                };
                model.settle();
            }
            Op::TakeRemaining => {
                let mut remains = queue.take_remaining();
                let (mut ready, kept) = model.take_remaining();
                remains.held.sort_unstable();
                // Re-runs come in any order, and so does everything under a custom order.
                if !ordered || !model.held.is_empty() {
                    remains.ready.sort_unstable();
                    ready.sort_unstable();
                }
                assert_eq!((remains.ready, remains.held), (ready, kept));
                model.stop = ModelStop::Down;
            }
        }
        queue.shared.shell.lock().state.check();
        assert_eq!(queue.len(), model.ready.len());
        assert_eq!(queue.shutting_down(), model.stop != ModelStop::Open);
        if ordered {
            let ready: Vec<u8> = queue.snapshot().ready.iter().map(|ready| ready.key).collect();
            assert_eq!(ready, model.ready);
        }
        let mut statuses = (0..100u8).map(|key| (key, queue.status(&key)));
        assert!(statuses.all(|(key, status)| {
            let rerun = model.held.iter().find(|(held, _)| *held == key).map(|&(_, rerun)| rerun);
            status.ready == model.ready.contains(&key)
                && status.held == rerun.is_some()
                && status.rerun == rerun.unwrap_or(false)
        }));
    }
}

proptest! {
    #[test]
    fn the_queue_behaves_like_the_model(ops in prop::collection::vec(op(), 1..400)) {
        compare(&Queue::new(), ops, true);
    }

    #[test]
    fn the_queue_with_a_custom_order_behaves_like_the_model(ops in prop::collection::vec(op(), 1..400)) {
        compare(&Queue::with_order(GivenFifo::default(), Options::new()), ops, false);
    }
}
