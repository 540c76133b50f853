//! The store: each of its calls is a request.
//!
//! What can be checked without the server is checked first, as every store does it. So what comes
//! back as invalid is what only the server can know.

use super::HttpStore;
use super::calls::CallError;
use super::chunks::parts;
use super::link::Call;
use super::path::{path, query};
use super::refused::{self, Asked, of_a_change, of_a_look};
use super::told::{ToldJob, ToldPage, ToldSchedule, ToldSchedules};
use crate::problem::Problem;
use crate::wire;
use hyper::Method;
use hyper::body::Bytes;
use requeue_jobs::limits::{MAX_BATCH, MAX_ID_LEN, MAX_SPANS};
use requeue_jobs::rules::check_count;
use requeue_jobs::{
    Arrival, BatchResults, Change, ChangeError, Changed, Claim, Claimed, Invalid, JobId, JobView,
    Kind, KindView, Page, Placed, Put, PutError, Query, Reaped, Restore, Restored, Schedule,
    Settings, Settle, SettleError, Settled, Settlement, Spans, Store, StoreError, StoreFuture,
    Tick, Ticked, Timestamp, check_batch, check_lease, kept_error,
};
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use std::time::Duration;

/// The longest that one request waits: a server waits no longer.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Answers have whole dates: none of them depends on what day it is.
const READING: wire::Reading = wire::Reading { now: Timestamp::from_millis(0) };

fn unreadable(problem: Problem) -> CallError {
    CallError::Unknown { reason: format!("the answer cannot be read: {}", problem.detail) }
}

impl HttpStore {
    async fn ask<A: DeserializeOwned>(&self, path: &str) -> Result<A, CallError> {
        self.read(Call::json(Method::GET, path, None)).await
    }

    async fn tell<A: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<A, CallError> {
        self.read(told(method, path, body)).await
    }
}

fn told(method: Method, path: &str, body: &impl Serialize) -> Call {
    let json = serde_json::to_vec(body).expect("it can be written as JSON");
    Call::json(method, path, Some(Bytes::from(json)))
}

fn of_kind(kind: &Kind, rest: &[&str]) -> String {
    path(&[&["v1", "kinds", kind.as_str()], rest].concat())
}

impl Store for HttpStore {
    fn put(&self, puts: Vec<Put>) -> StoreFuture<'_, BatchResults<Placed, PutError>> {
        Box::pin(async move {
            check_batch(&puts)?;
            let asked: Vec<_> = puts.iter().map(Asked::from).collect();
            let parts = parts(r#"{"jobs":["#, puts.into_iter().map(wire::PutRequest::from));
            let each = self.batch::<wire::PutDone>("/v1/put", parts).await?;
            let answer = |(done, asked): (Result<wire::PutDone, _>, _)| match done {
                Ok(done) => Ok(done.into()),
                Err(problem) => Err(refused::of_a_put(problem, asked)),
            };
            Ok(each.into_iter().zip(asked).map(answer).collect())
        })
    }

