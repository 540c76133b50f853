//! Restoring jobs of another store, and reaping.

use super::job::JobJson;
use super::parse::{ParseContext, objects};
use crate::problem::{Problem, ProblemType};
use requeue_jobs::{Fence, Generation, JobView, Kind, Restore, Restored};
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
    /// Returns the counters and the jobs. Each job is converted separately, and an error names its
    /// field. Fails for a job that is not of `kind`.
    pub fn read(
        self,
        kind: &Kind,
        context: &ParseContext,
    ) -> (Generation, Fence, Vec<Result<JobView, Problem>>) {
        let jobs = self.jobs.into_iter().enumerate().map(|(n, job)| {
            let job = job.read(&format!("jobs[{n}]."), context)?;
            if job.kind != *kind {
                let detail =
                    format!("the job is of kind {:?}, but the path names {kind:?}", job.kind);
                return Err(
                    Problem::new(ProblemType::Invalid, detail).at(format!("jobs[{n}].kind"))
                );
            }
            Ok(job)
        });
        (Generation(self.generation), Fence(self.fence), jobs.collect())
    }
}

impl From<&Restore> for RestoreRequest {
    fn from(restore: &Restore) -> Self {
        RestoreRequest {
            generation: restore.generation.0,
            fence: restore.fence.0,
            jobs: restore.jobs.iter().map(JobJson::from).collect(),
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

/// What happened to a job that was to be restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(
    feature = "openapi",
    schema(
        description = "What happened to a job that was to be restored: `created`: it was added; `kept`: a job with this id already exists and was left unchanged; `ended`: it was cancelled in the other store and was not added."
    )
)]
#[serde(rename_all = "lowercase")]
pub enum RestoreResult {
    /// The job was added.
    Created,
    /// A job with this id already exists and was left unchanged.
    Kept,
    /// The job was cancelled in the other store and was not added.
    Ended,
}

const RESTORED: [(Restored, RestoreResult); 3] = [
    (Restored::Created, RestoreResult::Created),
    (Restored::Kept, RestoreResult::Kept),
    (Restored::Ended, RestoreResult::Ended),
];

impl From<Restored> for RestoreDone {
    fn from(restored: Restored) -> Self {
        RestoreDone { result: RESTORED[restored as usize].1 }
    }
}

impl From<RestoreDone> for Restored {
    fn from(done: RestoreDone) -> Self {
        RESTORED[done.result as usize].0
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
