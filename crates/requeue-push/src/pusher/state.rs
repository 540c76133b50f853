//! What is in flight, and what may start: the rules of a pusher, without a clock, tasks or I/O.

use super::PushTarget;
use super::budget::{Budget, Usage};
use super::status::{
    DeliveryCounts, DurationHistogram, LastError, PushKindStatus, PushStatus, PushTargetStatus,
};
use crate::circuit::{Circuit, Permit, Signal};
use requeue::Moment;
use requeue_jobs::{Kind, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// The limits over all kinds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) in_flight: usize,
    pub(super) bytes: usize,
}

pub(super) struct PushState {
    kinds: BTreeMap<Kind, KindState>,
    /// Invariant: each target of a kind is here, and each with deliveries in flight.
    targets: BTreeMap<Arc<str>, TargetState>,
    budget: Budget,
    /// The kinds that wait for room in the budget. All are notified when there is some: it is rare that the
    /// budget is used up.
    crowded: BTreeSet<Kind>,
    stopped: bool,
}

struct KindState {
    /// `None` if the kind is no longer delivered. It stays here until its task has ended.
    push: Option<(PushTarget, Arc<str>)>,
    /// What it uses of the budget: for its deliveries, and for the jobs that a claim may return.
    used: Usage,
    delivering: usize,
    /// Whether the task of the kind waits until a delivery of it, or of its target, has ended.
    waits: bool,
    changed: Arc<Notify>,
    counts: DeliveryCounts,
    durations: DurationHistogram,
    last_error: Option<LastError>,
}

struct TargetState {
    circuit: Circuit,
    /// The kinds that are delivered to the target, and their concurrency.
    kinds: BTreeMap<Kind, u32>,
    /// Permits that were not given back, also those that the circuit no longer counts.
    permits: usize,
    delivering: usize,
    last_error: Option<LastError>,
}

/// The result of [`PushState::set`].
pub(super) struct Set {
    /// Whether the kind needs a task.
    pub(super) is_new: bool,
    pub(super) changed: Arc<Notify>,
}

/// What the task of a kind does next.
pub(super) enum Admission {
    /// Claim jobs.
    Claim(Grant),
    /// Wait for a notification, or until this time.
    Wait(Option<Moment>),
    /// The kind is no longer delivered.
    End,
}

/// The right to claim jobs and to deliver them.
pub(super) struct Grant {
    pub(super) push: PushTarget,
    pub(super) target: Arc<str>,
    pub(super) permit: Permit,
    /// How many jobs, and how many bytes their bodies have at most.
    pub(super) room: Usage,
}

/// A delivery that has ended.
pub(super) struct Ended<'a> {
    pub(super) kind: &'a Kind,
    pub(super) target: &'a Arc<str>,
    pub(super) permit: Permit,
    pub(super) bytes: usize,
}

/// What a delivery brought.
pub(super) struct Verdict {
    pub(super) signal: Signal,
    pub(super) took: Duration,
    pub(super) error: Option<LastError>,
    /// Adds the delivery to the counts.
    pub(super) count: fn(&mut DeliveryCounts),
}

impl PushState {
    pub(super) fn new(limits: Limits) -> Self {
        let budget = Budget::new(limits.in_flight, limits.bytes);
        PushState {
            kinds: BTreeMap::new(),
            targets: BTreeMap::new(),
            budget,
            crowded: BTreeSet::new(),
            stopped: false,
        }
    }

    pub(super) fn set(&mut self, kind: &Kind, push: Option<PushTarget>) -> Set {
        let push = push.filter(|_| !self.stopped).map(|push| {
            let name: Arc<str> = push.target.name().into();
            (push, name)
        });
        self.leave_targets(kind);
        if let Some((push, name)) = &push {
            let target = self.targets.entry(Arc::clone(name)).or_insert_with(TargetState::new);
            target.kinds.insert(kind.clone(), push.concurrency);
        }
        self.targets.retain(|_, target| target.is_used());
        let known = self.kinds.get_mut(kind);
        match (known, push) {
            (Some(known), push) => {
                known.push = push;
                Set { is_new: false, changed: Arc::clone(&known.changed) }
            }
            (None, None) => Set { is_new: false, changed: Arc::default() },
            (None, push) => {
                let changed = Arc::new(Notify::new());
                let state = KindState {
                    push,
                    used: Usage::default(),
                    delivering: 0,
                    waits: false,
                    changed: Arc::clone(&changed),
                    counts: DeliveryCounts::default(),
                    durations: DurationHistogram::default(),
                    last_error: None,
                };
                self.kinds.insert(kind.clone(), state);
                Set { is_new: true, changed }
            }
        }
    }

