use super::{ManualClock, Moment};

/// Tells how much time has passed, for metrics: at a third of what the clock costs, by
/// the processor's own counter where that can be relied on.
///
/// Its moments begin when it is made, and drift from the clock's by some millionths:
/// good for durations, and not for what is due.
#[derive(Debug)]
pub(crate) enum Stopwatch {
    Manual(ManualClock),
    Counter { clock: quanta::Clock, start: u64 },
}

impl Stopwatch {
    /// The first in a process takes a millisecond or so, to calibrate.
    pub(super) fn counter() -> Self {
        let clock = quanta::Clock::new();
        let start = clock.raw();
        Stopwatch::Counter { clock, start }
    }

    #[inline]
    pub(crate) fn now(&self) -> Moment {
        match self {
            Stopwatch::Manual(clock) => clock.now(),
            Stopwatch::Counter { clock, start } => {
                Moment::from_nanos(clock.delta_as_nanos(*start, clock.raw()))
            }
        }
    }
}
