//! Claims: one statement per kind, unless the kind has priorities, limits or expired leases.

use crate::database::Failure;
use crate::head::StoredHead;
use crate::marks::Purpose;
use crate::rows::{content, id, number, stored_duration, time};
use crate::rules_call::Load;
use crate::store::{KindRef, Shared, lock};
use crate::text::escape;
use requeue_jobs::limits::{MAX_BATCH, MAX_CONTENT_LEN, MAX_RESULT_BYTES};
use requeue_jobs::rules::{ClaimRoom, check_count};
use requeue_jobs::{
    Claim, Claimed, ClaimedJob, Fence, Generation, JobId, Kind, Priority, Receipt, StoreError,
    Timestamp, Version, check_lease,
};
use std::time::Duration;
use tokio_postgres::Row;

/// What the function `_claim` returns in its row without an id.
const CLAIMED: i32 = 0;
const PAUSED: i32 = 1;
const LIMITED: i32 = 3;

impl Shared {
    pub(crate) async fn claim_of_kinds(&self, claim: Claim) -> Result<Claimed, StoreError> {
        check_count("kinds in a claim", claim.kinds.len())?;
        check_count("jobs in a claim", claim.max)?;
        let kinds = self.kinds_of(&claim.kinds).await?;
        let first = lock(&self.turns).first(kinds.iter().map(|kind| &kind.name).enumerate());
        let mut claimed = Claimed::default();
        let mut room = ClaimRoom::new(claim.max);
        for kind in kinds.iter().cycle().skip(first).take(kinds.len()) {
            if room.is_used_up() {
                break;
            }
            let missing = self.database.missing_kinds();
            if let Err(error) = self.claim_of_kind(kind, &claim, &mut room, &mut claimed).await {
                if missing != self.database.missing_kinds() {
                    // It was removed, because it had no jobs.
                    continue;
                }
                claimed.errors.push((kind.name.clone(), error));
            }
        }
        // If no kind could be read, the call has failed.
        if claimed.jobs.is_empty()
            && claimed.expired.is_empty()
            && claimed.errors.len() == kinds.len()
            && let Some((_, error @ StoreError::Unavailable { .. })) = claimed.errors.first()
        {
            return Err(error.clone());
        }
        Ok(claimed)
    }

    async fn claim_of_kind(
        &self,
        kind: &KindRef,
        claim: &Claim,
        room: &mut ClaimRoom,
        claimed: &mut Claimed,
    ) -> Result<(), StoreError> {
        if let Some(lease) = claim.lease {
            check_lease(lease)?;
        }
        let look = self.marks.look(kind.number, Purpose::Claim);
        let asked = room.jobs;
        let test = self.test_time();
        let used: usize = claimed.jobs.iter().map(|job| job.version.content.len()).sum();
        let bytes = MAX_RESULT_BYTES.saturating_sub(used) as i64;
        let lease = claim.lease.map(stored_duration);
        let worker = escape(claim.worker.as_str());
        let (most, nonce) = (i32::try_from(asked).unwrap_or(i32::MAX), claim.nonce.cast_signed());
        let mark = look.mark;
        let mut acks = self.acks.take_along(kind.number);
        let rows = loop {
            let batch = acks.as_ref().map(|acks| &acks.batch);
            let (acked, fences, nonces) = (
                batch.map(|acks| &acks.ids),
                batch.map(|acks| &acks.fences),
                batch.map(|acks| &acks.nonces),
            );
            let rows = self
                .database
                .query_of(
                    kind.number,
                    &self.statements.claim,
                    &[
                        &test,
                        &kind.number,
                        &most,
                        &lease,
                        &nonce,
                        &worker,
                        &bytes,
                        &mark.at,
                        &mark.place,
                        &mark.lease,
                        &look.rescans,
                        &acked,
                        &fences,
                        &nonces,
                    ],
                )
                .await;
            match (acks.take(), &rows) {
                (Some(acks), Err(Failure::Locked(_))) => acks.give_back(),
                (Some(acks), _) => {
                    let gone = |rows: &Vec<Row>| {
                        rows.iter().filter(is_acked).map(|row| row.get(0)).collect()
                    };
                    acks.report(rows.as_ref().map(gone).map_err(Failure::clone));
                    break rows;
                }
                (None, _) => break rows,
            }
        };
        let rows = rows.map_err(Failure::for_write)?;
        let Some(header) = rows.iter().find(|row| row.get::<_, Option<&str>>(0).is_none()) else {
            return Err(crate::rows::damaged("a claim without a result"));
        };
        let (now, ends_at) = (time(header.get(1)), time(header.get(2)));
        let next = header.get::<_, Option<i64>>(4).map(time);
        match header.get::<_, i32>(3) {
            CLAIMED => {}
            PAUSED => {
                self.marks.looked(&look, None, None, None);
                self.watch.forget(kind);
                return Ok(());
            }
            other => {
                return self.claim_by_rules(kind, claim, other == LIMITED, room, claimed).await;
            }
        }
        let mut jobs = Vec::with_capacity(rows.len());
        let mut reached: Option<(i64, i64)> = None;
        for row in rows.iter().filter(is_claimed) {
            let (job, place) = job(&kind.name, row, claim.nonce, ends_at)?;
            reached = reached.max(Some(place));
            jobs.push((place, job));
        }
        // The rows are in the order in which they were locked, which is the right one; but nothing guarantees it.
        jobs.sort_by_key(|(place, _)| *place);
        let took = Duration::from_micros(number(header.get::<_, Option<i64>>(5).unwrap_or(0)));
        self.marks.looked(&look, reached, Some(now), Some(took));
        let is_empty = jobs.is_empty();
        for (_, job) in jobs {
            room.size.add(job.version.content.len());
            room.jobs = room.jobs.saturating_sub(1);
            claimed.jobs.push(job);
        }
        if room.jobs > 0 {
            // If the next job did not fit, the result ends here. No content is longer than this.
            if room.size.fits(MAX_CONTENT_LEN) {
                self.watch.learn(kind, next.map(|next| next.saturating_since(now)));
            } else {
                self.watch.forget(kind);
            }
        }
        self.watch.claimed(kind, !is_empty);
        Ok(())
    }

