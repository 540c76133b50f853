//! Jobs of another store.

use super::job_table::JobTable;
use super::kind::KindState;
use super::record::{Record, Status};
use crate::error::{Invalid, StoreError};
use crate::job::JobView;
use crate::receipt::{Fence, Generation};
use crate::restore::{Arrival, Restored};
use crate::time::Timestamp;

impl<S> KindState<S> {
    /// From now on higher ones are given out.
    pub fn raise(&mut self, generation: Generation, fence: Fence) {
        let counters = &mut self.counters;
        counters.generation = counters.generation.max(generation.0);
        counters.fence = counters.fence.max(fence.0);
    }
}

impl<S: JobTable> KindState<S> {
    /// Keeps a job that another store had.
    pub fn restore(&mut self, job: JobView, now: Timestamp) -> Result<Restored, StoreError> {
        let (id, newest) = (job.id.clone(), job.newest_generation());
        if job.kind != self.name {
            let reason = "it is of another kind than the batch";
            return Err(Invalid::InconsistentJob { id, reason }.into());
        }
        let arrival = Arrival::of(job, now)?;
        let is_there = self.table.peek(&id)?.is_some();
        // Also for one that does not arrive: it was given out.
        self.raise(newest, Fence(0));
        if is_there {
            return Ok(Restored::Kept);
        }
        let Some(Arrival { job, floor }) = arrival else { return Ok(Restored::Ended) };
        let seq = self.next_seq();
        self.table.keep(id, Box::new(restored(job, floor, seq)));
        Ok(Restored::Created)
    }
}

fn restored(job: JobView, floor: Timestamp, seq: u64) -> Record {
    let status = match job.died_at {
        Some(died_at) => Status::Dead { died_at },
        None => Status::Pending,
    };
    Record {
        floor,
        status,
        attempts: job.attempts,
        deaths: job.deaths,
        failures: job.failures,
        updated_at: job.updated_at,
        // Its first put, as debounce counts it, is no earlier than its creation: no debounced
        // job waits for longer than it may.
        ..Record::new(job.body, job.due, job.generation, seq, job.created_at)
    }
}
