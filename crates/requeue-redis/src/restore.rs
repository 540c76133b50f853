//! Restores jobs that were exported from another store.

use crate::batch::{Entry, run_batch};
use crate::codec::{Past, Record};
use crate::deployment::Deployment;
use crate::put::levels;
use crate::reply::{bytes, unexpected};
use crate::script::SCRIPTS;
use requeue_jobs::{
    Arrival, BatchResults, Fence, Generation, Invalid, JobId, JobView, Kind, Restore, Restored,
    StoreError, Timestamp,
};

/// A job to restore.
struct RestoredJob {
    kind: Kind,
    id: JobId,
    newest: Generation,
    /// `None` if the job has ended.
    arrival: Option<Arrival>,
}

impl Entry for RestoredJob {
    fn kind(&self) -> &Kind {
        &self.kind
    }

    fn id(&self) -> &JobId {
        &self.id
    }

    fn bytes(&self) -> usize {
        self.arrival.as_ref().map_or(0, |arrival| arrival.job.content_bytes())
    }
}

impl Deployment {
    pub(crate) async fn restore(
        &self,
        restore: Restore,
    ) -> Result<BatchResults<Restored, StoreError>, StoreError> {
        restore.check()?;
        let Restore { kind, generation, fence, jobs } = restore;
        let now = self.now(&self.keys(&kind)).await?;
        let (mut jobs_to_restore, mut results) = (Vec::new(), Vec::new());
        for job in jobs {
            results.push(match restored_job(job, &kind, now) {
                Ok(job) => {
                    jobs_to_restore.push(job);
                    None
                }
                Err(invalid) => Some(invalid),
            });
        }
        if jobs_to_restore.is_empty() {
            // The counters of the kind are raised even without jobs.
            self.restore_call(kind, Vec::new(), generation, fence).await?;
        }
        let restored = run_batch(jobs_to_restore, |kind, jobs| {
            self.restore_call(kind, jobs, generation, fence)
        });
        let mut restored = restored.await.into_iter();
        let missing = || Err(unexpected("the reply contains too few results"));
        let result = |rejected: Option<Invalid>| match rejected {
            Some(invalid) => Err(invalid.into()),
            None => restored.next().unwrap_or_else(missing),
        };
        Ok(results.into_iter().map(result).collect())
    }

    async fn restore_call(
        &self,
        kind: Kind,
        jobs: Vec<RestoredJob>,
        generation: Generation,
        fence: Fence,
    ) -> Result<Vec<Result<Restored, StoreError>>, StoreError> {
        let reply = self.make(&SCRIPTS.restore, &kind, |cmd| {
            cmd.arg(generation.0).arg(fence.0);
            cmd.arg(levels(
                jobs.iter().flat_map(|job| &job.arrival).map(|to| to.job.version.priority),
            ));
            for RestoredJob { id, newest, arrival, .. } in &jobs {
                cmd.arg(id.as_str()).arg(newest.0);
                match arrival {
                    None => cmd.arg("").arg("").arg("").arg(""),
                    Some(Arrival { job, floor }) => {
                        let (state, at) = match (&job.done, job.died_at) {
                            (Some(done), _) => ("o", done.done_at),
                            (None, Some(died_at)) => ("d", died_at),
                            (None, None) => ("p", job.version.due),
                        };
                        cmd.arg(state).arg(at.as_millis()).arg(Record::write(job));
                        cmd.arg(past(job, *floor))
                    }
                };
            }
        });
        let letters = bytes(reply.await?)?;
        let restored = |letter| match letter {
            b'C' => Ok(Ok(Restored::Created)),
            b'K' => Ok(Ok(Restored::Kept)),
            b'N' => Ok(Ok(Restored::Ended)),
            _ => Err(unexpected("unknown letter in the reply to a restore")),
        };
        letters.into_iter().map(restored).collect()
    }
}

fn restored_job(job: JobView, kind: &Kind, now: Timestamp) -> Result<RestoredJob, Invalid> {
    let (id, newest) = (job.id.clone(), job.newest_generation());
    if job.kind != *kind {
        let reason = "it is of another kind than the batch";
        return Err(Invalid::InconsistentJob { id, reason });
    }
    Ok(RestoredJob { kind: kind.clone(), id, newest, arrival: Arrival::of(job, now)? })
}

/// Returns the past of a job; empty if it has none, as for most jobs.
fn past(job: &JobView, floor: Timestamp) -> Vec<u8> {
    let has_none = job.attempts == 0
        && job.deaths == 0
        && floor == Timestamp::default()
        && job.died_at.is_none()
        && job.done.is_none()
        && job.failures.is_empty();
    if has_none { Vec::new() } else { Past::write(job, floor) }
}
