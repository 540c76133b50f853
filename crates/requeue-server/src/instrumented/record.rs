//! Recording results of the store in metrics, events and workers.
//!
//! Without event listeners nothing is allocated per job.

use super::InstrumentedStore;
use super::outcomes::{self, LeaseEnd, SettleAction};
use crate::events::{Event, EventName};
use crate::metrics::ByKind;
use requeue_jobs::{
    BatchResults, Change, ChangeError, ChangeKind, Changed, Claimed, ExpiredLease, Generation,
    JobId, Kind, Placed, PutError, Receipt, Restored, SCHEDULE_TIMERS, SettleError, Settled,
    StoreError, StoreMethod, Timestamp, WorkerName,
};
use std::time::Duration;

impl InstrumentedStore {
    pub(super) fn record_puts(
        &self,
        names: &[(Kind, JobId)],
        results: &BatchResults<Placed, PutError>,
    ) {
        self.metrics.batch(StoreMethod::Put, names.len());
        let mut meters = self.metrics.by_kind();
        for ((kind, id), result) in names.iter().zip(results) {
            match result {
                Ok(placed) => self.record_put(&mut meters, kind, id, *placed),
                Err(PutError::Store(error)) => self.metrics.failed(StoreMethod::Put, error),
                Err(PutError::Exists { .. }) => meters.of(kind).refused.inc(),
                Err(_) => meters.known(kind).refused.inc(),
            }
        }
    }

    pub(super) fn record_put(&self, meters: &mut ByKind<'_>, kind: &Kind, id: &JobId, put: Placed) {
        let outcome = outcomes::put(put.outcome);
        meters.of(kind).puts[outcome].inc();
        self.events.send(|| Event {
            generation: Some(put.generation.0),
            outcome: Some(outcomes::PUT[outcome]),
            ..self.event(EventName::Put, kind, Some(id))
        });
    }

    /// Counts a run of a schedule, which was expected at this time.
    pub(super) fn record_run(&self, kind: &Kind, id: &JobId, put: Placed, expected: Timestamp) {
        let mut meters = self.metrics.by_kind();
        meters.of(kind).runs.inc();
        self.record_put(&mut meters, kind, id, put);
        self.metrics.schedule_run(self.wall_clock.now().saturating_since(expected));
    }

    pub(super) fn record_claim(
        &self,
        worker: &WorkerName,
        kinds: &[Kind],
        lease: Option<Duration>,
        claimed: &Claimed,
    ) {
        self.metrics.batch(StoreMethod::Claim, claimed.jobs.len());
        for (_, error) in &claimed.errors {
            self.metrics.failed(StoreMethod::Claim, error);
        }
        // The timers of schedules are claimed by the nodes themselves.
        if !matches!(kinds, [kind] if kind.as_str() == SCHEDULE_TIMERS) {
            self.workers.claimed(worker, kinds, &claimed.jobs);
        }
        self.record_expired(&claimed.expired);
        let mut meters = self.metrics.by_kind();
        let node_now = self.wall_clock.now();
        for job in &claimed.jobs {
            // The claim was made at this time by the store's clock, if the lease length is known.
            let now = lease.map_or(node_now, |lease| lease_start(job.lease_ends_at, lease));
            let meters = meters.of(job.kind());
            meters.claimed.inc();
            meters.late(now.saturating_since(job.version.due));
            self.events.send(|| Event {
                at: now,
                generation: Some(job.version.generation.0),
                attempt: Some(job.attempt),
                worker: Some(worker.clone()),
                until: Some(job.lease_ends_at),
                ..self.event(EventName::Claimed, job.kind(), Some(job.id()))
            });
        }
    }

    /// Counts expired leases that a claim or a reap ended.
    pub(super) fn record_expired(&self, leases: &[ExpiredLease]) {
        let mut meters = self.metrics.by_kind();
        for lease in leases {
            meters.of(&lease.kind).lease_expired(lease.died);
        }
        drop(meters);
        self.workers.expired(leases);
    }

    pub(super) fn record_settlements(
        &self,
        actions: &[(Receipt, SettleAction)],
        results: &BatchResults<Settled, SettleError>,
    ) {
        self.metrics.batch(StoreMethod::Settle, actions.len());
        let mut meters = self.metrics.by_kind();
        let mut workers = self.workers.record();
        for ((receipt, action), result) in actions.iter().zip(results) {
            let kind = receipt.kind();
            let settled = match result {
                Ok(settled) => *settled,
                Err(SettleError::Store(error)) => {
                    self.metrics.failed(StoreMethod::Settle, error);
                    continue;
                }
                Err(_) => {
                    workers.lost(receipt);
                    meters.known(kind).lost.inc();
                    continue;
                }
            };
            let (name, lease) = match (outcomes::lease_end(*action, settled), settled) {
                (Some(end), _) => {
                    meters.of(kind).settled[end as usize].inc();
                    (end.into(), workers.ended(receipt, end))
                }
                (None, Settled::Extended(ends_at)) => {
                    meters.of(kind).extended.inc();
                    (EventName::Extended, workers.extended(receipt, ends_at))
                }
                (None, _) => continue,
            };
            let until = match settled {
                Settled::RetryAt(at) | Settled::Extended(at) => Some(at),
                _ => None,
            };
            self.events.send(|| Event {
                generation: lease.as_ref().map(|lease| lease.generation.0),
                attempt: lease.as_ref().map(|lease| lease.attempt),
                worker: lease.map(|lease| lease.worker),
                until,
                ..self.event(name, kind, Some(receipt.id()))
            });
        }
    }

