//! Acks that are sent together with a claim.
//!
//! A worker that has finished jobs acks them, and immediately claims others. Both in one statement is one commit instead of
//! two, and a synced commit takes the server as much time as thirty jobs. So acks wait for a moment if the latest ones were
//! followed by a claim of the same kind, and that claim takes them along. If none comes, they are sent alone, and the
//! next ones do not wait.
//!
//! If another transaction has locked one of the jobs, an application that cancels it for example, the claim gives the acks
//! back after a moment and continues without them. They are then sent alone.

use crate::database::Failure;
use crate::store::{Shared, lock};
use std::collections::HashSet;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// How long acks wait for a claim. A worker claims much sooner.
const PATIENCE: Duration = Duration::from_millis(1);

/// Acks of distinct jobs of one kind, sorted by id.
pub(crate) struct AckBatch {
    pub(crate) kind: i32,
    pub(crate) ids: Vec<String>,
    pub(crate) fences: Vec<i64>,
    pub(crate) nonces: Vec<i64>,
}

/// The ids of jobs that are gone.
pub(crate) type Gone = HashSet<String>;

/// Acks on their way to the server.
#[derive(Default)]
pub(crate) struct Acks {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: Vec<WaitingAcks>,
    next_number: u64,
    /// Whether the latest acks were followed by a claim.
    expects_claim: bool,
    /// The latest acks that were sent alone: their kind, and when.
    sent_alone: Option<(i32, Instant)>,
}

/// Acks that a claim takes along. The claim reports their outcome.
pub(crate) struct WaitingAcks {
    number: u64,
    pub(crate) batch: AckBatch,
    outcome: oneshot::Sender<Offered>,
}

impl WaitingAcks {
    // If nobody waits for the outcome any more, nobody has to know it.

    pub(crate) fn report(self, outcome: Result<Gone, Failure>) {
        let _ = self.outcome.send(Offered::Taken(outcome));
    }

    /// Nothing was acked.
    pub(crate) fn give_back(self) {
        let _ = self.outcome.send(Offered::Back(self.batch));
    }
}

impl State {
    fn take(&mut self, which: impl Fn(&WaitingAcks) -> bool) -> Option<WaitingAcks> {
        let at = self.waiting.iter().position(which)?;
        Some(self.waiting.swap_remove(at))
    }
}

impl Acks {
    /// Executes acks, in a statement of their own if no claim takes them along.
    pub(crate) async fn execute(&self, shared: &Shared, batch: AckBatch) -> Result<Gone, Failure> {
        let batch = match self.offer(batch).await {
            Offered::Taken(outcome) => return outcome,
            Offered::Back(batch) => batch,
        };
        let AckBatch { kind, ids, fences, nonces } = &batch;
        let sql = &shared.statements.ack;
        let rows = match shared.database.query_of(*kind, sql, &[kind, ids, fences, nonces]).await {
            // Nothing was acked. The rules find out which jobs are locked.
            Err(Failure::Locked(_)) => return Ok(Gone::new()),
            other => other?,
        };
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    /// Offers acks to claims, if one is expected.
    async fn offer(&self, batch: AckBatch) -> Offered {
        let kind = batch.kind;
        let (number, mut reported) = {
            let mut state = lock(&self.state);
            if !state.expects_claim {
                state.sent_alone = Some((kind, Instant::now()));
                return Offered::Back(batch);
            }
            state.next_number += 1;
            let (number, (outcome, reported)) = (state.next_number, oneshot::channel());
            state.waiting.push(WaitingAcks { number, batch, outcome });
            (number, reported)
        };
        let stopped = |_| {
            let reason = "the claim with the acks was stopped".to_owned();
            Offered::Taken(Err(Failure::Unknown(reason)))
        };
        if let Ok(outcome) = timeout(PATIENCE, &mut reported).await {
            return outcome.unwrap_or_else(stopped);
        }
        let own = {
            let mut state = lock(&self.state);
            let own = state.take(|acks| acks.number == number);
            if own.is_some() {
                state.expects_claim = false;
                state.sent_alone = Some((kind, Instant::now()));
            }
            own
        };
        match own {
            Some(acks) => Offered::Back(acks.batch),
            None => reported.await.unwrap_or_else(stopped),
        }
    }

    /// Returns acks of a kind for a claim to take along.
    pub(crate) fn take_along(&self, kind: i32) -> Option<WaitingAcks> {
        let mut state = lock(&self.state);
        let acks = state.take(|acks| acks.batch.kind == kind);
        let was_alone = |(of, sent): (i32, Instant)| of == kind && sent.elapsed() < PATIENCE;
        if acks.is_some() || state.sent_alone.is_some_and(was_alone) {
            state.expects_claim = true;
        }
        acks
    }
}

/// What became of acks that were offered to claims.
enum Offered {
    /// A claim has executed them.
    Taken(Result<Gone, Failure>),
    /// No claim came, or it could not execute them.
    Back(AckBatch),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(kind: i32) -> AckBatch {
        AckBatch { kind, ids: vec!["a".to_owned()], fences: vec![1], nonces: vec![1] }
    }

    async fn is_alone(acks: &Acks, kind: i32) -> bool {
        matches!(acks.offer(batch(kind)).await, Offered::Back(_))
    }

    #[tokio::test(start_paused = true)]
    async fn acks_wait_for_a_claim_if_one_followed_the_latest() {
        let acks = Acks::default();
        assert!(is_alone(&acks, 1).await);
        assert!(acks.take_along(1).is_none());
        let claim = async {
            let taken = acks.take_along(1).expect("they wait");
            assert!(acks.take_along(1).is_none());
            taken.report(Ok(Gone::from(["a".to_owned()])));
        };
        let (offered, ()) = tokio::join!(acks.offer(batch(1)), claim);
        assert!(matches!(offered, Offered::Taken(Ok(gone)) if gone.contains("a")));
        // No claim comes: they are sent alone, and so are the next ones.
        assert!(is_alone(&acks, 1).await);
        assert!(!lock(&acks.state).expects_claim);
        assert!(is_alone(&acks, 1).await);
        // A claim of another kind is not the worker's.
        assert!(acks.take_along(2).is_none());
        assert!(!lock(&acks.state).expects_claim);
    }

    #[tokio::test(start_paused = true)]
    async fn acks_that_a_claim_gives_back_are_sent_alone() {
        let acks = Acks::default();
        lock(&acks.state).expects_claim = true;
        let claim = async { acks.take_along(1).expect("they wait").give_back() };
        let (offered, ()) = tokio::join!(acks.offer(batch(1)), claim);
        assert!(matches!(offered, Offered::Back(batch) if batch.ids == ["a"]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_claim_that_is_stopped_leaves_the_outcome_of_acks_unknown() {
        let acks = Acks::default();
        lock(&acks.state).expects_claim = true;
        let claim = async { drop(acks.take_along(1)) };
        let (offered, ()) = tokio::join!(acks.offer(batch(1)), claim);
        assert!(matches!(offered, Offered::Taken(Err(Failure::Unknown(_)))));
    }
}
