//! What a queue answers about its keys.

use std::time::Duration;

/// What became of an add. May be ignored.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Added {
    /// It is ready.
    Queued,
    /// It becomes ready later.
    Waiting,
    /// Nothing changed: it was ready already, was to run again already, or
    /// waits already and the merge rule kept its time. In a
    /// [`PriorityQueue`](crate::PriorityQueue) it may have been raised.
    Coalesced,
    /// A worker holds it: it runs once more afterwards.
    Rerun,
    /// Draining: its holder wanted it again, and the drain's answer will list it.
    Kept,
    /// Nothing was added: the queue is shut down or draining.
    Refused,
}

/// What became of an add, and the delay that it was given.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limited {
    /// How long until the key may come back, if nothing brings it sooner and no [minimum
    /// interval](crate::Options::min_interval) keeps it longer. A
    /// [`RateLimitingQueue`](crate::RateLimitingQueue) asks its limiter, and counts the failure,
    /// also where the key is refused; a [`PriorityQueue`](crate::PriorityQueue) does not.
    pub delay: Duration,
    /// What became of the add.
    pub added: Added,
}

/// What a cancel removed. A holder is not disturbed.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cancelled {
    /// It was ready.
    pub ready: bool,
    /// It was to become ready later.
    pub waiting: bool,
    /// It was to run once more after its holder.
    pub rerun: bool,
}

impl Cancelled {
    /// Whether the cancel removed anything.
    pub fn any(self) -> bool {
        self.ready || self.waiting || self.rerun
    }
}

/// Keys left by a drain.
///
/// While draining, an add from outside is refused, and what a guard requeues is
/// kept for here instead of run again: a drain ends, and loses nothing silently.
/// A key can stand in more than one list: one that is held and was added again
/// is in `held` and in `ready`.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remains<K> {
    /// Ready and not handed out, requeued by its holder, or to run again after it.
    pub ready: Vec<K>,
    /// Not due yet, with the delay each still had, soonest first.
    pub waiting: Vec<(K, Duration)>,
    /// Still held when the limit passed.
    pub held: Vec<K>,
}

impl<K> Default for Remains<K> {
    fn default() -> Self {
        Remains { ready: Vec::new(), waiting: Vec::new(), held: Vec::new() }
    }
}

impl<K> Remains<K> {
    /// Whether nothing was left.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many entries the three lists have.
    pub fn len(&self) -> usize {
        self.ready.len() + self.waiting.len() + self.held.len()
    }
}

/// All keys of a queue at one instant. Ages and delays, not instants.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot<K> {
    /// Ready keys, next first. Under an [`Order`](crate::Order) of your own: in no
    /// particular order.
    pub ready: Vec<ReadyKey<K>>,
    /// Keys that are not due yet, soonest first.
    pub waiting: Vec<WaitingKey<K>>,
    /// Keys that workers hold, in no particular order.
    pub held: Vec<HeldKey<K>>,
}

impl<K> Default for Snapshot<K> {
    fn default() -> Self {
        Snapshot { ready: Vec::new(), waiting: Vec::new(), held: Vec::new() }
    }
}

/// A key that can be handed out.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadyKey<K> {
    /// The key.
    pub key: K,
    /// How long ago it was added. Only a queue with a name knows.
    pub added_for: Option<Duration>,
    /// Its priority; 0 unless it is in a [`PriorityQueue`](crate::PriorityQueue).
    pub priority: i32,
}

/// A key that is not due yet.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingKey<K> {
    /// The key.
    pub key: K,
    /// How long until it is due.
    pub due_in: Duration,
    /// Its priority; 0 unless it is in a [`PriorityQueue`](crate::PriorityQueue).
    pub priority: i32,
}

/// A key that a worker holds.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldKey<K> {
    /// The key.
    pub key: K,
    /// How long it has been held. Only a queue with a name knows.
    pub held_for: Option<Duration>,
    /// Whether it was added again, and so runs once more afterwards.
    pub rerun: bool,
    /// Its priority; 0 unless it is in a [`PriorityQueue`](crate::PriorityQueue).
    pub priority: i32,
}

/// What is known of one key.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeyStatus {
    /// It can be handed out now.
    pub ready: bool,
    /// A worker holds it.
    pub held: bool,
    /// It runs once more after its holder.
    pub rerun: bool,
    /// It is to become ready later: in so long.
    pub due_in: Option<Duration>,
    /// How often it has failed since it was last forgotten.
    pub failures: u32,
    /// Its priority; 0 unless it is in a [`PriorityQueue`](crate::PriorityQueue).
    pub priority: i32,
}
