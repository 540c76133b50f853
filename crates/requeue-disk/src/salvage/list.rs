//! Lists the jobs of a kind by id, from three sources: the log, the ids tree, and jobs in the due
//! tree whose ids are in a part of the ids tree that is lost.

use super::replay::{KindJobs, id_of, read};
use super::{Inner, Loss};
use crate::error::{DiskError, unavailable};
use crate::tables::JobLocation;
use requeue_jobs::limits::{MAX_BATCH, MAX_RESULT_BYTES};
use requeue_jobs::rules::Record;
use requeue_jobs::{Body, JobId, JobView, Kind, Page, Query, StoreError, Timestamp};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::PoisonError;

/// How many ids of jobs that the ids tree does not have are in memory. If there are more, the due
/// tree is read again for the next ones.
const UNINDEXED: usize = 100_000;

/// Jobs that the ids tree does not have, by id: a part of those of one kind.
pub(super) struct UnindexedIds {
    kind: u32,
    /// All ids are greater than this.
    after: Option<String>,
    /// With the number of the run, the larger the newer, and the location.
    ids: BTreeMap<String, (usize, JobLocation)>,
    /// Whether there are no ids after those in `ids`.
    complete: bool,
}

impl UnindexedIds {
    /// Whether the next id after `after` can be found here.
    fn answers(&self, kind: u32, after: Option<&str>) -> bool {
        self.kind == kind
            && self.after.as_deref() <= after
            && (self.complete || self.ids.last_key_value().map(|(id, _)| &**id) > after)
    }
}

/// Where a job is read from.
enum Source {
    Log,
    Tables(JobLocation),
}

impl Inner {
    /// The first job after `after` that the ids tree does not have.
    fn next_unindexed(
        &self,
        kind: u32,
        after: Option<&str>,
    ) -> Result<Option<(String, JobLocation)>, DiskError> {
        if !self.tables.lacks_ids() {
            return Ok(None);
        }
        let mut cached = self.unindexed.lock().unwrap_or_else(PoisonError::into_inner);
        if !cached.as_ref().is_some_and(|cached| cached.answers(kind, after)) {
            let mut ids: BTreeMap<String, (usize, JobLocation)> = BTreeMap::new();
            let mut complete = true;
            self.tables.unindexed(kind, id_of, |age, id, location| {
                if after.is_some_and(|after| *id <= *after) {
                    return;
                }
                let found = ids.entry(id).or_insert((age, location));
                if age >= found.0 {
                    *found = (age, location);
                }
                if ids.len() > UNINDEXED {
                    ids.pop_last();
                    complete = false;
                }
            })?;
            let after = after.map(str::to_owned);
            *cached = Some(UnindexedIds { kind, after, ids, complete });
        }
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let ids = cached.as_ref().map(|cached| &cached.ids);
        let next = ids.and_then(|ids| ids.range::<str, _>((from, Bound::Unbounded)).next());
        Ok(next.map(|(id, (_, location))| (id.clone(), *location)))
    }

    pub(super) fn list(&self, query: &Query) -> Result<Page, StoreError> {
        self.list_page(query, self.wall_clock.now()).map_err(unavailable)
    }

    fn list_page(&self, query: &Query, now: Timestamp) -> Result<Page, DiskError> {
        let Some((number, kind)) = self.kind(&query.kind) else { return Ok(Page::default()) };
        let limit = query.limit.clamp(1, MAX_BATCH);
        let mut page = Page::default();
        let mut bytes = 0;
        // Ids that begin with the prefix are greater than or equal to it.
        let after = query.after.as_ref().map(JobId::as_str);
        let begin = after.filter(|after| *after >= query.prefix.as_str());
        let from = match begin {
            Some(after) => Bound::Excluded(after),
            None => Bound::Included(query.prefix.as_str()),
        };
        let mut logged = kind.jobs.range::<str, _>((from, Bound::Unbounded)).peekable();
        let start = begin.map_or_else(|| before(&query.prefix), |after| Some(after.to_owned()));
        let mut indexed = self.tables.ids(number, start.as_deref());
        let mut next_indexed = indexed.next()?;
        let mut next_unindexed = self.next_unindexed(number, start.as_deref())?;
        loop {
            let first = logged.peek().map(|(id, _)| id.as_str());
            let second = next_indexed.as_ref().map(|(id, _)| &**id);
            let third = next_unindexed.as_ref().map(|(id, _)| &**id);
            let Some(next) = [first, second, third].into_iter().flatten().min() else { break };
            if !next.starts_with(&query.prefix) {
                if next > query.prefix.as_str() {
                    break;
                }
            } else if page.jobs.len() == limit || bytes >= MAX_RESULT_BYTES {
                page.cursor = page.jobs.last().map(|job: &JobView| job.id.clone());
                break;
            }
            let next = next.to_owned();
            let mut source = None;
            if let Some((id, location)) = next_indexed.take_if(|(id, _)| *id == next) {
                source = Some(Source::Tables(location));
                next_indexed = indexed.next()?;
                debug_assert!(next_indexed.as_ref().is_none_or(|(after, _)| *after > id));
            }
            if let Some((id, location)) = next_unindexed.take_if(|(id, _)| *id == next) {
                source = source.or(Some(Source::Tables(location)));
                next_unindexed = self.next_unindexed(number, Some(&id))?;
            }
            if logged.next_if(|(id, _)| id.as_str() == next).is_some() {
                source = Some(Source::Log);
            }
            let Ok(id) = JobId::new(next) else { continue };
            if !id.as_str().starts_with(&query.prefix) {
                continue;
            }
            let Some(source) = source else { continue };
            if let Some(view) = self.job(number, kind, &id, source, now)?
                && query.state.is_none_or(|asked| asked == view.state)
            {
                bytes += view.version.content.len()
                    + view.next.as_ref().map_or(0, |next| next.content.len());
                let result = view.done.as_ref().and_then(|done| done.result.as_ref());
                bytes += result.map_or(0, Body::len);
                page.jobs.push(view);
            }
        }
        Ok(page)
    }

    /// Reads a job. Reports it if it is lost.
    fn job(
        &self,
        number: u32,
        kind: &KindJobs,
        id: &JobId,
        source: Source,
        now: Timestamp,
    ) -> Result<Option<JobView>, DiskError> {
        let view = |record: &Record| record.view(&kind.name, id, now);
        match source {
            // What the log has lost was reported when it was read.
            Source::Log => {
                let logged = kind.jobs.get(id).and_then(|job| job.record.as_deref());
                Ok(logged.map(view))
            }
            Source::Tables(location) => match read(&self.tables, number, id.as_str(), &location)? {
                Ok(record) => Ok(Some(view(&record))),
                Err(why) => {
                    let (kind, id, why) = (kind.name.clone(), id.clone(), why.to_owned());
                    self.report(Loss::Job { kind, id, why });
                    Ok(None)
                }
            },
        }
    }

    pub(super) fn get(&self, kind: &Kind, id: &JobId) -> Result<Option<JobView>, StoreError> {
        let query = Query { prefix: id.as_str().to_owned(), limit: 1, ..Query::new(kind.clone()) };
        let page = self.list(&query)?;
        Ok(page.jobs.into_iter().find(|job| job.id == *id))
    }
}

/// A text such that the ids after it are those that are not less than `prefix`, and few others.
fn before(prefix: &str) -> Option<String> {
    let mut before = prefix.to_owned();
    before.pop()?;
    Some(before)
}
