//! Lists by time: which positions a query covers, and one page of them.
//!
//! A cursor is the position of the last job of a page. Positions of a kind are unique and do not
//! depend on its other jobs, so a list continues at the same place after that job is gone.

use super::job_table::{List, Position};
use super::page::PageBuilder;
use crate::error::Invalid;
use crate::job::{JobState, JobView};
use crate::priority::Priorities;
use crate::query::{TimeCursor, TimePage, TimeQuery};
use crate::time::Timestamp;

const START: Position = Position { at: Timestamp::from_millis(0), seq: 0 };
const END: Position = Position { at: Timestamp::from_millis(u64::MAX), seq: u64::MAX };

/// The positions that a [`TimeQuery`] covers, for stores that order jobs by [`Position`].
///
/// ```
/// use requeue_jobs::rules::TimeRange;
/// use requeue_jobs::{JobState, Kind, TimeCursor, TimeQuery, Timestamp};
///
/// let mut query = TimeQuery::new(Kind::new("mail")?, JobState::Ready);
/// let now = Timestamp::from_millis(1000);
/// assert_eq!(TimeRange::of(&query, now)?.map(|range| range.last.at), Some(now));
/// query.after = Some(TimeCursor::new("nowhere")?);
/// assert!(TimeRange::of(&query, now).is_err());
/// # Ok::<(), requeue_jobs::Invalid>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeRange {
    /// The lowest position, which is not above `last`.
    pub first: Position,
    /// The highest position, which is covered too.
    pub last: Position,
    /// Whether the highest position comes first.
    pub newest_first: bool,
    state: JobState,
}

impl TimeRange {
    /// Returns the positions that `query` covers at `now`, or `None` if there are none. Fails if
    /// its cursor is not from a [`TimePageBuilder`].
    pub fn of(query: &TimeQuery, now: Timestamp) -> Result<Option<TimeRange>, Invalid> {
        let (mut first, mut last) = (Some(START), Some(END));
        let last_ready = Position { at: now, seq: u64::MAX };
        match query.state {
            JobState::Ready => last = Some(last_ready),
            JobState::Waiting => first = following(last_ready),
            JobState::Leased | JobState::Dead | JobState::Done => {}
        }
        if let Some(cursor) = &query.after {
            let at = position(cursor)?;
            if query.newest_first {
                last = preceding(at).min(last);
            } else {
                first = first.zip(following(at)).map(|(state, cursor)| state.max(cursor));
            }
        }
        let (newest_first, state) = (query.newest_first, query.state);
        let range = first.zip(last).filter(|(first, last)| first <= last);
        Ok(range.map(|(first, last)| TimeRange { first, last, newest_first, state }))
    }

    /// Iterates over the lists that contain the jobs, given the priorities of the kind.
    pub fn lists(&self, priorities: Priorities) -> impl Iterator<Item = List> + use<> {
        let (one_per_priority, other): (Option<fn(_) -> _>, _) = match self.state {
            JobState::Waiting | JobState::Ready => (Some(List::Pending), None),
            JobState::Leased => (Some(List::Leased), None),
            JobState::Dead => (None, Some(List::Dead)),
            JobState::Done => (None, Some(List::Done)),
        };
        one_per_priority.into_iter().flat_map(move |list| priorities.iter().map(list)).chain(other)
    }
}

fn position(cursor: &TimeCursor) -> Result<Position, Invalid> {
    let parse = |text: &str| {
        let (at, seq) = text.split_once('-')?;
        Some(Position { at: Timestamp::from_millis(at.parse().ok()?), seq: seq.parse().ok()? })
    };
    let position = parse(cursor.as_str());
    position.filter(|at| text(at) == cursor.as_str()).ok_or_else(|| cursor.malformed())
}

fn text(position: &Position) -> String {
    format!("{}-{}", position.at.as_millis(), position.seq)
}

/// The position right after this one.
fn following(Position { at, seq }: Position) -> Option<Position> {
    match seq.checked_add(1) {
        Some(seq) => Some(Position { at, seq }),
        None => {
            let at = at.as_millis().checked_add(1)?;
            Some(Position { at: Timestamp::from_millis(at), seq: 0 })
        }
    }
}

