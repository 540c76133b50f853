//! Jobs of another store, and tidying up.

use super::job::Job;
use super::reading::{Reading, objects};
use crate::problem::{Problem, Sort};
use requeue_jobs::{Fence, Generation, JobView, Kind, Restore, Restored};
use serde::{Deserialize, Serialize};

/// Jobs of one kind that another store had.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RestoreRequest {
    /// The latest that the other store gave out: this one gives out higher ones.
    #[cfg_attr(feature = "openapi", schema(maximum = 4503599627370496_i64))]
    pub generation: u64,
    /// The same of leases.
    #[cfg_attr(feature = "openapi", schema(maximum = 4503599627370496_i64))]
    pub fence: u64,
    /// The jobs, as they are told: at most 1000, with bodies of 16 MiB in all.
    #[serde(deserialize_with = "objects")]
    #[cfg_attr(feature = "openapi", schema(max_items = 1000))]
    pub jobs: Vec<Job>,
}

impl RestoreRequest {
    /// The jobs that this means, each read by itself.
    pub fn read(
        self,
        kind: &Kind,
        reading: &Reading,
    ) -> (Generation, Fence, Vec<Result<JobView, Problem>>) {
        let jobs = self.jobs.into_iter().enumerate().map(|(n, job)| {
            let job = job.read(&format!("jobs[{n}]."), reading)?;
            if job.kind != *kind {
                let detail = format!("this is {:?}, and the path says {kind:?}", job.kind);
                return Err(Problem::new(Sort::Invalid, detail).at(format!("jobs[{n}].kind")));
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
            jobs: restore.jobs.iter().map(Job::from).collect(),
        }
    }
}

/// What became of a job that was to be restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RestoreDone {
    /// What happened.
    pub result: RestoreResult,
}

/// What became of a job that was to be restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum RestoreResult {
    /// It is here now.
    Created,
    /// There is such a job already, and it was not touched.
    Kept,
    /// It was cancelled, and does not arrive.
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

/// How much to tidy up.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ReapRequest {
    /// At most so many of each kind, and at most 1000.
    pub max: usize,
}

/// How much was tidied up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Reaped {
    /// Leases that expired, and dead jobs that are not kept.
    pub reaped: usize,
}
