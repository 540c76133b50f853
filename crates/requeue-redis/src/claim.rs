//! Claims.

use crate::codec::{Past, Record};
use crate::put::millis;
use crate::reply::{self, Reply, unexpected};
use crate::script::{SCRIPTS, Script};
use crate::store::{RedisStore, lock};
use futures_util::future::join_all;
use redis::Value;
use requeue_jobs::limits::{MAX_BATCH, MAX_BATCH_BYTES, MAX_COUNTER};
use requeue_jobs::rules::check_count;
use requeue_jobs::{
    Claim, Claimed, ClaimedJob, ExpiredLease, Fence, Invalid, JobId, Kind, Receipt, StoreError,
    Timestamp, WorkerName, check_lease,
};
use std::time::Duration;

/// Max. jobs per script call, so that even the largest bodies arrive before the timeout.
const MAX_JOBS: usize = 100;

impl RedisStore {
    pub(crate) async fn claim_of_kinds(&self, claim: Claim) -> Result<Claimed, StoreError> {
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
        let mut ends = MAX_BATCH;
        for kind in self.kinds_with_work(&claim.kinds, &mut claimed).await {
            if let Err(error) = self.claim_in_calls(&kind, &claim, &mut ends, &mut claimed).await {
                claimed.errors.push((kind, error));
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
        ends: &mut usize,
        claimed: &mut Claimed,
    ) -> Result<(), StoreError> {
        loop {
            let before = claimed.jobs.len();
            let wanted = (claim.max - before).min(MAX_JOBS);
            let bytes: usize = claimed.jobs.iter().map(|job| job.body.len()).sum();
            if wanted == 0 || *ends == 0 || bytes > MAX_BATCH_BYTES {
                return Ok(());
            }
            self.claim_of_kind(kind, claim, wanted, ends, claimed).await?;
            if claimed.jobs.len() - before < wanted {
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
        let first = lock(&self.shared.turns).first(with_work.iter().enumerate());
        with_work.rotate_left(first);
        with_work
    }

    async fn claim_of_kind(
        &self,
        kind: &Kind,
        claim: &Claim,
        max: usize,
        ends: &mut usize,
        claimed: &mut Claimed,
    ) -> Result<(), StoreError> {
        let keys = self.keys(kind);
        let request = self.shared.watch.request(kind);
        let call = async |script: &'static Script| {
            let mut cmd = self.begin(script, &keys);
            cmd.arg(max);
            match claim.lease {
                Some(lease) => cmd.arg(millis(lease)),
                None => cmd.arg(""),
            };
            cmd.arg(&claim.nonce.to_be_bytes()).arg(claim.worker.as_str()).arg(*ends);
            Reply::of(self.end(script, &keys, cmd).await?)
        };
        let mut reply = call(&SCRIPTS.claim).await?;
        if reply.is_empty() {
            reply = call(&SCRIPTS.claim_expired).await?;
        }

        reply.number()?;
        let ends_at = Timestamp::from_millis(reply.number()?);
        let first = reply.number()?;
        if first > MAX_COUNTER {
            let (field, value, limit) = ("the kind's fence", first, MAX_COUNTER);
            return Err(Invalid::TooHigh { field, value, limit }.into());
        }
        self.shared.watch.learn(kind, request, reply.signed()?);
        let ended = usize::try_from(reply.number()?).unwrap_or(usize::MAX);
        *ends = ends.saturating_sub(ended);
        let (mut found, mut records, mut pasts) = (reply.array()?, reply.array()?, reply.array()?);
        let has_pasts = !pasts.is_empty();
        let mut fence = first;
        while !found.is_empty() {
            let (id, due) = (found.text()?, Timestamp::from_millis(found.number()?));
            let record = records.next()?;
            let past = if has_pasts { pasts.next()? } else { Value::Nil };
            let id = JobId::new(id).map_err(|error| unexpected(&error.to_string()))?;
            if record == Value::Nil {
                let reason = format!("job {id:?} has no record and is given up");
                claimed.errors.push((kind.clone(), StoreError::Unavailable { reason }));
                fence += 1;
                continue;
            }
            let record = Record::read(&reply::bytes(record)?)?;
            let receipt = Receipt::new(kind.clone(), id, Fence(fence), claim.nonce);
            let mut job = ClaimedJob::new(receipt, record.body, record.generation);
            (job.due, job.lease_ends_at, job.created_at) = (due, ends_at, record.created_at);
            if past != Value::Nil {
                job.attempt = Past::attempts(&reply::bytes(past)?)?.saturating_add(1);
            }
            claimed.jobs.push(job);
            fence += 1;
        }
        if !reply.is_empty() {
            claimed.expired.extend(expired_leases(kind, reply.array()?)?);
        }
        Ok(())
    }
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
    use requeue_jobs::{Body, Put};
    use requeue_testkit::block_on;
    use requeue_testkit::servers::RedisServer;

    #[test]
    fn kinds_that_have_nothing_have_no_turn() {
        let server = RedisServer::start();
        let store = block_on(RedisStore::connect(&server.url())).unwrap();
        let kinds = ["never-made", "mail", "sms"].map(|name| Kind::new(name).unwrap());
        let id = |n: usize| JobId::new(n.to_string()).unwrap();
        let put = |n: usize| Put::new(kinds[1 + n % 2].clone(), id(n), Body::default());
        block_on(store.put_all((0..8).map(put).collect())).unwrap();
        let first = |_| {
            let (worker, lease) = (WorkerName::new("w").unwrap(), None);
            let claim = Claim { kinds: kinds.to_vec(), max: 1, lease, worker, nonce: 7 };
            let claimed = block_on(store.claim_of_kinds(claim)).unwrap();
            claimed.jobs[0].kind().to_string()
        };
        assert_eq!([0; 6].map(first), ["mail", "sms", "mail", "sms", "mail", "sms"]);
    }
}
