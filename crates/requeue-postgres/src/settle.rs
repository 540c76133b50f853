//! Settlements: acks and extensions are one statement per kind, the others run the rules.

use crate::acks::AckBatch;
use crate::database::Failure;
use crate::rows::{stored_duration, stored_number, time};
use crate::rules_call::{Load, RulesError};
use crate::store::{KindRef, Shared};
use crate::text::escape;
use requeue_jobs::rules::{check_result, check_settlements};
use requeue_jobs::{
    BatchResults, Due, Invalid, Kind, Receipt, Settle, SettleError, Settled, Settlement,
    StoreError, Timestamp, check_lease,
};
use std::collections::{HashMap, HashSet};
use std::time::Duration;
use tokio::time::sleep;

/// How often a batch is settled again without the jobs that were locked.
const REPEATS: usize = 3;

/// How long an extension waits for jobs that other transactions have locked. Most transactions are shorter.
const PAUSES_MS: [u64; 3] = [10, 30, 60];

type Results = Vec<Option<Result<Settled, SettleError>>>;

impl Shared {
    pub(crate) async fn settle_all(
        &self,
        settlements: Vec<Settle>,
    ) -> Result<BatchResults<Settled, SettleError>, StoreError> {
        check_settlements(&settlements)?;
        let mut results: Results = settlements.iter().map(|_| None).collect();
        let mut by_kind: HashMap<&Kind, Vec<usize>> = HashMap::new();
        for (n, settle) in settlements.iter().enumerate() {
            match check(&settle.action) {
                Ok(()) => by_kind.entry(settle.receipt.kind()).or_default().push(n),
                Err(invalid) => results[n] = Some(Err(invalid.into())),
            }
        }
        let kinds = by_kind.len();
        let mut settled = Vec::new();
        // Extensions first: they wait for no other transaction.
        for (kind, entries) in by_kind {
            let found = match self.kind(kind).await {
                Ok(Some(kind)) => {
                    let extended = self.extend(&kind, &settlements, &entries, &mut results).await;
                    extended.map(|()| Some(kind))
                }
                other => other,
            };
            settled.push((entries, found));
        }
        for (entries, found) in settled {
            let missing = self.database.missing_kinds();
            let mut settled = match &found {
                Ok(Some(kind)) => {
                    self.settle_of_kind(kind, &settlements, &entries, &mut results).await.map(Some)
                }
                other => other.clone().map(|_| None),
            };
            if settled.is_err() && missing != self.database.missing_kinds() {
                // The kind was removed: it has no jobs.
                settled = Ok(None);
            }
            let settled = match settled {
                Ok(Some(())) => Ok(()),
                Ok(None) => {
                    for n in &entries {
                        let receipt = settlements[*n].receipt.clone();
                        results[*n] = Some(Err(SettleError::LeaseLost { receipt }));
                    }
                    Ok(())
                }
                Err(error) => Err(error),
            };
            if let Err(error) = settled {
                if kinds == 1 && entries.iter().all(|n| results[*n].is_none()) {
                    return Err(error);
                }
                for n in entries {
                    results[n].get_or_insert_with(|| Err(error.clone().into()));
                }
            }
        }
        Ok(results.into_iter().map(|result| result.expect("each entry was settled")).collect())
    }

