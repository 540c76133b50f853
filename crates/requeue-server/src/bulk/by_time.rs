//! Listing the jobs of a kind in the order of time, by filter.

use super::{MAX_SCANNED, PAGE};
use requeue_http::wire::BulkFilter;
use requeue_jobs::rules::ResultSize;
use requeue_jobs::{JobView, Store, StoreError, TimePage, TimeQuery};

/// Returns matching jobs in the order of time: at most `query.limit`, and fewer if they are large or
/// if few jobs match. If there may be more, the page has a cursor. The state of `filter` is that of
/// `query`.
pub(crate) async fn list_by_time(
    store: &dyn Store,
    query: TimeQuery,
    filter: &BulkFilter,
) -> Result<TimePage, StoreError> {
    // Stores list by time without any other condition.
    let matches =
        |job: &JobView| job.id.as_str().starts_with(filter.prefix.as_str()) && filter.matches(job);
    let needs_scan = filter.needs_scan() || !filter.prefix.is_empty();
    let mut page = TimePage { jobs: Vec::new(), cursor: query.after.clone() };
    let (mut scans, mut size, mut page_size) = (MAX_SCANNED, ResultSize::default(), PAGE);
    loop {
        let left = query.limit - page.jobs.len();
        // If every job that the store returns is needed, query no more.
        let limit = if needs_scan { page_size } else { left.min(PAGE) };
        let after = page.cursor.clone();
        let found = store.list_by_time(TimeQuery { after, limit, ..query.clone() }).await?;
        let found_count = found.jobs.len();
        scans = scans.saturating_sub(found_count);
        let mut size_with = size.clone();
        let (mut fitting, mut matching) = (0, 0);
        for job in &found.jobs {
            if matches(job) {
                if matching == left || !size_with.admit(job.content_bytes()) {
                    break;
                }
                matching += 1;
            }
            fitting += 1;
        }
        if fitting < found_count {
            if fitting == 0 {
                return Ok(page);
            }
            // Only the store knows the place of a job. Its cursor is that of the last job it
            // returned, so it is asked for as many as fit.
            page_size = fitting;
            continue;
        }
        (size, page_size) = (size_with, PAGE);
        page.jobs.extend(found.jobs.into_iter().filter(matches));
        page.cursor = found.cursor;
        // The store ended its page early because the jobs are large: the next would not fit.
        let is_large = found_count < limit && !page.jobs.is_empty();
        let is_full = page.jobs.len() >= query.limit || is_large || scans == 0;
        if is_full || page.cursor.is_none() {
            return Ok(page);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use requeue_jobs::limits::{MAX_BODY_LEN, MAX_RESULT_BYTES};
    use requeue_jobs::{Body, Due, JobId, JobState, Kind, MemoryStore, Put};
    use requeue_testkit::block_on;
    use std::time::Duration;

    fn mail() -> Kind {
        Kind::new("mail").expect("a valid kind")
    }

    /// Puts waiting jobs: the later, the lower the id.
    fn put(store: &MemoryStore, count: usize, prefix: impl Fn(usize) -> char, body: &Body) {
        let put = |n: usize| {
            let id = JobId::new(format!("{}{:05}", prefix(n), count - n)).expect("a valid id");
            let due = Due::After(Duration::from_secs(1000 + n as u64));
            Put { due, ..Put::new(mail(), id, body.clone()) }
        };
        for first in (0..count).step_by(10) {
            let puts = (first..count.min(first + 10)).map(put).collect();
            block_on(store.put(puts)).expect("the store works");
        }
    }

    /// Returns the number of jobs on each page, and checks that they are in order.
    fn pages(store: &MemoryStore, prefix: &str, limit: usize) -> Vec<usize> {
        let prefix = prefix.to_owned();
        let filter = BulkFilter { prefix, ..BulkFilter::default() };
        let mut query = TimeQuery { limit, ..TimeQuery::new(mail(), JobState::Waiting) };
        let (mut pages, mut dues) = (Vec::new(), Vec::new());
        loop {
            let page = block_on(list_by_time(store, query.clone(), &filter));
            let page = page.expect("the store works");
            pages.push(page.jobs.len());
            dues.extend(page.jobs.iter().map(|job| job.version.due));
            query.after = page.cursor;
            if query.after.is_none() {
                assert!(dues.is_sorted_by(|a, b| a < b), "each job is listed once");
                return pages;
            }
        }
    }

    #[test]
    fn a_call_scans_a_bounded_number_of_jobs_if_few_match() {
        let store = MemoryStore::new();
        put(&store, 25_000, |n| if n % 9_000 == 7 { 'x' } else { 'a' }, &Body::default());
        assert_eq!(pages(&store, "x", 100), [2, 1, 0]);
    }

    #[test]
    fn pages_with_a_filter_contain_every_matching_job_once() {
        let store = MemoryStore::new();
        put(&store, 1000, |n| if n % 3 == 1 { 'x' } else { 'a' }, &Body::default());
        for limit in [1, 7, 100, 332] {
            let pages = pages(&store, "x", limit);
            assert!(pages.iter().all(|count| *count <= limit), "{pages:?}");
            assert_eq!(pages.iter().sum::<usize>(), 333, "{limit} a page");
        }
        assert_eq!(pages(&store, "", 1000), [1000]);
    }

    #[test]
    fn a_page_has_as_many_bytes_as_a_result_may_have() {
        let store = MemoryStore::new();
        let body = Body::octets(vec![7; MAX_BODY_LEN]).expect("a valid body");
        put(&store, 40, |n| if n % 2 == 1 { 'x' } else { 'a' }, &body);
        let most = MAX_RESULT_BYTES / MAX_BODY_LEN;
        assert_eq!(pages(&store, "", 1000), [most, most, 40 - 2 * most]);
        let filtered = pages(&store, "x", 1000);
        assert!(filtered.iter().all(|count| *count <= most), "{filtered:?}");
        assert_eq!(filtered.iter().sum::<usize>(), 20);
    }
}
