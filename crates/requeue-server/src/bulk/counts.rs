//! Counts matching jobs: from the counts of the store if they suffice, otherwise by reading the jobs.

use super::scan;
use requeue_http::wire::{BulkFilter, JobCount};
use requeue_jobs::limits::READY_COUNT_CAP;
use requeue_jobs::{JobId, JobState, Kind, Store, StoreError};

/// Returns the number of matching jobs if the store has it: the filter has no other condition than the
/// state, and the count of that state is exact.
pub async fn stored_count(
    store: &dyn Store,
    kind: &Kind,
    filter: &BulkFilter,
) -> Result<Option<u64>, StoreError> {
    if filter.needs_scan() || !filter.prefix.is_empty() {
        return Ok(None);
    }
    let counts = store.kind(kind.clone()).await?.counts;
    Ok(match filter.state {
        None => Some(counts.pending + counts.leased + counts.dead + counts.done),
        Some(JobState::Leased) => Some(counts.leased),
        Some(JobState::Dead) => Some(counts.dead),
        Some(JobState::Done) => Some(counts.done),
        // There may be more.
        Some(_) if counts.ready >= READY_COUNT_CAP => None,
        Some(JobState::Ready) => Some(counts.ready),
        Some(JobState::Waiting) => Some(counts.pending.saturating_sub(counts.ready)),
    })
}

/// Counts the matching jobs whose ids come after `after`. If one call does not reach the end, the
/// result has a cursor.
pub async fn count(
    store: &dyn Store,
    kind: Kind,
    filter: &BulkFilter,
    after: Option<JobId>,
) -> Result<JobCount, StoreError> {
    let mut matched = 0;
    let query = filter.query(kind, after);
    let scanned = scan(store, query, |job| matched += u64::from(filter.matches(job))).await?;
    Ok(JobCount { matched, scanned: scanned.jobs, cursor: scanned.cursor })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{bury, filter, mail, put};
    use super::*;
    use crate::bulk::MAX_SCANNED;
    use requeue_http::wire::JobFilter;
    use requeue_jobs::MemoryStore;
    use requeue_testkit::block_on;

    fn of_state(state: Option<JobState>) -> BulkFilter {
        BulkFilter { state, ..BulkFilter::default() }
    }

    #[test]
    fn a_count_of_the_store_is_used_only_if_it_is_exact() {
        let store = MemoryStore::new();
        bury(&store, 0, "refused");
        let stored = |filter: BulkFilter| {
            block_on(stored_count(&store, &mail(), &filter)).expect("the store works")
        };
        let ready = Some(JobState::Ready);
        for (jobs, ready_count, waiting_count) in [
            (1..3, Some(2), Some(0)),
            (3..MAX_SCANNED, Some(MAX_SCANNED as u64 - 1), Some(0)),
            (MAX_SCANNED..MAX_SCANNED + 1, None, None),
        ] {
            let end = jobs.end as u64;
            put(&store, jobs);
            assert_eq!(stored(of_state(ready)), ready_count);
            assert_eq!(stored(of_state(Some(JobState::Waiting))), waiting_count);
            assert_eq!(stored(of_state(Some(JobState::Dead))), Some(1));
            assert_eq!(stored(of_state(None)), Some(end));
        }
        let prefix = "0".to_owned();
        assert_eq!(stored(BulkFilter { prefix, ..BulkFilter::default() }), None);
        let error = Some("refused".to_owned());
        assert_eq!(stored(filter(JobFilter { error, ..JobFilter::default() })), None);
    }

    #[test]
    fn a_count_continues_after_the_most_jobs_of_a_call() {
        let store = MemoryStore::new();
        put(&store, 0..MAX_SCANNED + 7);
        let filter = of_state(Some(JobState::Ready));
        let first = block_on(count(&store, mail(), &filter, None)).expect("the store works");
        assert_eq!((first.matched, first.scanned), (10_000, 10_000));
        let after = first.cursor.map(|cursor| JobId::new(cursor).expect("an id"));
        let rest = block_on(count(&store, mail(), &filter, after)).expect("the store works");
        assert_eq!(rest, JobCount { matched: 7, scanned: 7, cursor: None });
    }
}
