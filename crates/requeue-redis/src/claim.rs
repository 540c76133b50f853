//! Claims.

use crate::codec::{Damage, Past, Record};
use crate::deployment::{Deployment, lock};
use crate::keys::Keys;
use crate::put::millis;
use crate::reply::{self, Reply, unexpected};
use crate::script::SCRIPTS;
use futures_util::future::join_all;
use redis::Value;
use requeue_jobs::limits::{MAX_BATCH, MAX_COUNTER, MAX_RESULT_BYTES};
use requeue_jobs::rules::check_count;
use requeue_jobs::{
    Claim, Claimed, ClaimedJob, ExpiredLease, Fence, Invalid, JobId, Kind, Receipt, StoreError,
    Timestamp, Version, WorkerName, check_lease,
};
use std::cell::LazyCell;
use std::ops::Deref;
use std::time::Duration;

/// Max. jobs per script call.
const MAX_JOBS: usize = 100;
/// Max. bytes of contents per script call, so that the reply arrives before the timeout.
const MAX_BYTES: usize = 4 << 20;

/// In the reply of a claim: the next job would exceed the bytes.
const FULL: i64 = -3;

impl Deployment {
    pub(crate) async fn claim(&self, claim: Claim) -> Result<Claimed, StoreError> {
        check_count("kinds in a claim", claim.kinds.len())?;
        check_count("jobs in a claim", claim.max)?;
        let mut claimed = Claimed::default();
        if let Some(Err(invalid)) = claim.lease.map(check_lease) {
            let kinds = claim.kinds.into_iter();
            claimed.errors = kinds.map(|kind| (kind, invalid.clone().into())).collect();
            return Ok(claimed);
        }
        if claim.max == 0 {
            return Ok(claimed);
        }
        let mut room = Room { ends: MAX_BATCH, bytes: MAX_RESULT_BYTES, is_full: false };
        for kind in self.kinds_with_work(&claim.kinds, &mut claimed).await {
            if let Err(error) = self.claim_in_calls(&kind, &claim, &mut room, &mut claimed).await {
                claimed.errors.push((kind, error));
            }
            if room.is_full {
                break;
            }
        }
        Ok(claimed)
    }

    /// Claims jobs of a kind in several script calls, until there are enough jobs or bytes. A single
    /// reply that is too large to arrive in time would leave all its jobs leased without a worker.
    async fn claim_in_calls(
        &self,
        kind: &Kind,
        claim: &Claim,
        room: &mut Room,
        claimed: &mut Claimed,
    ) -> Result<(), StoreError> {
        loop {
            let before = claimed.jobs.len();
            let wanted = (claim.max - before).min(MAX_JOBS);
            if wanted == 0 || room.ends == 0 {
                return Ok(());
            }
            let is_cut = self.claim_of_kind(kind, claim, wanted, room, claimed).await?;
            let found = claimed.jobs.len() - before;
            // A call that was cut off and found none: its next job does not fit into the result.
            room.is_full = is_cut && found == 0;
            if room.is_full || !is_cut && found < wanted {
                return Ok(());
            }
        }
    }

    /// Returns the kinds to claim from, in claim order. If there are several, checks all of them
    /// concurrently first and leaves out those without claimable jobs.
    async fn kinds_with_work(&self, kinds: &[Kind], claimed: &mut Claimed) -> Vec<Kind> {
        if let [kind] = kinds {
            return vec![kind.clone()];
        }
        let looks = join_all(kinds.iter().map(|kind| self.peek(kind))).await;
        let mut with_work = Vec::new();
        for (kind, look) in kinds.iter().zip(looks) {
            match look {
                Ok(Some(Duration::ZERO)) => with_work.push(kind.clone()),
                Ok(_) => {}
                Err(error) => claimed.errors.push((kind.clone(), error)),
            }
        }
        // A kind without jobs must not take a turn: the kind after it would get two.
        let first = lock(&self.turns).first(with_work.iter().enumerate());
        with_work.rotate_left(first);
        with_work
    }

