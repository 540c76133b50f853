//! One attempt at a key, from the moment it is taken until it is settled.

use crate::clock::Moment;
use crate::get::{Get, try_get};
use crate::held::Held;
use crate::metrics::RunResult;
use crate::park;
use crate::retry::Retry;
use crate::snapshot::{Added, Limited};
use crate::worker::crew::Runner;
use crate::worker::failed::{Failed, Fault, Next, attempted};
use crate::worker::trace::Span;
use crate::worker::{Callback, Limit, Outcome, Run, Worker};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Waits until there is a key, or the runner has to go: `None`, and so if the queue
/// is shut down. Cancel safe, as [`Get`] is.
pub(super) struct NextKey<'w, Q: Retry> {
    runner: &'w Runner<Q::Key>,
    get: Get<'w, Q>,
}

impl<'w, Q: Retry> NextKey<'w, Q> {
    pub(super) fn new(runner: &'w Runner<Q::Key>, queue: &'w Q) -> Self {
        NextKey { runner, get: Get::new(queue) }
    }

    /// The same on a thread. A key that is ready costs no waker.
    pub(super) fn wait(runner: &'w Runner<Q::Key>, queue: &'w Q) -> Option<Held<'w, Q>> {
        if runner.is_dismissed() {
            return None;
        }
        if let Ok(held) = try_get(queue) {
            return Some(held);
        }
        let mut next = NextKey { runner, get: Get::for_thread(queue) };
        park::wait(|waker| next.poll_key(waker))
    }

    fn poll_key(&mut self, waker: &Waker) -> Poll<Option<Held<'w, Q>>> {
        // Before a key is taken, since there is no way back.
        if self.runner.is_dismissed() {
            return Poll::Ready(None);
        }
        let key = Pin::new(&mut self.get).poll(&mut Context::from_waker(waker));
        if key.is_ready() {
            return key;
        }
        self.runner.waits(waker);
        // Who dismissed it before that found nobody to wake.
        if self.runner.is_dismissed() { Poll::Ready(None) } else { Poll::Pending }
    }
}

impl<'w, Q: Retry> Future for NextKey<'w, Q> {
    type Output = Option<Held<'w, Q>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.get_mut().poll_key(cx.waker())
    }
}

/// A key that a runner works on. Dropped before it is settled, it puts the key back.
pub(super) struct Attempt<'w, Q: Retry> {
    worker: &'w Worker<Q>,
    runner: &'w Runner<Q::Key>,
    /// `None` once settled.
    held: Option<Held<'w, Q>>,
    number: u32,
    started_at: Moment,
    limit: Option<Limit>,
    span: Span,
}

impl<'w, Q: Retry> Attempt<'w, Q> {
    /// Reads the clock once: for who asks how long it has been running, for the limit and
    /// for metrics.
    pub(super) fn begin(
        worker: &'w Worker<Q>,
        runner: &'w Runner<Q::Key>,
        held: Held<'w, Q>,
    ) -> Self {
        let clock = worker.queue.clock();
        let started_at = clock.now();
        let limit = worker
            .timeout
            .map(|timeout| Limit { clock: clock.clone(), at: started_at.saturating_add(timeout) });
        if let Some(recorder) = &worker.recorder {
            recorder.started();
        }
        // It has the key before foreign code sees it, and puts it back should that panic.
        let mut attempt = Attempt {
            worker,
            runner,
            held: Some(held),
            number: 1,
            started_at,
            limit,
            span: Span::none(),
        };
        attempt.announce();
        attempt
    }

    fn announce(&mut self) {
        let held = self.held.as_ref().expect(SETTLED);
        self.number = held.num_requeues().saturating_add(1);
        self.span = (self.worker.span)(held.key(), self.number);
        self.runner.begins(held.key().clone(), self.number, self.started_at);
    }

    pub(super) fn run(&self) -> Run<&Q::Key> {
        let key = self.held.as_ref().expect(SETTLED).key();
        Run { key, attempt: self.number, limit: self.limit.clone() }
    }

    pub(super) fn limit(&self) -> Option<Limit> {
        self.limit.clone()
    }

    pub(super) fn span(&self) -> &Span {
        &self.span
    }

