//! One attempt at a key, from the moment it is taken until it is settled.
//!
//! Code of the user may panic: the handler, a key, a limiter, a callback, or a subscriber of
//! `tracing`. So each call of it is guarded. Callbacks and subscribers are called when a panic can no
//! longer lose the key.

use crate::clock::Moment;
use crate::guarded::{discard, guarded};
use crate::held::Held;
use crate::metrics::{RunEnd, RunResult};
use crate::retry::Retry;
use crate::snapshot::Added;
use crate::worker::failed::{Failed, Fault, Next, attempted};
use crate::worker::next_key::PAUSE;
use crate::worker::runners::Runner;
use crate::worker::trace::Span;
use crate::worker::{Callback, Limit, Outcome, Run, Worker};
use std::mem;
use std::time::Duration;

/// A key that a runner is processing. If it is dropped before it is settled, it puts the key back.
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
    /// Reads the clock once. The time is used to report how long the attempt has been running, for
    /// the timeout, and for metrics.
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
        let (held, span) = (Some(held), Span::none());
        Attempt { worker, runner, held, number: 1, started_at, limit, span }
    }

    fn held(&self) -> &Held<'w, Q> {
        self.held.as_ref().expect("it is not settled yet")
    }

    /// Reads the number of the attempt, opens its span, and adds it to the list of running keys. If
    /// the key panics here, the attempt has failed before its handler was called.
    pub(super) fn prepare(&mut self) -> Result<(), Fault> {
        self.number = attempted(|| self.held().num_requeues())?.saturating_add(1);
        let span = guarded(|| (self.worker.span)(self.held().key(), self.number));
        self.span = span.unwrap_or_else(|_| Span::none());
        let key = attempted(|| self.held().key().clone())?;
        self.runner.start_running(key, self.number, self.started_at);
        Ok(())
    }

    pub(super) fn run(&self) -> Run<&Q::Key> {
        Run { key: self.held().key(), attempt: self.number, limit: self.limit.clone() }
    }

    pub(super) fn limit(&self) -> Option<Limit> {
        self.limit.clone()
    }

    pub(super) fn span(&self) -> &Span {
        &self.span
    }

    /// Settles the key as the handler's result requires. Returns `true` if the runner has to pause,
    /// because a panic prevented the key from being delayed and it is ready again.
    pub(super) fn settle(&mut self, result: Result<Outcome, Fault>) -> bool {
        let is_late = self.limit.as_ref().is_some_and(Limit::is_past);
        let result = match result {
            Err(panicked @ Fault::Panicked(_)) => Err(panicked),
            late if is_late => {
                discard(late);
                Err(Fault::TimedOut)
            }
            result => result,
        };
        match result {
            Ok(Outcome::Done) => self.succeed(None),
            Ok(Outcome::RequeueAfter(delay)) => self.succeed(Some(delay)),
            Ok(Outcome::Retry) => self.fail(Fault::RetryRequested),
            Ok(Outcome::GiveUp { reason }) => self.bury(Fault::GaveUp(reason)),
            Err(fault) => self.fail(fault),
        }
    }

    fn succeed(&mut self, again_in: Option<Duration>) -> bool {
        let (result, outcome) = match again_in {
            None => (RunResult::Success, "done"),
            Some(_) => (RunResult::RequeueAfter, "requeue after"),
        };
        self.record(RunEnd::of(result));
        drop(guarded(|| self.held().forget()));
        // Removed from the list first, because the next runner that holds the key adds it again.
        let key = self.runner.stop_running();
        let ended = match again_in {
            None => self.done(),
            Some(delay) => self.delay(delay).map(drop),
        };
        drop(self.span.enter(|| self.span.outcome(outcome)));
        discard(key);
        ended.is_err()
    }

    fn fail(&mut self, fault: Fault) -> bool {
        if self.worker.max_attempts.is_some_and(|max| self.number >= max) {
            return self.bury(fault);
        }
        self.record_fault(&fault, false);
        // The failure is counted even if the limiter panics.
        let delay = guarded(|| self.held().fail()).unwrap_or(PAUSE);
        let listed = self.runner.stop_running();
        let key = listed.or_else(|| guarded(|| self.held().key().clone()).ok());
        let added = self.delay(delay);
        let next = match added {
            Ok(Added::Refused) => Next::Dropped,
            Ok(Added::Kept) => Next::Kept,
            Ok(_) => Next::RetryIn(delay),
            // The key is ready, unless the queue is shutting down. Then it may be lost, so it is
            // reported as dropped: a needless report is better than none.
            Err(_) if self.worker.queue.shutting_down() => Next::Dropped,
            Err(_) => Next::RetryIn(Duration::ZERO),
        };
        // Callbacks may be slow, and a shutdown does not have to wait for them.
        self.runner.set_idle(None);
        self.report(&fault, key.as_ref(), next);
        self.runner.set_taking();
        discard(key);
        discard(fault);
        added.is_err()
    }

    /// Reports the key as dead while it is still held. So a callback can store it before another
    /// runner processes the key again.
    fn bury(&mut self, fault: Fault) -> bool {
        self.record_fault(&fault, true);
        drop(guarded(|| self.held().forget()));
        self.report(&fault, Some(self.held().key()), Next::Dead);
        let key = self.runner.stop_running();
        drop(self.done());
        discard(key);
        discard(fault);
        false
    }

    /// Drops the guard in place, because moving it would cost as much as ending the hold.
    fn done(&mut self) -> Result<(), String> {
        guarded(|| self.held = None)
    }

    fn delay(&mut self, delay: Duration) -> Result<Added, String> {
        let held = &mut self.held;
        guarded(|| held.take().map_or(Added::Refused, |held| held.requeue_after(delay)))
    }

    fn record_fault(&self, fault: &Fault, given_up: bool) {
        let result = match fault {
            Fault::RetryRequested if !given_up => RunResult::Requeue,
            _ => RunResult::Error,
        };
        let panicked = matches!(fault, Fault::Panicked(_));
        let timed_out = matches!(fault, Fault::TimedOut);
        self.record(RunEnd { result, panicked, timed_out, given_up });
    }

    /// Records how long the attempt took. It is called before anything else, so that only the time of
    /// the handler is counted.
    fn record(&self, end: RunEnd) {
        if let Some(recorder) = &self.worker.recorder {
            let now = self.worker.queue.clock().now();
            recorder.ended(end, now.saturating_since(self.started_at));
        }
    }

    /// Calls the subscriber and the callbacks. `key` is `None` if the key could not be cloned; then
    /// no callback is called.
    fn report(&self, fault: &Fault, key: Option<&Q::Key>, next: Next) {
        let cause = fault.cause();
        let notify = || {
            // Guarded, because it formats the error of the handler.
            drop(guarded(|| self.span.failed(cause, next)));
            let Some(key) = key else { return };
            let failed = Failed { key, attempt: self.number, cause, next };
            let call = |callback: &Option<Callback<Q::Key>>| {
                if let Some(callback) = callback {
                    drop(guarded(|| callback(&failed)));
                }
            };
            call(&self.worker.on_failure);
            if next == Next::Dead {
                call(&self.worker.on_dead);
            }
        };
        drop(self.span.enter(notify));
    }
}

impl<Q: Retry> Drop for Attempt<'_, Q> {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            if let Some(recorder) = &self.worker.recorder {
                recorder.cancelled();
            }
            let key = self.runner.stop_running();
            drop(guarded(|| held.requeue()));
            drop(guarded(|| self.span.outcome("cancelled")));
            discard(key);
        }
        discard(mem::replace(&mut self.span, Span::none()));
    }
}
