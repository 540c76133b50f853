//! Importing jobs of another store.

use crate::rules_call::Load;
use crate::store::Shared;
use requeue_jobs::{BatchResults, Fence, Generation, Restore, Restored, StoreError};

impl Shared {
    pub(crate) async fn restore_all(
        &self,
        restore: Restore,
    ) -> Result<BatchResults<Restored, StoreError>, StoreError> {
        restore.check()?;
        let kind = self.made(&restore.kind).await?;
        let Restore { generation, fence, jobs, .. } = restore;
        // Of a job that is rejected, nothing is imported: it cannot raise the generation either.
        let highest = jobs
            .iter()
            .map(|job| job.newest_generation().0)
            .filter(|&highest| highest <= requeue_jobs::limits::MAX_RESTORED);
        let highest = highest.max().unwrap_or(0).max(generation.0);
        let ids = jobs.iter().map(|job| job.id.clone()).collect();
        let load = Load { ids, raise: Some((highest, fence.0)), ..Load::default() };
        self.with_rules(&kind, &load, |state, now| {
            state.raise(Generation(generation.0), Fence(fence.0));
            jobs.iter().map(|job| state.restore(job.clone(), now)).collect()
        })
        .await
    }
}
