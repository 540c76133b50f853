//! Counting, changing and deleting the jobs of a kind by filter: by requests to a server, or by the code
//! of the server on a store that this process has opened.

use crate::error::{CliError, Exit, Result};
use crate::output::count;
use crate::store_args::{IfMissing, StoreArgs, StoreLocation};
use crate::times;
use requeue_http::client::path;
use requeue_http::wire::{
    BulkChangeResult, ChangeIds, JobCount, JobFilter, KindDeleted, ParseContext,
};
use requeue_http::{HttpStore, Problem};
use requeue_jobs::{ChangeKind, JobId, Kind, Store};
use requeue_server::bulk::{self, BulkFilter, MAX_SCANNED};
use std::sync::Arc;

/// A store and how to change many of its jobs.
pub(crate) enum BulkStore {
    Server(Arc<HttpStore>),
    Direct(Arc<dyn Store>),
}

/// A change of all jobs that match a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Cancel,
    RunNow,
    Revive,
}

impl Verb {
    fn path_segment(self) -> &'static str {
        match self {
            Verb::Cancel => "cancel",
            Verb::RunNow => "run-now",
            Verb::Revive => "revive",
        }
    }
}

impl From<Verb> for ChangeKind {
    fn from(verb: Verb) -> Self {
        match verb {
            Verb::Cancel => ChangeKind::Cancel,
            Verb::RunNow => ChangeKind::RunNow,
            Verb::Revive => ChangeKind::Revive,
        }
    }
}

impl BulkStore {
    pub(crate) async fn open(store_args: &StoreArgs) -> Result<Self> {
        match store_args.location()? {
            StoreLocation::Server(url) => {
                Ok(BulkStore::Server(Arc::new(store_args.connect(&url)?)))
            }
            _ => Ok(BulkStore::Direct(store_args.open(IfMissing::Fail).await?)),
        }
    }

    pub(crate) fn store(&self) -> &dyn Store {
        match self {
            BulkStore::Server(server) => &**server,
            BulkStore::Direct(store) => &**store,
        }
    }

    pub(crate) fn shared(&self) -> Arc<dyn Store> {
        match self {
            BulkStore::Server(server) => Arc::clone(server) as Arc<dyn Store>,
            BulkStore::Direct(store) => Arc::clone(store),
        }
    }

    /// The number of jobs that match.
    pub(crate) async fn count(&self, kind: &Kind, filter: &JobFilter) -> Result<u64> {
        let (mut matched, mut after) = (0, None);
        loop {
            let JobCount { matched: more, cursor, .. } =
                self.count_some(kind, filter, after).await?;
            matched += more;
            after = cursor;
            if after.is_none() {
                return Ok(matched);
            }
        }
    }

    async fn count_some(
        &self,
        kind: &Kind,
        filter: &JobFilter,
        after: Option<String>,
    ) -> Result<JobCount> {
        match self {
            BulkStore::Server(server) => {
                let path = count_path(kind, filter, after.as_deref());
                Ok(server.call("GET", &path, None::<&()>).await?)
            }
            BulkStore::Direct(store) => {
                let filter = read(filter)?;
                if after.is_none()
                    && let Some(matched) = bulk::stored_count(&**store, kind, &filter).await?
                {
                    return Ok(JobCount { matched, ..JobCount::default() });
                }
                Ok(bulk::count(&**store, kind.clone(), &filter, position(after)?).await?)
            }
        }
    }

    /// Changes all jobs that match.
    pub(crate) async fn change(
        &self,
        kind: &Kind,
        verb: Verb,
        filter: &JobFilter,
    ) -> Result<BulkChangeResult> {
        let mut all = BulkChangeResult::default();
        loop {
            let some = self.change_some(kind, verb, filter, all.cursor.take()).await;
            let some = some.map_err(|error| after_some(error, all.changed, "changed"))?;
            all.matched += some.matched;
            all.changed += some.changed;
            all.failed += some.failed;
            all.cursor = some.cursor;
            if all.cursor.is_none() {
                return Ok(all);
            }
        }
    }

