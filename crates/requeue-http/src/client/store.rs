//! The `Store` trait over HTTP: each call is a request.
//!
//! As in every store, a call is validated before it is executed: what can be checked without the server
//! is not sent.

use super::HttpStore;
use super::calls::CallError;
use super::chunks::chunks;
use super::errors::{self, SentChange, SentPut, change_error, read_error};
use super::path::{path, with_query};
use super::transport::HttpCall;
use crate::problem::Problem;
use crate::wire::{self, JobOrder};
use hyper::Method;
use hyper::body::Bytes;
use requeue_jobs::limits::{MAX_BATCH, MAX_ID_LEN, MAX_SPANS};
use requeue_jobs::rules::{check_count, check_settlements};
use requeue_jobs::{
    Arrival, BatchResults, Change, ChangeError, Changed, Claim, Claimed, Invalid, JobId, JobView,
    Kind, KindView, Page, Placed, Put, PutError, Query, Reaped, Restore, Restored, Schedule,
    ScheduleCondition, ScheduleSpec, Settings, Settle, SettleError, Settled, Settlement, Spans,
    Store, StoreError, StoreFuture, Tick, Ticked, TimeCursor, TimePage, TimeQuery, Timestamp,
    check_batch, check_changes, check_lease, kept_error,
};
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use std::time::Duration;

/// The longest wait of one request. It is also the maximum of a server.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Responses contain absolute times only, so the current time is not needed to parse them.
const CONTEXT: wire::ParseContext = wire::ParseContext { now: Timestamp::from_millis(0) };

fn invalid_response(problem: Problem) -> CallError {
    CallError::Unknown { reason: format!("invalid response: {}", problem.detail) }
}

impl HttpStore {
    /// Reads a resource, and converts its JSON.
    async fn fetch<J: DeserializeOwned, T>(
        &self,
        path: &str,
        convert: impl FnOnce(J) -> Result<T, Problem>,
    ) -> Result<T, CallError> {
        let json = self.read(HttpCall::json(Method::GET, path, None)).await?;
        convert(json).map_err(invalid_response)
    }

    /// Reads a resource that may not exist.
    async fn find<J: DeserializeOwned, T>(
        &self,
        path: &str,
        convert: impl FnOnce(J) -> Result<T, Problem>,
    ) -> Result<Option<T>, StoreError> {
        match self.fetch(path, convert).await {
            Ok(found) => Ok(Some(found)),
            Err(error) if errors::is_absent(&error) => Ok(None),
            Err(error) => Err(read_error(error)),
        }
    }

    async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, StoreError> {
        self.read(json_call(method, path, body)).await.map_err(change_error)
    }
}

fn json_call(method: Method, path: &str, body: &impl Serialize) -> HttpCall {
    let json = serde_json::to_vec(body).expect("requests can be serialized");
    HttpCall::json(method, path, Some(Bytes::from(json)))
}

fn kind_path(kind: &Kind, rest: &[&str]) -> String {
    path(&[&["v1", "kinds", kind.as_str()], rest].concat())
}

impl Store for HttpStore {
    fn put(&self, puts: Vec<Put>) -> StoreFuture<'_, BatchResults<Placed, PutError>> {
        Box::pin(async move {
            check_batch(&puts)?;
            let sent: Vec<_> = puts.iter().map(SentPut::from).collect();
            let requests = chunks(r#"{"jobs":["#, puts.into_iter().map(wire::PutRequest::from));
            let each = self.batch::<wire::PutDone>("/v1/put", requests).await?;
            let convert = |(done, put): (Result<wire::PutDone, _>, _)| match done {
                Ok(done) => Ok(done.into()),
                Err(problem) => Err(errors::put_error(problem, put)),
            };
            Ok(each.into_iter().zip(sent).map(convert).collect())
        })
    }

