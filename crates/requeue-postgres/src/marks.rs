//! Where claims begin to read.
//!
//! While a transaction elsewhere holds an old snapshot, Postgres cannot remove the index entries of jobs that are done, and a
//! claim that began at the start of its list would read all of them: after minutes, hundreds of thousands. So a claim begins
//! at a *mark*: the place that this process had reached a moment ago.
//!
//! A mark is a hint. A job can appear before it: its transaction was committed later than its due time, or another process
//! has released it. So now and then a claim reads from the start, the more seldom the longer that takes.

use crate::store::lock;
use requeue_jobs::Timestamp;
use requeue_jobs::limits::MAX_KINDS;
use requeue_jobs::rules::Position;
use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A mark is this old: transactions that take longer to commit than this are found by reading from the start.
const LAG: Duration = Duration::from_millis(200);

/// Leases that ended longer ago than this before the latest look are read from the start only.
const LEASE_LAG: Duration = Duration::from_secs(1);

/// Reading from the start takes at most this fraction of the time.
const SHARE: u32 = 50;

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
    mark: Mark,
    /// Places that were reached later than the mark, with the times when.
    reached: VecDeque<(Instant, i64, i64)>,
    /// When to read from the start.
    full_look_at: Option<Instant>,
}

/// A statement that begins at a mark.
pub(crate) struct Look {
    pub(crate) mark: Mark,
    began: Instant,
    kind: i32,
}

impl Marks {
    /// Returns where a statement for this kind begins.
    pub(crate) fn look(&self, kind: i32) -> Look {
        let began = Instant::now();
        let mut kinds = lock(&self.kinds);
        if kinds.len() >= MAX_KINDS && !kinds.contains_key(&kind) {
            kinds.clear();
        }
        let of = kinds.entry(kind).or_default();
        while let Some((when, at, place)) = of.reached.front().copied()
            && began.saturating_duration_since(when) > LAG
        {
            (of.mark.at, of.mark.place) = (at, place);
            of.reached.pop_front();
        }
        let mark = match of.full_look_at {
            Some(at) if began < at => of.mark,
            _ => Mark::default(),
        };
        Look { mark, began, kind }
    }

    /// Records that a statement was completed. `reached`: it has taken all jobs up to this place. `leases`: at this time no
    /// lease had expired.
    pub(crate) fn looked(
        &self,
        look: &Look,
        reached: Option<(i64, i64)>,
        leases: Option<Timestamp>,
    ) {
        let now = Instant::now();
        let mut kinds = lock(&self.kinds);
        let Some(of) = kinds.get_mut(&look.kind) else { return };
        if look.mark == Mark::default() {
            let took = now.saturating_duration_since(look.began);
            of.full_look_at = Some(now + (took * SHARE).min(LONGEST));
        }
        if let Some((at, place)) = reached
            && of
                .reached
                .back()
                .is_none_or(|(when, ..)| now.saturating_duration_since(*when) > LAG / 20)
        {
            of.reached.push_back((now, at, place));
        }
        if let Some(leases) = leases {
            let lag = u64::try_from(LEASE_LAG.as_millis()).unwrap_or(0);
            of.mark.lease = crate::rows::stored_number(leases.as_millis().saturating_sub(lag));
        }
    }

    /// A job has become pending at this place.
    pub(crate) fn lower(&self, kind: i32, to: Position) {
        let to = (crate::rows::stored_time(to.at), crate::rows::stored_number(to.seq) - 1);
        let mut kinds = lock(&self.kinds);
        let Some(of) = kinds.get_mut(&kind) else { return };
        if to < (of.mark.at, of.mark.place) {
            (of.mark.at, of.mark.place) = to;
        }
        of.reached.retain(|(_, at, place)| (*at, *place) <= to);
    }
}