/// The position right before this one.
fn preceding(Position { at, seq }: Position) -> Option<Position> {
    match seq.checked_sub(1) {
        Some(seq) => Some(Position { at, seq }),
        None => {
            let at = at.as_millis().checked_sub(1)?;
            Some(Position { at: Timestamp::from_millis(at), seq: u64::MAX })
        }
    }
}

/// Collects the jobs of one page of a list by time, up to its limits of jobs and of bytes.
#[derive(Debug)]
pub struct TimePageBuilder {
    page: PageBuilder,
    last: Option<Position>,
}

impl TimePageBuilder {
    /// Returns an empty page for up to `limit` jobs, at least 1 and at most
    /// [`MAX_BATCH`](crate::limits::MAX_BATCH).
    pub fn new(limit: usize) -> Self {
        TimePageBuilder { page: PageBuilder::new(limit), last: None }
    }

    /// Adds the next job of the list, which is at this position. Returns `false` if it does not
    /// fit: then the page is complete, and the next page begins with this job.
    pub fn add(&mut self, at: Position, job: JobView) -> bool {
        let fits = self.page.add(job);
        if fits {
            self.last = Some(at);
        }
        fits
    }

    /// Returns `true` if a job did not fit.
    pub fn is_full(&self) -> bool {
        self.page.is_full()
    }

    /// Returns the page. It has a cursor if a job did not fit.
    pub fn build(self) -> TimePage {
        let cursor = self.last.filter(|_| self.page.is_full());
        let cursor = cursor.map(|at| TimeCursor::new(text(&at)).expect("two numbers are short"));
        TimePage { jobs: self.page.build().jobs, cursor }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Kind;

    fn range(state: JobState, newest_first: bool, after: &str) -> Option<(String, String)> {
        let kind = Kind::new("mail").unwrap();
        let after = (!after.is_empty()).then(|| TimeCursor::new(after).unwrap());
        let query = TimeQuery { newest_first, after, ..TimeQuery::new(kind, state) };
        let range = TimeRange::of(&query, Timestamp::from_millis(1000)).unwrap();
        range.map(|range| (text(&range.first), text(&range.last)))
    }

    #[test]
    fn a_query_covers_its_state_beyond_its_cursor() {
        let max = u64::MAX;
        let expect = |first: &str, last: String| Some((first.to_owned(), last));
        let all = format!("{max}-{max}");
        assert_eq!(range(JobState::Dead, false, ""), expect("0-0", all.clone()));
        assert_eq!(range(JobState::Ready, true, ""), expect("0-0", format!("1000-{max}")));
        assert_eq!(range(JobState::Waiting, false, ""), expect("1001-0", all.clone()));
        assert_eq!(range(JobState::Waiting, false, "7-3"), expect("1001-0", all.clone()));
        assert_eq!(range(JobState::Ready, false, "7-3"), expect("7-4", format!("1000-{max}")));
        assert_eq!(range(JobState::Leased, true, "7-0"), expect("0-0", format!("6-{max}")));
        assert_eq!(range(JobState::Done, false, &format!("7-{max}")), expect("8-0", all.clone()));
        assert_eq!(range(JobState::Ready, false, "1001-0"), None);
        assert_eq!(range(JobState::Waiting, true, "1001-0"), None);
        assert_eq!(range(JobState::Dead, true, "0-0"), None);
        assert_eq!(range(JobState::Dead, false, &all), None);
    }

    #[test]
    fn a_text_that_is_no_position_is_malformed() {
        for bad in ["x", "7", "7-", "-7", "7-3-1", "+7-3", "07-3", "18446744073709551616-1", "7-ü"]
        {
            let cursor = TimeCursor::new(bad).unwrap();
            let text = bad.to_owned();
            assert_eq!(position(&cursor), Err(Invalid::MalformedCursor { text }), "{bad}");
        }
    }
}
