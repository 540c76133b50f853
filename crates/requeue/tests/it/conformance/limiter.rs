//! Limiter trees, and traces of a bare limiter.

use super::trace::{Step, Tree};
use requeue::limiter::{
    Bucket, Chain, ExponentialFailure, FastSlow, KeyedLimiter, RateLimiter, default_controller,
    default_item_based,
};
use requeue::{Clock, ManualClock, Moment};
use std::sync::{Arc, Mutex};
use std::time::Duration;

type Boxed = Box<dyn RateLimiter<String>>;

/// Uses the package's own default constructor if the trace did.
pub(crate) fn build(tree: Tree) -> Boxed {
    let nanos = Duration::from_nanos;
    match tree {
        Tree::Exponential { preset: Some(_), .. } => Box::new(default_item_based()),
        Tree::MaxOf { preset: Some(_), .. } => Box::new(default_controller()),
        Tree::Exponential { base_ns, max_ns, .. } => {
            Box::new(ExponentialFailure::new(nanos(base_ns), nanos(max_ns)))
        }
        Tree::FastSlow { fast_ns, slow_ns, max_fast_attempts } => {
            let attempts = u32::try_from(max_fast_attempts.max(0)).expect("few attempts");
            Box::new(FastSlow::new(nanos(fast_ns), nanos(slow_ns), attempts))
        }
        Tree::Bucket { qps, burst } => {
            Box::new(Bucket::new(qps, burst).expect("client-go took it"))
        }
        Tree::MaxOf { limiters, .. } => {
            let none: Boxed = Box::new(Bucket::unlimited());
            limiters.into_iter().map(build).fold(none, |all, next| Box::new(all.and(next)))
        }
        Tree::WithMaxWait { limiter, max_ns } => Box::new(build(*limiter).at_most(nanos(max_ns))),
    }
}

/// The delays that a queue's limiter returned, in nanoseconds.
#[derive(Default, Clone)]
pub(crate) struct RecordedDelays(Arc<Mutex<Vec<i64>>>);

impl RecordedDelays {
    /// Wraps a limiter and records its delays.
    pub(crate) fn record(&self, limiter: Boxed) -> impl RateLimiter<String> + use<> {
        RecordingLimiter { limiter, delays: self.clone() }
    }

    /// Returns the delays since the last call.
    pub(crate) fn take(&self) -> Vec<i64> {
        std::mem::take(&mut *self.0.lock().expect("no panic with the lock held"))
    }
}

struct RecordingLimiter {
    limiter: Boxed,
    delays: RecordedDelays,
}

impl RateLimiter<String> for RecordingLimiter {
    fn when(&mut self, key: &String, failures: u32, now: Moment) -> Duration {
        let delay = self.limiter.when(key, failures, now);
        let mut delays = self.delays.0.lock().expect("no panic with the lock held");
        delays.push(delay.as_nanos() as i64);
        delay
    }

    fn counts(&self) -> bool {
        self.limiter.counts()
    }
}

pub(crate) fn replay(limiter: Boxed, steps: &[Step]) -> Result<(), String> {
    let mut limiter = KeyedLimiter::new(limiter);
    let clock = ManualClock::new();
    let now = Clock::from(&clock);
    for (number, step) in steps.iter().enumerate() {
        let key = step.key.clone().unwrap_or_default();
        let (ours, theirs) = match step.op.as_str() {
            "when" => (limiter.when(&key, now.now()).as_nanos() as i64, step.ns),
            "num_requeues" => (i64::from(limiter.num_requeues(&key)), step.n.map(|n| n as i64)),
            "forget" => {
                limiter.forget(&key);
                continue;
            }
            "advance" => {
                clock.advance(Duration::from_nanos(step.ns.unwrap_or_default() as u64));
                continue;
            }
            other => return Err(format!("step {number}: unknown operation {other:?}")),
        };
        if Some(ours) != theirs {
            return Err(format!("step {number}: returned {ours}\n  {step:?}"));
        }
    }
    Ok(())
}