    pub(super) fn kinds(&self) -> Vec<Kind> {
        self.kinds.keys().cloned().collect()
    }

    /// Returns what to notify.
    pub(super) fn stop(&mut self) -> Vec<Arc<Notify>> {
        self.stopped = true;
        self.kinds.values().map(|kind| Arc::clone(&kind.changed)).collect()
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Returns how many deliveries are in flight.
    pub(super) fn delivering(&self) -> usize {
        self.targets.values().map(|target| target.delivering).sum()
    }

    /// Whether no delivery is in flight and no task of a kind is running.
    pub(super) fn has_ended(&self) -> bool {
        self.kinds.is_empty()
    }

    /// Decides what the task of a kind does next.
    pub(super) fn admit(&mut self, now: Moment, kind: &Kind) -> Admission {
        let Some(state) = self.kinds.get_mut(kind) else { return Admission::End };
        let (push, name) = match &state.push {
            Some((push, name)) if !self.stopped => (push.clone(), Arc::clone(name)),
            _ => return Admission::End,
        };
        let Some(target) = self.targets.get_mut(&name) else { return Admission::End };
        state.waits = true;
        let wanted = (push.concurrency as usize).saturating_sub(state.used.in_flight);
        let mut room = self.budget.take(state.used, wanted);
        if wanted > 0 && room.in_flight == 0 {
            self.crowded.insert(kind.clone());
        }
        // A batch is far below the largest number.
        let (granted, permit) = target.circuit.acquire(now, room.in_flight as u32);
        let unused = Usage { in_flight: room.in_flight - granted as usize, bytes: 0 };
        self.budget.give_back(unused);
        room.in_flight = granted as usize;
        if granted == 0 {
            self.budget.give_back(room);
            return Admission::Wait(target.circuit.until(now));
        }
        state.waits = false;
        state.used = state.used.saturating_add(room);
        target.permits += room.in_flight;
        Admission::Claim(Grant { push, target: name, permit, room })
    }

    /// Records which jobs a claim returned: gives the rest of the room back. Returns what to notify.
    pub(super) fn claimed(
        &mut self,
        now: Moment,
        kind: &Kind,
        grant: &Grant,
        jobs: Usage,
    ) -> Vec<Arc<Notify>> {
        debug_assert!(jobs.in_flight <= grant.room.in_flight && jobs.bytes <= grant.room.bytes);
        let unused = grant.room.saturating_sub(jobs);
        let mut limited = false;
        for _ in 0..unused.in_flight {
            limited |= self.leave_target(now, &grant.target, grant.permit, Signal::None);
        }
        self.give_back(kind, unused);
        if let Some(target) = self.targets.get_mut(&grant.target) {
            target.delivering += jobs.in_flight;
        }
        if let Some(kind) = self.kinds.get_mut(kind) {
            kind.delivering += jobs.in_flight;
        }
        self.waiting(&grant.target, kind, limited)
    }

    /// Records that a delivery has ended. Returns what to notify.
    pub(super) fn ended(
        &mut self,
        now: Moment,
        ended: &Ended<'_>,
        verdict: Option<Verdict>,
    ) -> Vec<Arc<Notify>> {
        let signal = verdict.as_ref().map_or(Signal::None, |verdict| verdict.signal);
        if let Some(target) = self.targets.get_mut(ended.target) {
            target.delivering = target.delivering.saturating_sub(1);
        }
        let limited = self.leave_target(now, ended.target, ended.permit, signal);
        self.give_back(ended.kind, Usage { in_flight: 1, bytes: ended.bytes });
        if let Some(kind) = self.kinds.get_mut(ended.kind) {
            kind.delivering = kind.delivering.saturating_sub(1);
        }
        if let Some(Verdict { took, error, count, .. }) = verdict {
            if let Some(target) = self.targets.get_mut(ended.target)
                && error.is_some()
            {
                target.last_error.clone_from(&error);
            }
            if let Some(kind) = self.kinds.get_mut(ended.kind) {
                count(&mut kind.counts);
                kind.durations.add(took);
                kind.last_error = error.or(kind.last_error.take());
            }
        }
        self.waiting(ended.target, ended.kind, limited)
    }

    /// Takes room for the result of a delivery, which is given back when the delivery has ended. Returns
    /// `false` if there is none.
    pub(super) fn hold(&mut self, kind: &Kind, bytes: usize) -> bool {
        let fits = self.budget.take_bytes(bytes);
        if fits && let Some(kind) = self.kinds.get_mut(kind) {
            kind.used = kind.used.saturating_add(Usage { in_flight: 0, bytes });
        }
        fits
    }

    /// Counts a delivery whose outcome could not be stored.
    pub(super) fn count_unsettled(&mut self, kind: &Kind) {
        if let Some(kind) = self.kinds.get_mut(kind) {
            kind.counts.unsettled += 1;
        }
    }

    /// Removes a kind that is no longer delivered and has nothing in flight, when its task is about to end.
    /// Returns `false` if the task has to go on.
    pub(super) fn remove(&mut self, kind: &Kind) -> bool {
        match self.kinds.get(kind) {
            Some(state) if state.push.is_some() && !self.stopped => false,
            _ => {
                self.leave_targets(kind);
                self.targets.retain(|_, target| target.is_used());
                self.crowded.remove(kind);
                self.kinds.remove(kind);
                true
            }
        }
    }

    pub(super) fn status(&self, now: Moment, time: Timestamp) -> PushStatus {
        let kinds = self.kinds.iter().filter_map(|(kind, state)| {
            let (push, target) = state.push.as_ref()?;
            Some(PushKindStatus {
                kind: kind.clone(),
                target: target.to_string(),
                in_flight: state.delivering,
                concurrency: push.concurrency,
                deliveries: state.counts,
                durations: state.durations.clone(),
                last_error: state.last_error.clone(),
            })
        });
        let date = |at: Moment| time.saturating_add(at.saturating_since(now));
        let targets = self.targets.iter().map(|(name, state)| PushTargetStatus {
            target: name.to_string(),
            circuit: state.circuit.state(),
            until: state.circuit.until(now).map(date),
            in_flight: state.delivering,
            limit: state.circuit.limit(),
            last_error: state.last_error.clone(),
        });
        PushStatus {
            kinds: kinds.collect(),
            targets: targets.collect(),
            in_flight: self.delivering(),
            bytes: self.budget.bytes(),
        }
    }

    /// Gives a permit back to its target. Returns whether the target had or has a limit, for which other kinds
    /// may wait.
    fn leave_target(
        &mut self,
        now: Moment,
        name: &Arc<str>,
        permit: Permit,
        signal: Signal,
    ) -> bool {
        let Some(target) = self.targets.get_mut(name) else { return false };
        debug_assert!(target.permits > 0);
        target.permits = target.permits.saturating_sub(1);
        let max = target.kinds.values().copied().fold(0, u32::saturating_add);
        let limited = target.circuit.limit().is_some();
        target.circuit.finish(now, permit, signal, max);
        let limited = limited || target.circuit.limit().is_some();
        if !target.is_used() {
            self.targets.remove(name);
        }
        limited
    }

    fn give_back(&mut self, kind: &Kind, room: Usage) {
        self.budget.give_back(room);
        if let Some(kind) = self.kinds.get_mut(kind) {
            kind.used = kind.used.saturating_sub(room);
        }
    }

    /// Returns what to notify after a delivery of this kind and target has ended: the kinds that wait and
    /// may have room now.
    fn waiting(&mut self, target: &Arc<str>, kind: &Kind, limited: bool) -> Vec<Arc<Notify>> {
        let mut found = mem::take(&mut self.crowded);
        found.insert(kind.clone());
        if limited && let Some(target) = self.targets.get(target) {
            found.extend(target.kinds.keys().cloned());
        }
        let waits = found.iter().filter_map(|kind| self.kinds.get(kind)).filter(|kind| kind.waits);
        waits.map(|kind| Arc::clone(&kind.changed)).collect()
    }

    /// Takes a kind out of the target that it had.
    fn leave_targets(&mut self, kind: &Kind) {
        let before = self.kinds.get(kind).and_then(|kind| kind.push.as_ref());
        if let Some((_, name)) = before
            && let Some(target) = self.targets.get_mut(name)
        {
            target.kinds.remove(kind);
        }
    }
}

impl TargetState {
    fn new() -> Self {
        TargetState {
            circuit: Circuit::new(),
            kinds: BTreeMap::new(),
            permits: 0,
            delivering: 0,
            last_error: None,
        }
    }

    /// Whether a kind is delivered to the target, or has permits. A circuit that is not closed is
    /// forgotten with its target.
    fn is_used(&self) -> bool {
        !self.kinds.is_empty() || self.permits > 0
    }
}

#[cfg(test)]
mod tests;