    /// Claims jobs in one script call. Returns whether there are more that exceed the bytes.
    async fn claim_of_kind(
        &self,
        kind: &Kind,
        claim: &Claim,
        max: usize,
        room: &mut Room,
        claimed: &mut Claimed,
    ) -> Result<bool, StoreError> {
        let request = self.watch.request(kind);
        let reply = self.run(&SCRIPTS.claim, kind, |cmd| {
            cmd.arg(max);
            match claim.lease {
                Some(lease) => cmd.arg(millis(lease)),
                None => cmd.arg(""),
            };
            cmd.arg(&claim.nonce.to_be_bytes()).arg(claim.worker.as_str()).arg(room.ends);
            cmd.arg(room.bytes.min(MAX_BYTES));
        });
        let mut reply = Reply::of(reply.await?)?;

        reply.number()?;
        let ends_at = Timestamp::from_millis(reply.number()?);
        let first = reply.number()?;
        if first > MAX_COUNTER {
            let (field, value, limit) = ("the kind's fence", first, MAX_COUNTER);
            return Err(Invalid::TooHigh { field, value, limit }.into());
        }
        let more = reply.signed()?;
        self.watch.learn(kind, request, more);
        let ended = usize::try_from(reply.number()?).unwrap_or(usize::MAX);
        room.ends = room.ends.saturating_sub(ended);
        let (mut found, mut records, mut pasts) = (reply.array()?, reply.array()?, reply.array()?);
        let has_pasts = !pasts.is_empty();
        // Only errors need them.
        let keys = LazyCell::new(|| self.keys(kind));
        for fence in first.. {
            if found.is_empty() {
                break;
            }
            let (id, due, record) = (found.next()?, found.next()?, records.next()?);
            let past = if has_pasts { pasts.next()? } else { Value::Nil };
            // The other jobs are leased to this worker too: one that is damaged must not hide them.
            match read_job(&keys, id, &due, record, past) {
                Ok(job) => {
                    let receipt = Receipt::new(kind.clone(), job.id, Fence(fence), claim.nonce);
                    let Record {
                        generation,
                        created_at,
                        updated_at: _,
                        priority,
                        content,
                        result: _,
                    } = job.record;
                    room.bytes = room.bytes.saturating_sub(content.len());
                    let version = Version { content, due: job.due, priority, generation };
                    claimed.jobs.push(ClaimedJob {
                        receipt,
                        version,
                        attempt: job.attempt,
                        lease_ends_at: ends_at,
                        created_at,
                    });
                }
                Err(error) => claimed.errors.push((kind.clone(), error)),
            }
        }
        claimed.expired.extend(expired_leases(kind, reply.array()?)?);
        Ok(more == FULL)
    }
}

/// How much more a claim may return.
struct Room {
    /// How many more expired leases may be ended whose jobs cannot be claimed.
    ends: usize,
    /// Bytes of contents.
    bytes: usize,
    /// Whether the next job of a kind exceeded the bytes: the result ends there.
    is_full: bool,
}

/// A job in the reply of a claim.
struct FoundJob {
    id: JobId,
    due: Timestamp,
    record: Record,
    attempt: u32,
}

fn read_job(
    keys: &impl Deref<Target = Keys>,
    id: Value,
    due: &Value,
    record: Value,
    past: Value,
) -> Result<FoundJob, StoreError> {
    let id = JobId::new(reply::text(id)?).map_err(|error| unexpected(&error.to_string()))?;
    let name = id.as_str();
    let record = match record {
        Value::Nil => {
            let reason = format!("job {id:?} has no record in {} and is given up", keys.job());
            return Err(StoreError::Unavailable { reason });
        }
        Value::Int(length) => return Err(Damage::too_long(keys.job(), name, length)),
        record => Record::read(&reply::bytes(record)?, false),
    };
    let record = record.map_err(|damage| damage.of(keys.job(), name))?;
    let failures = match past {
        Value::Nil => Ok(0),
        past => Past::attempts(&reply::bytes(past)?),
    };
    let failures = failures.map_err(|damage| damage.of(keys.past(), name))?;
    let due = Timestamp::from_millis(reply::number(due)?);
    Ok(FoundJob { id, due, record, attempt: failures.saturating_add(1) })
}

/// Reads the expired leases that a script reports.
pub(crate) fn expired_leases(
    kind: &Kind,
    mut reports: Reply,
) -> Result<Vec<ExpiredLease>, StoreError> {
    let mut leases = Vec::new();
    while !reports.is_empty() {
        let (id, worker) = (JobId::new(reports.text()?), WorkerName::new(reports.text()?));
        let id = id.map_err(|error| unexpected(&error.to_string()))?;
        let worker = worker.map_err(|error| unexpected(&error.to_string()))?;
        let attempt = u32::try_from(reports.number()?).unwrap_or(u32::MAX);
        let mut lease = ExpiredLease::new(kind.clone(), id, worker, attempt);
        lease.died = reports.number()? == 1;
        leases.push(lease);
    }
    Ok(leases)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RedisStore;
    use requeue_jobs::{Body, Put, Store};
    use requeue_testkit::block_on;
    use requeue_testkit::servers::RedisServer;

    #[test]
    fn kinds_that_have_nothing_have_no_turn() {
        let server = RedisServer::start();
        let store = block_on(RedisStore::connect(&server.url())).unwrap();
        let kinds = ["never-made", "mail", "sms"].map(|name| Kind::new(name).unwrap());
        let id = |n: usize| JobId::new(n.to_string()).unwrap();
        let put = |n: usize| Put::new(kinds[1 + n % 2].clone(), id(n), Body::default());
        block_on(store.put((0..8).map(put).collect())).unwrap();
        let first = |_| {
            let (worker, lease) = (WorkerName::new("w").unwrap(), None);
            let claim = Claim { kinds: kinds.to_vec(), max: 1, lease, worker, nonce: 7 };
            let claimed = block_on(store.claim(claim)).unwrap();
            claimed.jobs[0].kind().to_string()
        };
        assert_eq!([0; 6].map(first), ["mail", "sms", "mail", "sms", "mail", "sms"]);
    }
}
