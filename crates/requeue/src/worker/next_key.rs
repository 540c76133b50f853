//! How a runner takes its next key.
//!
//! Taking a key may panic, because the queue clones it. The key then stays where it was, and the
//! runner pauses instead of retrying in a busy loop.

use crate::clock::Alarm;
use crate::get::{Get, try_get};
use crate::guarded::guarded;
use crate::held::Held;
use crate::park;
use crate::retry::Retry;
use crate::worker::runners::Runner;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// How long a runner pauses, on the queue's clock, after a panic that left a key ready. Without the
/// pause it would take the same key, and panic, in a busy loop. It is also the delay of a key whose
/// limiter panics.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

/// Waits for a key. Returns `None` if the runner has to end, because it was dismissed or the queue is
/// shut down. Cancel safe, as [`Get`] is.
pub(super) struct NextKey<'w, Q: Retry> {
    runner: &'w Runner<Q::Key>,
    queue: &'w Q,
    get: Get<'w, Q>,
    /// No key is taken before this alarm.
    pause: Option<Alarm>,
    idle: bool,
}

impl<'w, Q: Retry> NextKey<'w, Q> {
    /// `pause` is the result of [`Attempt::settle`](super::attempt::Attempt::settle).
    pub(super) fn new(runner: &'w Runner<Q::Key>, queue: &'w Q, pause: bool) -> Self {
        let pause = pause.then(|| pause_alarm(queue));
        NextKey { runner, queue, get: Get::new(queue), pause, idle: false }
    }

    /// Returns what the future would return, if that is known immediately. So a ready key needs no
    /// waker. If taking the key panics, sets `pause`.
    pub(super) fn immediately(
        runner: &'w Runner<Q::Key>,
        queue: &'w Q,
        pause: &mut bool,
    ) -> Option<Option<Held<'w, Q>>> {
        if *pause {
            return None;
        }
        if runner.is_dismissed() {
            return Some(None);
        }
        let mut key = None;
        *pause = guarded(|| key = try_get(queue).ok()).is_err();
        key.map(Some)
    }

    /// Blocks the thread, and returns what the future would return.
    pub(super) fn wait(
        runner: &'w Runner<Q::Key>,
        queue: &'w Q,
        mut pause: bool,
    ) -> Option<Held<'w, Q>> {
        if let Some(key) = NextKey::immediately(runner, queue, &mut pause) {
            return key;
        }
        let mut next = NextKey::new(runner, queue, pause);
        next.get = Get::for_thread(queue);
        park::wait(|waker| next.poll_key(waker))
    }

    fn poll_key(&mut self, waker: &Waker) -> Poll<Option<Held<'w, Q>>> {
        if mem::take(&mut self.idle) {
            self.runner.set_taking();
        }
        // Checked before a key is taken, because a dismissed runner must not take one.
        if self.runner.is_dismissed() {
            return Poll::Ready(None);
        }
        let key = self.poll_take(waker);
        if key.is_ready() {
            return key;
        }
        self.idle = true;
        self.runner.set_idle(Some(waker));
        // Checked again: a dismissal before this point found no waker to wake.
        if self.runner.is_dismissed() { Poll::Ready(None) } else { Poll::Pending }
    }

    fn poll_take(&mut self, waker: &Waker) -> Poll<Option<Held<'w, Q>>> {
        loop {
            if self.pause.as_mut().is_some_and(|pause| pause.poll(waker).is_pending()) {
                return Poll::Pending;
            }
            self.pause = None;
            // Written in place, because moving a guard costs as much as taking a key.
            let (get, mut key) = (Pin::new(&mut self.get), Poll::Pending);
            if guarded(|| key = get.poll(&mut Context::from_waker(waker))).is_ok() {
                return key;
            }
            // Leaves the queue's waiters during the pause, so that others are notified of keys.
            self.get = Get::new(self.queue);
            self.pause = Some(pause_alarm(self.queue));
        }
    }
}

fn pause_alarm<Q: Retry>(queue: &Q) -> Alarm {
    let clock = queue.clock();
    Alarm::new(clock, clock.now().saturating_add(PAUSE))
}

impl<'w, Q: Retry> Future for NextKey<'w, Q> {
    type Output = Option<Held<'w, Q>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.get_mut().poll_key(cx.waker())
    }
}
