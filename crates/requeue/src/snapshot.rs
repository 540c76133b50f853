//! Values that a queue returns about its keys.

use std::time::Duration;

/// The result of an add. It may be ignored.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Added {
    /// The key is ready.
    Queued,
    /// The key becomes ready later.
    Waiting,
    /// Nothing changed: the key was already ready, already ran again after its holder, or
    /// already waited and the merge rule kept its time. In a
    /// [`PriorityQueue`](crate::PriorityQueue), the add may have raised its priority.
    Coalesced,
    /// A worker holds the key. It runs once more afterwards.
    Rerun,
    /// The queue drains and the key's holder requeued it. The drain returns the key.
    Kept,
    /// Nothing was added: the queue is shut down or draining.
    Refused,
}

/// The result of a rate-limited add, and its delay.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limited {
    /// How long the key waits. It may become ready sooner because of another add.
    ///
    /// If the key is refused, a [`RateLimitingQueue`](crate::RateLimitingQueue) still calls its
    /// limiter and counts the failure; a [`PriorityQueue`](crate::PriorityQueue) does not.
    pub delay: Duration,
    /// The result of the add.
    pub added: Added,
}

/// What a cancel removed. A cancel never interrupts the holder of a key.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cancelled {
    /// The key was ready.
    pub ready: bool,
    /// The key was waiting for its due time.
    pub waiting: bool,
    /// The key was held and would have run once more.
    pub rerun: bool,
}

impl Cancelled {
    /// Returns `true` if the cancel removed anything.
    pub fn any(self) -> bool {
        self.ready || self.waiting || self.rerun
    }
}

/// The keys that a drain returns because they were not finished.
///
/// During a drain, adds are refused. A key that its guard requeues does not run again; it is
/// returned here, so that no key is lost silently. A key can be in more than one list: a key
/// that is held and was added again is in `held` and in `ready`.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remains<K> {
    /// Keys that were ready and not handed out, that their holder requeued, or that were to run
    /// again after their holder.
    pub ready: Vec<K>,
    /// Keys that were not due yet, each with its remaining delay, earliest first.
    pub waiting: Vec<(K, Duration)>,
    /// Keys that were still held when the limit passed.
    pub held: Vec<K>,
}

impl<K> Default for Remains<K> {
    fn default() -> Self {
        Remains { ready: Vec::new(), waiting: Vec::new(), held: Vec::new() }
    }
}

impl<K> Remains<K> {
    /// Returns `true` if no key was left.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of entries in the three lists together.
    pub fn len(&self) -> usize {
        self.ready.len() + self.waiting.len() + self.held.len()
    }
}

/// All keys of a queue at one instant. Times are given as ages and delays, not as instants.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot<K> {
    /// Ready keys, the next one first. Under a custom [`Order`](crate::Order), in no particular
    /// order.
    pub ready: Vec<ReadyKey<K>>,
    /// Keys that are not due yet, earliest first.
    pub waiting: Vec<WaitingKey<K>>,
    /// Keys that workers hold, in no particular order.
    pub held: Vec<HeldKey<K>>,
}

impl<K> Default for Snapshot<K> {
    fn default() -> Self {
        Snapshot { ready: Vec::new(), waiting: Vec::new(), held: Vec::new() }
    }
}

/// A key that is ready to be handed out.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadyKey<K> {
    /// The key.
    pub key: K,
    /// How long ago the key was added. `None` if the queue has no name.
    pub added_for: Option<Duration>,
    /// The key's priority; 0 unless it is in a [`PriorityQueue`](crate::PriorityQueue).
    pub priority: i32,
}

/// A key that is not due yet.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingKey<K> {
    /// The key.
    pub key: K,
    /// The time until the key is due.
    pub due_in: Duration,
    /// The key's priority; 0 unless it is in a [`PriorityQueue`](crate::PriorityQueue).
    pub priority: i32,
}

/// A key that a worker holds.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldKey<K> {
    /// The key.
    pub key: K,
    /// How long the key has been held. `None` if the queue has no name.
    pub held_for: Option<Duration>,
    /// Whether the key was added again and so runs once more afterwards.
    pub rerun: bool,
    /// The key's priority; 0 unless it is in a [`PriorityQueue`](crate::PriorityQueue).
    pub priority: i32,
}

/// The state of one key.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeyStatus {
    /// The key is ready to be handed out.
    pub ready: bool,
    /// A worker holds the key.
    pub held: bool,
    /// The key runs once more after its holder is done.
    pub rerun: bool,
    /// The time until the key becomes ready, if it waits.
    pub due_in: Option<Duration>,
    /// How often the key has failed since it was last forgotten.
    pub failures: u32,
    /// The key's priority; 0 unless it is in a [`PriorityQueue`](crate::PriorityQueue).
    pub priority: i32,
}
