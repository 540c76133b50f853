//! How many requests a target gets: fewer while it is overloaded, and none while it cannot be reached.
//!
//! ```text
//!              429 or 503: the limit is halved; with Retry-After, 1 after a pause
//!            +-------------------------------------------------------+
//!            |                                                       v
//!         Closed <---- limit + 1 per success, up to the maximum --- Slowed <-- any response --+
//!            |                                                       |                        |
//!            | 5 unreachable in a row                                | the same               |
//!            v                                                       v                        |
//!          Open <----------------------------------------------------+                        |
//!            |                     time is over                                               |
//!            +---------------------------------------> HalfOpen: one probe -------------------+
//!            ^       unreachable: open for twice as long  |
//!            +--------------------------------------------+
//! ```
//!
//! Plain code: it reads no clock and wakes nothing. Permits are numbered by the state in which they were
//! given (`epoch`), so that a result is counted only if it says something about the current state: ten
//! requests that were sent together and are all rejected halve the limit once.

use requeue::Moment;
use std::time::Duration;

/// How many deliveries in a row have to find the target unreachable before its circuit opens.
pub const OPEN_AFTER: u32 = 5;

/// How long the circuit is open the first time. Each time the probe fails, it is open for twice as long.
pub const FIRST_OPEN: Duration = Duration::from_secs(5);

/// The longest time that a circuit is open. A target that is back is noticed after this time.
pub const MAX_OPEN: Duration = Duration::from_secs(300);

/// How long a target is left alone after a 429 or 503 without `Retry-After`.
pub const SLOW_DOWN_PAUSE: Duration = Duration::from_secs(1);

/// The longest `Retry-After` that is obeyed. A longer one is probably a mistake, and would stop the kind
/// for days.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(3600);

/// What the result of a delivery says about its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// It accepted the job.
    Success,
    /// It responded, and rejected the job.
    Responded,
    /// It asked for fewer requests, and possibly for a pause of this length.
    SlowDown(Option<Duration>),
    /// There was no connection, or no response in time.
    Unreachable,
    /// Nothing: the request was not sent.
    None,
}

/// The state of a target's circuit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CircuitState {
    /// The target works: kinds use their whole concurrency.
    Closed,
    /// The target asked for fewer requests, or works again after an outage: the limit rises with each
    /// success.
    Slowed,
    /// The target cannot be reached: no jobs are claimed for it.
    Open,
    /// One delivery finds out whether the target can be reached again.
    HalfOpen,
}

impl CircuitState {
    /// Returns the name of the state in the API and in metrics: `closed`, `slowed`, `open` or `half_open`.
    pub fn as_str(self) -> &'static str {
        match self {
            CircuitState::Closed => "closed",
            CircuitState::Slowed => "slowed",
            CircuitState::Open => "open",
            CircuitState::HalfOpen => "half_open",
        }
    }
}

/// The right to start deliveries. It is given back with [`Circuit::finish`], once per delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Permit {
    epoch: u64,
}

#[derive(Debug)]
pub(crate) struct Circuit {
    state: CircuitState,
    /// How many deliveries may be in flight. Invariant: at least 1; without effect if closed.
    limit: u32,
    /// Until when no delivery may start, if slowed or open.
    until: Moment,
    /// How many deliveries of those that count are in flight.
    in_flight: u32,
    /// How many deliveries in a row found the target unreachable.
    failures: u32,
    /// How often the circuit was opened since it was last closed.
    openings: u32,
    /// The number of the current state. It rises when the state changes or the limit is lowered.
    epoch: u64,
    /// Permits of earlier epochs do not count as in flight: they were given before the circuit opened, and
    /// may take until their timeout.
    counted_since: u64,
}

impl Circuit {
    pub(crate) fn new() -> Self {
        Circuit {
            state: CircuitState::Closed,
            limit: 1,
            until: Moment::default(),
            in_flight: 0,
            failures: 0,
            openings: 0,
            epoch: 0,
            counted_since: 0,
        }
    }

    pub(crate) fn state(&self) -> CircuitState {
        self.state
    }

