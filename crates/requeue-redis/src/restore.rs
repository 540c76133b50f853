//! Jobs of another store.

use crate::batch::{Entry, run_batch};
use crate::codec::{Past, Record};
use crate::reply::{bytes, unexpected};
use crate::script::SCRIPTS;
use crate::store::RedisStore;
use requeue_jobs::{
    Arrival, BatchResults, Fence, Generation, Invalid, JobId, JobView, Kind, Restore, Restored,
    StoreError, Timestamp,
};

/// A job that may be kept.
struct Arriving {
    kind: Kind,
    id: JobId,
    newest: Generation,
    /// Nothing, where it has ended.
    arrival: Option<Arrival>,
}

impl Entry for Arriving {
    fn kind(&self) -> &Kind {
        &self.kind
    }

    fn id(&self) -> &JobId {
        &self.id
    }

    fn bytes(&self) -> usize {
        self.arrival.as_ref().map_or(0, |arrival| arrival.job.body.len())
    }
}

impl RedisStore {
    pub(crate) async fn restore_all(
        &self,
        restore: Restore,
    ) -> Result<BatchResults<Restored, StoreError>, StoreError> {
        restore.check()?;
        let Restore { kind, generation, fence, jobs } = restore;
        let now = self.now(&self.keys(&kind)).await?;
        let (mut arriving, mut answers) = (Vec::new(), Vec::new());
        for job in jobs {
            answers.push(match arrives(job, &kind, now) {
                Ok(job) => {
                    arriving.push(job);
                    None
                }
                Err(invalid) => Some(invalid),
            });
        }
        if arriving.is_empty() {
            // The kind is raised all the same.
            self.restore_call(kind, Vec::new(), generation, fence).await?;
        }
        let restored = run_batch(arriving, |kind, arriving| {
            self.restore_call(kind, arriving, generation, fence)
        });
        let mut restored = restored.await.into_iter();
        let missing = || Err(unexpected("an entry is without an answer"));
        let answer = |refused: Option<Invalid>| match refused {
            Some(invalid) => Err(invalid.into()),
            None => restored.next().unwrap_or_else(missing),
        };
        Ok(answers.into_iter().map(answer).collect())
    }

    async fn restore_call(
        &self,
        kind: Kind,
        arriving: Vec<Arriving>,
        generation: Generation,
        fence: Fence,
    ) -> Result<Vec<Result<Restored, StoreError>>, StoreError> {
        let (keys, script) = (self.keys(&kind), &SCRIPTS.restore);
        let answer = self.make(&kind, &keys, |registered| {
            let mut cmd = self.begin(script, &keys);
            cmd.arg(registered).arg(generation.0).arg(fence.0);
            for Arriving { id, newest, arrival, .. } in &arriving {
                cmd.arg(id.as_str()).arg(newest.0);
                match arrival {
                    None => cmd.arg("").arg("").arg("").arg(""),
                    Some(Arrival { job, floor }) => {
                        let (state, at) = match job.died_at {
                            Some(died_at) => ("d", died_at),
                            None => ("p", job.due),
                        };
                        cmd.arg(state).arg(at.as_millis()).arg(Record::write(job));
                        cmd.arg(past(job, *floor))
                    }
                };
            }
            (script, cmd)
        });
        let letters = bytes(answer.await?)?;
        let restored = |letter| match letter {
            b'C' => Ok(Ok(Restored::Created)),
            b'K' => Ok(Ok(Restored::Kept)),
            b'N' => Ok(Ok(Restored::Ended)),
            _ => Err(unexpected("a restored job came to nothing that is known")),
        };
        letters.into_iter().map(restored).collect()
    }
}

fn arrives(job: JobView, kind: &Kind, now: Timestamp) -> Result<Arriving, Invalid> {
    let (id, newest) = (job.id.clone(), job.newest_generation());
    if job.kind != *kind {
        let reason = "it is of another kind than the batch";
        return Err(Invalid::InconsistentJob { id, reason });
    }
    Ok(Arriving { kind: kind.clone(), id, newest, arrival: Arrival::of(job, now)? })
}

/// Nothing, for most.
fn past(job: &JobView, floor: Timestamp) -> Vec<u8> {
    let has_none = job.attempts == 0
        && job.deaths == 0
        && floor == Timestamp::default()
        && job.died_at.is_none()
        && job.failures.is_empty();
    if has_none { Vec::new() } else { Past::write(job, floor) }
}