    fn claim(&self, claim: Claim) -> StoreFuture<'_, Claimed> {
        Box::pin(async move {
            check_count("kinds in a claim", claim.kinds.len())?;
            check_count("jobs in a claim", claim.max)?;
            if let Some(Err(invalid)) = claim.lease.map(check_lease) {
                // A server rejects the whole claim; a store returns this error for each kind.
                let errors = claim.kinds.into_iter().map(|kind| (kind, invalid.clone().into()));
                return Ok(Claimed { errors: errors.collect(), ..Claimed::default() });
            }
            let request = wire::ClaimRequest::from(&claim);
            let response = self.send(Method::POST, "/v1/claim", &request).await?;
            claimed(response).map_err(|problem| change_error(invalid_response(problem)))
        })
    }

    fn settle(
        &self,
        settlements: Vec<Settle>,
    ) -> StoreFuture<'_, BatchResults<Settled, SettleError>> {
        Box::pin(async move {
            check_settlements(&settlements)?;
            let receipts: Vec<_> =
                settlements.iter().map(|settle| settle.receipt.clone()).collect();
            let leases =
                settlements.into_iter().map(|settle| wire::SettleLease::from(cut_error(settle)));
            let requests = chunks(r#"{"leases":["#, leases);
            let each = self.batch::<wire::SettleDone>("/v1/settle", requests).await?;
            let convert = |(done, receipt): (Result<wire::SettleDone, _>, _)| match done {
                Ok(done) => done
                    .read(&CONTEXT)
                    .map_err(|wrong| change_error(invalid_response(wrong)).into()),
                Err(problem) => Err(errors::settle_error(problem, receipt)),
            };
            Ok(each.into_iter().zip(receipts).map(convert).collect())
        })
    }

    fn change(&self, changes: Vec<Change>) -> StoreFuture<'_, BatchResults<Changed, ChangeError>> {
        Box::pin(async move {
            check_changes(&changes)?;
            let sent: Vec<_> = changes.iter().map(SentChange::from).collect();
            let jobs = changes.into_iter().map(wire::ChangeEntry::from);
            let requests = chunks(r#"{"jobs":["#, jobs);
            let each = self.batch::<wire::ChangeDone>("/v1/change", requests).await?;
            let convert = |(done, change): (Result<wire::ChangeDone, _>, _)| match done {
                Ok(done) => {
                    done.try_into().map_err(|wrong| change_error(invalid_response(wrong)).into())
                }
                Err(problem) => Err(errors::job_change_error(problem, change)),
            };
            Ok(each.into_iter().zip(sent).map(convert).collect())
        })
    }

    fn restore(&self, restore: Restore) -> StoreFuture<'_, BatchResults<Restored, StoreError>> {
        Box::pin(async move {
            restore.check()?;
            let Restore { kind, generation, fence, jobs } = restore;
            let checked: Vec<_> = jobs.iter().map(|job| check_arrival(&kind, job)).collect();
            let fits = jobs.iter().zip(&checked).filter(|(_, checked)| checked.is_ok());
            let head = format!(r#"{{"generation":{},"fence":{},"jobs":["#, generation.0, fence.0);
            let requests = chunks(&head, fits.map(|(job, _)| wire::JobJson::from(job)));
            // Sent even if no valid job is left, because the request sets the generation and the fence.
            let path = kind_path(&kind, &["restore"]);
            let mut each = self.batch::<wire::RestoreDone>(&path, requests).await?.into_iter();
            let convert = |checked: Result<(), Invalid>| {
                checked?;
                let done = each.next().expect("there is a result for each job that was sent");
                done.map(Restored::from).map_err(errors::problem_error)
            };
            Ok(checked.into_iter().map(convert).collect())
        })
    }

    fn wait(&self, kinds: Vec<Kind>, limit: Duration) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let limit = limit.min(MAX_WAIT);
            let request = wire::WaitRequest::new(&kinds, limit);
            let mut call = json_call(Method::POST, "/v1/wait", &request);
            call.wait = Some(limit);
            let IgnoredAny = self.read(call).await.map_err(read_error)?;
            Ok(())
        })
    }

    /// Returns `false`: the service reaps.
    fn needs_reaping(&self) -> bool {
        false
    }

    fn reap(&self, max: usize) -> StoreFuture<'_, Reaped> {
        Box::pin(async move {
            let request = wire::ReapRequest { max: max.min(MAX_BATCH) };
            let wire::ReapResult { reaped } = self.send(Method::POST, "/v1/reap", &request).await?;
            Ok(Reaped { count: reaped, ..Reaped::default() })
        })
    }

    fn get(&self, kind: Kind, id: JobId) -> StoreFuture<'_, Option<JobView>> {
        Box::pin(async move {
            let path = kind_path(&kind, &["jobs", id.as_str()]);
            let path = with_query(path, &wire::JobQuery { envelope: true });
            self.find(&path, |job: wire::JobJson| job.read(&CONTEXT)).await
        })
    }

    fn list(&self, query: Query) -> StoreFuture<'_, Page> {
        Box::pin(async move {
            let Query { kind, state, prefix, after, limit } = query;
            // No id is that long, and such a path could be rejected.
            if prefix.len() > MAX_ID_LEN {
                return Ok(Page::default());
            }
            let query = wire::JobsQuery {
                state: state.map(wire::StateJson::from),
                prefix: Some(prefix).filter(|prefix| !prefix.is_empty()),
                after: after.map(|after| after.as_str().to_owned()),
                limit: Some(limit.clamp(1, MAX_BATCH)),
                envelope: true,
                ..wire::JobsQuery::default()
            };
            let path = with_query(kind_path(&kind, &["jobs"]), &query);
            let page = |page: wire::JobPage| {
                let cursor = page.cursor.map(JobId::new).transpose()?;
                Ok(Page { jobs: jobs(page.jobs)?, cursor })
            };
            self.fetch(&path, page).await.map_err(read_error)
        })
    }

    fn list_by_time(&self, query: TimeQuery) -> StoreFuture<'_, TimePage> {
        Box::pin(async move {
            let TimeQuery { kind, state, newest_first, after, limit } = query;
            let query = wire::JobsQuery {
                state: Some(state.into()),
                order: Some(if newest_first { JobOrder::Newest } else { JobOrder::Time }),
                after: after.as_ref().map(|after| after.as_str().to_owned()),
                limit: Some(limit.clamp(1, MAX_BATCH)),
                envelope: true,
                ..wire::JobsQuery::default()
            };
            let path = with_query(kind_path(&kind, &["jobs"]), &query);
            let page = |page: wire::JobPage| {
                let cursor = page.cursor.map(TimeCursor::new).transpose()?;
                Ok(TimePage { jobs: jobs(page.jobs)?, cursor })
            };
            self.fetch(&path, page).await.map_err(|error| match &after {
                Some(after) if errors::is_wrong_cursor(&error) => after.malformed().into(),
                _ => read_error(error),
            })
        })
    }

    fn kinds(&self) -> StoreFuture<'_, Vec<KindView>> {
        Box::pin(async move {
            let kinds = |list: wire::KindList| {
                list.kinds.into_iter().map(|kind| kind.read(&CONTEXT)).collect()
            };
            self.fetch("/v1/kinds", kinds).await.map_err(read_error)
        })
    }

    fn kind(&self, kind: Kind) -> StoreFuture<'_, KindView> {
        Box::pin(async move {
            let view = |stats: wire::KindStats| stats.read(&CONTEXT);
            self.fetch(&kind_path(&kind, &[]), view).await.map_err(read_error)
        })
    }

    fn upcoming(&self, kind: Kind, spans: Spans) -> StoreFuture<'_, Vec<u64>> {
        Box::pin(async move {
            let count = spans.count;
            if count > MAX_SPANS {
                return Err(Invalid::TooMany { what: "spans", count, limit: MAX_SPANS }.into());
            }
            let query = wire::UpcomingQuery::from(spans);
            let path = with_query(kind_path(&kind, &["upcoming"]), &query);
            let counts = |upcoming: wire::Upcoming| Ok(upcoming.counts);
            self.fetch(&path, counts).await.map_err(read_error)
        })
    }

    fn settings(&self, kind: Kind) -> StoreFuture<'_, Settings> {
        Box::pin(async move {
            let path = kind_path(&kind, &["settings"]);
            self.fetch(&path, wire::SettingsJson::read).await.map_err(read_error)
        })
    }

    /// The config text of a push setting is sent as the `push` of the API, which contains the secrets: see
    /// [`PushSetting`](requeue_jobs::PushSetting). If it is the masked one that `settings` returns, and the
    /// service still has it, it stays as it is.
    fn set(&self, kind: Kind, settings: Settings) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            settings.check()?;
            let mut all = wire::SettingsPatch::from(wire::SettingsJson::from(&settings));
            if settings.push.is_some() && !matches!(all.push, Some(Some(_))) {
                let reason = "the push target is not a JSON object with the fields of the API, or it \
                              lacks the secrets and header values that an export does not contain; \
                              POST /v1/import accepts an export with such a kind";
                return Err(Invalid::Refused { reason: reason.to_owned() }.into());
            }
            let mut method = Method::PUT;
            if all.push.iter().flatten().any(wire::PushJson::is_masked)
                && self.settings(kind.clone()).await?.push == settings.push
            {
                // Every other setting is in the request, so this changes all of them, too.
                (method, all.push) = (Method::PATCH, None);
            }
            let IgnoredAny = self.send(method, &kind_path(&kind, &[]), &all).await?;
            Ok(())
        })
    }

    /// Sends the schedule to the service, which applies the condition: it computes the next time, and
    /// keeps the present one if the schedule has the same times. Returns `true`.
    fn set_schedule(
        &self,
        kind: Kind,
        schedule: Schedule,
        _condition: ScheduleCondition,
    ) -> StoreFuture<'_, bool> {
        Box::pin(async move {
            schedule.check()?;
            let spec = ScheduleSpec::from_schedule(&schedule)
                .map_err(|error| Invalid::Refused { reason: error.to_string() })?;
            let path = kind_path(&kind, &["schedules", schedule.id.as_str()]);
            let request = wire::ScheduleRequest::from(&spec);
            let IgnoredAny = self.send(Method::PUT, &path, &request).await?;
            Ok(true)
        })
    }

    fn schedule(&self, kind: Kind, id: JobId) -> StoreFuture<'_, Option<Schedule>> {
        Box::pin(async move {
            let path = kind_path(&kind, &["schedules", id.as_str()]);
            self.find(&path, |schedule: wire::ScheduleJson| schedule.read(&CONTEXT)).await
        })
    }

    fn remove_schedule(&self, kind: Kind, id: JobId) -> StoreFuture<'_, bool> {
        Box::pin(async move {
            let path = kind_path(&kind, &["schedules", id.as_str()]);
            match self.read(HttpCall::json(Method::DELETE, &path, None)).await {
                Ok(IgnoredAny) => Ok(true),
                Err(error) if errors::is_absent(&error) => Ok(false),
                Err(error) => Err(change_error(error)),
            }
        })
    }

    fn schedules(&self, kind: Kind) -> StoreFuture<'_, Vec<Schedule>> {
        Box::pin(async move {
            let all = |list: wire::Schedules| {
                list.schedules.into_iter().map(|schedule| schedule.read(&CONTEXT)).collect()
            };
            self.fetch(&kind_path(&kind, &["schedules"]), all).await.map_err(read_error)
        })
    }

    /// Fails: the service starts the runs of schedules.
    fn tick(&self, _tick: Tick) -> StoreFuture<'_, Ticked> {
        let reason = "the service starts the runs of schedules, not its clients".to_owned();
        Box::pin(async move { Err(Invalid::Refused { reason }.into()) })
    }
}

