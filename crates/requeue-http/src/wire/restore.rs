//! Restoring jobs of another store, and reaping.

use super::entry::BatchErrors;
use super::job::JobJson;
use super::parse::{ParseContext, invalid, objects};
use super::word::words;
use requeue_jobs::{Fence, Generation, Kind, Restore, Restored};
use serde::{Deserialize, Serialize};

/// Jobs of one kind from another store.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RestoreRequest {
    /// The latest generation that the other store assigned in this kind. This store continues above
    /// it.
    #[cfg_attr(feature = "openapi", schema(maximum = 4503599627370496_i64))]
    pub generation: u64,
    /// The latest fencing token that the other store assigned in this kind. This store continues above
    /// it.
    #[cfg_attr(feature = "openapi", schema(maximum = 4503599627370496_i64))]
    pub fence: u64,
    /// The jobs as the other server returned them, at most 1000. Their bodies have at most 16 MiB in
    /// total.
    #[serde(deserialize_with = "objects")]
    #[cfg_attr(feature = "openapi", schema(max_items = 1000))]
    pub jobs: Vec<JobJson>,
}

impl RestoreRequest {
    /// Returns the valid jobs, and the errors of the others. Fails for a job that is not of `kind`.
    pub fn read(self, kind: Kind, context: &ParseContext) -> (Restore, BatchErrors) {
        let RestoreRequest { generation, fence, jobs } = self;
        let (jobs, errors) = BatchErrors::read("jobs", jobs, |job: JobJson| {
            let job = job.read(context)?;
            if job.kind != kind {
                let found = job.kind;
                let detail = format!("the job is of kind {found:?}, but the path names {kind:?}");
                return Err(invalid("kind", detail));
            }
            Ok(job)
        });
        let (generation, fence) = (Generation(generation), Fence(fence));
        (Restore { kind, generation, fence, jobs }, errors)
    }
}

impl From<&Restore> for RestoreRequest {
    fn from(restore: &Restore) -> Self {
        let Restore { kind: _, generation, fence, jobs } = restore;
        RestoreRequest {
            generation: generation.0,
            fence: fence.0,
            jobs: jobs.iter().map(JobJson::from).collect(),
        }
    }
}

/// The result of restoring a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RestoreDone {
    /// What happened to the job.
    pub result: RestoreResult,
}

words! {
    /// What happened to a job that was to be restored.
    pub enum RestoreResult as RestoreResult, from Restored {
        /// The job was added.
        Created = "created",
        /// A job with this id already exists and was left unchanged.
        Kept = "kept",
        /// The job was cancelled in the other store and was not added.
        Ended = "ended",
    }
}

impl From<Restored> for RestoreDone {
    fn from(restored: Restored) -> Self {
        RestoreDone { result: restored.into() }
    }
}

impl From<RestoreDone> for Restored {
    fn from(done: RestoreDone) -> Self {
        done.result.into()
    }
}

/// A request to clean up expired leases and dead jobs.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ReapRequest {
    /// The maximum number of jobs per kind to clean up, up to 1000.
    pub max: usize,
}

/// The result of a cleanup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Reaped))]
pub struct ReapResult {
    /// The number of expired leases that were ended, and of dead jobs that were removed.
    pub reaped: usize,
}
