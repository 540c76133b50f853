//! Going through the jobs of a kind: those that match, in bounded steps.

use requeue_http::Problem;
use requeue_http::wire::{BulkChangeResult, JobFilter, KindDeleted, ParseContext};
use requeue_jobs::limits::MAX_BATCH_BYTES;
use requeue_jobs::{
    Change, ChangeError, ChangeKind, Changed, JobId, JobState, JobView, Kind, Page, Query,
    Settings, Store, StoreError, Timestamp,
};

/// Jobs that one call looks at, at most: with what it costs to read them from a disk, some tenths
/// of a second. Who wants more calls again.
pub(crate) const MAX_LOOKS: usize = 10_000;

/// Jobs that are asked of the store at a time: all of their bodies are in memory.
const PAGE: usize = 100;

/// What a job must be.
pub(crate) struct Match {
    state: Option<JobState>,
    prefix: String,
    /// In lower case.
    error: Option<String>,
    died_before: Option<Timestamp>,
}

impl Match {
    /// `path` is what the names of fields begin with.
    pub(crate) fn read(
        all: JobFilter,
        path: &str,
        reading: &ParseContext,
    ) -> Result<Self, Problem> {
        Ok(Match {
            died_before: all.died_before(&format!("{path}died_before"), reading)?,
            state: all.state.map(JobState::from),
            prefix: all.prefix.unwrap_or_default(),
            error: all.error.map(|text| text.to_lowercase()),
        })
    }

    /// Whether a job that the store has listed is one.
    fn fits(&self, job: &JobView) -> bool {
        let last_error = || job.failures.last().and_then(|failure| failure.error.as_deref());
        let has_error = |text: &String| {
            last_error().is_some_and(|error| error.to_lowercase().contains(text.as_str()))
        };
        let died = |before| job.died_at.is_some_and(|at| at < before);
        self.error.as_ref().is_none_or(has_error) && self.died_before.is_none_or(died)
    }

    /// Whether the store cannot list them by itself.
    fn sifts(&self) -> bool {
        self.error.is_some() || self.died_before.is_some()
    }
}

/// Jobs that match, behind `after`: at most `limit`, and fewer where they are large or hard to
/// find. Where there may be more there is a cursor.
pub(crate) async fn list(
    store: &dyn Store,
    kind: Kind,
    wanted: &Match,
    after: Option<JobId>,
    limit: usize,
) -> Result<Page, StoreError> {
    let mut looks = MAX_LOOKS;
    list_within(store, kind, wanted, after, limit, &mut looks).await
}

/// The same, with so many looks left.
async fn list_within(
    store: &dyn Store,
    kind: Kind,
    wanted: &Match,
    after: Option<JobId>,
    limit: usize,
    looks: &mut usize,
) -> Result<Page, StoreError> {
    let mut page = Page { jobs: Vec::new(), cursor: after };
    let mut bytes = 0;
    loop {
        // What is not sifted out is wanted: no more is asked for.
        let left = limit - page.jobs.len();
        let at_a_time = if wanted.sifts() { PAGE } else { left.min(PAGE) };
        let query = Query {
            kind: kind.clone(),
            state: wanted.state,
            prefix: wanted.prefix.clone(),
            after: page.cursor.take(),
            limit: at_a_time,
        };
        let found = store.list(query).await?;
        *looks = looks.saturating_sub(found.jobs.len());
        page.cursor = found.cursor;
        let mut fitting = found.jobs.into_iter().filter(|job| wanted.fits(job));
        for job in fitting.by_ref().take(left) {
            bytes += job.body.len();
            page.jobs.push(job);
        }
        if fitting.next().is_some() {
            // It begins the next page.
            page.cursor = page.jobs.last().map(|job| job.id.clone());
        }
        let is_full = page.jobs.len() >= limit || bytes > MAX_BATCH_BYTES || *looks == 0;
        if is_full || page.cursor.is_none() {
            return Ok(page);
        }
    }
}