    fn claim(&self, claim: Claim) -> StoreFuture<'_, Claimed> {
        Box::pin(async move {
            check_count("kinds in a claim", claim.kinds.len())?;
            check_count("jobs in a claim", claim.max)?;
            if let Some(Err(invalid)) = claim.lease.map(check_lease) {
                // A server refuses the claim as a whole, and a store answers it of each kind.
                let errors = claim.kinds.into_iter().map(|kind| (kind, invalid.clone().into()));
                return Ok(Claimed { errors: errors.collect(), ..Claimed::default() });
            }
            let request = wire::ClaimRequest::from(&claim);
            let answer = self.tell(Method::POST, "/v1/claim", &request).await;
            claimed(answer.map_err(of_a_change)?)
                .map_err(|problem| of_a_change(unreadable(problem)))
        })
    }

    fn settle(
        &self,
        settlements: Vec<Settle>,
    ) -> StoreFuture<'_, BatchResults<Settled, SettleError>> {
        Box::pin(async move {
            check_count("entries in a batch", settlements.len())?;
            let receipts: Vec<_> =
                settlements.iter().map(|settle| settle.receipt.clone()).collect();
            let leases = settlements.into_iter().map(|settle| wire::SettleLease::from(cut(settle)));
            let parts = parts(r#"{"leases":["#, leases);
            let each = self.batch::<wire::SettleDone>("/v1/settle", parts).await?;
            let answer = |(done, receipt): (Result<wire::SettleDone, _>, _)| match done {
                Ok(done) => {
                    done.read(&READING).map_err(|wrong| of_a_change(unreadable(wrong)).into())
                }
                Err(problem) => Err(refused::of_a_settlement(problem, receipt)),
            };
            Ok(each.into_iter().zip(receipts).map(answer).collect())
        })
    }

    fn change(&self, changes: Vec<Change>) -> StoreFuture<'_, BatchResults<Changed, ChangeError>> {
        Box::pin(async move {
            check_count("entries in a batch", changes.len())?;
            let jobs = changes.iter().cloned().map(wire::ChangeAny::from);
            let parts = parts(r#"{"jobs":["#, jobs);
            let each = self.batch::<wire::ChangeDone>("/v1/change", parts).await?;
            let answer = |(done, change): (Result<wire::ChangeDone, _>, _)| match done {
                Ok(done) => done.try_into().map_err(|wrong| of_a_change(unreadable(wrong)).into()),
                Err(problem) => Err(refused::of_a_changed_job(problem, change)),
            };
            Ok(each.into_iter().zip(changes).map(answer).collect())
        })
    }

    fn restore(&self, restore: Restore) -> StoreFuture<'_, BatchResults<Restored, StoreError>> {
        Box::pin(async move {
            restore.check()?;
            let Restore { kind, generation, fence, jobs } = restore;
            let checked: Vec<_> = jobs.iter().map(|job| check_arrival(&kind, job)).collect();
            let fits = jobs.iter().zip(&checked).filter(|(_, checked)| checked.is_ok());
            let head = format!(r#"{{"generation":{},"fence":{},"jobs":["#, generation.0, fence.0);
            let parts = parts(&head, fits.map(|(job, _)| wire::Job::from(job)));
            // Also where there is none left: the generation and the fence are told.
            let path = of_kind(&kind, &["restore"]);
            let mut each = self.batch::<wire::RestoreDone>(&path, parts).await?.into_iter();
            let answer = |checked: Result<(), Invalid>| {
                checked?;
                let done = each.next().expect("there is an answer to each that was sent");
                done.map(Restored::from).map_err(refused::of_a_problem)
            };
            Ok(checked.into_iter().map(answer).collect())
        })
    }

    fn wait(&self, kinds: Vec<Kind>, limit: Duration) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let limit = limit.min(LONGEST_WAIT);
            let request = wire::WaitRequest::new(&kinds, limit);
            let mut call = told(Method::POST, "/v1/wait", &request);
            call.wait = Some(limit);
            let IgnoredAny = self.read(call).await.map_err(of_a_look)?;
            Ok(())
        })
    }

    fn reap(&self, max: usize) -> StoreFuture<'_, Reaped> {
        Box::pin(async move {
            let request = wire::ReapRequest { max: max.min(MAX_BATCH) };
            let answer = self.tell(Method::POST, "/v1/reap", &request).await;
            let wire::Reaped { reaped } = answer.map_err(of_a_change)?;
            Ok(Reaped { count: reaped, ..Reaped::default() })
        })
    }

    fn get(&self, kind: Kind, id: JobId) -> StoreFuture<'_, Option<JobView>> {
        Box::pin(async move {
            match self.ask::<ToldJob>(&of_kind(&kind, &["jobs", id.as_str()])).await {
                Ok(ToldJob(job)) => job.read("", &READING).map(Some).map_err(unreadable),
                Err(error) if refused::is_absent(&error) => Ok(None),
                Err(error) => Err(error),
            }
            .map_err(of_a_look)
        })
    }

    fn list(&self, query: Query) -> StoreFuture<'_, Page> {
        Box::pin(async move {
            // No id begins with it, and no path may have it.
            if query.prefix.len() > MAX_ID_LEN {
                return Ok(Page::default());
            }
            let answer = self.ask(&list_path(&query)).await.map_err(of_a_look)?;
            page(answer).map_err(|problem| of_a_look(unreadable(problem)))
        })
    }

    fn kinds(&self) -> StoreFuture<'_, Vec<KindView>> {
        Box::pin(async move {
            let wire::Kinds { kinds } = self.ask("/v1/kinds").await.map_err(of_a_look)?;
            let kinds = kinds.into_iter().map(|kind| kind.read(&READING));
            kinds.collect::<Result<_, _>>().map_err(|problem| of_a_look(unreadable(problem)))
        })
    }

    fn upcoming(&self, kind: Kind, spans: Spans) -> StoreFuture<'_, Vec<u64>> {
        Box::pin(async move {
            let count = spans.count;
            if count > MAX_SPANS {
                return Err(Invalid::TooMany { what: "spans", count, limit: MAX_SPANS }.into());
            }
            let wire::UpcomingQuery { from, span, .. } = spans.into();
            let mut path = of_kind(&kind, &["upcoming"]);
            let number = count.to_string();
            let fields =
                [("from", from.as_deref()), ("span", span.as_deref()), ("count", Some(&*number))];
            query(&mut path, &fields);
            let wire::Upcoming { counts, .. } = self.ask(&path).await.map_err(of_a_look)?;
            Ok(counts)
        })
    }

    fn settings(&self, kind: Kind) -> StoreFuture<'_, Settings> {
        Box::pin(async move {
            let asked = self.ask::<wire::SettingsText>(&of_kind(&kind, &["settings"])).await;
            let settings = asked.map_err(of_a_look)?;
            settings.read(&READING).map_err(|problem| of_a_look(unreadable(problem)))
        })
    }

    fn set(&self, kind: Kind, settings: Settings) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            settings.check()?;
            let all = wire::SettingsPatch::from(wire::SettingsText::from(&settings));
            let answer = self.tell(Method::PUT, &of_kind(&kind, &[]), &all).await;
            let IgnoredAny = answer.map_err(of_a_change)?;
            Ok(())
        })
    }

    fn set_schedule(&self, kind: Kind, schedule: Schedule) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            schedule.check()?;
            let path = of_kind(&kind, &["schedules", schedule.id.as_str()]);
            let text = wire::ScheduleText { id: None, ..(&schedule).into() };
            let IgnoredAny = self.tell(Method::PUT, &path, &text).await.map_err(of_a_change)?;
            Ok(())
        })
    }

    fn remove_schedule(&self, kind: Kind, id: JobId) -> StoreFuture<'_, bool> {
        Box::pin(async move {
            let path = of_kind(&kind, &["schedules", id.as_str()]);
            match self.read(Call::json(Method::DELETE, &path, None)).await {
                Ok(IgnoredAny) => Ok(true),
                Err(error) if refused::is_absent(&error) => Ok(false),
                Err(error) => Err(of_a_change(error)),
            }
        })
    }

    fn schedules(&self, kind: Kind) -> StoreFuture<'_, Vec<Schedule>> {
        Box::pin(async move {
            let answer = self.ask(&of_kind(&kind, &["schedules"])).await;
            let ToldSchedules { schedules } = answer.map_err(of_a_look)?;
            let told = |ToldSchedule(schedule)| schedule.told(&READING);
            let schedules = schedules.into_iter().map(told);
            schedules.collect::<Result<_, _>>().map_err(|problem| of_a_look(unreadable(problem)))
        })
    }

    fn tick(&self, tick: Tick) -> StoreFuture<'_, Ticked> {
        Box::pin(async move {
            let path = of_kind(&tick.kind, &["schedules", tick.id.as_str(), "tick"]);
            let request = wire::TickRequest::from(&tick);
            match self.tell::<wire::TickResult>(Method::POST, &path, &request).await {
                Ok(done) => done.read(&READING).map_err(unreadable),
                Err(error) if refused::is_absent(&error) => Ok(Ticked::Absent),
                Err(error) => Err(error),
            }
            .map_err(of_a_change)
        })
    }
}

