use super::{QueueMetrics, Tens};
use crate::clock::Moment;
use std::time::Duration;

/// The counts and times that a named queue records, under its lock.
#[derive(Default)]
pub(crate) struct Recorder {
    /// By slot.
    stamps: Vec<Stamp>,
    adds: u64,
    coalesced: u64,
    dropped: u64,
    queue_duration: Tens,
    work_duration: Tens,
    /// Only used by a queue that delays keys itself.
    lateness: Tens,
}

/// When a key was last added, and when it was last handed out.
#[derive(Clone, Copy, Default)]
struct Stamp {
    added_at: Moment,
    taken_at: Moment,
}

impl Recorder {
    #[inline]
    pub(crate) fn added(&mut self, slot: u32, now: Moment) {
        let slot = slot as usize;
        if slot >= self.stamps.len() {
            self.stamps.resize((slot + 1).next_power_of_two(), Stamp::default());
        }
        self.stamps[slot].added_at = now;
        self.adds += 1;
    }

    pub(crate) fn coalesced(&mut self) {
        self.coalesced += 1;
    }

    pub(crate) fn dropped(&mut self, keys: usize) {
        self.dropped += keys as u64;
    }

    pub(crate) fn late(&mut self, due: Moment, now: Moment) {
        self.lateness.observe(nanos(due, now));
    }

    #[inline]
    pub(crate) fn taken(&mut self, slot: u32, now: Moment) {
        let stamp = &mut self.stamps[slot as usize];
        stamp.taken_at = now;
        self.queue_duration.observe(nanos(stamp.added_at, now));
    }

    #[inline]
    pub(crate) fn done(&mut self, slot: u32, now: Moment) {
        self.work_duration.observe(nanos(self.stamps[slot as usize].taken_at, now));
    }

    pub(crate) fn since_added(&self, slot: u32, now: Moment) -> Duration {
        now.saturating_since(self.stamps[slot as usize].added_at)
    }

    pub(crate) fn since_taken(&self, slot: u32, now: Moment) -> Duration {
        now.saturating_since(self.stamps[slot as usize].taken_at)
    }

    /// Returns the counts. The queue adds the values that it derives from its keys.
    pub(crate) fn counts(&self) -> QueueMetrics {
        QueueMetrics {
            adds: self.adds,
            coalesced: self.coalesced,
            dropped: self.dropped,
            queue_duration: self.queue_duration.read(),
            work_duration: self.work_duration.read(),
            lateness: self.lateness.read(),
            ..QueueMetrics::default()
        }
    }
}

fn nanos(since: Moment, now: Moment) -> u64 {
    now.as_nanos().saturating_sub(since.as_nanos())
}
