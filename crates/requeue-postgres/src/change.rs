//! Changes without a receipt: cancel, run now, revive, reschedule.

use crate::jobs_table::JobsTable;
use crate::locked::Patience;
use crate::rules_call::Load;
use crate::store::Shared;
use requeue_jobs::rules::KindState;
use requeue_jobs::{BatchResults, Change, ChangeError, Changed, Kind, StoreError, check_changes};
use std::collections::HashMap;

impl Shared {
    pub(crate) async fn change_all(
        &self,
        changes: Vec<Change>,
    ) -> Result<BatchResults<Changed, ChangeError>, StoreError> {
        check_changes(&changes)?;
        let mut by_kind: HashMap<&Kind, Vec<usize>> = HashMap::new();
        for (n, change) in changes.iter().enumerate() {
            by_kind.entry(&change.kind).or_default().push(n);
        }
        let (kinds, patience) = (by_kind.len(), Patience::new());
        let mut results: Vec<Option<Result<Changed, ChangeError>>> =
            changes.iter().map(|_| None).collect();
        for (kind, entries) in by_kind {
            let changed =
                self.unless_removed(|| self.change_of_kind(kind, &changes, &entries, &patience));
            let changed: Vec<Result<Changed, ChangeError>> = match changed.await {
                Ok(changed) => changed,
                Err(error) if kinds == 1 => return Err(error),
                Err(error) => entries.iter().map(|_| Err(error.clone().into())).collect(),
            };
            for (n, result) in entries.into_iter().zip(changed) {
                results[n] = Some(result);
            }
        }
        Ok(results.into_iter().map(|result| result.expect("each entry was changed")).collect())
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
