//! The states of a queue from open to shut down.
//!
//! ```text
//!          drain                  no key left, or
//!          (WorkOff)              shut_down (Now)
//!   open ------------> working off --------------> down
//!     |                                             ^
//!     +---------------------------------------------+
//!          shut_down, shut_down_with_drain
//! ```

use crate::work_queue::StopMode;

/// Whether a queue accepts keys, whether its getters wait, and which waits for its end are
/// active.
#[derive(Debug)]
pub(crate) struct Ending {
    stop: Stop,
    /// Whether [`StopMode::WithDrain`] waits for holds to end.
    draining: bool,
    /// Whether [`StopMode::WorkOff`] waits until no key is ready or held.
    working_off: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    Open,
    /// Refuses adds. Getters wait as long as a held key may still become ready again.
    WorkingOff,
    /// Refuses adds. Getters get ready keys and do not wait.
    Down,
}

/// The number of keys that a queue still has to process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    /// Keys that are ready.
    pub(crate) ready: usize,
    pub(crate) held: usize,
}

impl Load {
    fn is_worked_off(self) -> bool {
        self.held == 0 && self.ready == 0
    }
}

impl Ending {
    pub(crate) const fn new() -> Self {
        Ending { stop: Stop::Open, draining: false, working_off: false }
    }

    #[inline]
    pub(crate) fn stop(&self) -> Stop {
        self.stop
    }

    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.stop == Stop::Open
    }

    pub(crate) fn shut_down(&mut self, mode: StopMode, load: Load) {
        match mode {
            StopMode::Now => (self.draining, self.working_off) = (false, false),
            StopMode::WithDrain => self.draining = true,
            StopMode::WorkOff => self.working_off = true,
        }
        self.stop = match (mode, self.stop) {
            (StopMode::Now, _) | (StopMode::WithDrain, Stop::Open) => Stop::Down,
            (StopMode::WorkOff, Stop::Open) => Stop::WorkingOff,
            (_, stop) => stop,
        };
        self.settle(load);
    }

    /// If no key is ready or held any more, getters no longer wait.
    pub(crate) fn settle(&mut self, load: Load) {
        if self.stop == Stop::WorkingOff && load.is_worked_off() {
            self.stop = Stop::Down;
        }
    }

    /// Whether the condition that `mode` waits for holds.
    pub(crate) fn is_drained(&self, mode: StopMode, load: Load) -> bool {
        match mode {
            StopMode::Now => true,
            StopMode::WithDrain => load.held == 0 || !self.draining,
            StopMode::WorkOff => load.is_worked_off() || !self.working_off,
        }
    }
}