/// Changes jobs that match, behind `after`, at most `limit` of them.
pub(crate) async fn change(
    store: &dyn Store,
    kind: Kind,
    action: ChangeKind,
    wanted: &Match,
    after: Option<JobId>,
    limit: usize,
) -> Result<BulkChangeResult, StoreError> {
    let mut done = BulkChangeResult::default();
    let mut cursor = after;
    // Of all pages together: where few match, they are far apart.
    let mut looks = MAX_LOOKS;
    loop {
        let left = limit.saturating_sub(done.matched as usize).min(PAGE);
        let page = list_within(store, kind.clone(), wanted, cursor.take(), left, &mut looks).await;
        let page = page.map_err(|error| after_some(error, done.changed))?;
        let matched = page.jobs.len();
        let change = |job: JobView| Change { kind: kind.clone(), id: job.id, action };
        let answers = store.change(page.jobs.into_iter().map(change).collect()).await;
        let answers = answers.map_err(|error| after_some(error, done.changed))?;
        let changed = answers.iter().filter(|answer| answer.is_ok()).count();
        // Which is no fault of the job, and would be passed over.
        let failed = answers.into_iter().find_map(|answer| match answer {
            Err(ChangeError::Store(error)) => Some(error),
            _ => None,
        });
        if let Some(error) = failed {
            return Err(after_some(error, done.changed + changed as u64));
        }
        done.matched += matched as u64;
        done.changed += changed as u64;
        done.failed += (matched - changed) as u64;
        cursor = page.cursor;
        if cursor.is_none() || done.matched as usize >= limit || looks == 0 {
            done.cursor = cursor.map(|id| id.as_str().to_owned());
            return Ok(done);
        }
    }
}

/// Deletes a kind, or as much of it as one call does, behind `after`: its schedules, its jobs,
/// and in the end its settings.
pub(crate) async fn delete(
    store: &dyn Store,
    kind: Kind,
    after: Option<JobId>,
) -> Result<KindDeleted, StoreError> {
    let mut done = 0;
    let deleted = delete_some(store, kind, after, &mut done).await;
    deleted.map_err(|error| after_some(error, done))
}

/// The same; `done` counts what was.
async fn delete_some(
    store: &dyn Store,
    kind: Kind,
    after: Option<JobId>,
    done: &mut u64,
) -> Result<KindDeleted, StoreError> {
    for schedule in store.schedules(kind.clone()).await? {
        store.remove_schedule(kind.clone(), schedule.id).await?;
        *done += 1;
    }
    let mut deleted = KindDeleted::default();
    let mut query = Query { limit: PAGE, after, ..Query::new(kind.clone()) };
    let mut looks = 0;
    loop {
        let page = store.list(query.clone()).await?;
        looks += page.jobs.len();
        let cancel =
            |job: JobView| Change { kind: kind.clone(), id: job.id, action: ChangeKind::Cancel };
        let answers = store.change(page.jobs.into_iter().map(cancel).collect()).await?;
        for answer in answers {
            *done += u64::from(answer.is_ok());
            match answer {
                Ok(Changed::Ending) => deleted.ending += 1,
                Ok(_) => deleted.removed += 1,
                Err(ChangeError::Store(error)) => return Err(error),
                // It was done meanwhile.
                Err(_) => {}
            }
        }
        match page.cursor {
            None => break,
            Some(cursor) if looks < MAX_LOOKS => query.after = Some(cursor),
            Some(cursor) => {
                deleted.cursor = Some(cursor.as_str().to_owned());
                return Ok(deleted);
            }
        }
    }
    store.set(kind, Settings::default()).await?;
    Ok(deleted)
}

