//! `add-after-1m`, `reschedule-1m`: many timers, none of which becomes due.

use requeue_bench::delays::{Delays, Timer, make_timers};
use requeue_bench::meter::passes;
use std::time::{Duration, Instant};

pub(super) fn add_after<Q: Delays>(n: usize, budget: Duration) -> f64 {
    let timers = make_timers(n);
    let pass = |timers: &[Timer]| {
        let mut queue = Q::empty(timers.len());
        let started = Instant::now();
        queue.add_all(timers);
        started.elapsed()
    };
    pass(&timers[..n / 10]);
    passes(n, budget, || pass(&timers))
}

/// Each key again, at 9/10 of its delay.
pub(super) fn reschedule<Q: Delays>(n: usize, budget: Duration) -> f64 {
    let timers = make_timers(n);
    let sooner: Vec<Timer> =
        timers.iter().map(|(key, delay)| (key.clone(), *delay / 10 * 9)).collect();
    let pass = |n: usize| {
        let mut queue = Q::empty(n);
        queue.add_all(&timers[..n]);
        let started = Instant::now();
        for (i, timer) in sooner[..n].iter().enumerate() {
            queue.reschedule(i, timer);
        }
        let elapsed = started.elapsed();
        assert_eq!(queue.waiting(), n);
        elapsed
    };
    pass(n / 10);
    passes(n, budget, || pass(n))
}
