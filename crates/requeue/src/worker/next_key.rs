//! A runner's way to its next key.
//!
//! Taking one may panic: the queue clones it. It stays where it was then, and the runner,
//! instead of trying for ever, pauses.

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

/// How long a runner pauses, on the queue's clock, after a panic that left a key ready: it
/// would meet the same key again, and the same panic, at full speed. And how long a key
/// stays away whose limiter panics.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

/// Waits until there is a key, or the runner has to go: `None`, and so if the queue
/// is shut down. Cancel safe, as [`Get`] is.
pub(super) struct NextKey<'w, Q: Retry> {
    runner: &'w Runner<Q::Key>,
    queue: &'w Q,
    get: Get<'w, Q>,
    /// Takes no key before that.
    pause: Option<Alarm>,
    rests: bool,
}

impl<'w, Q: Retry> NextKey<'w, Q> {
    /// `pause`: as [`Attempt::settle`](super::attempt::Attempt::settle) answered.
    pub(super) fn new(runner: &'w Runner<Q::Key>, queue: &'w Q, pause: bool) -> Self {
        let pause = pause.then(|| pause_of(queue));
        NextKey { runner, queue, get: Get::new(queue), pause, rests: false }
    }

    /// What the future would answer, if that is known at once: a key that is ready costs no
    /// waker. Should taking it panic, there is a pause to come.
    pub(super) fn at_once(
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

    /// What the future answers, on a thread.
    pub(super) fn wait(
        runner: &'w Runner<Q::Key>,
        queue: &'w Q,
        mut pause: bool,
    ) -> Option<Held<'w, Q>> {
        if let Some(key) = NextKey::at_once(runner, queue, &mut pause) {
            return key;
        }
        let mut next = NextKey::new(runner, queue, pause);
        next.get = Get::for_thread(queue);
        park::wait(|waker| next.poll_key(waker))
    }

    fn poll_key(&mut self, waker: &Waker) -> Poll<Option<Held<'w, Q>>> {
        if mem::take(&mut self.rests) {
            self.runner.looks();
        }
        // Before a key is taken, since there is no way back.
        if self.runner.is_dismissed() {
            return Poll::Ready(None);
        }
        let key = self.poll_take(waker);
        if key.is_ready() {
            return key;
        }
        self.rests = true;
        self.runner.rests(Some(waker));
        // Who dismissed it before that found nobody to wake.
        if self.runner.is_dismissed() { Poll::Ready(None) } else { Poll::Pending }
    }

    fn poll_take(&mut self, waker: &Waker) -> Poll<Option<Held<'w, Q>>> {
        loop {
            if self.pause.as_mut().is_some_and(|pause| pause.poll(waker).is_pending()) {
                return Poll::Pending;
            }
            self.pause = None;
            // Written to where it is to be: to move a guard costs as much as to take a key.
            let (get, mut key) = (Pin::new(&mut self.get), Poll::Pending);
            if guarded(|| key = get.poll(&mut Context::from_waker(waker))).is_ok() {
                return key;
            }
            // Not in line meanwhile: others are to be told of keys.
            self.get = Get::new(self.queue);
            self.pause = Some(pause_of(self.queue));
        }
    }
}

fn pause_of<Q: Retry>(queue: &Q) -> Alarm {
    let clock = queue.clock();
    Alarm::new(clock, clock.now().saturating_add(PAUSE))
}

impl<'w, Q: Retry> Future for NextKey<'w, Q> {
    type Output = Option<Held<'w, Q>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.get_mut().poll_key(cx.waker())
    }
}
