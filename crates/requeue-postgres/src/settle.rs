//! Settlements: acks and extensions are one statement per kind, the others run the rules.

use crate::acks::AckBatch;
use crate::database::Failure;
use crate::rows::{stored_duration, stored_number, time};
use crate::rules_call::Load;
use crate::store::{KindRef, Shared};
use crate::text::escape;
use requeue_jobs::rules::{check_result, check_settlements};
use requeue_jobs::{
    BatchResults, Due, Invalid, Kind, Receipt, Settle, SettleError, Settled, Settlement,
    StoreError, Timestamp, check_lease,
};
use std::collections::{HashMap, HashSet};

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
        for (kind, entries) in by_kind {
            let settled = match self.kind(kind).await {
                Ok(Some(kind)) => {
                    self.settle_of_kind(&kind, &settlements, &entries, &mut results).await
                }
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
        let mut ids = HashSet::new();
        let are_distinct = entries.iter().all(|n| ids.insert(settlements[*n].receipt.id()));
        if are_distinct {
            self.ack(kind, settlements, entries, results).await?;
            self.extend(kind, settlements, entries, results).await?;
        }
        let left: Vec<&Settle> =
            entries.iter().filter(|n| results[**n].is_none()).map(|n| &settlements[*n]).collect();
        if left.is_empty() {
            return Ok(());
        }
        let load = Load {
            ids: left.iter().map(|settle| settle.receipt.id().clone()).collect(),
            oldest: true,
            uses_tokens: left.iter().any(|settle| settle.action == Settlement::Release),
            ..Load::default()
        };
        let settled = self
            .with_rules(kind, &load, |state, now| {
                let settle = |settle: &&Settle| state.settle((*settle).clone(), now);
                left.iter().map(settle).collect::<Vec<_>>()
            })
            .await?;
        let mut settled = settled.into_iter();
        for n in entries {
            if results[*n].is_none() {
                results[*n] = settled.next();
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

    /// Extends leases of jobs that were not cancelled. Others are left for the rules.
    async fn extend(
        &self,
        kind: &KindRef,
        settlements: &[Settle],
        entries: &[usize],
        results: &mut Results,
    ) -> Result<(), StoreError> {
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
        let ids: Vec<&str> = extended.iter().map(|(id, ..)| &**id).collect();
        let (fences, nonces) = leases(extended.iter().map(|(_, n, _)| &settlements[*n].receipt));
        let lengths: Vec<Option<i64>> =
            extended.iter().map(|(_, _, length)| length.map(stored_duration)).collect();
        let test = self.test_time();
        let rows = self
            .database
            .query(
                &self.statements.extend,
                &[&test, &kind.number, &ids, &fences, &nonces, &lengths],
            )
            .await
            .map_err(Failure::for_write)?;
        let ends: HashMap<&str, i64> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        for (id, n, _) in &extended {
            if let Some(ends_at) = ends.get(&**id) {
                results[*n] = Some(Ok(Settled::Extended(time(*ends_at))));
            }
        }
        Ok(())
    }
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
