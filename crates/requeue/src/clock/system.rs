//! The system's time, and the one thread that tells it.
//!
//! The thread starts with the first queue that delays something and ends with
//! the last. It sleeps until the soonest armed time; it is woken only for a
//! sooner one.

use super::Moment;
use super::timetable::{Target, Timetable};
use crate::guarded::discard;
use parking_lot::{Condvar, Mutex};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// The timer thread sleeps no shorter than this. Where timers follow each other more
/// closely, one wake-up sees to several: a busy retry loop gained an eighth. It is less
/// than half of what the kernel allows itself by default.
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
    /// Whether the thread runs. Invariant: it does while there are targets.
    running: bool,
    /// While the thread sleeps: until when.
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
            .expect("the system refused to start the timer thread");
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
        // One wake-up is enough, however many ask before the thread is up.
        state.asleep_until = None;
        TIMER.wake.notify_one();
    }
}

fn run() {
    // The kernel may be up to 50 µs late by default, to save wake-ups.
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));

    let mut state = TIMER.state.lock();
    while !state.timetable.is_empty() {
        let now = now();
        if let Some((_, id, target)) = state.timetable.pop(now) {
            drop(state);
            // A panic was reported by the panic hook; the queue is called again,
            // as it may have more to do, after those that wait already.
            let again = target.call(now).unwrap_or_else(|panic| {
                discard(panic);
                Some(now)
            });
            state = TIMER.state.lock();
            if let Some(again) = again {
                // No sooner than now: a queue with much to do lets others go first.
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
