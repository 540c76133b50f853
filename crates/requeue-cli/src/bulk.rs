//! Counting, changing and deleting the jobs of a kind by filter: by requests to a server, or by the code
//! of the server on a store that this process has opened.

use crate::error::{CliError, Exit, Result};
use crate::output::count;
use crate::store_args::{IfMissing, StoreArgs, StoreLocation};
use crate::times;
use requeue_http::HttpStore;
use requeue_http::client::{path, with_query};
use requeue_http::wire::{
    AfterQuery, BulkChangeResult, BulkFilter, BulkVerb, ChangeIds, CountQuery, JobCount, JobFilter,
    KindDeleted, Word,
};
use requeue_jobs::{JobId, Kind, Store};
use requeue_server::bulk::{self, MAX_SCANNED};
use std::sync::Arc;

/// A store and how to change many of its jobs.
pub(crate) enum BulkStore {
    Server(Arc<HttpStore>),
    Direct(Arc<dyn Store>),
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
                let path = path(&["v1", "kinds", kind.as_str(), "count"]);
                let path = with_query(path, &CountQuery::new(filter.clone(), after));
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
        verb: BulkVerb,
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
        verb: BulkVerb,
        filter: &JobFilter,
        after: Option<String>,
    ) -> Result<BulkChangeResult> {
        match self {
            BulkStore::Server(server) => {
                let all = Some(filter.clone());
                let request = ChangeIds { all, after, ..ChangeIds::default() };
                let path = path(&["v1", "kinds", kind.as_str(), verb.name()]);
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
                let path = path(&["v1", "kinds", kind.as_str()]);
                let path = with_query(path, &AfterQuery { after });
                Ok(server.call("DELETE", &path, None::<&()>).await?)
            }
            BulkStore::Direct(store) => {
                Ok(bulk::delete(&**store, kind.clone(), position(after)?).await?)
            }
        }
    }
}

fn read(filter: &JobFilter) -> Result<BulkFilter> {
    filter.clone().read(&times::context()).map_err(CliError::of_request)
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
