//! The limiter of a queue, and which of its keys failed longest ago if their number or age is
//! bounded. The failure count of a key is stored in the key's entry.

use crate::clock::Moment;
use crate::keys::KEPT_CAPACITY;
use crate::limiter::RateLimiter;
use crate::options::FailureBounds;
use std::collections::VecDeque;
use std::time::Duration;

/// The number of outdated entries that are tolerated, so that a short list is never compacted.
const STALE_ALLOWED: usize = 64;

pub(crate) struct Backoff<K> {
    limiter: Box<dyn RateLimiter<K>>,
    /// Whether failures are counted even if the limiter does not use the count.
    always_counts: bool,
    /// Present if there is a bound. Invariant: contains exactly the keys that have failed.
    oldest: Option<OldestFailures>,
}

impl<K: 'static> Backoff<K> {
    pub(crate) fn new(limiter: impl RateLimiter<K>, bounds: FailureBounds) -> Self {
        let oldest = OldestFailures::new(bounds);
        Backoff { limiter: Box::new(limiter), always_counts: false, oldest }
    }

    pub(crate) fn count_always(&mut self) {
        self.always_counts = true;
    }

    /// Whether failures are counted.
    #[inline]
    pub(crate) fn counts(&self) -> bool {
        self.always_counts || self.limiter.counts()
    }

    /// Calls the limiter for a key that has failed `failures` times before.
    #[inline]
    pub(crate) fn when(&mut self, key: &K, failures: u32, now: Moment) -> Duration {
        self.limiter.when(key, failures, now)
    }

    /// Records that a failure of the key in `slot` was counted.
    #[inline]
    pub(crate) fn failed(&mut self, slot: u32, at: Moment) {
        if let Some(oldest) = &mut self.oldest {
            oldest.failed(slot, at);
        }
    }

    /// Records that the failures of the key in `slot` were forgotten.
    #[inline]
    pub(crate) fn forget(&mut self, slot: u32) {
        if let Some(oldest) = &mut self.oldest {
            oldest.forget(slot);
        }
    }

    /// Whether failures expire with time.
    #[inline]
    pub(crate) fn is_bounded(&self) -> bool {
        self.oldest.is_some()
    }

    /// Returns the next slot whose failures must be forgotten.
    #[inline]
    pub(crate) fn pop_stale(&mut self, now: Moment) -> Option<u32> {
        self.oldest.as_mut()?.pop(now)
    }
}

/// Failed keys in the order of their latest failure.
struct OldestFailures {
    idle: Duration,
    keys: usize,
    /// Oldest first. An entry is outdated once its slot has another number.
    order: VecDeque<Failure>,
    /// By slot: the number of its latest failure, 0 for none.
    latest: Vec<u64>,
    /// Slots that have a number.
    live: usize,
    numbered: u64,
}

struct Failure {
    at: Moment,
    slot: u32,
    number: u64,
}

impl OldestFailures {
    fn new(bounds: FailureBounds) -> Option<Self> {
        let FailureBounds { idle, keys } = bounds;
        if idle.is_none() && keys.is_none() {
            return None;
        }
        Some(OldestFailures {
            idle: idle.unwrap_or(Duration::MAX),
            keys: keys.unwrap_or(usize::MAX),
            order: VecDeque::new(),
            latest: Vec::new(),
            live: 0,
            numbered: 0,
        })
    }

    /// Records a failure of the key in `slot`.
    fn failed(&mut self, slot: u32, at: Moment) {
        self.forget(slot);
        let index = slot as usize;
        if index >= self.latest.len() {
            self.latest.resize((index + 1).next_power_of_two(), 0);
        }
        self.numbered += 1;
        self.latest[index] = self.numbered;
        self.live += 1;
        self.order.push_back(Failure { at, slot, number: self.numbered });
        if self.order.len() > 2 * self.live + STALE_ALLOWED {
            let latest = &self.latest;
            self.order.retain(|failure| latest[failure.slot as usize] == failure.number);
        }
    }

    /// Records that the failures of the key in `slot` were forgotten.
    fn forget(&mut self, slot: u32) {
        if let Some(latest) = self.latest.get_mut(slot as usize)
            && std::mem::take(latest) != 0
        {
            self.live -= 1;
            if self.live == 0 && self.latest.len() > KEPT_CAPACITY {
                // All entries are outdated.
                (self.order, self.latest) = (VecDeque::new(), Vec::new());
            }
        }
    }

    /// Returns the next slot whose failures must be forgotten.
    fn pop(&mut self, now: Moment) -> Option<u32> {
        loop {
            let oldest = self.order.front()?;
            let slot = oldest.slot;
            if self.latest[slot as usize] == oldest.number {
                let expired = now.saturating_since(oldest.at) >= self.idle;
                if !expired && self.live <= self.keys {
                    return None;
                }
                self.order.pop_front();
                self.forget(slot);
                return Some(slot);
            }
            self.order.pop_front();
        }
    }
}
