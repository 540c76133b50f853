//! Changes without a receipt: cancel, run now, revive, reschedule.

use crate::rules_call::Load;
use crate::store::Shared;
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
        let kinds = by_kind.len();
        let mut results: Vec<Option<Result<Changed, ChangeError>>> =
            changes.iter().map(|_| None).collect();
        for (kind, entries) in by_kind {
            let changed = self.unless_removed(|| self.change_of_kind(kind, &changes, &entries));
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
    ) -> Result<Vec<Result<Changed, ChangeError>>, StoreError> {
        let Some(kind) = self.kind(kind).await? else {
            let absent = |n: &usize| {
                let Change { kind, id, .. } = changes[*n].clone();
                Err(ChangeError::Absent { kind, id })
            };
            return Ok(entries.iter().map(absent).collect());
        };
        let ids = entries.iter().map(|n| changes[*n].id.clone()).collect();
        let load = Load { ids, ..Load::default() };
        self.with_rules(&kind, &load, |state, now| {
            let change = |n: &usize| state.change(changes[*n].clone(), now);
            entries.iter().map(change).collect()
        })
        .await
    }
}