    pub(super) fn record_changes(
        &self,
        requested: &[Change],
        results: &BatchResults<Changed, ChangeError>,
    ) {
        self.metrics.batch(StoreMethod::Change, requested.len());
        let mut meters = self.metrics.by_kind();
        for (change, result) in requested.iter().zip(results) {
            let outcome = match result {
                Ok(changed) => outcomes::changed(*changed),
                Err(ChangeError::Store(error)) => {
                    self.metrics.failed(StoreMethod::Change, error);
                    continue;
                }
                Err(_) => continue,
            };
            let Some(outcome) = outcome else { continue };
            meters.of(&change.kind).changed[outcome].inc();
            let name = match change.action {
                ChangeKind::Cancel => EventName::Cancelled,
                ChangeKind::RunNow => EventName::RunNow,
                ChangeKind::Revive => EventName::Revived,
                ChangeKind::Reschedule(_) => EventName::Rescheduled,
            };
            let generation = match result {
                Ok(Changed::Rescheduled(placed)) => Some(placed.generation.0),
                _ => None,
            };
            self.events.send(|| Event {
                generation,
                outcome: Some(outcomes::CHANGED[outcome]),
                ..self.event(name, &change.kind, Some(&change.id))
            });
        }
    }

    pub(super) fn record_restored(
        &self,
        kind: &Kind,
        jobs: &[(JobId, Generation)],
        results: &BatchResults<Restored, StoreError>,
    ) {
        self.metrics.batch(StoreMethod::Restore, jobs.len());
        let mut meters = self.metrics.by_kind();
        for ((id, generation), result) in jobs.iter().zip(results) {
            match result {
                Ok(restored) => {
                    let outcome = outcomes::restored(*restored);
                    meters.of(kind).restored[outcome].inc();
                    self.events.send(|| Event {
                        generation: Some(generation.0),
                        outcome: Some(outcomes::RESTORED[outcome]),
                        ..self.event(EventName::Restored, kind, Some(id))
                    });
                }
                Err(error) => self.metrics.failed(StoreMethod::Restore, error),
            }
        }
    }

    pub(super) fn record_settings(&self, kind: &Kind, paused: bool, is_default: bool) {
        // Every kind has default settings, also one that the store does not know.
        if !is_default {
            self.metrics.by_kind().of(kind);
        }
        self.events
            .send(|| Event { paused: Some(paused), ..self.event(EventName::Settings, kind, None) });
    }

    pub(super) fn record_schedule(&self, kind: &Kind, id: &JobId, outcome: &'static str) {
        self.events.send(|| Event {
            outcome: Some(outcome),
            ..self.event(EventName::Schedule, kind, Some(id))
        });
    }

    fn event(&self, event: EventName, kind: &Kind, id: Option<&JobId>) -> Event {
        Event::new(event, kind.clone(), id.cloned(), self.wall_clock.now())
    }
}

impl From<LeaseEnd> for EventName {
    fn from(end: LeaseEnd) -> Self {
        match end {
            LeaseEnd::Acked => EventName::Acked,
            LeaseEnd::Requeued => EventName::Requeued,
            LeaseEnd::Retried => EventName::Retried,
            LeaseEnd::Dead => EventName::Dead,
            LeaseEnd::Released => EventName::Released,
            LeaseEnd::Cancelled => EventName::Cancelled,
        }
    }
}

/// Returns the start of a lease from its end and its length. Stores round the end up to a
/// millisecond.
fn lease_start(ends_at: Timestamp, lease: Duration) -> Timestamp {
    let length = Timestamp::default().saturating_add(lease).as_millis();
    Timestamp::from_millis(ends_at.as_millis().saturating_sub(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_begins_its_rounded_length_before_its_end() {
        let now = Timestamp::from_millis(5000);
        for lease in [Duration::from_millis(30), Duration::from_micros(30_001)] {
            assert_eq!(lease_start(now.saturating_add(lease), lease), now);
        }
        assert_eq!(lease_start(now, Duration::MAX), Timestamp::default());
    }
}
