//! Settlements: acks and extensions are one statement per kind, the others run the rules.

use crate::acks::AckBatch;
use crate::database::Failure;
use crate::jobs_table::JobsTable;
use crate::locked::{Patience, is_locked};
use crate::rows::{stored_duration, stored_number, time};
use crate::rules_call::Load;
use crate::store::{KindRef, Shared};
use crate::text::escape;
use requeue_jobs::rules::{KindState, check_result, check_settlements};
use requeue_jobs::{
    BatchResults, Due, Invalid, Kind, Receipt, Settle, SettleError, Settled, Settlement,
    StoreError, Timestamp, check_lease,
};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::time::Duration;
use tokio::time::sleep;
use tokio_postgres::types::ToSql;

/// How long extensions wait before each attempt for jobs that other transactions have locked. Most transactions are shorter.
const PAUSES_MS: [u64; 4] = [0, 10, 30, 60];

/// The positions of the entries of a kind, and the kind, if there is one.
type EntriesOfKind = (Vec<usize>, Result<Option<KindRef>, StoreError>);

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
        let (kinds, patience) = (by_kind.len(), Patience::new());
        let mut settled = Vec::new();
        for (kind, entries) in by_kind {
            settled.push((entries, self.kind(kind).await));
        }
        // Extensions first: they wait for no other transaction.
        self.extend_all(&settlements, &mut settled, &mut results).await;
        for (entries, found) in settled {
            let missing = self.database.missing_kinds();
            let mut settled = match &found {
                Ok(Some(kind)) => {
                    let settling =
                        self.settle_of_kind(kind, &settlements, &entries, &mut results, &patience);
                    settling.await.map(Some)
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
        patience: &Patience,
    ) -> Result<(), StoreError> {
        // Each attempt would wait a moment for the locks of this kind.
        if are_distinct(settlements, entries) && !patience.has_met_lock() {
            self.ack(kind, settlements, entries, results).await?;
        }
        let left: Vec<usize> = entries.iter().copied().filter(|n| results[*n].is_none()).collect();
        if left.is_empty() {
            return Ok(());
        }
        let ids: Vec<_> = left.iter().map(|n| settlements[*n].receipt.id()).collect();
        let releases = |n: &usize| settlements[*n].action == Settlement::Release;
        let load = Load { oldest: true, uses_tokens: left.iter().any(releases), ..Load::default() };
        let settle = |state: &mut KindState<JobsTable>, n: usize, now| {
            state.settle(settlements[left[n]].clone(), now)
        };
        let settled = self.with_rules_each(kind, &ids, &load, patience, settle).await?;
        left.iter().zip(settled).for_each(|(n, result)| results[*n] = Some(result));
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
    async fn extend_all(
        &self,
        settlements: &[Settle],
        kinds: &mut [EntriesOfKind],
        results: &mut Results,
    ) {
        let of_kind = |entries: &Vec<usize>| match are_distinct(settlements, entries) {
            true => extensions(settlements, entries),
            false => Vec::new(),
        };
        let mut left: Vec<_> = kinds.iter().map(|(entries, _)| of_kind(entries)).collect();
        for pause in PAUSES_MS {
            // All of them fail at the same time, if at all.
            sleep(Duration::from_millis(pause)).await;
            for ((_, found), left) in kinds.iter_mut().zip(&mut left) {
                if let Ok(Some(kind)) = found
                    && !left.is_empty()
                    && let Err(error) = self.extend(kind, settlements, left, results).await
                {
                    *found = Err(error);
                }
            }
            if left.iter().all(Vec::is_empty) {
                return;
            }
        }
        for (_, n, _) in left.into_iter().flatten() {
            let receipt = &settlements[n].receipt;
            results[n].get_or_insert_with(|| Err(is_locked(receipt.kind(), receipt.id()).into()));
        }
    }

    /// Extends leases. Leaves those whose jobs other transactions have locked.
    async fn extend(
        &self,
        kind: &KindRef,
        settlements: &[Settle],
        left: &mut Vec<Extension<'_>>,
        results: &mut Results,
    ) -> Result<(), StoreError> {
        let test = self.test_time();
        let ids: Vec<&str> = left.iter().map(|(id, ..)| &**id).collect();
        let (fences, nonces) = leases(left.iter().map(|(_, n, _)| &settlements[*n].receipt));
        let lengths: Vec<Option<i64>> =
            left.iter().map(|(_, _, length)| length.map(stored_duration)).collect();
        // It waits for no locks, so it does not need a share of its kind's connections.
        let sql = &self.statements.extend;
        let params: [&(dyn ToSql + Sync); 6] =
            [&test, &kind.number, &ids, &fences, &nonces, &lengths];
        let extended = self.database.query(sql, &params).await;
        let rows = match extended {
            Ok(rows) => rows,
            Err(failure) => {
                left.clear();
                return Err(failure.for_write());
            }
        };
        let ends: HashMap<&str, Option<i64>> =
            rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        left.retain(|(id, n, _)| {
            if let Some(Some(ends_at)) = ends.get(&**id) {
                results[*n] = Some(Ok(Settled::Extended(time(*ends_at))));
            }
            ends.get(&**id) == Some(&None)
        });
        Ok(())
    }
}

/// The stored id, the position in the batch, and the length of the lease.
type Extension<'a> = (Cow<'a, str>, usize, Option<Duration>);

/// Returns those of these entries that are extensions, in the order of their ids.
fn extensions<'a>(settlements: &'a [Settle], entries: &[usize]) -> Vec<Extension<'a>> {
    let of = |n: &usize| match settlements[*n].action {
        Settlement::Extend(length) => {
            Some((escape(settlements[*n].receipt.id().as_str()), *n, length))
        }
        _ => None,
    };
    let mut found: Vec<_> = entries.iter().filter_map(of).collect();
    found.sort_unstable();
    found
}

/// Whether each of these entries is about another job.
fn are_distinct(settlements: &[Settle], entries: &[usize]) -> bool {
    let mut ids = HashSet::new();
    entries.iter().all(|n| ids.insert(settlements[*n].receipt.id()))
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
