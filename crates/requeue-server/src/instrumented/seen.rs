//! What an answer of the store tells.
//!
//! Nothing is allocated per job, unless somebody listens to events.

use super::InstrumentedStore;
use super::words::{self, Ended, Wish};
use crate::events::{Event, EventName};
use crate::metrics::{ByKind, Verb};
use requeue_jobs::{
    BatchResults, Change, ChangeError, ChangeKind, Changed, Claimed, Generation, JobId, Kind,
    Placed, PutError, Receipt, Restored, SettleError, Settled, StoreError, Timestamp, WorkerName,
};
use std::time::Duration;

impl InstrumentedStore {
    pub(super) fn seen_puts(&self, names: &[(Kind, JobId)], each: &BatchResults<Placed, PutError>) {
        self.metrics.batch(Verb::Put, names.len());
        let mut meters = self.metrics.by_kind();
        for ((kind, id), answer) in names.iter().zip(each) {
            match answer {
                Ok(placed) => self.seen_put(&mut meters, kind, id, *placed),
                Err(PutError::Store(error)) => self.metrics.failed(Verb::Put, error),
                Err(PutError::Exists { .. }) => meters.of(kind).refused.inc(),
                Err(_) => meters.known(kind).refused.inc(),
            }
        }
    }

    pub(super) fn seen_put(&self, meters: &mut ByKind<'_>, kind: &Kind, id: &JobId, put: Placed) {
        let outcome = words::put(put.outcome);
        meters.of(kind).puts[outcome].inc();
        self.events.tell(|| Event {
            generation: Some(put.generation.0),
            outcome: Some(words::PUT[outcome]),
            ..self.event(EventName::Put, kind, Some(id))
        });
    }

    pub(super) fn seen_claim(
        &self,
        worker: &WorkerName,
        kinds: &[Kind],
        lease: Option<Duration>,
        claimed: &Claimed,
    ) {
        self.metrics.batch(Verb::Claim, claimed.jobs.len());
        for (_, error) in &claimed.errors {
            self.metrics.failed(Verb::Claim, error);
        }
        let expired = self.workers.claimed(worker, kinds, &claimed.jobs);
        let mut meters = self.metrics.by_kind();
        for kind in &expired {
            meters.of(kind).expired.inc();
        }
        let here = self.wall_clock.now();
        for job in &claimed.jobs {
            // By the store's clock, where it can be told from the answer.
            let now = lease.map_or(here, |lease| began(job.lease_ends_at, lease));
            let meters = meters.of(job.kind());
            meters.claimed.inc();
            meters.late(now.saturating_since(job.due));
            self.events.tell(|| Event {
                at: now,
                generation: Some(job.generation.0),
                attempt: Some(job.attempt),
                worker: Some(worker.clone()),
                until: Some(job.lease_ends_at),
                ..self.event(EventName::Claimed, job.kind(), Some(job.id()))
            });
        }
    }

    pub(super) fn seen_settlements(
        &self,
        wishes: &[(Receipt, Wish)],
        each: &BatchResults<Settled, SettleError>,
    ) {
        self.metrics.batch(Verb::Settle, wishes.len());
        let mut meters = self.metrics.by_kind();
        let mut workers = self.workers.book();
        for ((receipt, wish), answer) in wishes.iter().zip(each) {
            let kind = receipt.kind();
            let settled = match answer {
                Ok(settled) => *settled,
                Err(SettleError::Store(error)) => {
                    self.metrics.failed(Verb::Settle, error);
                    continue;
                }
                Err(_) => {
                    workers.lost(receipt);
                    meters.known(kind).lost.inc();
                    continue;
                }
            };
            let (name, known) = match (words::ended(*wish, settled), settled) {
                (Some(ended), _) => {
                    meters.of(kind).settled[ended as usize].inc();
                    (ended.into(), workers.ended(receipt, ended))
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
            self.events.tell(|| Event {
                generation: known.as_ref().map(|lease| lease.generation.0),
                attempt: known.as_ref().map(|lease| lease.attempt),
                worker: known.map(|lease| lease.worker),
                until,
                ..self.event(name, kind, Some(receipt.id()))
            });
        }
    }

    pub(super) fn seen_changes(&self, asked: &[Change], each: &BatchResults<Changed, ChangeError>) {
        self.metrics.batch(Verb::Change, asked.len());
        let mut meters = self.metrics.by_kind();
        for (change, answer) in asked.iter().zip(each) {
            let outcome = match answer {
                Ok(changed) => words::changed(*changed),
                Err(ChangeError::Store(error)) => {
                    self.metrics.failed(Verb::Change, error);
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
            };
            self.events.tell(|| Event {
                outcome: Some(words::CHANGED[outcome]),
                ..self.event(name, &change.kind, Some(&change.id))
            });
        }
    }

    pub(super) fn seen_restored(
        &self,
        kind: &Kind,
        names: &[(JobId, Generation)],
        each: &BatchResults<Restored, StoreError>,
    ) {
        self.metrics.batch(Verb::Restore, names.len());
        let mut meters = self.metrics.by_kind();
        for ((id, generation), answer) in names.iter().zip(each) {
            match answer {
                Ok(restored) => {
                    let outcome = words::restored(*restored);
                    meters.of(kind).restored[outcome].inc();
                    self.events.tell(|| Event {
                        generation: Some(generation.0),
                        outcome: Some(words::RESTORED[outcome]),
                        ..self.event(EventName::Restored, kind, Some(id))
                    });
                }
                Err(error) => self.metrics.failed(Verb::Restore, error),
            }
        }
    }

    pub(super) fn seen_settings(&self, kind: &Kind, paused: bool, is_default: bool) {
        // The default is what a kind has that the store does not know.
        if !is_default {
            self.metrics.by_kind().of(kind);
        }
        self.events
            .tell(|| Event { paused: Some(paused), ..self.event(EventName::Settings, kind, None) });
    }

    pub(super) fn seen_schedule(&self, kind: &Kind, id: &JobId, outcome: &'static str) {
        self.events.tell(|| Event {
            outcome: Some(outcome),
            ..self.event(EventName::Schedule, kind, Some(id))
        });
    }

    fn event(&self, event: EventName, kind: &Kind, id: Option<&JobId>) -> Event {
        Event::new(event, kind.clone(), id.cloned(), self.wall_clock.now())
    }
}

impl From<Ended> for EventName {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Acked => EventName::Acked,
            Ended::Requeued => EventName::Requeued,
            Ended::Retried => EventName::Retried,
            Ended::Dead => EventName::Dead,
            Ended::Released => EventName::Released,
            Ended::Cancelled => EventName::Cancelled,
        }
    }
}

/// When a lease of this length began. A store rounds its end up.
fn began(ends_at: Timestamp, lease: Duration) -> Timestamp {
    let length = Timestamp::default().saturating_add(lease).as_millis();
    Timestamp::from_millis(ends_at.as_millis().saturating_sub(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_began_so_long_before_its_end_even_if_it_is_no_whole_milliseconds() {
        let now = Timestamp::from_millis(5000);
        for lease in [Duration::from_millis(30), Duration::from_micros(30_001)] {
            assert_eq!(began(now.saturating_add(lease), lease), now);
        }
        assert_eq!(began(now, Duration::MAX), Timestamp::default());
    }
}
