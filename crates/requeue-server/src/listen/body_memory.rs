//! The memory for the bodies of all requests, and who has to give it back if it is short.
//!
//! It consists of two shares. The beginning of every body is in the small share, so that small
//! requests never wait for large ones. If a request has to wait for memory, the bodies that arrive
//! most slowly are cut off: a slow client holds memory only while nobody else needs it. If none is
//! slow, because all of them wait for memory, the largest is cut off.

use super::Options;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

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
    small_body: u64,
    limit: u64,
    slow_after: Duration,
    /// Bodies that hold memory while they wait for their clients.
    arriving: Mutex<HashMap<u64, Arc<Arriving>>>,
    next: AtomicU64,
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
            small_body: SMALL_BODY.min(small / 4),
            limit: small + large,
            slow_after: options.slow_after,
            arriving: Mutex::default(),
            next: AtomicU64::new(0),
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

    /// Registers a body that holds memory and waits for its client.
    pub(super) fn arriving(&self) -> ArrivingGuard {
        let number = self.0.next.fetch_add(1, Ordering::Relaxed);
        let arriving = Arc::new(Arriving::default());
        self.lock().insert(number, Arc::clone(&arriving));
        ArrivingGuard { memory: self.clone(), number, arriving }
    }

    /// Cuts off slow bodies, the slowest first, until they give back `needed` bytes of the share.
    ///
    /// If there is none, and the caller has waited for `waited`, cuts off the largest that waits for
    /// memory, too, if it is larger than the caller's of `size`. Otherwise they might all hold a part
    /// and wait for the rest.
    pub(super) fn make_room(&self, share: Share, needed: u64, size: u64, waited: Duration) {
        if self.cut_slow(share, needed) > 0 || waited < self.0.slow_after {
            return;
        }
        let largest = {
            let all = self.lock();
            let waiting = |one: &&Arc<Arriving>| one.lock().waiting_size(share) > size;
            all.values().filter(waiting).max_by_key(|one| one.lock().waiting_size(share)).cloned()
        };
        if let Some(waker) = largest.and_then(|one| one.cut(share, CutReason::Large).1) {
            waker.wake();
        }
    }

    /// Returns how many bytes the cut off bodies give back.
    fn cut_slow(&self, share: Share, needed: u64) -> u64 {
        let now = Instant::now();
        let mut slow: Vec<(Instant, Arc<Arriving>)> = {
            let all = self.lock();
            let since =
                |one: &Arc<Arriving>| Some((one.lock().slow_since(share)?, Arc::clone(one)));
            all.values()
                .filter_map(since)
                .filter(|(at, _)| *at + self.0.slow_after <= now)
                .collect()
        };
        slow.sort_by_key(|(since, _)| *since);
        let mut found = 0;
        for (_, one) in slow {
            if found >= needed {
                break;
            }
            let (held, waker) = one.cut(share, CutReason::Slow);
            found += held;
            if let Some(waker) = waker {
                waker.wake();
            }
        }
        found
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<Arriving>>> {
        self.0.arriving.lock().unwrap_or_else(PoisonError::into_inner)
    }
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

    fn bytes(&self, share: Share) -> u64 {
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

/// A body that holds memory and has not arrived completely.
#[derive(Default)]
struct Arriving(Mutex<Progress>);

#[derive(Default)]
struct Progress {
    /// When the body began to wait for its client since the last time that enough bytes arrived.
    /// `None` while the body waits for something else.
    since: Option<Instant>,
    /// Bytes that arrived since then.
    bytes: u64,
    held: [u64; 2],
    /// Its size in bytes, as far as known, while it waits for memory.
    waiting: Option<u64>,
    cut: Option<CutReason>,
    waker: Option<Waker>,
}

/// Why a body was cut off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum CutReason {
    Slow,
    Large,
}

impl Progress {
    fn slow_since(&self, share: Share) -> Option<Instant> {
        self.since.filter(|_| self.cut.is_none() && self.held[share as usize] > 0)
    }

    /// Returns the size of a body that waits for memory and holds some; otherwise 0.
    fn waiting_size(&self, share: Share) -> u64 {
        let holds = self.cut.is_none() && self.held[share as usize] > 0;
        self.waiting.filter(|_| holds).unwrap_or(0)
    }

    fn wake_with(&mut self, held: &HeldMemory, waker: &Waker) {
        self.held = [held.bytes(Share::Small), held.bytes(Share::Large)];
        match &mut self.waker {
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
    }
}

impl Arriving {
    /// Cuts the body off. Returns what it holds of the share, and its waker.
    fn cut(&self, share: Share, reason: CutReason) -> (u64, Option<Waker>) {
        let mut progress = self.lock();
        progress.cut = Some(reason);
        (progress.held[share as usize], progress.waker.take())
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a body registered.
pub(super) struct ArrivingGuard {
    memory: BodyMemory,
    number: u64,
    arriving: Arc<Arriving>,
}

impl ArrivingGuard {
    /// Returns whether the body was cut off, and why.
    pub(super) fn cut(&self) -> Option<CutReason> {
        self.arriving.lock().cut
    }

    /// Records that the body waits for its client.
    pub(super) fn waits_for_client(&self, held: &HeldMemory, waker: &Waker) {
        let mut progress = self.arriving.lock();
        progress.since.get_or_insert_with(Instant::now);
        progress.waiting = None;
        progress.wake_with(held, waker);
    }

    /// Records that some of the body arrived.
    pub(super) fn arrived(&self, bytes: u64) {
        let mut progress = self.arriving.lock();
        progress.bytes += bytes;
        if progress.bytes >= CROWDED_QUOTA {
            (progress.bytes, progress.since) = (0, None);
        }
    }

    /// Records that the body, of `size` as far as known, waits for memory: its client is not slow.
    pub(super) fn waits_for_memory(&self, size: u64, held: &HeldMemory, waker: &Waker) {
        let mut progress = self.arriving.lock();
        (progress.bytes, progress.since) = (0, None);
        progress.waiting = Some(size);
        progress.wake_with(held, waker);
    }
}

impl Drop for ArrivingGuard {
    fn drop(&mut self) {
        self.memory.lock().remove(&self.number);
    }
}
