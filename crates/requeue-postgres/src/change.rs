//! Changes without a receipt: cancel, run now, revive, reschedule.

use crate::by_kind::{by_kind, together};
use crate::jobs_table::JobsTable;
use crate::locked::Patience;
use crate::rules_call::Load;
use crate::store::Shared;
use requeue_jobs::rules::KindState;
use requeue_jobs::{BatchResults, Change, ChangeError, Changed, Kind, StoreError, check_changes};

impl Shared {
    pub(crate) async fn change_all(
        &self,
        changes: Vec<Change>,
    ) -> Result<BatchResults<Changed, ChangeError>, StoreError> {
        check_changes(&changes)?;
        let (patience, mut results) = (Patience::new(), Vec::new());
        for (kind, entries) in by_kind(changes.iter().map(|change| &change.kind)) {
            let changed =
                self.unless_removed(|| self.change_of_kind(kind, &changes, &entries, &patience));
            let changed = changed.await;
            results.push((entries, changed));
        }
        together(results)
    }

    async fn change_of_kind(
        &self,
        kind: &Kind,
        changes: &[Change],
        entries: &[usize],
        patience: &Patience,
    ) -> Result<Vec<Result<Changed, ChangeError>>, StoreError> {
        let Some(kind) = self.kind(kind).await? else {
            let absent = |n: &usize| {
                let Change { kind, id, .. } = changes[*n].clone();
                Err(ChangeError::Absent { kind, id })
            };
            return Ok(entries.iter().map(absent).collect());
        };
        let ids: Vec<_> = entries.iter().map(|n| &changes[*n].id).collect();
        let change = |state: &mut KindState<JobsTable>, n: usize, now| {
            state.change(changes[entries[n]].clone(), now)
        };
        self.with_rules_each(&kind, &ids, &Load::default(), patience, change).await
    }
}
