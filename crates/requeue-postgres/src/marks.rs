//! Where claims begin to read.
//!
//! While a transaction elsewhere holds an old snapshot, Postgres cannot remove the index entries of jobs that are done, and a
//! claim that began at the start of its list would read all of them: after minutes, hundreds of thousands. So a claim begins
//! at a *mark*: the place that this process had reached a moment ago.
//!
//! A mark is a hint. A job can appear before it, because its transaction was committed later than its due time, or because
//! another process has released it. So a claim begins at the place that was reached [`NEAR`] ago, which most commits do not
//! take; every [`FAR_INTERVAL`] one begins at the place that was reached [`FAR`] ago; and now and then one begins at the start,
//! the more seldom the longer that takes. As long as that is [`CHEAP`], which it is unless a snapshot is held, a claim that finds
//! nothing looks from the start as well: that it returns nothing then means that there is nothing.

use crate::rows::{stored_number, stored_time};
use crate::store::lock;
use requeue_jobs::Timestamp;
use requeue_jobs::limits::MAX_KINDS;
use requeue_jobs::rules::Position;
use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::time::{Duration, Instant};

const NEAR: Duration = Duration::from_millis(25);
const FAR: Duration = Duration::from_secs(1);
const FAR_INTERVAL: Duration = Duration::from_millis(200);

/// Places that are reached within this time are remembered as one.
const STEP: Duration = Duration::from_millis(10);

/// Reading from the start takes at most this fraction of the time.
const SHARE: u32 = 50;

/// Reading from the start is cheap if it takes the server no longer than this.
const CHEAP: Duration = Duration::from_millis(2);

/// The longest time between two readings from the start.
const LONGEST: Duration = Duration::from_secs(10);

/// Where a statement begins to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Mark {
    pub(crate) at: i64,
    pub(crate) place: i64,
    /// Leases that end before this are not read.
    pub(crate) lease: i64,
}

/// The marks of all kinds.
#[derive(Default)]
pub(crate) struct Marks {
    kinds: Mutex<HashMap<i32, KindMarks>>,
}

#[derive(Default)]
struct KindMarks {
    /// Places that were reached, and when, the latest at the end. All up to the first one are older than [`FAR`], if it is.
    reached: VecDeque<(Instant, (i64, i64))>,
    /// At this time, no lease had expired.
    leases: i64,
    /// When statements of each purpose look further back.
    looks_at: [LooksAt; 3],
    /// Whether the latest look from the start was cheap.
    is_cheap: bool,
}

#[derive(Default, Clone, Copy)]
struct LooksAt {
    far: Option<Instant>,
    full: Option<Instant>,
}

/// What a statement reads for. Each reads from the start now and then: if only a wait did, it would report a job before the mark
/// again and again, and the claims that follow would not find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Claim,
    Wait,
    Reap,
}

impl KindMarks {
    /// The mark for reading what may have appeared since a look that was this long ago.
    fn mark(&self, ago: Duration, now: Instant) -> Mark {
        let is_old = |when: &Instant| now.saturating_duration_since(*when) >= ago;
        let reached = self.reached.iter().rev().find(|(when, _)| is_old(when));
        let (at, place) = reached.map_or((0, 0), |(_, place)| *place);
        let lease = self.leases.saturating_sub(stored_number(ago.as_millis() as u64)).max(0);
        Mark { at, place, lease }
    }
}

/// A statement that begins at a mark.
pub(crate) struct Look {
    pub(crate) mark: Mark,
    /// Whether it looks from the start if it finds nothing.
    pub(crate) rescans: bool,
    is_full: bool,
    began: Instant,
    kind: i32,
    purpose: Purpose,
}

impl Marks {
    /// Returns where a statement for this kind begins.
    pub(crate) fn look(&self, kind: i32, purpose: Purpose) -> Look {
        let began = Instant::now();
        let mut kinds = lock(&self.kinds);
        if kinds.len() >= MAX_KINDS && !kinds.contains_key(&kind) {
            kinds.clear();
        }
        let of = kinds.entry(kind).or_default();
        let is_time = |at: Option<Instant>| at.is_none_or(|at| began >= at);
        let next = &mut of.looks_at[purpose as usize];
        let is_full = is_time(next.full);
        let ago = if is_full {
            // Others need not do the same meanwhile.
            next.full = Some(began + LONGEST);
            None
        } else if is_time(next.far) {
            next.far = Some(began + FAR_INTERVAL);
            Some(FAR)
        } else {
            Some(NEAR)
        };
        let mark = ago.map_or(Mark::default(), |ago| of.mark(ago, began));
        Look { mark, rescans: of.is_cheap && !is_full, is_full, began, kind, purpose }
    }

