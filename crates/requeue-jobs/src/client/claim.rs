//! The builder of a claim.

use super::Jobs;
use crate::claim::{Claim, Claimed};
use crate::error::{Invalid, StoreError};
use crate::names::{Kind, WorkerName};
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A claim that [`Jobs::claim`] returns: add options, then `.await` it. Nothing happens before it is
/// awaited.
///
/// If the future is dropped before it completes, it may have claimed jobs nevertheless. Those are
/// delivered again when their leases expire, with one more attempt counted. If a kind cannot be
/// read, [`Claimed::errors`] reports it.
///
/// ```
/// use requeue_jobs::{Jobs, MemoryStore};
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// # requeue_testkit::block_on(async {
/// let jobs = Jobs::new(Arc::new(MemoryStore::new()));
/// jobs.put("order.close", "order-42", "unpaid").await?;
/// let claim = jobs.claim(["order.close", "order.remind"], "worker-1");
/// let claimed = claim.max(10).lease(Duration::from_secs(60)).wait(Duration::from_secs(20)).await?;
/// assert_eq!(claimed.jobs[0].id().as_str(), "order-42");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[must_use = "await it"]
pub struct ClaimJobs {
    jobs: Jobs,
    claim: Result<Claim, Invalid>,
    wait: Duration,
}

impl ClaimJobs {
    pub(super) fn new<'a>(
        jobs: &Jobs,
        kinds: impl IntoIterator<Item = &'a str>,
        worker: &str,
    ) -> Self {
        let claim = || {
            let kinds = kinds.into_iter().map(Kind::new).collect::<Result<_, _>>()?;
            let worker = WorkerName::new(worker)?;
            Ok(Claim { kinds, max: 1, lease: None, worker, nonce: nonce() })
        };
        ClaimJobs { jobs: jobs.clone(), claim: claim(), wait: Duration::ZERO }
    }

    /// Sets the largest number of jobs to return (default 1).
    pub fn max(mut self, max: usize) -> Self {
        if let Ok(claim) = &mut self.claim {
            claim.max = max;
        }
        self
    }

    /// Sets the length of the leases. By default, each kind's settings specify it.
    pub fn lease(mut self, lease: Duration) -> Self {
        if let Ok(claim) = &mut self.claim {
            claim.lease = Some(lease);
        }
        self
    }

    /// If there is no job to claim, waits for one, but at most `limit` (long polling). By default
    /// it does not wait.
    pub fn wait(mut self, limit: Duration) -> Self {
        self.wait = limit;
        self
    }

    async fn claim(self) -> Result<Claimed, StoreError> {
        let (store, clock) = (self.jobs.store(), self.jobs.clock());
        let mut claim = self.claim?;
        let end = clock.now().saturating_add(self.wait);
        if claim.max == 0 {
            // The loop below would spin while there are jobs to claim.
            return Ok(Claimed::default());
        }
        loop {
            let claimed = store.claim(claim.clone()).await?;
            let left = end.saturating_since(clock.now());
            if !claimed.jobs.is_empty() || !claimed.errors.is_empty() || left.is_zero() {
                return Ok(claimed);
            }
            store.wait(claim.kinds.clone(), left).await?;
            claim.nonce = nonce();
        }
    }
}

impl IntoFuture for ClaimJobs {
    type Output = Result<Claimed, StoreError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.claim())
    }
}

/// Returns a random number, so that no two claims share one, in whatever process. It is a hash under
/// a random key of the system.
pub(crate) fn nonce() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    RandomState::new().hash_one(COUNT.fetch_add(1, Ordering::Relaxed))
}
