//! The occurrences of a schedule: its times, moved by its jitter, within its begin and end.
//!
//! ```text
//!   cron expression or period ──▶ time ──+ jitter──▶ occurrence
//!                                            (the same for all occurrences of a schedule)
//! ```

use super::Missed;
use super::times::CronTimes;
use crate::time::Timestamp;
use std::time::Duration;

/// An occurrence that is later than this was missed: nothing has ticked the schedule in time.
pub(crate) const LATE: Duration = Duration::from_secs(60);

/// The times of a schedule, without its jitter, begin and end.
#[derive(Debug, Clone)]
pub(crate) enum Times {
    Cron(Box<CronTimes>),
    /// Every so often, from its begin on: at least a second.
    Every(Duration),
}

/// The occurrences of a schedule.
#[derive(Debug, Clone)]
pub(crate) struct Occurrences {
    pub(crate) times: Times,
    /// How much later than its times it occurs: less than its jitter.
    pub(crate) offset: Duration,
    /// No time is before this. A period is counted from here.
    pub(crate) starts_at: Timestamp,
    /// No time is after this.
    pub(crate) ends_at: Option<Timestamp>,
}

/// What to do with a schedule that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The occurrence for which a job is put, if any.
    pub(crate) run: Option<Timestamp>,
    /// The next occurrence; `None` if there are no more.
    pub(crate) next: Option<Timestamp>,
}

/// Returns how much later than its times a schedule occurs: a number below `jitter` that depends on its
/// name alone, so that schedules with the same times are spread, and each has the same distance between
/// its occurrences.
pub(crate) fn offset(kind: &str, id: &str, jitter: Duration) -> Duration {
    let name = [kind.as_bytes(), &[0], id.as_bytes()].concat();
    let hash = hash(&name);
    Duration::from_millis(hash.checked_rem(millis(jitter)).unwrap_or(0))
}

