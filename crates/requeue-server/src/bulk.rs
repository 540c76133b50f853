//! Listing, counting, changing and deleting the jobs of a kind by filter, in steps of bounded size.
//!
//! The routes of the server use it, and so do programs that do the same on a store without a server.

mod by_time;
mod counts;
mod error_groups;

pub(crate) use by_time::list_by_time;
pub use counts::{count, stored_count};
pub(crate) use error_groups::error_groups;

use requeue_http::wire::{BulkChangeResult, BulkFilter, KindDeleted};
use requeue_jobs::rules::ResultSize;
use requeue_jobs::{
    Change, ChangeError, ChangeKind, Changed, JobId, JobView, Kind, Page, Query, Settings, Store,
    StoreError,
};

/// Maximum number of jobs that one call scans. Reading that many from disk takes some tenths of a
/// second. Clients call again for more.
pub const MAX_SCANNED: usize = 10_000;

/// Number of jobs per query to the store: all of their bodies are in memory.
pub(crate) const PAGE: usize = 100;

/// Returns whether a list of up to `limit` jobs may examine many more than a page of them.
pub(crate) fn examines_many(filter: &BulkFilter, by_time: bool, limit: usize) -> bool {
    let is_filtered = if by_time { !filter.prefix.is_empty() } else { filter.state.is_some() };
    limit > PAGE || is_filtered || filter.needs_scan()
}

/// How far a scan came.
struct Scanned {
    /// The number of jobs that were read.
    jobs: u64,
    /// Where to continue.
    cursor: Option<String>,
}

/// Reads the jobs of a query, at most [`MAX_SCANNED`], and passes them to `look`.
async fn scan(
    store: &dyn Store,
    mut query: Query,
    mut look: impl FnMut(&JobView) + Send,
) -> Result<Scanned, StoreError> {
    let mut left = MAX_SCANNED;
    loop {
        query.limit = left.min(PAGE);
        let page = store.list(query.clone()).await?;
        left = left.saturating_sub(page.jobs.len());
        page.jobs.iter().for_each(&mut look);
        if page.cursor.is_none() || left == 0 {
            let cursor = page.cursor.map(|id| id.as_str().to_owned());
            return Ok(Scanned { jobs: (MAX_SCANNED - left) as u64, cursor });
        }
        query.after = page.cursor;
    }
}

/// Returns matching jobs whose ids come after `after`: at most `limit`, and fewer if they are large
/// or if few jobs match. If there may be more, the page has a cursor.
pub(crate) async fn list(
    store: &dyn Store,
    kind: Kind,
    filter: &BulkFilter,
    after: Option<JobId>,
    limit: usize,
) -> Result<Page, StoreError> {
    let mut scans = MAX_SCANNED;
    list_within(store, kind, filter, after, limit, &mut scans).await
}

/// Does the same and scans at most `scans` jobs, which it counts down.
async fn list_within(
    store: &dyn Store,
    kind: Kind,
    filter: &BulkFilter,
    after: Option<JobId>,
    limit: usize,
    scans: &mut usize,
) -> Result<Page, StoreError> {
    let mut page = Page { jobs: Vec::new(), cursor: after };
    let mut size = ResultSize::default();
    loop {
        // If the store does the filtering, every job that it returns is needed: query no more.
        let left = limit - page.jobs.len();
        let page_size = if filter.needs_scan() { PAGE } else { left.min(PAGE) };
        let query = filter.query(kind.clone(), page.cursor.take());
        let query = Query { limit: page_size, ..query };
        let found = store.list(query).await?;
        let found_count = found.jobs.len();
        *scans = scans.saturating_sub(found_count);
        page.cursor = found.cursor;
        let mut matching = found.jobs.into_iter().filter(|job| filter.matches(job)).peekable();
        while page.jobs.len() < limit
            && let Some(job) = matching.next_if(|job| size.fits(job.content_bytes()))
        {
            size.add(job.content_bytes());
            page.jobs.push(job);
        }
        if matching.peek().is_some() {
            // The next page begins with this job.
            page.cursor = page.jobs.last().map(|job| job.id.clone());
        }
        // The store ended its page early because the jobs are large: the next would not fit.
        let is_large = found_count < page_size && !page.jobs.is_empty();
        let is_full = page.jobs.len() >= limit || size.is_full() || is_large || *scans == 0;
        if is_full || page.cursor.is_none() {
            return Ok(page);
        }
    }
}