    /// Returns the time before which no delivery starts, if it is after `now`.
    pub(crate) fn until(&self, now: Moment) -> Option<Moment> {
        (self.state != CircuitState::Closed && self.until > now).then_some(self.until)
    }

    /// Returns how many deliveries may be in flight, or `None` if only the kinds' concurrency limits them.
    pub(crate) fn limit(&self) -> Option<u32> {
        match self.state {
            CircuitState::Closed => None,
            CircuitState::Slowed => Some(self.limit),
            CircuitState::Open => Some(0),
            CircuitState::HalfOpen => Some(1),
        }
    }

    /// Returns how many deliveries, up to `wanted`, may start now, and counts them as in flight.
    pub(crate) fn acquire(&mut self, now: Moment, wanted: u32) -> (u32, Permit) {
        if self.state == CircuitState::Open && now >= self.until {
            self.enter(CircuitState::HalfOpen);
        }
        let granted = match self.limit() {
            None => wanted,
            Some(_) if self.until(now).is_some() => 0,
            Some(limit) => wanted.min(limit.saturating_sub(self.in_flight)),
        };
        self.in_flight += granted;
        (granted, Permit { epoch: self.epoch })
    }

    /// Ends a delivery. `max` is how many deliveries the kinds of the target may have in flight together:
    /// the circuit is closed when the limit has reached it.
    pub(crate) fn finish(&mut self, now: Moment, permit: Permit, signal: Signal, max: u32) {
        if permit.epoch >= self.counted_since {
            debug_assert!(self.in_flight > 0);
            self.in_flight = self.in_flight.saturating_sub(1);
        }
        if let Signal::SlowDown(Some(after)) = signal
            && matches!(self.state, CircuitState::Closed | CircuitState::Slowed)
        {
            // Also that of a delivery from before: the latest time that the target names counts.
            self.until = self.until.max(now.saturating_add(after.min(MAX_RETRY_AFTER)));
        }
        if permit.epoch < self.epoch {
            return;
        }
        match signal {
            Signal::None => {}
            Signal::Unreachable => self.unreachable(now),
            Signal::SlowDown(after) => self.slow_down(now, after),
            Signal::Responded | Signal::Success => {
                self.failures = 0;
                if self.state == CircuitState::HalfOpen {
                    self.limit = 1;
                    self.enter(CircuitState::Slowed);
                }
                if signal == Signal::Success && self.state == CircuitState::Slowed {
                    self.limit = self.limit.saturating_add(1);
                    if self.limit >= max {
                        self.openings = 0;
                        self.enter(CircuitState::Closed);
                    }
                }
            }
        }
    }

    fn slow_down(&mut self, now: Moment, after: Option<Duration>) {
        self.failures = 0;
        // The delivery that was rejected was in flight, too.
        let half = (self.in_flight.saturating_add(1) / 2).max(1);
        self.limit = match (self.state, after) {
            (CircuitState::Closed, None) => half,
            (CircuitState::Slowed, None) => half.min(self.limit),
            _ => 1,
        };
        let pause = after.unwrap_or(SLOW_DOWN_PAUSE).min(MAX_RETRY_AFTER);
        self.until = self.until.max(now.saturating_add(pause));
        self.enter(CircuitState::Slowed);
    }

    fn unreachable(&mut self, now: Moment) {
        self.failures = self.failures.saturating_add(1);
        if self.failures < OPEN_AFTER && self.state != CircuitState::HalfOpen {
            return;
        }
        let factor = 1u32.checked_shl(self.openings).unwrap_or(u32::MAX);
        self.until = now.saturating_add(FIRST_OPEN.saturating_mul(factor).min(MAX_OPEN));
        self.openings = self.openings.saturating_add(1);
        self.failures = 0;
        self.enter(CircuitState::Open);
        self.in_flight = 0;
        self.counted_since = self.epoch;
    }

    fn enter(&mut self, state: CircuitState) {
        self.state = state;
        self.epoch += 1;
        debug_assert!(self.limit >= 1);
    }
}

#[cfg(test)]
mod tests;
