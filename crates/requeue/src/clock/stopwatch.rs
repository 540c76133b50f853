use super::{ManualClock, Moment};

/// Measures durations for metrics. It uses the processor's counter where that is reliable,
/// which costs a third of reading the clock.
///
/// Its moments start at its creation and drift from the clock's by some parts per million:
/// precise enough for durations, but not for due times.
#[derive(Debug)]
pub(crate) enum Stopwatch {
    Manual(ManualClock),
    Counter { clock: quanta::Clock, start: u64 },
}

impl Stopwatch {
    /// The first call in a process takes about a millisecond, to calibrate.
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