/// FNV-1a: the same in every version and process.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Occurrences {
    /// Returns the first occurrence after `after`.
    pub(crate) fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        let offset = millis(self.offset);
        let base = Timestamp::from_millis(after.as_millis().saturating_sub(offset));
        let is_before_begin = after.as_millis() < self.starts_at.as_millis().saturating_add(offset);
        let time = match &self.times {
            // The begin itself may be one of the times.
            Times::Cron(times) if is_before_begin => {
                let before = self.starts_at.as_millis().checked_sub(1);
                times.next_after(Timestamp::from_millis(before?))?
            }
            Times::Cron(times) => times.next_after(base)?,
            Times::Every(_) if is_before_begin => self.starts_at,
            Times::Every(period) => {
                let period = millis(*period).max(1);
                let passed = base.as_millis().saturating_sub(self.starts_at.as_millis()) / period;
                let millis = passed.checked_add(1)?.checked_mul(period)?;
                Timestamp::from_millis(self.starts_at.as_millis().checked_add(millis)?)
            }
        };
        if self.ends_at.is_some_and(|end| time > end) {
            return None;
        }
        Some(time.saturating_add(self.offset))
    }

    /// Returns the time of an occurrence: without the jitter.
    pub(crate) fn time_of(&self, occurrence: Timestamp) -> Timestamp {
        Timestamp::from_millis(occurrence.as_millis().saturating_sub(millis(self.offset)))
    }

    /// Plans a schedule whose next occurrence is `due`, which is over.
    pub(crate) fn plan(
        &self,
        due: Timestamp,
        missed: Missed,
        catch_up: Duration,
        now: Timestamp,
    ) -> Plan {
        match missed {
            // One at a time: the next one is due immediately, too.
            Missed::All if now.saturating_since(due) <= catch_up.max(LATE) => {
                Plan { run: Some(due), next: self.next_after(due) }
            }
            Missed::All => {
                let window = millis(catch_up.max(LATE)).saturating_add(1);
                let before = Timestamp::from_millis(now.as_millis().saturating_sub(window));
                Plan { run: None, next: self.next_after(before.max(due)) }
            }
            Missed::One | Missed::Skip => {
                let window = if missed == Missed::One { catch_up.max(LATE) } else { LATE };
                let last = self.last(due, now);
                let is_in_time = now.saturating_since(last) <= window;
                Plan { run: is_in_time.then_some(last), next: self.next_after(now) }
            }
        }
    }

    /// Returns the last occurrence from `due` up to `now`.
    fn last(&self, due: Timestamp, now: Timestamp) -> Timestamp {
        // From shortly before `now`, and from ever earlier: there may be millions since `due`.
        let mut back = Duration::from_secs(1);
        loop {
            let from = Timestamp::from_millis(now.as_millis().saturating_sub(millis(back)));
            if from <= due {
                return self.last_of(due, now);
            }
            match self.next_after(from) {
                Some(first) if first <= now => return self.last_of(first, now),
                _ => back = back.saturating_mul(4),
            }
        }
    }

    /// Returns the last occurrence up to `now`, from one that is near.
    fn last_of(&self, mut last: Timestamp, now: Timestamp) -> Timestamp {
        while let Some(next) = self.next_after(last)
            && next <= now
        {
            last = next;
        }
        last
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use super::*;

    fn secs(secs: u64) -> Timestamp {
        Timestamp::from_millis(1_800_000_000_000 + secs * 1000)
    }

    fn every(period: u64) -> Occurrences {
        Occurrences {
            times: Times::Every(Duration::from_secs(period)),
            offset: Duration::ZERO,
            starts_at: secs(0),
            ends_at: None,
        }
    }

    #[test]
    fn a_period_is_counted_from_the_begin_up_to_the_end() {
        let mut occurrences = every(90);
        occurrences.ends_at = Some(secs(200));
        let next = |at| occurrences.next_after(at);
        assert_eq!(next(Timestamp::default()), Some(secs(0)), "the first is the begin");
        assert_eq!([0, 89, 90].map(|at| next(secs(at))), [90, 90, 180].map(|at| Some(secs(at))));
        assert_eq!(next(secs(180)), None);
    }

    #[test]
    fn jitter_moves_all_occurrences_of_a_schedule_by_the_same_time() {
        let jitter = Duration::from_secs(60);
        let offsets: Vec<_> = (0..100).map(|n| offset("mail", &n.to_string(), jitter)).collect();
        assert!(offsets.iter().all(|offset| *offset < jitter));
        assert!(offsets.iter().any(|offset| *offset > jitter / 2));
        assert_eq!(offset("mail", "7", jitter), offsets[7]);
        assert_ne!(offset("mai", "l7", jitter), offset("mail", "7", jitter));
        assert_eq!(offset("mail", "7", Duration::ZERO), Duration::ZERO);
        // It must not change with a version: a schedule would occur twice, or not at all.
        assert_eq!(offset("mail", "daily", jitter), Duration::from_millis(37_231));

        let mut occurrences = every(90);
        (occurrences.offset, occurrences.ends_at) = (Duration::from_secs(7), Some(secs(180)));
        let mut at = Timestamp::default();
        for expected in [7, 97, 187] {
            at = occurrences.next_after(at).unwrap();
            assert_eq!(at, secs(expected));
        }
        assert_eq!(occurrences.next_after(at), None, "the end is that of the times");
    }

    #[test]
    fn a_cron_expression_begins_with_a_time_at_the_begin() {
        let times = CronTimes::parse("*/10 * * * *", "UTC").unwrap();
        let (starts_at, offset) = (secs(1200), Duration::ZERO);
        let mut occurrences =
            Occurrences { times: Times::Cron(Box::new(times)), offset, starts_at, ends_at: None };
        assert_eq!(occurrences.next_after(secs(0)), Some(secs(1200)));
        assert_eq!(occurrences.next_after(secs(1200)), Some(secs(1800)));
        occurrences.starts_at = secs(1201);
        assert_eq!(occurrences.next_after(secs(0)), Some(secs(1800)));
    }

    #[test]
    fn a_schedule_that_is_ticked_in_time_runs_each_occurrence_once() {
        for missed in [Missed::One, Missed::Skip, Missed::All] {
            let plan = every(90).plan(secs(90), missed, Duration::ZERO, secs(91));
            assert_eq!(plan, Plan { run: Some(secs(90)), next: Some(secs(180)) }, "{missed:?}");
        }
    }

    #[test]
    fn after_a_night_one_skip_and_all_differ() {
        let (occurrences, night) = (every(600), secs(8 * 3600 + 300));
        let plan = |due, missed, catch_up| occurrences.plan(due, missed, catch_up, night);
        let next = Some(secs(8 * 3600 + 600));
        let one = plan(secs(600), Missed::One, Duration::MAX);
        assert_eq!(one, Plan { run: Some(secs(8 * 3600)), next });
        let one = plan(secs(600), Missed::One, Duration::from_secs(300));
        assert_eq!(one.run, Some(secs(8 * 3600)), "it was missed five minutes ago");
        let one = plan(secs(600), Missed::One, Duration::from_secs(299));
        assert_eq!(one, Plan { run: None, next });
        let skip = plan(secs(600), Missed::Skip, Duration::ZERO);
        assert_eq!(skip, Plan { run: None, next });

        // All within two hours: those before are skipped, and then there is one after the other.
        let window = Duration::from_secs(7200);
        let mut step = plan(secs(600), Missed::All, window);
        assert_eq!(step, Plan { run: None, next: Some(secs(6 * 3600 + 600)) });
        let mut runs = 0;
        while let Some(due) = step.next.filter(|due| *due <= night) {
            step = plan(due, Missed::All, window);
            assert_eq!(step.run, Some(due));
            runs += 1;
        }
        assert_eq!((runs, step.next), (12, next));
    }

    #[test]
    fn the_last_of_millions_is_found_without_looking_at_all() {
        let mut occurrences = every(1);
        occurrences.times = Times::Every(Duration::from_secs(1));
        let year = secs(365 * 86_400);
        let plan = occurrences.plan(secs(1), Missed::One, Duration::MAX, year);
        assert_eq!(plan.run, Some(year));
    }
}
