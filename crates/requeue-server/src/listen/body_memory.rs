//! The memory for the bodies of all requests.
//!
//! It consists of two shares. The beginning of every body is in the small share, so that small
//! requests never wait for large ones. While a request waits for memory, bodies that hold some of
//! the same share give it back if they arrive slowly, so that a slow client holds memory only while
//! nobody else needs it; and of those that hold some and wait for more, the largest give up first:
//! otherwise they might all hold a part and wait for the rest.

use super::Options;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How much of a body is in the small share, in bytes. Nearly all requests are smaller.
const SMALL_BODY: u64 = 64 << 10;

/// If memory is short, a body must arrive at this many bytes in [`Options::slow_after`].
pub(super) const CROWDED_QUOTA: u64 = 256 << 10;

/// A share of the memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Share {
    Small,
    Large,
}

/// The memory for the bodies of all requests. Clones share it.
#[derive(Clone)]
pub(crate) struct BodyMemory(Arc<Memory>);

struct Memory {
    free: [Arc<Semaphore>; 2],
    /// How many bodies wait for memory.
    waiting: [AtomicUsize; 2],
    small_body: u64,
    limit: u64,
}

impl BodyMemory {
    pub(crate) fn new(options: &Options) -> Self {
        let small = options.max_buffered / 4;
        // A request of the maximum size must fit.
        let large = (options.max_buffered - small).max(options.max_request);
        let semaphore = |bytes: u64| {
            let permits = usize::try_from(bytes).unwrap_or(usize::MAX);
            Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS)))
        };
        BodyMemory(Arc::new(Memory {
            free: [semaphore(small), semaphore(large)],
            waiting: Default::default(),
            small_body: SMALL_BODY.min(small / 4),
            limit: small + large,
        }))
    }

    /// Returns the total number of bytes.
    pub(super) fn limit(&self) -> u64 {
        self.0.limit
    }

    /// Returns the share for the bytes after the first `received` of a body, and how many of the next
    /// bytes belong to it.
    pub(super) fn share(&self, received: u64) -> (Share, u64) {
        match self.0.small_body.checked_sub(received) {
            Some(left @ 1..) => (Share::Small, left),
            _ => (Share::Large, u64::MAX),
        }
    }

    pub(super) fn semaphore(&self, share: Share) -> Arc<Semaphore> {
        Arc::clone(&self.0.free[share as usize])
    }

    /// Records that a body waits for memory, until the guard is dropped.
    pub(super) fn wait(&self, share: Share) -> WaitGuard {
        self.0.waiting[share as usize].fetch_add(1, Ordering::Relaxed);
        WaitGuard { memory: self.clone(), share }
    }

    /// Returns whether a body waits for some of this memory.
    pub(super) fn is_needed(&self, held: &HeldMemory) -> bool {
        [Share::Small, Share::Large].into_iter().any(|share| {
            held.bytes(share) > 0 && self.0.waiting[share as usize].load(Ordering::Relaxed) > 0
        })
    }
}

/// A body waits for memory.
pub(super) struct WaitGuard {
    memory: BodyMemory,
    share: Share,
}

impl Drop for WaitGuard {
    fn drop(&mut self) {
        self.memory.0.waiting[self.share as usize].fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns how long a body of this size, as far as known, waits for memory while it holds some.
pub(super) fn patience(size: u64, options: &Options) -> Duration {
    // Slow bodies are cut off before anyone gives up.
    let spread = options.room_timeout.saturating_sub(2 * options.slow_after);
    let part = size as f64 / options.max_request.max(1) as f64;
    options.room_timeout - spread.mul_f64(part.min(1.0))
}

/// What a body holds, in bytes of each share.
#[derive(Default)]
pub(super) struct HeldMemory([Option<OwnedSemaphorePermit>; 2]);

impl HeldMemory {
    pub(super) fn add(&mut self, share: Share, permit: OwnedSemaphorePermit) {
        match &mut self.0[share as usize] {
            Some(held) => held.merge(permit),
            none => *none = Some(permit),
        }
    }

    pub(super) fn bytes(&self, share: Share) -> u64 {
        self.0[share as usize].as_ref().map_or(0, |permit| permit.num_permits() as u64)
    }

    /// Gives back all but `bytes`.
    pub(super) fn shrink_to(&mut self, bytes: u64) {
        let small = self.bytes(Share::Small).min(bytes);
        for (share, keep) in [(Share::Small, small), (Share::Large, bytes - small)] {
            let surplus = self.bytes(share).saturating_sub(keep);
            let permit = self.0[share as usize].as_mut();
            drop(permit.and_then(|permit| permit.split(usize::try_from(surplus).ok()?)));
        }
    }
}