    async fn settle_of_kind(
        &self,
        kind: &KindRef,
        settlements: &[Settle],
        entries: &[usize],
        results: &mut Results,
    ) -> Result<(), StoreError> {
        if are_distinct(settlements, entries) {
            self.ack(kind, settlements, entries, results).await?;
        }
        let mut repeats = 0;
        loop {
            let left: Vec<usize> =
                entries.iter().copied().filter(|n| results[*n].is_none()).collect();
            if left.is_empty() {
                return Ok(());
            }
            let actions: Vec<&Settle> = left.iter().map(|n| &settlements[*n]).collect();
            let load = Load {
                ids: actions.iter().map(|settle| settle.receipt.id().clone()).collect(),
                oldest: true,
                uses_tokens: actions.iter().any(|settle| settle.action == Settlement::Release),
                is_impatient: true,
                ..Load::default()
            };
            let settled = self
                .try_with_rules(kind, &load, |state, now| {
                    let settle = |settle: &&Settle| state.settle((*settle).clone(), now);
                    actions.iter().map(settle).collect::<Vec<_>>()
                })
                .await;
            match settled {
                Ok(settled) => {
                    left.into_iter().zip(settled).for_each(|(n, result)| results[n] = Some(result));
                    return Ok(());
                }
                // The others are settled without the jobs that are locked.
                Err(RulesError::Locked(_)) if repeats < REPEATS => {
                    repeats += 1;
                    self.skip_locked(kind, settlements, &left, results).await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Reports the entries as unavailable whose jobs other transactions have locked.
    async fn skip_locked(
        &self,
        kind: &KindRef,
        settlements: &[Settle],
        entries: &[usize],
        results: &mut Results,
    ) -> Result<(), StoreError> {
        let id = |n: &usize| escape(settlements[*n].receipt.id().as_str());
        let ids: Vec<_> = entries.iter().map(id).collect();
        let sql = &self.statements.locked_jobs;
        let rows = self.database.query_of(kind.number, sql, &[&kind.number, &ids]).await;
        let rows = rows.map_err(Failure::for_read)?;
        let locked: HashSet<&str> = rows.iter().map(|row| row.get(0)).collect();
        for n in entries {
            if locked.contains(&*id(n)) {
                results[*n] = Some(Err(is_locked(&settlements[*n])));
            }
        }
        Ok(())
    }

    /// Acks jobs that simply end. Others are left for the rules.
    async fn ack(
        &self,
        kind: &KindRef,
        settlements: &[Settle],
        entries: &[usize],
        results: &mut Results,
    ) -> Result<(), StoreError> {
        let acks = entries
            .iter()
            .copied()
            .filter(|n| matches!(settlements[*n].action, Settlement::Ack | Settlement::AckWith(_)));
        let mut acks: Vec<_> =
            acks.map(|n| (escape(settlements[n].receipt.id().as_str()), n)).collect();
        if acks.is_empty() {
            return Ok(());
        }
        acks.sort_unstable();
        let ids = acks.iter().map(|(id, _)| id.clone().into_owned()).collect();
        let (fences, nonces) = leases(acks.iter().map(|(_, n)| &settlements[*n].receipt));
        let batch = AckBatch { kind: kind.number, ids, fences, nonces };
        let gone = self.acks.execute(self, batch).await.map_err(Failure::for_write)?;
        for (id, n) in &acks {
            if gone.contains(&**id) {
                results[*n] = Some(Ok(Settled::Done));
            }
        }
        Ok(())
    }

    /// Extends leases of jobs that were not cancelled. Others are left for the rules. A job that another transaction has locked for
    /// longer than a moment is reported as unavailable: waiting for it would let the other leases expire.
    async fn extend(
        &self,
        kind: &KindRef,
        settlements: &[Settle],
        entries: &[usize],
        results: &mut Results,
    ) -> Result<(), StoreError> {
        if !are_distinct(settlements, entries) {
            return Ok(());
        }
        let mut extended = Vec::new();
        for n in entries.iter().copied() {
            if let Settlement::Extend(length) = settlements[n].action {
                extended.push((escape(settlements[n].receipt.id().as_str()), n, length));
            }
        }
        if extended.is_empty() {
            return Ok(());
        }
        extended.sort_unstable();
        let test = self.test_time();
        for pause in PAUSES_MS.into_iter().map(Some).chain([None]) {
            let ids: Vec<&str> = extended.iter().map(|(id, ..)| &**id).collect();
            let (fences, nonces) =
                leases(extended.iter().map(|(_, n, _)| &settlements[*n].receipt));
            let lengths: Vec<Option<i64>> =
                extended.iter().map(|(_, _, length)| length.map(stored_duration)).collect();
            let rows = self
                .database
                .query_of(
                    kind.number,
                    &self.statements.extend,
                    &[&test, &kind.number, &ids, &fences, &nonces, &lengths],
                )
                .await
                .map_err(Failure::for_write)?;
            let ends: HashMap<&str, Option<i64>> =
                rows.iter().map(|row| (row.get(0), row.get(1))).collect();
            extended.retain(|(id, n, _)| {
                if let Some(Some(ends_at)) = ends.get(&**id) {
                    results[*n] = Some(Ok(Settled::Extended(time(*ends_at))));
                }
                ends.get(&**id) == Some(&None)
            });
            match pause {
                _ if extended.is_empty() => break,
                Some(pause) => sleep(Duration::from_millis(pause)).await,
                None => {
                    for (_, n, _) in &extended {
                        results[*n] = Some(Err(is_locked(&settlements[*n])));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Whether each of these entries is about another job.
fn are_distinct(settlements: &[Settle], entries: &[usize]) -> bool {
    let mut ids = HashSet::new();
    entries.iter().all(|n| ids.insert(settlements[*n].receipt.id()))
}

fn is_locked(settle: &Settle) -> SettleError {
    let (kind, id) = (settle.receipt.kind(), settle.receipt.id());
    let reason = format!("another transaction has locked job {id} of kind {kind}");
    StoreError::Unavailable { reason }.into()
}

/// The fences and nonces of receipts, as they are stored.
fn leases<'a>(receipts: impl Iterator<Item = &'a Receipt>) -> (Vec<i64>, Vec<i64>) {
    receipts
        .map(|receipt| (stored_number(receipt.fence().0), receipt.nonce().cast_signed()))
        .unzip()
}

/// Fails if a delay or lease is out of range, or a result is too long.
fn check(action: &Settlement) -> Result<(), Invalid> {
    match action {
        Settlement::AckWith(result) => check_result(result),
        Settlement::Extend(Some(lease)) => check_lease(*lease),
        Settlement::Retry { delay: Some(delay), .. } | Settlement::RequeueAfter(delay) => {
            Due::After(*delay).at(Timestamp::default()).map(drop)
        }
        _ => Ok(()),
    }
}
