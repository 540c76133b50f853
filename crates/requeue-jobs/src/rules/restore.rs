//! Importing jobs of another store.

use super::job_table::JobTable;
use super::kind::KindState;
use super::record::{Record, Status};
use crate::error::{Invalid, StoreError};
use crate::job::JobView;
use crate::receipt::{Fence, Generation};
use crate::restore::{Arrival, Restored};
use crate::time::Timestamp;

impl<S> KindState<S> {
    /// Raises the counters, so that higher generations and fences are assigned from now on.
    pub fn raise(&mut self, generation: Generation, fence: Fence) {
        let counters = &mut self.counters;
        counters.generation = counters.generation.max(generation.0);
        counters.fence = counters.fence.max(fence.0);
    }
}

impl<S: JobTable> KindState<S> {
    /// Imports a job of another store.
    pub fn restore(&mut self, job: JobView, now: Timestamp) -> Result<Restored, StoreError> {
        let (id, newest) = (job.id.clone(), job.newest_generation());
        if job.kind != self.name {
            let reason = "it is of another kind than the batch";
            return Err(Invalid::InconsistentJob { id, reason }.into());
        }
        let arrival = Arrival::of(job, now)?;
        // As for puts, a done job counts as absent, unless the other one is done, too, or is the same:
        // then it was imported before.
        let there = self.table.peek(&id)?;
        let done = there.is_some_and(Record::is_done);
        let counts_as_there = |record: &Record| match &arrival {
            Some(Arrival { job, .. }) => {
                let is_same = (record.version.generation, record.created_at)
                    == (job.version.generation, job.created_at);
                is_same || job.done.is_some()
            }
            None => false,
        };
        let is_there = there.is_some_and(|record| !done || counts_as_there(record));
        // Also for a job that is not imported: its generation was assigned.
        self.raise(newest, Fence(0));
        if is_there {
            return Ok(Restored::Kept);
        }
        let Some(Arrival { job, floor }) = arrival else { return Ok(Restored::Ended) };
        if done {
            self.table.take(&id)?;
        }
        let seq = self.next_seq();
        self.table.keep(id, Box::new(restored(job, floor, seq)));
        Ok(Restored::Created)
    }
}

fn restored(job: JobView, floor: Timestamp, seq: u64) -> Record {
    let status = match (job.died_at, job.done) {
        (Some(died_at), _) => Status::Dead { died_at },
        (None, Some(done)) => Status::Done(Box::new(done)),
        (None, None) => Status::Pending,
    };
    Record {
        floor,
        status,
        attempts: job.attempts,
        deaths: job.deaths,
        failures: job.failures,
        updated_at: job.updated_at,
        // The first put, from which debounce counts, is not before the creation. So no debounced
        // job waits longer than its maximum.
        ..Record::new(job.version, seq, job.created_at)
    }
}
