//! What is known of workers, and when it is forgotten.

use super::lease::{Lease, Leases};
use super::{FORGOTTEN_AFTER, MAX_KINDS_SHOWN, MAX_WORKERS, Worker};
use crate::instrumented::words::Ended;
use requeue_jobs::{ClaimedJob, Kind, Receipt, Timestamp, WorkerName};
use std::collections::HashMap;
use std::sync::MutexGuard;

#[derive(Debug, Default)]
pub(super) struct State {
    /// Invariant: at most [`MAX_WORKERS`].
    workers: HashMap<WorkerName, Known>,
    leases: Leases,
}

/// What is known of a worker.
#[derive(Debug, Default)]
pub(super) struct Known {
    kinds: Vec<Kind>,
    first_seen: Timestamp,
    last_seen: Timestamp,
    pub(super) waiting: u32,
    claimed: u64,
    acked: u64,
    failed: u64,
}

impl State {
    /// A worker that asks for jobs of these kinds now.
    pub(super) fn worker(
        &mut self,
        name: &WorkerName,
        kinds: &[Kind],
        now: Timestamp,
    ) -> &mut Known {
        if !self.workers.contains_key(name) {
            self.make_room(now);
            let new = Known { first_seen: now, ..Known::default() };
            self.workers.insert(name.clone(), new);
        }
        let known = self.workers.get_mut(name).expect("it is there, or was just put there");
        known.last_seen = now;
        let kinds = &kinds[..kinds.len().min(MAX_KINDS_SHOWN)];
        if known.kinds != kinds {
            known.kinds = kinds.to_vec();
        }
        known
    }

    pub(super) fn waited(&mut self, name: &WorkerName, now: Timestamp) {
        // It may have been forgotten, and be another that has come since.
        if let Some(known) = self.workers.get_mut(name) {
            known.waiting = known.waiting.saturating_sub(1);
            known.last_seen = now;
        }
    }

    pub(super) fn claimed(
        &mut self,
        name: &WorkerName,
        kinds: &[Kind],
        jobs: &[ClaimedJob],
        now: Timestamp,
    ) -> Vec<Kind> {
        self.worker(name, kinds, now).claimed += jobs.len() as u64;
        let expired = jobs.iter().filter(|job| self.leases.given(job, name, now));
        expired.map(|job| job.kind().clone()).collect()
    }

    pub(super) fn seen(&mut self, now: Timestamp) -> Vec<Worker> {
        self.forget(now);
        let held = self.held(now);
        let seen = self.workers.iter().map(|(name, known)| Worker {
            name: name.clone(),
            kinds: known.kinds.iter().map(Kind::to_string).collect(),
            first_seen: known.first_seen,
            last_seen: known.last_seen,
            waiting: known.waiting,
            claimed: known.claimed,
            acked: known.acked,
            failed: known.failed,
            held: held.get(name).copied().unwrap_or_default(),
        });
        let mut seen: Vec<Worker> = seen.collect();
        seen.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        seen
    }

    /// How many leases each holds. Counted when it is asked for: leases end by themselves.
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

    /// Forgets those that were not seen for long, and neither wait nor hold anything.
    fn forget(&mut self, now: Timestamp) {
        let gone = |known: &Known| {
            known.waiting == 0 && now >= known.last_seen.saturating_add(FORGOTTEN_AFTER)
        };
        if self.workers.values().any(gone) {
            let held = self.held(now);
            self.workers.retain(|name, known| !gone(known) || held.contains_key(name));
        }
    }

    /// Makes room for one more. Where nobody is to be forgotten yet, a tenth is, for it takes a
    /// look at all: those that were not seen for longest.
    fn make_room(&mut self, now: Timestamp) {
        if self.workers.len() < MAX_WORKERS {
            return;
        }
        self.forget(now);
        if self.workers.len() < MAX_WORKERS {
            return;
        }
        let mut ages: Vec<_> =
            self.workers.iter().map(|(name, known)| (known.last_seen, name.clone())).collect();
        let (oldest, ..) = ages.select_nth_unstable(MAX_WORKERS / 10);
        for (_, name) in oldest {
            self.workers.remove(name);
        }
    }
}

/// For a batch of settlements.
pub(crate) struct Book<'a> {
    pub(super) now: Timestamp,
    pub(super) state: MutexGuard<'a, State>,
}

impl Book<'_> {
    /// A lease ended. Answers it, if this node gave it out.
    pub(crate) fn ended(&mut self, receipt: &Receipt, ended: Ended) -> Option<Lease> {
        let lease = self.state.leases.take(receipt)?;
        if let Some(known) = self.seen(&lease) {
            match ended {
                Ended::Acked | Ended::Requeued => known.acked += 1,
                Ended::Retried | Ended::Dead => known.failed += 1,
                Ended::Released | Ended::Cancelled => {}
            }
        }
        Some(lease)
    }

    /// A lease ends later. Answers it, if this node gave it out.
    pub(crate) fn extended(&mut self, receipt: &Receipt, ends_at: Timestamp) -> Option<Lease> {
        let lease = self.state.leases.extend(receipt, ends_at)?;
        self.seen(&lease);
        Some(lease)
    }

    /// A lease was over already.
    pub(crate) fn lost(&mut self, receipt: &Receipt) {
        self.state.leases.lose(receipt);
    }

    fn seen(&mut self, lease: &Lease) -> Option<&mut Known> {
        let known = self.state.workers.get_mut(&lease.worker)?;
        known.last_seen = self.now;
        Some(known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(n: usize) -> WorkerName {
        WorkerName::new(format!("w{n}")).expect("a valid name")
    }

    #[test]
    fn when_there_are_too_many_those_not_seen_for_longest_go() {
        let mut state = State::default();
        for n in 0..MAX_WORKERS {
            state.worker(&name(n), &[], Timestamp::from_millis(n as u64));
        }
        let now = Timestamp::from_millis(MAX_WORKERS as u64);
        state.worker(&name(0), &[], now);
        state.worker(&name(MAX_WORKERS), &[], now);
        assert_eq!(state.workers.len(), MAX_WORKERS - MAX_WORKERS / 10 + 1);
        let gone = (0..=MAX_WORKERS).filter(|n| !state.workers.contains_key(&name(*n)));
        assert!(gone.eq(1..=MAX_WORKERS / 10), "not the one that was seen again");
    }

    #[test]
    fn one_that_waits_is_not_forgotten_and_one_that_was_may_have_waited() {
        let mut state = State::default();
        state.worker(&name(1), &[], Timestamp::from_millis(0)).waiting += 1;
        state.worker(&name(2), &[], Timestamp::from_millis(0));
        let later = Timestamp::from_millis(0).saturating_add(FORGOTTEN_AFTER);
        let seen: Vec<_> = state.seen(later).into_iter().map(|worker| worker.name).collect();
        assert_eq!(seen, [name(1)]);
        state.waited(&name(1), later);
        state.waited(&name(2), later);
        assert_eq!(state.seen(later)[0].waiting, 0);
    }
}
