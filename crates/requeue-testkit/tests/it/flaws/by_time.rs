//! Flaws of lists by time.

use super::store::{CorrectStore, Deviation};
use requeue_jobs::limits::MAX_BATCH;
use requeue_jobs::{
    JobId, JobState, JobView, Query, StoreError, TimeCursor, TimePage, TimeQuery, Timestamp,
};
use std::collections::HashMap;

type ListResult = Result<TimePage, StoreError>;

/// Jobs in this state are ordered by another time.
pub(super) struct OrderedBy(pub(super) JobState, pub(super) fn(&JobView) -> Timestamp);

impl Deviation for OrderedBy {
    fn list_by_time(&mut self, correct: &CorrectStore, query: TimeQuery) -> ListResult {
        let mut page = correct.list_by_time(query.clone())?;
        if query.state == self.0 {
            page.jobs.sort_by_key(self.1);
        }
        Ok(page)
    }
}

/// The earliest is always first.
pub(super) fn newest_ignored(correct: &CorrectStore, query: TimeQuery) -> ListResult {
    correct.list_by_time(TimeQuery { newest_first: false, ..query })
}

/// Jobs of a higher priority come first.
pub(super) fn priority_first(correct: &CorrectStore, query: TimeQuery) -> ListResult {
    let mut page = correct.list_by_time(query)?;
    page.jobs.sort_by_key(|job| std::cmp::Reverse(job.version.priority));
    Ok(page)
}

/// A list of ready jobs also contains those that are waiting.
pub(super) fn waiting_are_ready(correct: &CorrectStore, query: TimeQuery) -> ListResult {
    let mut page = correct.list_by_time(query.clone())?;
    if query.state == JobState::Ready && page.cursor.is_none() {
        let waiting = TimeQuery { state: JobState::Waiting, after: None, ..query };
        page.jobs.extend(correct.list_by_time(waiting)?.jobs);
    }
    Ok(page)
}

/// A page lacks its last job.
pub(super) fn last_missing(correct: &CorrectStore, query: TimeQuery) -> ListResult {
    let mut page = correct.list_by_time(query)?;
    if page.cursor.is_some() {
        page.jobs.pop();
    }
    Ok(page)
}

/// The next page begins after all jobs of the millisecond of the cursor.
pub(super) fn ties_skipped(correct: &CorrectStore, query: TimeQuery) -> ListResult {
    let seq = if query.newest_first { 0 } else { u64::MAX };
    let mut page = correct.list_by_time(query)?;
    let at = page.cursor.as_ref().and_then(|cursor| cursor.as_str().split_once('-'));
    let skipping = at.map(|(at, _)| TimeCursor::new(format!("{at}-{seq}")));
    page.cursor = skipping.transpose()?;
    Ok(page)
}

/// The cursor is the number of jobs on the pages so far.
pub(super) fn cursor_is_number(correct: &CorrectStore, query: TimeQuery) -> ListResult {
    let read = match &query.after {
        Some(after) => after.as_str().parse().map_err(|_| after.malformed())?,
        None => 0_usize,
    };
    let (mut page, mut skipped) = (TimePage::default(), 0);
    let mut one = TimeQuery { after: None, limit: 1, ..query.clone() };
    loop {
        let next = correct.list_by_time(one.clone())?;
        match skipped < read {
            true => skipped += next.jobs.len(),
            false => page.jobs.extend(next.jobs),
        }
        one.after = next.cursor;
        if one.after.is_none() {
            return Ok(page);
        }
        if page.jobs.len() >= query.limit.clamp(1, MAX_BATCH) {
            page.cursor = Some(TimeCursor::new((read + page.jobs.len()).to_string())?);
            return Ok(page);
        }
    }
}

/// A cursor whose job is in another state, or removed, is the end of the list.
#[derive(Default)]
pub(super) struct CursorNeedsItsJob {
    jobs: HashMap<String, JobId>,
}

impl Deviation for CursorNeedsItsJob {
    fn list_by_time(&mut self, correct: &CorrectStore, query: TimeQuery) -> ListResult {
        let at = query.after.as_ref().and_then(|after| self.jobs.get(after.as_str()));
        if let Some(id) = at {
            let job = correct.get(&(query.kind.clone(), id.clone()));
            if job.is_none_or(|job| job.state != query.state) {
                return Ok(TimePage::default());
            }
        }
        let page = correct.list_by_time(query)?;
        if let (Some(cursor), Some(last)) = (&page.cursor, page.jobs.last()) {
            self.jobs.insert(cursor.as_str().to_owned(), last.id.clone());
        }
        Ok(page)
    }
}

/// A list with a malformed cursor begins with the first job.
pub(super) fn any_cursor_is_valid(correct: &CorrectStore, query: TimeQuery) -> ListResult {
    correct
        .list_by_time(query.clone())
        .or_else(|_| correct.list_by_time(TimeQuery { after: None, ..query }))
}

/// A page ends only at the limit of the query.
pub(super) fn only_query_limits(correct: &CorrectStore, query: TimeQuery) -> ListResult {
    let mut page = correct.list_by_time(query.clone())?;
    while page.jobs.len() < query.limit
        && let Some(after) = page.cursor.take()
    {
        let limit = query.limit - page.jobs.len();
        let more =
            correct.list_by_time(TimeQuery { after: Some(after), limit, ..query.clone() })?;
        page.jobs.extend(more.jobs);
        page.cursor = more.cursor;
    }
    Ok(page)
}

/// A list returns the jobs of all kinds of the store.
pub(super) fn all_kinds(correct: &CorrectStore, query: TimeQuery) -> ListResult {
    let mut page = correct.list_by_time(query.clone())?;
    for other in correct.kinds().into_iter().filter(|view| view.kind != query.kind) {
        let state = Some(query.state);
        page.jobs.extend(correct.list(Query { state, ..Query::new(other.kind) }).jobs);
    }
    Ok(page)
}
