//! The table of workers, and when a worker is removed from it.

use super::leases::{LeaseTable, TrackedLease};
use super::{FORGOTTEN_AFTER, MAX_KINDS_SHOWN, MAX_WORKERS, WorkerInfo};
use crate::instrumented::outcomes::LeaseEnd;
use requeue_jobs::{ClaimedJob, ExpiredLease, Kind, Receipt, Timestamp, WorkerName};
use std::collections::HashMap;
use std::sync::MutexGuard;

#[derive(Debug, Default)]
pub(super) struct State {
    /// Invariant: at most [`MAX_WORKERS`] entries.
    workers: HashMap<WorkerName, WorkerRecord>,
    leases: LeaseTable,
}

/// A worker. The number of leases that it holds is in [`State::leases`].
#[derive(Debug, Default)]
pub(super) struct WorkerRecord {
    kinds: Vec<Kind>,
    first_seen: Timestamp,
    last_seen: Timestamp,
    pub(super) waiting: u32,
    claimed: u64,
    acked: u64,
    failed: u64,
    expired: u64,
    expired_in_a_row: u64,
}

impl State {
    /// Returns the record of a worker that claims jobs of these kinds now, and creates it if
    /// necessary.
    pub(super) fn worker(
        &mut self,
        name: &WorkerName,
        kinds: &[Kind],
        now: Timestamp,
    ) -> &mut WorkerRecord {
        if !self.workers.contains_key(name) {
            self.make_room(now);
            let new = WorkerRecord { first_seen: now, ..WorkerRecord::default() };
            self.workers.insert(name.clone(), new);
        }
        let record = self.workers.get_mut(name).expect("it is there or was just inserted");
        record.last_seen = now;
        let kinds = &kinds[..kinds.len().min(MAX_KINDS_SHOWN)];
        if record.kinds != kinds {
            record.kinds = kinds.to_vec();
        }
        record
    }

    /// Records that a claim of this worker no longer waits.
    pub(super) fn stop_waiting(&mut self, name: &WorkerName, now: Timestamp) {
        // The record may have been removed, and created anew, since the claim began to wait.
        if let Some(record) = self.workers.get_mut(name) {
            record.waiting = record.waiting.saturating_sub(1);
            record.last_seen = now;
        }
    }

    /// Records the jobs that a worker claimed.
    pub(super) fn claimed(
        &mut self,
        name: &WorkerName,
        kinds: &[Kind],
        jobs: &[ClaimedJob],
        now: Timestamp,
    ) {
        self.worker(name, kinds, now).claimed += jobs.len() as u64;
        for job in jobs {
            self.leases.add(job, name, now);
        }
    }

    /// Counts leases that have expired. A worker that claims through other nodes only is not tracked
    /// here.
    pub(super) fn expired(&mut self, leases: &[ExpiredLease]) {
        for lease in leases {
            if let Some(record) = self.workers.get_mut(&lease.worker) {
                record.expired += 1;
                record.expired_in_a_row += 1;
            }
        }
    }

    /// Returns the workers of which at least this many leases have expired since they last settled
    /// one, and how many.
    pub(super) fn unsettled(&mut self, now: Timestamp, at_least: u64) -> Vec<(WorkerName, u64)> {
        self.remove_stale(now);
        let expired = |(name, record): (&WorkerName, &WorkerRecord)| {
            (record.expired_in_a_row >= at_least).then(|| (name.clone(), record.expired_in_a_row))
        };
        self.workers.iter().filter_map(expired).collect()
    }

    /// Returns all workers, sorted by name.
    pub(super) fn list(&mut self, now: Timestamp) -> Vec<WorkerInfo> {
        self.remove_stale(now);
        let held = self.held(now);
        let workers = self.workers.iter().map(|(name, record)| WorkerInfo {
            name: name.clone(),
            kinds: record.kinds.iter().map(Kind::to_string).collect(),
            first_seen: record.first_seen,
            last_seen: record.last_seen,
            waiting: record.waiting,
            claimed: record.claimed,
            acked: record.acked,
            failed: record.failed,
            expired: record.expired,
            expired_in_a_row: record.expired_in_a_row,
            held: held.get(name).copied().unwrap_or_default(),
        });
        let mut workers: Vec<WorkerInfo> = workers.collect();
        workers.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        workers
    }

    /// Returns how many leases each worker holds. Counted on demand, because leases expire on their
    /// own.
    fn held(&self, now: Timestamp) -> HashMap<WorkerName, u64> {
        let mut held = HashMap::new();
        for worker in self.leases.holders(now) {
            match held.get_mut(worker) {
                Some(count) => *count += 1,
                None => drop(held.insert(worker.clone(), 1)),
            }
        }
        held
    }