/// What of an error is not kept need not be sent.
fn cut(mut settle: Settle) -> Settle {
    if let Settlement::Retry { error, .. } | Settlement::Bury { error } = &mut settle.action {
        error.truncate(kept_error(error).len());
    }
    settle
}

/// Whether a store can have told this job. Whether its times can be, only the server knows.
fn check_arrival(kind: &Kind, job: &JobView) -> Result<(), Invalid> {
    if job.kind != *kind {
        let reason = "it is of another kind than the batch";
        return Err(Invalid::NoSuchJob { id: job.id.clone(), reason });
    }
    Arrival::of(job.clone(), Timestamp::from_millis(u64::MAX)).map(drop)
}

fn claimed(answer: wire::ClaimAnswer) -> Result<Claimed, Problem> {
    let jobs = answer.jobs.into_iter().map(|job| job.read(&READING));
    let errors = answer.errors.into_iter().map(|wire::KindProblem { kind, error }| {
        Ok((Kind::new(kind)?, refused::of_a_problem(error)))
    });
    Ok(Claimed {
        jobs: jobs.collect::<Result<_, _>>()?,
        errors: errors.collect::<Result<_, Invalid>>()?,
        expired: Vec::new(),
    })
}

fn list_path(wanted: &Query) -> String {
    let state = wanted.state.map(|state| match state.into() {
        wire::State::Waiting => "waiting",
        wire::State::Ready => "ready",
        wire::State::Leased => "leased",
        wire::State::Dead => "dead",
    });
    let limit = wanted.limit.clamp(1, MAX_BATCH).to_string();
    let fields = [
        ("state", state),
        ("prefix", Some(&*wanted.prefix).filter(|prefix| !prefix.is_empty())),
        ("after", wanted.after.as_ref().map(JobId::as_str)),
        ("limit", Some(&*limit)),
    ];
    let mut path = of_kind(&wanted.kind, &["jobs"]);
    query(&mut path, &fields);
    path
}

fn page(answer: ToldPage) -> Result<Page, Problem> {
    let jobs = answer.jobs.into_iter().map(|ToldJob(job)| job.read("", &READING));
    let jobs = jobs.collect::<Result<_, _>>()?;
    Ok(Page { jobs, cursor: answer.cursor.map(JobId::new).transpose()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use requeue_jobs::Fence;
    use requeue_jobs::limits::MAX_ERROR_LEN;

    #[test]
    fn of_an_error_what_is_kept_is_sent() {
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
                cut(Settle { receipt: receipt.clone(), action }).action
            else {
                panic!("it is another settlement");
            };
            assert_eq!(error, "x".repeat(MAX_ERROR_LEN - 1));
        }
    }
}
