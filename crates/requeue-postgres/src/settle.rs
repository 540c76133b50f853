//! Settlements: most are one statement per kind and sort (acks, extensions, all others), and the rest runs the rules.

use crate::acks::AckBatch;
use crate::by_kind::{by_kind, together};
use crate::database::Failure;
use crate::jobs_table::JobsTable;
use crate::locked::{Patience, is_locked};
use crate::rows::{number, stored_duration, stored_number, time};
use crate::rules_call::Load;
use crate::store::{KindRef, Shared};
use crate::text::escape;
use requeue_jobs::rules::{KindState, Position, check_result, check_settlements};
use requeue_jobs::{
    Backoff, BatchResults, Due, Invalid, Settle, SettleError, Settled, Settlement, StoreError,
    Timestamp, check_lease, kept_error,
};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::time::Duration;
use tokio::time::sleep;
use tokio_postgres::types::ToSql;

/// How long extensions wait before each attempt for jobs that other transactions have locked. Most transactions are shorter.
const PAUSES_MS: [u64; 4] = [0, 10, 30, 60];

/// What the function `_settle` does.
const RETRY: i16 = 0;
const BURY: i16 = 1;
const RELEASE: i16 = 2;
const REQUEUE: i16 = 3;

/// A settlement, and its result as soon as there is one.
struct Entry<'a> {
    settle: &'a Settle,
    /// The id of the job, as it is stored.
    id: Cow<'a, str>,
    result: Option<Result<Settled, SettleError>>,
}

impl<'a> Entry<'a> {
    fn new(settle: &'a Settle) -> Self {
        let id = escape(settle.receipt.id().as_str());
        let result = check(&settle.action).err().map(|invalid| Err(invalid.into()));
        Entry { settle, id, result }
    }

    fn is_invalid(&self) -> bool {
        matches!(self.result, Some(Err(SettleError::Store(StoreError::Invalid(_)))))
    }

    fn fence(&self) -> i64 {
        stored_number(self.settle.receipt.fence().0)
    }

    fn nonce(&self) -> i64 {
        self.settle.receipt.nonce().cast_signed()
    }
}

/// The entries of one kind.
struct OfKind<'a> {
    /// Their positions in the batch.
    positions: Vec<usize>,
    entries: Vec<Entry<'a>>,
    /// The kind, if there is one.
    found: Result<Option<KindRef>, StoreError>,
}

/// Returns those entries without a result whose action is one of these, sorted by id: a statement locks jobs in this order.
fn open<'a, 'b>(
    entries: &'b mut [Entry<'a>],
    which: impl Fn(&Settlement) -> bool,
) -> Vec<&'b mut Entry<'a>> {
    let is_open = |entry: &&mut Entry| entry.result.is_none() && which(&entry.settle.action);
    let mut open: Vec<_> = entries.iter_mut().filter(is_open).collect();
    open.sort_unstable_by(|a, b| a.id.cmp(&b.id));
    open
}

impl Shared {
    pub(crate) async fn settle_all(
        &self,
        settlements: Vec<Settle>,
    ) -> Result<BatchResults<Settled, SettleError>, StoreError> {
        check_settlements(&settlements)?;
        let mut of_kinds = Vec::new();
        for (kind, positions) in by_kind(settlements.iter().map(|settle| settle.receipt.kind())) {
            let entries: Vec<_> = positions.iter().map(|n| Entry::new(&settlements[*n])).collect();
            let found = match entries.iter().all(Entry::is_invalid) {
                true => Ok(None),
                false => self.kind(kind).await,
            };
            of_kinds.push(OfKind { positions, entries, found });
        }
        // Extensions first: they wait for no other transaction.
        self.extend_all(&mut of_kinds).await;
        let patience = Patience::new();
        let mut results = Vec::new();
        for OfKind { positions, mut entries, found } in of_kinds {
            let settled = self.settle_of_kind(found, &mut entries, &patience).await;
            let settled = match settled {
                Err(error) if entries.iter().all(|e| e.result.is_none() || e.is_invalid()) => {
                    Err(error)
                }
                settled => {
                    let rest = || settled.clone().err().map(|error| Err(error.into()));
                    let results = entries.into_iter().map(|entry| entry.result.or_else(rest));
                    Ok(results.map(|result| result.expect("each entry was settled")).collect())
                }
            };
            results.push((positions, settled));
        }
        together(results)
    }