    /// Removes workers that were not seen for [`FORGOTTEN_AFTER`], do not wait and hold no lease.
    fn remove_stale(&mut self, now: Timestamp) {
        let is_stale = |record: &WorkerRecord| {
            record.waiting == 0 && now >= record.last_seen.saturating_add(FORGOTTEN_AFTER)
        };
        if self.workers.values().any(is_stale) {
            let held = self.held(now);
            self.workers.retain(|name, record| !is_stale(record) || held.contains_key(name));
        }
    }

    /// Makes room for one more worker. If the table is full and no worker is stale, this removes
    /// the tenth of all workers that were not seen for longest, because finding them takes a pass
    /// over the whole table.
    fn make_room(&mut self, now: Timestamp) {
        if self.workers.len() < MAX_WORKERS {
            return;
        }
        self.remove_stale(now);
        if self.workers.len() < MAX_WORKERS {
            return;
        }
        let mut ages: Vec<_> =
            self.workers.iter().map(|(name, record)| (record.last_seen, name.clone())).collect();
        let (oldest, ..) = ages.select_nth_unstable(MAX_WORKERS / 10);
        for (_, name) in oldest {
            self.workers.remove(name);
        }
    }
}

/// Records the results of a batch of settlements under one lock.
pub(crate) struct SettlementRecorder<'a> {
    pub(super) now: Timestamp,
    pub(super) state: MutexGuard<'a, State>,
}

impl SettlementRecorder<'_> {
    /// Records that a settlement ended a lease. Returns the lease if it was claimed through this
    /// node.
    pub(crate) fn ended(&mut self, receipt: &Receipt, end: LeaseEnd) -> Option<TrackedLease> {
        let lease = self.state.leases.remove(receipt)?;
        if let Some(record) = self.seen(&lease) {
            record.expired_in_a_row = 0;
            match end {
                LeaseEnd::Acked | LeaseEnd::Requeued => record.acked += 1,
                LeaseEnd::Retried | LeaseEnd::Dead => record.failed += 1,
                LeaseEnd::Released | LeaseEnd::Cancelled => {}
            }
        }
        Some(lease)
    }

    /// Records that a lease was extended. Returns the lease if it was claimed through this node.
    pub(crate) fn extended(
        &mut self,
        receipt: &Receipt,
        ends_at: Timestamp,
    ) -> Option<TrackedLease> {
        let lease = self.state.leases.extend(receipt, ends_at)?;
        self.seen(&lease);
        Some(lease)
    }

    /// Records that a receipt is no longer valid.
    pub(crate) fn lost(&mut self, receipt: &Receipt) {
        self.state.leases.remove(receipt);
    }

    /// Updates the time at which the holder of the lease was last seen.
    fn seen(&mut self, lease: &TrackedLease) -> Option<&mut WorkerRecord> {
        let record = self.state.workers.get_mut(&lease.worker)?;
        record.last_seen = self.now;
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(n: usize) -> WorkerName {
        WorkerName::new(format!("w{n}")).expect("a valid name")
    }

    #[test]
    fn a_full_table_drops_the_workers_not_seen_for_longest() {
        let mut state = State::default();
        for n in 0..MAX_WORKERS {
            state.worker(&name(n), &[], Timestamp::from_millis(n as u64));
        }
        let now = Timestamp::from_millis(MAX_WORKERS as u64);
        state.worker(&name(0), &[], now);
        state.worker(&name(MAX_WORKERS), &[], now);
        assert_eq!(state.workers.len(), MAX_WORKERS - MAX_WORKERS / 10 + 1);
        let gone = (0..=MAX_WORKERS).filter(|n| !state.workers.contains_key(&name(*n)));
        assert!(gone.eq(1..=MAX_WORKERS / 10), "the worker that was seen again stays");
    }

    #[test]
    fn a_waiting_worker_is_not_removed_and_a_removed_one_may_stop_waiting() {
        let mut state = State::default();
        state.worker(&name(1), &[], Timestamp::from_millis(0)).waiting += 1;
        state.worker(&name(2), &[], Timestamp::from_millis(0));
        let later = Timestamp::from_millis(0).saturating_add(FORGOTTEN_AFTER);
        let names: Vec<_> = state.list(later).into_iter().map(|worker| worker.name).collect();
        assert_eq!(names, [name(1)]);
        state.stop_waiting(&name(1), later);
        state.stop_waiting(&name(2), later);
        assert_eq!(state.list(later)[0].waiting, 0);
    }
}
