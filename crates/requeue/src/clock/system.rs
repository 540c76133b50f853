//! The system clock, and the timer thread of the process.
//!
//! The thread starts with the first queue that delays a key and ends with the last. It sleeps
//! until the earliest armed time and is woken only for an earlier one.

use super::Moment;
use super::timetable::{Target, Timetable};
use crate::guarded::discard;
use parking_lot::{Condvar, Mutex};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// The shortest sleep of the timer thread. If timers follow each other more closely, one
/// wake-up handles several; a busy retry loop became an eighth faster. It is less than half of
/// the kernel's default timer slack.
const SHORTEST_SLEEP: Duration = Duration::from_micros(20);

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

static TIMER: Timer = Timer {
    state: Mutex::new(State { timetable: Timetable::new(), running: false, asleep_until: None }),
    wake: Condvar::new(),
};

struct Timer {
    state: Mutex<State>,
    wake: Condvar,
}

struct State {
    timetable: Timetable,
    /// Whether the thread runs. Invariant: it runs while there are targets.
    running: bool,
    /// While the thread sleeps: the time until which it sleeps.
    asleep_until: Option<Moment>,
}

#[inline]
pub(super) fn now() -> Moment {
    let elapsed = START.elapsed();
    Moment::from_nanos(elapsed.as_secs() * 1_000_000_000 + u64::from(elapsed.subsec_nanos()))
}

pub(super) fn register(target: Target) -> u64 {
    let mut state = TIMER.state.lock();
    if !state.running {
        std::thread::Builder::new()
            .name("requeue-timer".to_owned())
            .spawn(run)
            .expect("the operating system refused to start the timer thread");
        state.running = true;
    }
    state.timetable.register(target)
}

pub(super) fn remove(id: u64) -> Option<Target> {
    let mut state = TIMER.state.lock();
    let target = state.timetable.remove(id);
    if state.timetable.is_empty() {
        TIMER.wake.notify_one();
    }
    target
}

#[cold]
pub(super) fn arm(id: u64, at: Moment) {
    let mut state = TIMER.state.lock();
    state.timetable.arm(id, at);
    if state.asleep_until.is_some_and(|until| at < until) {
        // One wake-up is enough, however many callers arm a timer before the thread is awake.
        state.asleep_until = None;
        TIMER.wake.notify_one();
    }
}

fn run() {
    // By default, the kernel may be up to 50 µs late, to save wake-ups.
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));

    let mut state = TIMER.state.lock();
    while !state.timetable.is_empty() {
        let now = now();
        if let Some((_, id, target)) = state.timetable.pop(now) {
            drop(state);
            // The panic hook has reported the panic. The queue is called again, after the other
            // targets that are due, because it may have more to do.
            let again = target.call(now).unwrap_or_else(|panic| {
                discard(panic);
                Some(now)
            });
            state = TIMER.state.lock();
            if let Some(again) = again {
                // Not before now: a queue with much to do lets other queues go first.
                state.timetable.arm(id, again.max(now));
            }
            continue;
        }
        let next = state.timetable.next().unwrap_or(Moment::END);
        let next = next.max(now.saturating_add(SHORTEST_SLEEP));
        state.asleep_until = Some(next);
        match START.checked_add(Duration::from_nanos(next.as_nanos())) {
            Some(at) if next < Moment::END => drop(TIMER.wake.wait_until(&mut state, at)),
            _ => TIMER.wake.wait(&mut state),
        }
        state.asleep_until = None;
    }
    state.running = false;
}