/// Removes the part of an error text that a store would cut.
fn cut_error(mut settle: Settle) -> Settle {
    if let Settlement::Retry { error, .. } | Settlement::Bury { error } = &mut settle.action {
        error.truncate(kept_error(error).len());
    }
    settle
}

/// Fails if the job is inconsistent, or is not of this kind. Only the server can check its times,
/// because it has the clock.
fn check_arrival(kind: &Kind, job: &JobView) -> Result<(), Invalid> {
    if job.kind != *kind {
        let reason = "it is of another kind than the batch";
        return Err(Invalid::InconsistentJob { id: job.id.clone(), reason });
    }
    Arrival::of(job.clone(), Timestamp::from_millis(u64::MAX)).map(drop)
}

fn claimed(response: wire::ClaimResponse) -> Result<Claimed, Problem> {
    let jobs = response.jobs.into_iter().map(|job| job.read(&CONTEXT));
    let errors = response.errors.into_iter().map(|wire::KindProblem { kind, error }| {
        Ok((Kind::new(kind)?, errors::problem_error(error)))
    });
    Ok(Claimed {
        jobs: jobs.collect::<Result<_, _>>()?,
        errors: errors.collect::<Result<_, Invalid>>()?,
        expired: Vec::new(),
    })
}

fn jobs(jobs: Vec<wire::JobJson>) -> Result<Vec<JobView>, Problem> {
    jobs.into_iter().map(|job| job.read(&CONTEXT)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use requeue_jobs::Fence;
    use requeue_jobs::limits::MAX_ERROR_LEN;

    #[test]
    fn an_error_text_is_cut_before_it_is_sent() {
        let receipt = requeue_jobs::Receipt::new(
            Kind::new("k").unwrap(),
            JobId::new("i").unwrap(),
            Fence(1),
            1,
        );
        let error = "x".repeat(MAX_ERROR_LEN - 1) + "ü and more";
        for action in
            [Settlement::Bury { error: error.clone() }, Settlement::Retry { delay: None, error }]
        {
            let (Settlement::Bury { error } | Settlement::Retry { error, .. }) =
                cut_error(Settle { receipt: receipt.clone(), action }).action
            else {
                panic!("it is another settlement");
            };
            assert_eq!(error, "x".repeat(MAX_ERROR_LEN - 1));
        }
    }
}