    /// Claims with the rules of the contract.
    async fn claim_by_rules(
        &self,
        kind: &KindRef,
        claim: &Claim,
        exclusive: bool,
        room: &mut ClaimRoom,
        claimed: &mut Claimed,
    ) -> Result<(), StoreError> {
        let most = room.jobs.min(MAX_BATCH);
        let load = Load {
            claimable: Some((most, most + MAX_BATCH)),
            oldest: true,
            exclusive,
            uses_tokens: true,
            ..Load::default()
        };
        let (before, max) = (room.clone(), room.jobs);
        let (of_kind, left, result) = self
            .with_rules(kind, &load, |state, now| {
                let (mut room, mut of_kind) = (before.clone(), Claimed::default());
                let result = state.claim(claim, now, &mut room, &mut of_kind);
                (of_kind, room, result)
            })
            .await?;
        *room = left;
        self.watch.claimed(kind, !of_kind.jobs.is_empty());
        if of_kind.jobs.len() < max {
            self.watch.forget(kind);
        }
        claimed.jobs.extend(of_kind.jobs);
        claimed.expired.extend(of_kind.expired);
        result
    }
}

/// Whether a row of the statement `claim` is a claimed job.
fn is_claimed(row: &&Row) -> bool {
    row.get::<_, Option<i64>>(8).is_some()
}

/// Whether it is a job that was acked.
fn is_acked(row: &&Row) -> bool {
    row.get::<_, Option<&str>>(0).is_some() && !is_claimed(row)
}

/// Reads a claimed job, and the place where it was.
fn job(
    kind: &Kind,
    row: &Row,
    nonce: u64,
    ends_at: Timestamp,
) -> Result<(ClaimedJob, (i64, i64)), StoreError> {
    let head: Option<StoredHead> = row.get(9);
    let content = content(row.get(7), row.get(6), head.as_ref(), row.get(0))?;
    let id: JobId = id(row.get(0))?;
    let due: i64 = row.get(1);
    let fence = Fence(number(row.get(5)));
    let receipt = Receipt::new(kind.clone(), id, fence, nonce);
    let version = Version {
        content,
        due: time(due),
        priority: Priority::default(),
        generation: Generation(number(row.get(2))),
    };
    let job = ClaimedJob {
        receipt,
        version,
        attempt: row.get::<_, i32>(3).cast_unsigned().saturating_add(1),
        lease_ends_at: ends_at,
        created_at: time(row.get(4)),
    };
    Ok((job, (due, row.get(8))))
}
