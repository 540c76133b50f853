//! What clients asked and were answered, and between which times.

use crate::fixture::block_on;
use requeue_jobs::{
    BatchResults, Change, ChangeError, Changed, Claim, Claimed, ClaimedJob, JobId, Kind, Placed,
    Put, PutError, Settle, SettleError, Settled, Store, StoreError, Timestamp, WallClock,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// A call and its answer. It took effect in between, if it did.
#[derive(Debug, Clone)]
pub(super) struct Event {
    pub(super) span: Span,
    pub(super) what: Happened,
}

#[derive(Debug, Clone)]
pub(super) enum Happened {
    Put(Put, Result<Placed, PutError>),
    Claim(Claim, Result<Claimed, StoreError>),
    Settle(Settle, Result<Settled, SettleError>),
    Change(Change, Result<Changed, ChangeError>),
}

/// From a call to its answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    /// In the order of all calls and answers.
    pub(super) began: u64,
    pub(super) ended: u64,
    pub(super) began_at: Timestamp,
    pub(super) ended_at: Timestamp,
}

impl Span {
    /// Whether it was over when the other began. Otherwise either may have been first.
    pub(super) fn is_before(&self, other: &Span) -> bool {
        self.ended < other.began
    }

    /// The same, where what it is of may still happen later.
    pub(super) fn without_end(self) -> Span {
        Span { ended: u64::MAX, ended_at: Timestamp::from_millis(u64::MAX), ..self }
    }
}

/// Asks a store, and keeps what it answers.
pub(super) struct Log {
    events: Mutex<Vec<Event>>,
    /// Counts calls and answers.
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

    /// Asks, and keeps an event for each of what is made of the answer.
    fn ask<T>(&self, ask: impl FnOnce() -> T, what: impl FnOnce(&T) -> Vec<Happened>) -> T {
        let (began, began_at) = self.instant();
        let answer = ask();
        let (ended, ended_at) = self.instant();
        let span = Span { began, ended, began_at, ended_at };
        let events = what(&answer).into_iter().map(|what| Event { span, what });
        self.events.lock().unwrap_or_else(PoisonError::into_inner).extend(events);
        answer
    }

    /// A batch: each entry may have taken effect at any time between its call and its answer.
    fn ask_all<Q: Clone, T: Clone, E: Clone + From<StoreError>>(
        &self,
        batch: Vec<Q>,
        ask: impl FnOnce(Vec<Q>) -> Result<BatchResults<T, E>, StoreError>,
        what: impl Fn(Q, Result<T, E>) -> Happened,
    ) -> BatchResults<T, E> {
        let ask = || match ask(batch.clone()) {
            Ok(answers) => answers,
            Err(error) => batch.iter().map(|_| Err(error.clone().into())).collect(),
        };
        self.ask(ask, |answers: &BatchResults<T, E>| {
            assert_eq!(answers.len(), batch.len(), "there is one answer per entry");
            let each = batch.iter().cloned().zip(answers.iter().cloned());
            each.map(|(entry, answer)| what(entry, answer)).collect()
        })
    }

    pub(super) fn put(&self, store: &dyn Store, puts: Vec<Put>) {
        self.ask_all(puts, |puts| block_on(store.put(puts)), Happened::Put);
    }

    pub(super) fn claim(&self, store: &dyn Store, claim: Claim) -> Vec<ClaimedJob> {
        let ask = || block_on(store.claim(claim.clone()));
        let answer = self.ask(ask, |answer| vec![Happened::Claim(claim.clone(), answer.clone())]);
        answer.map(|claimed| claimed.jobs).unwrap_or_default()
    }

    pub(super) fn settle(
        &self,
        store: &dyn Store,
        settlements: Vec<Settle>,
    ) -> BatchResults<Settled, SettleError> {
        let ask = |settlements| block_on(store.settle(settlements));
        self.ask_all(settlements, ask, Happened::Settle)
    }

    pub(super) fn change(&self, store: &dyn Store, change: Change) {
        self.ask_all(vec![change], |changes| block_on(store.change(changes)), Happened::Change);
    }
}

/// All about one job, in the order of the calls.
pub(super) fn told(events: &[Event], kind: &Kind, id: &JobId) -> String {
    let mut events: Vec<&Event> = events.iter().collect();
    events.sort_by_key(|event| event.span.began);
    let is_it = |of: &Kind, other: &JobId| of == kind && other == id;
    let line = |event: &&Event| {
        let Span { began, ended, began_at, ended_at } = event.span;
        let text = match &event.what {
            Happened::Put(put, answer) if is_it(&put.kind, &put.id) => {
                format!("{put:?} -> {answer:?}")
            }
            Happened::Claim(_, Ok(claimed)) => {
                let job = claimed.jobs.iter().find(|job| is_it(job.kind(), job.id()))?;
                format!("{job:?}")
            }
            Happened::Claim(claim, Err(error)) => format!("{claim:?} -> {error:?}"),
            Happened::Settle(settle, answer)
                if is_it(settle.receipt.kind(), settle.receipt.id()) =>
            {
                format!("{settle:?} -> {answer:?}")
            }
            Happened::Change(change, answer) if is_it(&change.kind, &change.id) => {
                format!("{change:?} -> {answer:?}")
            }
            _ => return None,
        };
        let (from, to) = (began_at.as_millis(), ended_at.as_millis());
        Some(format!("{began}..{ended} ({from}..{to}) {text}"))
    };
    events.iter().filter_map(line).collect::<Vec<_>>().join("\n")
}