    async fn change_some(
        &self,
        kind: &Kind,
        verb: Verb,
        filter: &JobFilter,
        after: Option<String>,
    ) -> Result<BulkChangeResult> {
        match self {
            BulkStore::Server(server) => {
                let all = Some(filter.clone());
                let request = ChangeIds { all, after, ..ChangeIds::default() };
                let path = path(&["v1", "kinds", kind.as_str(), verb.path_segment()]);
                Ok(server.call("POST", &path, Some(&request)).await?)
            }
            BulkStore::Direct(store) => {
                let (filter, after) = (read(filter)?, position(after)?);
                let (store, kind) = (&**store, kind.clone());
                let limit = MAX_SCANNED;
                Ok(bulk::change(store, kind, verb.into(), &filter, after, limit).await?)
            }
        }
    }

    /// Deletes a kind: its schedules, jobs and settings.
    pub(crate) async fn delete(&self, kind: &Kind) -> Result<KindDeleted> {
        let mut all = KindDeleted::default();
        loop {
            let some = self.delete_some(kind, all.cursor.take()).await;
            let some = some.map_err(|error| after_some(error, all.removed, "removed"))?;
            all.removed += some.removed;
            all.ending += some.ending;
            all.cursor = some.cursor;
            if all.cursor.is_none() {
                return Ok(all);
            }
        }
    }

    async fn delete_some(&self, kind: &Kind, after: Option<String>) -> Result<KindDeleted> {
        match self {
            BulkStore::Server(server) => {
                let mut path = path(&["v1", "kinds", kind.as_str()]);
                if let Some(after) = after {
                    path += &format!("?after={}", encoded(&after));
                }
                Ok(server.call("DELETE", &path, None::<&()>).await?)
            }
            BulkStore::Direct(store) => {
                Ok(bulk::delete(&**store, kind.clone(), position(after)?).await?)
            }
        }
    }
}

/// The path and query that count the jobs that match.
fn count_path(kind: &Kind, filter: &JobFilter, after: Option<&str>) -> String {
    let mut path = path(&["v1", "kinds", kind.as_str(), "count"]);
    let filter = serde_json::to_value(filter).expect("plain data can be serialized");
    let fields = filter.as_object().into_iter().flatten().map(|(name, value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        (name.as_str(), text)
    });
    let fields = fields.chain(after.map(|after| ("after", after.to_owned())));
    for (number, (name, value)) in fields.enumerate() {
        let separator = if number == 0 { '?' } else { '&' };
        path += &format!("{separator}{name}={}", encoded(&value));
    }
    path
}

/// A value of a query.
fn encoded(value: &str) -> String {
    // A segment of a path is encoded at least as much.
    path(&[value]).split_off(1)
}

fn read(filter: &JobFilter) -> Result<BulkFilter> {
    let context = ParseContext { now: times::now() };
    let read = BulkFilter::read(filter.clone(), "", &context);
    read.map_err(|problem: Problem| CliError::usage(problem.detail))
}

/// The position from which a call continues.
fn position(after: Option<String>) -> Result<Option<JobId>> {
    Ok(after.map(JobId::new).transpose()?)
}

/// The error of a call after others that changed jobs: *unavailable* would mean that nothing was done.
fn after_some(error: CliError, jobs: u64, done: &str) -> CliError {
    if jobs == 0 {
        return error;
    }
    let exit = if error.exit == Exit::Unavailable { Exit::Unknown } else { error.exit };
    error.at_least(exit).hint(format!("{} {done} before that; run it again", were(jobs)))
}

fn were(jobs: u64) -> String {
    format!("{} {}", count(jobs, "job"), if jobs == 1 { "was" } else { "were" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_query_of_a_count_has_every_field_of_the_filter() {
        let kind = Kind::new("mail").unwrap();
        assert_eq!(count_path(&kind, &JobFilter::default(), None), "/v1/kinds/mail/count");
        let prefix = Some("a/b&c".to_owned());
        let filter = JobFilter { prefix, priority: Some(7), ..JobFilter::default() };
        let path = count_path(&kind, &filter, Some("ü"));
        assert_eq!(path, "/v1/kinds/mail/count?prefix=a%2Fb%26c&priority=7&after=%C3%BC");
    }
}