/// What is unavailable now was not before: "nothing was done" would not be true.
fn after_some(error: StoreError, done: u64) -> StoreError {
    match error {
        StoreError::Unavailable { reason } if done > 0 => {
            StoreError::Unknown { reason: format!("{done} were changed, and then: {reason}") }
        }
        error => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::tests::Half;
    use requeue_jobs::{Body, Claim, MemoryStore, Put, Settle, Settlement, WorkerName};
    use requeue_testkit::{Fault, Faulty, block_on};
    use std::sync::Arc;

    fn mail() -> Kind {
        Kind::new("mail").expect("a valid kind")
    }

    fn id(n: usize) -> JobId {
        JobId::new(format!("{n:05}")).expect("a valid id")
    }

    fn put(store: &MemoryStore, jobs: impl Iterator<Item = usize>) {
        let puts: Vec<Put> = jobs.map(|n| Put::new(mail(), id(n), Body::default())).collect();
        for puts in puts.chunks(1000) {
            block_on(store.put(puts.to_vec())).expect("it is answered");
        }
    }

    fn bury(store: &MemoryStore, n: usize) {
        block_on(async {
            store.put(vec![Put::new(mail(), id(n), Body::default())]).await?;
            let worker = WorkerName::new("w").expect("a valid name");
            let claim = Claim { kinds: vec![mail()], max: 1, lease: None, worker, nonce: 1 };
            let receipt = store.claim(claim).await?.jobs[0].receipt.clone();
            let action = Settlement::Bury { error: "refused".to_owned() };
            store.settle(vec![Settle { receipt, action }]).await
        })
        .expect("it is buried");
    }

    fn refused() -> Match {
        let error = Some("refused".to_owned());
        Match { state: None, prefix: String::new(), error, died_before: None }
    }

    #[test]
    fn one_call_looks_at_no_more_jobs_where_few_match() {
        let store = MemoryStore::new();
        let few = [0, 9_000, 18_000, 27_000];
        few.into_iter().for_each(|n| bury(&store, n));
        put(&store, (0..30_000).filter(|n| !few.contains(n)));
        let (mut after, mut found) = (None, Vec::new());
        loop {
            let wanted = refused();
            let done = change(&store, mail(), ChangeKind::Revive, &wanted, after, MAX_LOOKS);
            let done = block_on(done).expect("the store is well");
            found.push(done.changed);
            match done.cursor {
                Some(cursor) => after = Some(JobId::new(cursor).expect("an id")),
                None => break,
            }
        }
        assert_eq!(found, [2, 1, 1]);
    }

    #[test]
    fn a_store_that_fails_is_not_taken_for_a_job_that_cannot_be_changed() {
        let all = Match { state: None, prefix: String::new(), error: None, died_before: None };
        let half = Half::default();
        for (id, done) in [("xa", false), ("a", true)] {
            let id = JobId::new(id).expect("a valid id");
            block_on(half.store.put(vec![Put::new(mail(), id, Body::default())])).expect("well");
            let change = change(&half, mail(), ChangeKind::RunNow, &all, None, MAX_LOOKS);
            let error = block_on(change).expect_err("the store fails");
            assert_eq!(matches!(error, StoreError::Unknown { .. }), done, "{error}");
        }
    }

    #[test]
    fn what_fails_in_the_middle_does_not_say_that_nothing_was_done() {
        let none = Match { state: None, prefix: String::new(), error: None, died_before: None };
        let failing = |call| {
            let store = MemoryStore::new();
            put(&store, 0..300);
            let store = Faulty::new(Arc::new(store));
            store.at(call, Fault::Refused);
            store
        };
        for call in 1..=6 {
            let store = failing(call);
            let done = change(&store, mail(), ChangeKind::Cancel, &none, None, MAX_LOOKS);
            let error = block_on(done).expect_err("the store fails");
            assert_eq!(matches!(error, StoreError::Unavailable { .. }), call <= 2, "{call}");
            // It asks for schedules first.
            let store = failing(call + 1);
            let error = block_on(delete(&store, mail(), None)).expect_err("the store fails");
            assert_eq!(matches!(error, StoreError::Unavailable { .. }), call <= 2, "{call}");
        }
    }
}