    async fn settle_of_kind(
        &self,
        found: Result<Option<KindRef>, StoreError>,
        entries: &mut [Entry<'_>],
        patience: &Patience,
    ) -> Result<(), StoreError> {
        let missing = self.database.missing_kinds();
        if let Some(kind) = found? {
            let settled = self.settle_open(&kind, entries, patience).await;
            if settled.is_ok() || missing == self.database.missing_kinds() {
                return settled;
            }
        }
        // The kind was removed: it has no jobs.
        for entry in entries.iter_mut().filter(|entry| entry.result.is_none()) {
            let receipt = entry.settle.receipt.clone();
            entry.result = Some(Err(SettleError::LeaseLost { receipt }));
        }
        Ok(())
    }

    async fn settle_open(
        &self,
        kind: &KindRef,
        entries: &mut [Entry<'_>],
        patience: &Patience,
    ) -> Result<(), StoreError> {
        // Each attempt would wait a moment for the locks of this kind.
        if are_distinct(entries) && !patience.has_met_lock() {
            self.ack(kind, entries).await?;
            self.settle_plain(kind, entries).await?;
        }
        let mut left: Vec<_> = entries.iter_mut().filter(|entry| entry.result.is_none()).collect();
        if left.is_empty() {
            return Ok(());
        }
        let actions: Vec<&Settle> = left.iter().map(|entry| entry.settle).collect();
        let ids: Vec<_> = actions.iter().map(|settle| settle.receipt.id()).collect();
        let uses_tokens = actions.iter().any(|settle| settle.action == Settlement::Release);
        let load = Load { oldest: true, uses_tokens, ..Load::default() };
        let settle =
            |state: &mut KindState<JobsTable>, n: usize, now| state.settle(actions[n].clone(), now);
        let settled = self.with_rules_each(kind, &ids, &load, patience, settle).await?;
        left.iter_mut().zip(settled).for_each(|(entry, result)| entry.result = Some(result));
        Ok(())
    }

    /// Acks jobs that simply end. Others are left for the rules.
    async fn ack(&self, kind: &KindRef, entries: &mut [Entry<'_>]) -> Result<(), StoreError> {
        let is_ack =
            |action: &Settlement| matches!(action, Settlement::Ack | Settlement::AckWith(_));
        let acks = open(entries, is_ack);
        if acks.is_empty() {
            return Ok(());
        }
        let batch = AckBatch {
            kind: kind.number,
            ids: acks.iter().map(|ack| ack.id.clone().into_owned()).collect(),
            fences: acks.iter().map(|ack| ack.fence()).collect(),
            nonces: acks.iter().map(|ack| ack.nonce()).collect(),
        };
        let gone = self.acks.execute(self, batch).await.map_err(Failure::for_write)?;
        for ack in acks.into_iter().filter(|ack| gone.contains(&*ack.id)) {
            ack.result = Some(Ok(Settled::Done));
        }
        Ok(())
    }

    /// Retries, buries, releases and requeues jobs in one statement, without reading them. Others are left for the rules.
    async fn settle_plain(
        &self,
        kind: &KindRef,
        entries: &mut [Entry<'_>],
    ) -> Result<(), StoreError> {
        let mut plain = open(entries, |action| action_of(action).is_some());
        if plain.is_empty() {
            return Ok(());
        }
        let (mut actions, mut delays, mut errors) = (Vec::new(), Vec::new(), Vec::new());
        for (action, delay, error) in
            plain.iter().filter_map(|entry| action_of(&entry.settle.action))
        {
            actions.push(action);
            delays.push(delay.map(stored_duration));
            let json = |error| serde_json::to_string(&*kept_error(error)).expect("a text is JSON");
            errors.push(error.map(json));
        }
        let ids: Vec<&str> = plain.iter().map(|entry| &*entry.id).collect();
        let fences: Vec<i64> = plain.iter().map(|entry| entry.fence()).collect();
        let nonces: Vec<i64> = plain.iter().map(|entry| entry.nonce()).collect();
        let jitter = |entry: &&mut Entry| {
            let receipt = &entry.settle.receipt;
            i32::from(Backoff::part(receipt.fence().0 ^ receipt.nonce()))
        };
        let jitters: Vec<i32> = plain.iter().map(jitter).collect();
        let (sql, test) = (&self.statements.settle, self.test_time());
        let rows = self
            .database
            .query_of(
                kind.number,
                sql,
                &[
                    &test,
                    &kind.number,
                    &ids,
                    &fences,
                    &nonces,
                    &actions,
                    &delays,
                    &jitters,
                    &errors,
                ],
            )
            .await;
        let rows = match rows {
            // Nothing was settled. The rules find out which jobs are locked.
            Err(Failure::Locked(_)) => return Ok(()),
            rows => rows.map_err(Failure::for_write)?,
        };
        let ends: HashMap<&str, i64> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        for entry in &mut plain {
            let Some(at) = ends.get(&*entry.id) else { continue };
            entry.result = Some(Ok(match entry.settle.action {
                Settlement::Retry { .. } => Settled::RetryAt(time(*at)),
                Settlement::Bury { .. } => Settled::Dead,
                Settlement::Release => Settled::Released,
                _ => Settled::Done,
            }));
        }
        let pending = rows.iter().filter(|row| row.get(3));
        let position =
            |row: &tokio_postgres::Row| Position { at: time(row.get(1)), seq: number(row.get(2)) };
        if let Some(first) = pending.map(position).min() {
            let now = time(rows[0].get(4));
            self.became_pending(kind, first, now);
        }
        if rows.first().is_some_and(|row| row.get(5)) {
            // There may be room for another lease.
            self.watch.forget(kind);
        }
        Ok(())
    }

    /// A job has become pending at this place.
    pub(crate) fn became_pending(&self, kind: &KindRef, first: Position, now: Timestamp) {
        self.marks.lower(kind.number, first);
        self.watch.may_be_due(kind, first.at.saturating_since(now));
    }

    /// Extends leases of jobs that were not cancelled. Others are left for the rules. A job that another transaction has locked for
    /// longer than a moment is reported as unavailable: waiting for it would let the other leases expire.
    async fn extend_all(&self, of_kinds: &mut [OfKind<'_>]) {
        let mut left = Vec::new();
        for OfKind { entries, found, .. } in of_kinds {
            if matches!(found, Ok(Some(_))) && are_distinct(entries) {
                let is_extension = |action: &Settlement| matches!(action, Settlement::Extend(_));
                left.push((open(entries, is_extension), found));
            }
        }
        for pause in PAUSES_MS {
            // All of them fail at the same time, if at all.
            sleep(Duration::from_millis(pause)).await;
            for (left, found) in &mut left {
                if let Ok(Some(kind)) = found
                    && !left.is_empty()
                    && let Err(error) = self.extend(kind, left).await
                {
                    **found = Err(error);
                    left.clear();
                }
            }
            left.retain(|(left, _)| !left.is_empty());
            if left.is_empty() {
                return;
            }
        }
        for entry in left.into_iter().flat_map(|(left, _)| left) {
            let receipt = &entry.settle.receipt;
            entry.result = Some(Err(is_locked(receipt.kind(), receipt.id()).into()));
        }
    }

    /// Extends leases. Leaves those whose jobs other transactions have locked.
    async fn extend(
        &self,
        kind: &KindRef,
        left: &mut Vec<&mut Entry<'_>>,
    ) -> Result<(), StoreError> {
        let test = self.test_time();
        let length = |entry: &&mut Entry<'_>| match entry.settle.action {
            Settlement::Extend(length) => length.map(stored_duration),
            _ => None,
        };
        let ids: Vec<&str> = left.iter().map(|entry| &*entry.id).collect();
        let fences: Vec<i64> = left.iter().map(|entry| entry.fence()).collect();
        let nonces: Vec<i64> = left.iter().map(|entry| entry.nonce()).collect();
        let lengths: Vec<Option<i64>> = left.iter().map(length).collect();
        // It waits for no locks, so it does not need a share of its kind's connections.
        let params: [&(dyn ToSql + Sync); 6] =
            [&test, &kind.number, &ids, &fences, &nonces, &lengths];
        let rows = self.database.query(&self.statements.extend, &params).await;
        let rows = rows.map_err(Failure::for_write)?;
        let ends: HashMap<&str, Option<i64>> =
            rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        left.retain_mut(|entry| {
            if let Some(Some(ends_at)) = ends.get(&*entry.id) {
                entry.result = Some(Ok(Settled::Extended(time(*ends_at))));
            }
            ends.get(&*entry.id) == Some(&None)
        });
        Ok(())
    }
}

/// What `_settle` does for an action, its delay and its error.
fn action_of(action: &Settlement) -> Option<(i16, Option<Duration>, Option<&str>)> {
    match action {
        Settlement::Retry { delay, error } => Some((RETRY, *delay, Some(error))),
        Settlement::Bury { error } => Some((BURY, None, Some(error))),
        Settlement::Release => Some((RELEASE, None, None)),
        Settlement::RequeueAfter(delay) => Some((REQUEUE, Some(*delay), None)),
        Settlement::Ack | Settlement::AckWith(_) | Settlement::Extend(_) => None,
    }
}

/// Whether each of these entries is about another job.
fn are_distinct(entries: &[Entry<'_>]) -> bool {
    let mut ids = HashSet::new();
    entries.iter().filter(|entry| !entry.is_invalid()).all(|entry| ids.insert(&entry.id))
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