    /// Records that a statement was completed. `reached`: it has taken all jobs up to this place. `leases`: at this time no
    /// lease had expired. `took`: the time of the server for it.
    pub(crate) fn looked(
        &self,
        look: &Look,
        reached: Option<(i64, i64)>,
        leases: Option<Timestamp>,
        took: Option<Duration>,
    ) {
        let now = Instant::now();
        let mut kinds = lock(&self.kinds);
        let Some(of) = kinds.get_mut(&look.kind) else { return };
        if look.is_full || (look.rescans && took.is_some() && reached.is_none()) {
            let took = took.unwrap_or(now.saturating_duration_since(look.began));
            of.is_cheap = took <= CHEAP;
            of.looks_at[look.purpose as usize].full = Some(now + (took * SHARE).min(LONGEST));
        }
        let since = |when: Instant| now.saturating_duration_since(when);
        if let Some(place) = reached
            && of.reached.back().is_none_or(|(when, last)| since(*when) >= STEP && place > *last)
        {
            of.reached.push_back((now, place));
            while of.reached.get(1).is_some_and(|(when, _)| since(*when) >= FAR) {
                of.reached.pop_front();
            }
        }
        if let Some(leases) = leases {
            of.leases = of.leases.max(stored_time(leases));
        }
    }

    /// Forgets all marks: after a failover, jobs may be where they were before.
    pub(crate) fn clear(&self) {
        lock(&self.kinds).clear();
    }

    /// A job has become pending at this place.
    pub(crate) fn lower(&self, kind: i32, to: Position) {
        let to = (stored_time(to.at), stored_number(to.seq) - 1);
        let mut kinds = lock(&self.kinds);
        let Some(of) = kinds.get_mut(&kind) else { return };
        for (_, place) in &mut of.reached {
            *place = (*place).min(to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(marks: &Marks) -> Look {
        marks.look(1, Purpose::Claim)
    }

    fn reach(marks: &Marks, place: (i64, i64)) {
        let look = claim(marks);
        let leases = Timestamp::from_millis(place.0.cast_unsigned());
        marks.looked(&look, Some(place), Some(leases), Some(Duration::ZERO));
    }

    /// Makes all that was recorded this much older.
    fn age(marks: &Marks, by: Duration) {
        let mut kinds = lock(&marks.kinds);
        let of = kinds.get_mut(&1).unwrap();
        let earlier = |at: Instant| at.checked_sub(by).unwrap();
        of.reached.iter_mut().for_each(|(when, _)| *when = earlier(*when));
        for next in &mut of.looks_at {
            next.far = next.far.map(earlier);
            next.full = next.full.map(earlier);
        }
    }

    /// The next look, without one from the start.
    fn look(marks: &Marks) -> Mark {
        lock(&marks.kinds).get_mut(&1).unwrap().looks_at[0].full = Some(Instant::now() + LONGEST);
        claim(marks).mark
    }

    #[test]
    fn the_first_look_begins_at_the_start_and_those_beside_it_do_not() {
        let marks = Marks::default();
        let first = claim(&marks);
        assert!(first.is_full);
        assert!(!claim(&marks).is_full);
    }

    #[test]
    fn a_place_counts_when_it_was_reached_a_moment_ago() {
        let marks = Marks::default();
        reach(&marks, (10_000, 1));
        // Every so often one looks further back.
        assert_eq!((look(&marks).at, look(&marks).at), (0, 0));
        age(&marks, NEAR);
        assert_eq!((look(&marks).at, look(&marks).lease), (10_000, 9_975));
        reach(&marks, (20_000, 1));
        age(&marks, FAR_INTERVAL);
        let (far, near) = (look(&marks), look(&marks));
        assert_eq!((far.at, near.at), (0, 20_000));
        assert_eq!((far.lease, near.lease), (19_000, 19_975));
        age(&marks, FAR);
        assert_eq!(look(&marks).at, 20_000);
    }

    #[test]
    fn a_job_that_returns_is_found_by_the_next_look() {
        let marks = Marks::default();
        reach(&marks, (10_000, 1));
        age(&marks, FAR);
        let to = Position { at: Timestamp::from_millis(5_000), seq: 7 };
        marks.lower(1, to);
        look(&marks);
        let mark = look(&marks);
        assert_eq!((mark.at, mark.place), (5_000, 6));
    }

    #[test]
    fn looks_from_the_start_take_a_small_share_of_the_time() {
        let marks = Marks::default();
        let full = claim(&marks);
        marks.looked(&full, None, None, Some(Duration::from_millis(100)));
        age(&marks, Duration::from_secs(4));
        assert!(!claim(&marks).is_full);
        age(&marks, Duration::from_secs(2));
        assert!(claim(&marks).is_full);
    }

    #[test]
    fn a_claim_that_finds_nothing_looks_from_the_start_while_that_is_cheap() {
        let marks = Marks::default();
        let full = claim(&marks);
        assert!(!full.rescans);
        marks.looked(&full, Some((1, 1)), None, Some(CHEAP));
        let empty = claim(&marks);
        assert!(empty.rescans && !empty.is_full);
        marks.looked(&empty, None, None, Some(CHEAP * 2));
        assert!(!claim(&marks).rescans);
    }

    #[test]
    fn a_claim_reads_from_the_start_although_a_wait_just_did() {
        let marks = Marks::default();
        let wait = marks.look(1, Purpose::Wait);
        assert!(wait.is_full);
        // It took so long that the next one is seconds later.
        marks.looked(&wait, None, None, Some(Duration::from_millis(100)));
        assert!(!marks.look(1, Purpose::Wait).is_full);
        assert!(claim(&marks).is_full);
    }
}
