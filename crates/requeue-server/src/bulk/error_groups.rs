//! Groups the dead jobs of a kind by their last error.

use super::scan;
use crate::response_memory::Weighed;
use requeue_http::error_group;
use requeue_http::wire::{self, last_error};
use requeue_jobs::{JobId, JobState, JobView, Kind, Query, Store, StoreError, Timestamp};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

/// Maximum number of groups that one call returns: each holds an error of up to 2 KiB.
const MAX_GROUPS: usize = 100;

/// The result of grouping some dead jobs.
#[derive(Debug)]
pub(crate) struct Grouped {
    /// The largest group first.
    pub(crate) groups: Vec<ErrorGroup>,
    /// The number of jobs in groups beyond [`MAX_GROUPS`].
    pub(crate) other: u64,
    /// The number of jobs that were read.
    pub(crate) scanned: u64,
    pub(crate) cursor: Option<String>,
}

/// Dead jobs with the same normalized error. `None`: their leases expired.
#[derive(Debug)]
pub(crate) struct ErrorGroup {
    text: Option<String>,
    count: u64,
    first_died_at: Timestamp,
    last_died_at: Timestamp,
    /// The job that died last, and its error.
    example: (JobId, Option<Arc<str>>),
}

impl ErrorGroup {
    fn new(text: Option<String>, job: &JobView) -> Self {
        let died_at = died_at(job);
        let (first_died_at, last_died_at) = (died_at, died_at);
        ErrorGroup { text, count: 1, first_died_at, last_died_at, example: example(job) }
    }

    fn add(&mut self, job: &JobView) {
        let died_at = died_at(job);
        self.count += 1;
        self.first_died_at = self.first_died_at.min(died_at);
        if died_at > self.last_died_at {
            self.last_died_at = died_at;
            self.example = example(job);
        }
    }
}

fn example(job: &JobView) -> (JobId, Option<Arc<str>>) {
    let error = job.failures.last().and_then(|failure| failure.error.clone());
    (job.id.clone(), error)
}

fn died_at(job: &JobView) -> Timestamp {
    // A dead job has the time of its death.
    job.died_at.unwrap_or(job.updated_at)
}

impl Weighed for ErrorGroup {
    fn weight(&self) -> usize {
        let (id, error) = &self.example;
        let texts = [self.text.as_deref(), Some(id.as_str()), error.as_deref()];
        size_of::<ErrorGroup>() + texts.into_iter().flatten().map(str::len).sum::<usize>()
    }
}

impl From<ErrorGroup> for wire::ErrorGroup {
    fn from(group: ErrorGroup) -> Self {
        let (id, error) = group.example;
        let error = error.map(|error| error.as_ref().to_owned());
        wire::ErrorGroup {
            error_group: group.text,
            count: group.count,
            example: wire::ErrorExample { id: id.as_str().to_owned(), error },
            first_died_at: group.first_died_at.into(),
            last_died_at: group.last_died_at.into(),
        }
    }
}

/// Groups the dead jobs whose ids come after `after`.
pub(crate) async fn error_groups(
    store: &dyn Store,
    kind: Kind,
    after: Option<JobId>,
) -> Result<Grouped, StoreError> {
    let mut groups: HashMap<Option<String>, ErrorGroup> = HashMap::new();
    let mut other = 0;
    let add = |job: &JobView| {
        let text = last_error(job).map(error_group);
        let is_full = groups.len() >= MAX_GROUPS;
        match groups.get_mut(&text) {
            Some(group) => group.add(job),
            None if is_full => other += 1,
            None => {
                groups.insert(text.clone(), ErrorGroup::new(text, job));
            }
        }
    };
    let state = Some(JobState::Dead);
    let scanned = scan(store, Query { state, after, ..Query::new(kind) }, add).await?;
    let mut groups: Vec<ErrorGroup> = groups.into_values().collect();
    groups.sort_by(|a, b| (Reverse(a.count), &a.text).cmp(&(Reverse(b.count), &b.text)));
    Ok(Grouped { groups, other, scanned: scanned.jobs, cursor: scanned.cursor })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{bury, mail};
    use super::*;
    use requeue_jobs::MemoryStore;
    use requeue_testkit::block_on;

    #[test]
    fn jobs_beyond_the_most_groups_are_counted_together() {
        let store = MemoryStore::new();
        let letters: Vec<String> =
            ('a'..='z').flat_map(|a| ('a'..='z').map(move |b| format!("{a}{b}"))).collect();
        // Every error occurs twice, and the first 100 are groups.
        for (n, error) in letters[..120].iter().chain(&letters[..120]).enumerate() {
            bury(&store, n, error);
        }
        let grouped = block_on(error_groups(&store, mail(), None)).expect("the store works");
        assert_eq!((grouped.groups.len(), grouped.other, grouped.scanned), (100, 40, 240));
        assert_eq!(grouped.cursor, None);
        assert!(grouped.groups.iter().all(|group| group.count == 2));
        let texts = grouped.groups.iter().map(|group| group.text.as_deref());
        assert!(texts.eq(letters[..100].iter().map(|text| Some(text.as_str()))));
    }
}