    /// Does with the key what the handler wants. Whatever foreign code panics meanwhile, the
    /// hold ends and the runner lives.
    pub(super) fn settle(mut self, answer: Result<Outcome, Fault>) {
        let held = self.held.take().expect(SETTLED);
        let settled = attempted(|| self.span.enter(|| self.settle_held(held, answer)));
        if settled.is_err() {
            drop(self.runner.ends());
        }
    }

    fn settle_held(&self, held: Held<'_, Q>, answer: Result<Outcome, Fault>) {
        let is_late = self.limit.as_ref().is_some_and(Limit::is_past);
        let answer = match answer {
            Err(panicked @ Fault::Panicked(_)) => Err(panicked),
            _ if is_late => Err(Fault::TimedOut),
            answer => answer,
        };
        match answer {
            Ok(Outcome::Done) => {
                self.record(RunResult::Success);
                self.span.outcome("done");
                held.forget();
                drop(self.runner.ends());
                held.done();
            }
            Ok(Outcome::RequeueAfter(delay)) => {
                self.record(RunResult::RequeueAfter);
                self.span.outcome("requeue after");
                held.forget();
                drop(self.runner.ends());
                held.requeue_after(delay);
            }
            Ok(Outcome::GiveUp) => self.bury(held, &Fault::Asked),
            Ok(Outcome::Retry) => self.fail(held, &Fault::Asked),
            Err(fault) => self.fail(held, &fault),
        }
    }

    fn fail(&self, held: Held<'_, Q>, fault: &Fault) {
        if self.worker.max_attempts.is_some_and(|max| self.number >= max) {
            return self.bury(held, fault);
        }
        self.record(match fault {
            Fault::Asked => RunResult::Requeue,
            Fault::Error(_) | Fault::TimedOut | Fault::Panicked(_) => RunResult::Error,
        });
        // Out of the list first: whoever holds the key next will be in it.
        let key = self.runner.ends().expect("it began");
        let next = match attempted(|| held.retry()) {
            Ok(Limited { added: Added::Refused, .. }) => Next::Dropped,
            Ok(Limited { added: Added::Kept, .. }) => Next::Kept,
            // It was to be in the drain's answer anyway.
            Ok(Limited { added: Added::Coalesced, .. }) if self.worker.queue.shutting_down() => {
                Next::Kept
            }
            Ok(Limited { delay, .. }) => Next::RetryIn(delay),
            // A limiter that panics has ended the hold, and let go of the key.
            Err(_) => match self.worker.queue.add(key.clone()) {
                Added::Refused => Next::Dropped,
                _ => Next::RetryIn(Duration::ZERO),
            },
        };
        self.report(fault, &key, next);
    }

    /// The key stays held meanwhile: what is written about its death is written before
    /// anybody works on it again.
    fn bury(&self, held: Held<'_, Q>, fault: &Fault) {
        self.record(RunResult::Error);
        held.forget();
        self.report(fault, held.key(), Next::Dead);
        drop(self.runner.ends());
        held.done();
    }

    /// Before callbacks, whose time is not the handler's.
    fn record(&self, result: RunResult) {
        if let Some(recorder) = &self.worker.recorder {
            let now = self.worker.queue.clock().now();
            recorder.finished(result, now.saturating_since(self.started_at));
        }
    }

    fn report(&self, fault: &Fault, key: &Q::Key, next: Next) {
        let failed = Failed { key, attempt: self.number, cause: fault.cause(), next };
        // It prints what the handler answered.
        drop(attempted(|| self.span.failed(&failed)));
        if let Some(recorder) = &self.worker.recorder {
            match fault {
                Fault::TimedOut => recorder.timed_out(),
                Fault::Panicked(_) => recorder.panicked(),
                Fault::Error(_) | Fault::Asked => {}
            }
            if next == Next::Dead {
                recorder.gave_up();
            }
        }
        let call = |callback: &Option<Callback<Q::Key>>| {
            if let Some(callback) = callback {
                drop(attempted(|| callback(&failed)));
            }
        };
        call(&self.worker.on_failure);
        if next == Next::Dead {
            call(&self.worker.on_dead);
        }
    }
}

impl<Q: Retry> Drop for Attempt<'_, Q> {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            self.span.outcome("cancelled");
            if let Some(recorder) = &self.worker.recorder {
                recorder.cancelled();
            }
            drop(self.runner.ends());
            held.requeue();
        }
    }
}

const SETTLED: &str = "an attempt that is settled is gone";
