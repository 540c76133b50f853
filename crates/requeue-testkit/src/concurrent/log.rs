//! The calls of all clients, with their results and times.

use crate::fixture::block_on;
use requeue_jobs::{
    BatchResults, Change, ChangeError, ChangeKind, Changed, Claim, Claimed, ClaimedJob, JobId,
    Kind, Mode, Placed, Put, PutError, Reschedule, Settle, SettleError, Settled, Store, StoreError,
    Timestamp, WallClock,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// A call and its result. If it took effect, it did so during its span.
#[derive(Debug, Clone)]
pub(super) struct Event {
    pub(super) span: Span,
    pub(super) call: Call,
}

#[derive(Debug, Clone)]
pub(super) enum Call {
    Put(Put, Result<Placed, PutError>),
    Claim(Claim, Result<Claimed, StoreError>),
    Settle(Settle, Result<Settled, SettleError>),
    Change(Change, Result<Changed, ChangeError>),
}

/// The time from a call to its result.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    /// The position among the beginnings and ends of all calls.
    pub(super) began: u64,
    pub(super) ended: u64,
    pub(super) began_at: Timestamp,
    pub(super) ended_at: Timestamp,
}

impl Span {
    /// Returns whether it ended before the other began. If neither did, their order is unknown.
    pub(super) fn is_before(&self, other: &Span) -> bool {
        self.ended < other.began
    }

    /// Returns the span of a call that may still take effect later.
    pub(super) fn without_end(self) -> Span {
        Span { ended: u64::MAX, ended_at: Timestamp::from_millis(u64::MAX), ..self }
    }
}

/// Makes calls and records them.
pub(super) struct Log {
    events: Mutex<Vec<Event>>,
    /// Counts the beginnings and ends of calls.
    order: AtomicU64,
    wall_clock: WallClock,
}

impl Log {
    pub(super) fn new() -> Self {
        let (events, order) = (Mutex::default(), AtomicU64::new(0));
        Log { events, order, wall_clock: WallClock::system() }
    }

    pub(super) fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn instant(&self) -> (u64, Timestamp) {
        (self.order.fetch_add(1, Ordering::SeqCst), self.wall_clock.now())
    }

    /// Makes a call, and records the calls that `entries` makes of the result.
    fn record<T>(&self, call: impl FnOnce() -> T, entries: impl FnOnce(&T) -> Vec<Call>) -> T {
        let (began, began_at) = self.instant();
        let result = call();
        let (ended, ended_at) = self.instant();
        let span = Span { began, ended, began_at, ended_at };
        let events = entries(&result).into_iter().map(|call| Event { span, call });
        self.events.lock().unwrap_or_else(PoisonError::into_inner).extend(events);
        result
    }

    /// Records each entry of a batch. It may have taken effect at any time during the call.
    fn record_batch<Q: Clone, T: Clone, E: Clone + From<StoreError>>(
        &self,
        batch: Vec<Q>,
        call: impl FnOnce(Vec<Q>) -> Result<BatchResults<T, E>, StoreError>,
        entry: impl Fn(Q, Result<T, E>) -> Call,
    ) -> BatchResults<T, E> {
        let call = || match call(batch.clone()) {
            Ok(results) => results,
            Err(error) => batch.iter().map(|_| Err(error.clone().into())).collect(),
        };
        self.record(call, |results: &BatchResults<T, E>| {
            assert_eq!(results.len(), batch.len(), "there is one result per entry");
            let each = batch.iter().cloned().zip(results.iter().cloned());
            each.map(|(of, result)| entry(of, result)).collect()
        })
    }

    pub(super) fn put(&self, store: &dyn Store, puts: Vec<Put>) {
        self.record_batch(puts, |puts| block_on(store.put(puts)), Call::Put);
    }

    pub(super) fn claim(&self, store: &dyn Store, claim: Claim) -> Vec<ClaimedJob> {
        let call = || block_on(store.claim(claim.clone()));
        let result = self.record(call, |result| vec![Call::Claim(claim.clone(), result.clone())]);
        result.map(|claimed| claimed.jobs).unwrap_or_default()
    }

    pub(super) fn settle(
        &self,
        store: &dyn Store,
        settlements: Vec<Settle>,
    ) -> BatchResults<Settled, SettleError> {
        let call = |settlements| block_on(store.settle(settlements));
        self.record_batch(settlements, call, Call::Settle)
    }

    pub(super) fn change(&self, store: &dyn Store, change: Change) {
        let call = |changes| block_on(store.change(changes));
        self.record_batch(vec![change], call, |change, result| match &change.action {
            ChangeKind::Reschedule(set) => Call::Put(same_put(&change, set), result_of_put(result)),
            _ => Call::Change(change, result),
        });
    }
}

/// Returns the put that does the same as a reschedule, as far as the checks look at it.
fn same_put(change: &Change, set: &Reschedule) -> Put {
    let body = set.body.clone().unwrap_or_default();
    let mut put = Put::new(change.kind.clone(), change.id.clone(), body);
    match set.due {
        Some(due) => put.due = due,
        // The due time depends on the job that existed.
        None => put.mode = Mode::Earliest,
    }
    put
}

fn result_of_put(result: Result<Changed, ChangeError>) -> Result<Placed, PutError> {
    match result {
        Ok(Changed::Rescheduled(placed)) => Ok(placed),
        Err(ChangeError::Store(error)) => Err(error.into()),
        other => Err(StoreError::Unavailable { reason: format!("{other:?}") }.into()),
    }
}

/// Returns all calls for one job, in their order, as lines of a report.
pub(super) fn report(events: &[Event], kind: &Kind, id: &JobId) -> String {
    let mut events: Vec<&Event> = events.iter().collect();
    events.sort_by_key(|event| event.span.began);
    let is_it = |of: &Kind, other: &JobId| of == kind && other == id;
    let line = |event: &&Event| {
        let Span { began, ended, began_at, ended_at } = event.span;
        let text = match &event.call {
            Call::Put(put, result) if is_it(&put.kind, &put.id) => {
                format!("{put:?} -> {result:?}")
            }
            Call::Claim(_, Ok(claimed)) => {
                let job = claimed.jobs.iter().find(|job| is_it(job.kind(), job.id()))?;
                format!("{job:?}")
            }
            Call::Claim(claim, Err(error)) => format!("{claim:?} -> {error:?}"),
            Call::Settle(settle, result) if is_it(settle.receipt.kind(), settle.receipt.id()) => {
                format!("{settle:?} -> {result:?}")
            }
            Call::Change(change, result) if is_it(&change.kind, &change.id) => {
                format!("{change:?} -> {result:?}")
            }
            _ => return None,
        };
        let (from, to) = (began_at.as_millis(), ended_at.as_millis());
        Some(format!("{began}..{ended} ({from}..{to}) {text}"))
    };
    events.iter().filter_map(line).collect::<Vec<_>>().join("\n")
}