/// Changes matching jobs whose ids come after `after`, at most `limit` of them.
pub async fn change(
    store: &dyn Store,
    kind: Kind,
    action: ChangeKind,
    filter: &BulkFilter,
    after: Option<JobId>,
    limit: usize,
) -> Result<BulkChangeResult, StoreError> {
    let mut done = BulkChangeResult::default();
    let mut cursor = after;
    // For all pages together, because few jobs may match.
    let (mut scans, mut has_begun) = (MAX_SCANNED, false);
    loop {
        let left = limit.saturating_sub(done.matched as usize).min(PAGE);
        let after = cursor.take();
        let page = list_within(store, kind.clone(), filter, after.clone(), left, &mut scans).await;
        let page = match (page, after) {
            (Ok(page), _) => page,
            // A list changes nothing: the next call continues here, or reports why it cannot.
            (Err(_), Some(after)) if has_begun => {
                done.cursor = Some(after.as_str().to_owned());
                return Ok(done);
            }
            (Err(error), _) => return Err(error),
        };
        has_begun = true;
        let matched = page.jobs.len();
        let change =
            |job: JobView| Change { kind: kind.clone(), id: job.id, action: action.clone() };
        let results = store.change(page.jobs.into_iter().map(change).collect()).await;
        let results = results.map_err(|error| after_some(error, done.changed))?;
        let changed = results.iter().filter(|result| result.is_ok()).count();
        // A failure of the store says nothing about the job: it must not count as a failed change.
        let failed = results.into_iter().find_map(|result| match result {
            Err(ChangeError::Store(error)) => Some(error),
            _ => None,
        });
        if let Some(error) = failed {
            return Err(after_some(error, done.changed + changed as u64));
        }
        done.matched += matched as u64;
        done.changed += changed as u64;
        done.failed += (matched - changed) as u64;
        cursor = page.cursor;
        if cursor.is_none() || done.matched as usize >= limit || scans == 0 {
            done.cursor = cursor.map(|id| id.as_str().to_owned());
            return Ok(done);
        }
    }
}

/// Deletes a kind: its schedules, its jobs whose ids come after `after`, and at last its settings.
/// If one call does not finish, the result has a cursor.
pub async fn delete(
    store: &dyn Store,
    kind: Kind,
    after: Option<JobId>,
) -> Result<KindDeleted, StoreError> {
    let mut done = 0;
    let deleted = delete_some(store, kind, after, &mut done).await;
    deleted.map_err(|error| after_some(error, done))
}

/// Does the same; `done` counts what was deleted so far.
async fn delete_some(
    store: &dyn Store,
    kind: Kind,
    after: Option<JobId>,
    done: &mut u64,
) -> Result<KindDeleted, StoreError> {
    for schedule in store.schedules(kind.clone()).await? {
        store.remove_schedule(kind.clone(), schedule.id).await?;
        *done += 1;
    }
    let mut deleted = KindDeleted::default();
    let mut query = Query { limit: PAGE, after, ..Query::new(kind.clone()) };
    let (mut scans, mut has_begun) = (0, false);
    loop {
        let page = match (store.list(query.clone()).await, &query.after) {
            (Ok(page), _) => page,
            // As for changes.
            (Err(_), Some(after)) if has_begun => {
                deleted.cursor = Some(after.as_str().to_owned());
                return Ok(deleted);
            }
            (Err(error), _) => return Err(error),
        };
        has_begun = true;
        scans += page.jobs.len();
        let cancel =
            |job: JobView| Change { kind: kind.clone(), id: job.id, action: ChangeKind::Cancel };
        let results = store.change(page.jobs.into_iter().map(cancel).collect()).await?;
        for result in results {
            *done += u64::from(result.is_ok());
            match result {
                Ok(Changed::Ending) => deleted.ending += 1,
                Ok(_) => deleted.removed += 1,
                Err(ChangeError::Store(error)) => return Err(error),
                // The job ended in the meantime.
                Err(_) => {}
            }
        }
        match page.cursor {
            None => break,
            Some(cursor) if scans < MAX_SCANNED => query.after = Some(cursor),
            Some(cursor) => {
                deleted.cursor = Some(cursor.as_str().to_owned());
                return Ok(deleted);
            }
        }
    }
    store.set(kind, Settings::default()).await?;
    Ok(deleted)
}

/// Turns `Unavailable`, which means that nothing was done, into `Unknown` if something was done
/// before.
fn after_some(error: StoreError, done: u64) -> StoreError {
    match error {
        StoreError::Unavailable { reason } if done > 0 => StoreError::Unknown {
            reason: format!("{done} changes were made before the store failed: {reason}"),
        },
        error => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::tests::PartlyFailingStore;
    use requeue_http::wire::{JobFilter, ParseContext};
    use requeue_jobs::{Body, Claim, MemoryStore, Put, Settle, Settlement, Timestamp, WorkerName};
    use requeue_testkit::{Fault, Faulty, block_on};
    use std::sync::Arc;

    pub(super) fn mail() -> Kind {
        Kind::new("mail").expect("a valid kind")
    }

    fn id(n: usize) -> JobId {
        JobId::new(format!("{n:05}")).expect("a valid id")
    }

    pub(super) fn put(store: &MemoryStore, jobs: impl Iterator<Item = usize>) {
        let puts: Vec<Put> = jobs.map(|n| Put::new(mail(), id(n), Body::default())).collect();
        for puts in puts.chunks(1000) {
            block_on(store.put(puts.to_vec())).expect("the store works");
        }
    }

    pub(super) fn bury(store: &MemoryStore, n: usize, error: &str) {
        block_on(async {
            store.put(vec![Put::new(mail(), id(n), Body::default())]).await?;
            let worker = WorkerName::new("w").expect("a valid name");
            let claim = Claim { kinds: vec![mail()], max: 1, lease: None, worker, nonce: 1 };
            let receipt = store.claim(claim).await?.jobs[0].receipt.clone();
            let action = Settlement::Bury { error: error.to_owned() };
            store.settle(vec![Settle { receipt, action }]).await
        })
        .expect("the job is buried");
    }

    pub(super) fn filter(filter: JobFilter) -> BulkFilter {
        filter.read(&ParseContext { now: Timestamp::default() }).expect("a valid filter")
    }

    fn refused() -> BulkFilter {
        filter(JobFilter { error: Some("refused".to_owned()), ..JobFilter::default() })
    }

    #[test]
    fn a_call_scans_a_bounded_number_of_jobs_if_few_match() {
        let store = MemoryStore::new();
        let few = [0, 9_000, 18_000, 27_000];
        few.into_iter().for_each(|n| bury(&store, n, "refused"));
        put(&store, (0..30_000).filter(|n| !few.contains(n)));
        let (mut after, mut found) = (None, Vec::new());
        loop {
            let filter = refused();
            let done = change(&store, mail(), ChangeKind::Revive, &filter, after, MAX_SCANNED);
            let done = block_on(done).expect("the store works");
            found.push(done.changed);
            match done.cursor {
                Some(cursor) => after = Some(JobId::new(cursor).expect("an id")),
                None => break,
            }
        }
        assert_eq!(found, [2, 1, 1]);
    }

    #[test]
    fn a_store_failure_does_not_count_as_a_failed_change() {
        let all = BulkFilter::default();
        let failing = PartlyFailingStore::default();
        for (id, done) in [("xa", false), ("a", true)] {
            let id = JobId::new(id).expect("a valid id");
            block_on(failing.store.put(vec![Put::new(mail(), id, Body::default())]))
                .expect("the store works");
            let change = change(&failing, mail(), ChangeKind::RunNow, &all, None, MAX_SCANNED);
            let error = block_on(change).expect_err("the store fails");
            assert_eq!(matches!(error, StoreError::Unknown { .. }), done, "{error}");
        }
    }

    /// Returns a store of 300 jobs whose call with this number fails.
    fn failing(call: u64) -> Faulty {
        let store = MemoryStore::new();
        put(&store, 0..300);
        let store = Faulty::new(Arc::new(store));
        store.at(call, Fault::Refused);
        store
    }

    #[test]
    fn a_failure_after_some_changes_does_not_report_that_nothing_was_done() {
        let none = BulkFilter::default();
        // Lists and changes by turns. The first call of a deletion reads the schedules.
        for call in [1, 2, 4, 6] {
            let store = failing(call);
            let done = change(&store, mail(), ChangeKind::Cancel, &none, None, MAX_SCANNED);
            let error = block_on(done).expect_err("the store fails");
            assert_eq!(matches!(error, StoreError::Unavailable { .. }), call <= 2, "{call}");
            let store = failing(call + 1);
            let error = block_on(delete(&store, mail(), None)).expect_err("the store fails");
            assert_eq!(matches!(error, StoreError::Unavailable { .. }), call <= 2, "{call}");
        }
    }

    #[test]
    fn if_the_next_page_cannot_be_read_the_next_call_continues_with_it() {
        let none = BulkFilter::default();
        for (call, jobs) in [(3, 100), (5, 200)] {
            let store = failing(call);
            let cancel =
                |after| change(&store, mail(), ChangeKind::Cancel, &none, after, MAX_SCANNED);
            let done = block_on(cancel(None)).expect("it has changed some jobs");
            assert_eq!((done.changed, done.cursor.as_deref()), (jobs, Some(last(jobs).as_str())));
            let done = block_on(cancel(Some(last(jobs)))).expect("the store works");
            assert_eq!((done.changed, done.cursor), (300 - jobs, None));
            let store = failing(call + 1);
            let deleted = block_on(delete(&store, mail(), None)).expect("it has deleted some jobs");
            assert_eq!(
                (deleted.removed, deleted.cursor.as_deref()),
                (jobs, Some(last(jobs).as_str()))
            );
            let deleted = block_on(delete(&store, mail(), Some(last(jobs)))).expect("it works");
            assert_eq!((deleted.removed, deleted.cursor), (300 - jobs, None));
        }
        // Not if the call has done nothing: it would be repeated for ever.
        let failing = failing(1);
        let done = change(&failing, mail(), ChangeKind::Cancel, &none, Some(id(7)), MAX_SCANNED);
        block_on(done).expect_err("the store fails");
    }

    /// The last of the first `count` jobs.
    fn last(count: u64) -> JobId {
        id(count as usize - 1)
    }
}
