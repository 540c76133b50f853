//! Putting, reading, listing and changing jobs.

use super::Problems;
use crate::app::App;
use crate::auth::Caller;
use crate::bulk::{self, MAX_SCANNED};
use crate::extract::{JobPath, Json, KindPath, QueryParams, off_runtime};
use crate::listed_job::ListedJob;
use crate::listen::Delivery;
use crate::response::{ApiResult, json};
use crate::response_memory::{self, list_response};
use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use requeue_http::wire::{
    BatchErrors, BulkChangeResult, ChangeBatch, ChangeDone, ChangeEntry, ChangeIds, JobJson,
    JobPage, JobQuery, JobsQuery, PutBatch, PutDone, PutRequest, RescheduleRequest, Results,
};
use requeue_http::{AtField, Problem, ProblemType};
use requeue_jobs::limits::MAX_BODY_LEN;
use requeue_jobs::rules::check_count;
use requeue_jobs::{Change, ChangeKind, Invalid, JobId, Kind, Store, StoreError, TimeCursor};

/// Put a job.
///
/// A put replaces the whole job: if it exists, its body, due time and priority are replaced, by their
/// defaults where the request does not contain them. To change only some of them, use PATCH.
#[utoipa::path(
    put, path = "/v1/kinds/{kind}/jobs/{id}", tag = "jobs", operation_id = "put_job",
    params(JobPath), request_body = PutRequest,
    responses(
        (
            status = 200, description = "What the put did, and the generation of the job.",
            body = PutDone
        ),
        Problems
    )
)]
pub(super) async fn put(
    State(app): State<App>,
    JobPath(kind, id): JobPath,
    Json(request): Json<PutRequest>,
) -> ApiResult<Json<PutDone>> {
    let put = request.read(Some(&kind), Some(&id), &app.reading())?;
    Ok(Json(app.jobs().place(put).await?.into()))
}

/// Get a job.
#[utoipa::path(
    get, path = "/v1/kinds/{kind}/jobs/{id}", tag = "jobs", operation_id = "get_job",
    params(JobPath, JobQuery),
    responses((status = 200, description = "The job.", body = JobJson), Problems)
)]
pub(super) async fn get(
    State(app): State<App>,
    Extension(delivery): Extension<Delivery>,
    JobPath(kind, id): JobPath,
    QueryParams(query): QueryParams<JobQuery>,
) -> ApiResult<Json<JobJson>> {
    delivery.hold(app.response_memory().for_job().await?);
    match app.store().get(kind.clone(), id.clone()).await? {
        Some(job) => Ok(Json(JobJson::from(&job).with_envelope(query.envelope))),
        None => Err(Problem::no_job(&kind, &id).into()),
    }
}

/// Reschedule a job.
///
/// Changes the due time, the priority or the body of a job, and leaves the rest as it is. If the job is
/// leased, changes its successor, or makes one. With a due time, revives a dead job.
#[utoipa::path(
    patch, path = "/v1/kinds/{kind}/jobs/{id}", tag = "jobs", operation_id = "reschedule_job",
    params(JobPath), request_body = RescheduleRequest,
    responses(
        (
            status = 200,
            description = "What was done (`updated`, `coalesced` or `revived`), and the new \
                           generation of the job.",
            body = PutDone
        ),
        Problems
    )
)]
pub(super) async fn reschedule(
    State(app): State<App>,
    JobPath(kind, id): JobPath,
    Json(request): Json<RescheduleRequest>,
) -> ApiResult<Json<PutDone>> {
    let set = request.read(&app.reading())?;
    Ok(Json(app.jobs().reschedule_as(kind, id, set).await?.into()))
}

/// Cancel a job.
///
/// A leased job is removed when its lease ends, and its successor is dropped.
#[utoipa::path(
    delete, path = "/v1/kinds/{kind}/jobs/{id}", tag = "jobs", operation_id = "cancel_job",
    params(JobPath),
    responses(
        (
            status = 200, description = "The job is removed, or will be when its lease ends.",
            body = ChangeDone
        ),
        Problems
    )
)]
pub(super) async fn cancel(
    State(app): State<App>,
    JobPath(kind, id): JobPath,
) -> ApiResult<Json<ChangeDone>> {
    Ok(Json(app.jobs().cancel(kind.as_str(), id.as_str()).await?.into()))
}

/// Put jobs of one kind.
///
/// The jobs are put in order, each on its own. The response contains one result per job.
#[utoipa::path(
    post, path = "/v1/kinds/{kind}/jobs", tag = "jobs", operation_id = "put_jobs",
    params(KindPath), request_body = PutBatch,
    responses(
        (
            status = 200, description = "One result per job, in the order of the request.",
            body = Results<PutDone>
        ),
        Problems
    )
)]
pub(super) async fn put_batch(
    State(app): State<App>,
    KindPath(kind): KindPath,
    Json(batch): Json<PutBatch>,
) -> ApiResult<Json<Results<PutDone>>> {
    put_all(&app, Some(&kind), batch).await
}

/// Put jobs of several kinds.
///
/// The jobs are put in order, each on its own. The response contains one result per job.
#[utoipa::path(
    post, path = "/v1/put", tag = "jobs", operation_id = "put_jobs_of_any_kind",
    request_body = PutBatch,
    responses(
        (
            status = 200, description = "One result per job, in the order of the request.",
            body = Results<PutDone>
        ),
        Problems
    )
)]
pub(super) async fn put_any(
    State(app): State<App>,
    Json(batch): Json<PutBatch>,
) -> ApiResult<Json<Results<PutDone>>> {
    put_all(&app, None, batch).await
}

async fn put_all(
    app: &App,
    kind: Option<&Kind>,
    batch: PutBatch,
) -> ApiResult<Json<Results<PutDone>>> {
    check_entries("jobs", batch.jobs.len())?;
    let (reading, kind) = (app.reading(), kind.cloned());
    let body_bytes = batch.jobs.iter().map(|job| job.body_fields().len()).sum();
    let (puts, errors) = off_runtime(body_bytes, move || {
        let read = |job: PutRequest| job.read(kind.as_ref(), None, &reading);
        BatchErrors::read("jobs", batch.jobs, read)
    })
    .await;
    let placed = if puts.is_empty() { Vec::new() } else { app.store().put(puts).await? };
    Ok(Json(errors.join(placed.into_iter().map(|placed| placed.map(PutDone::from)))))
}

/// List jobs of a kind, sorted by id or by time.
///
/// With other filters than `state` and `prefix`, and with `prefix` in a list by time, one call scans at most
/// 10,000 jobs: a page may contain few jobs or none, and still have a cursor.
#[utoipa::path(
    get, path = "/v1/kinds/{kind}/jobs", tag = "jobs", operation_id = "list_jobs",
    params(KindPath, JobsQuery),
    responses(
        (
            status = 200, description = "A page of jobs, and the cursor of the next page.",
            body = JobPage
        ),
        Problems
    )
)]
pub(super) async fn list(
    State(app): State<App>,
    Extension(delivery): Extension<Delivery>,
    Extension(caller): Extension<Caller>,
    KindPath(kind): KindPath,
    QueryParams(query): QueryParams<JobsQuery>,
) -> ApiResult<Response> {
    let limit = query.limit.unwrap_or(100);
    check_count("jobs in a list", limit).at("limit")?;
    if limit == 0 {
        return Err(invalid("limit", "the limit must be from 1 to 1000").into());
    }
    check_body_limit(query.body_limit)?;
    let filter = query.filter().read(&app.reading())?;
    let by_time = query.by_time(&kind, limit)?;
    let after = if by_time.is_none() { cursor(query.after)? } else { None };
    let scan = match bulk::examines_many(&filter, by_time.is_some(), limit) {
        true => Some(app.scan_slot(&caller).await?.with_own_memory()),
        false => None,
    };
    let mut room = app.response_memory().for_list(limit).await?;
    let body_limit = query.body_limit;
    let list = async move |store: &dyn Store| match by_time {
        Some(query) => {
            let page = bulk::list_by_time(store, query, &filter).await;
            let page = page.map_err(|error| match error {
                StoreError::Invalid(invalid) => Problem::from(invalid).at("after"),
                error => error.into(),
            })?;
            Ok((page.jobs, json(&page.cursor.as_ref().map(TimeCursor::as_str))))
        }
        None => {
            let page = bulk::list(store, kind, &filter, after, limit).await?;
            Ok::<_, Problem>((page.jobs, json(&page.cursor.as_ref().map(JobId::as_str))))
        }
    };
    let (jobs, cursor) = match scan {
        Some(scan) => scan.run(list).await?,
        None => list(&**app.store()).await?,
    };
    let jobs: Vec<ListedJob> =
        jobs.into_iter().map(|job| ListedJob::new(job, body_limit)).collect();
    room.keep(response_memory::weight(&jobs));
    delivery.hold(room);
    let rest = format!(",\"cursor\":{cursor}");
    Ok(list_response(
        "jobs",
        jobs,
        move |job: ListedJob| job.json().with_envelope(query.envelope),
        rest,
        delivery,
    ))
}

/// Checks the length of the longest body that a list returns.
fn check_body_limit(body_limit: Option<usize>) -> Result<(), Problem> {
    let (value, limit) = (body_limit.unwrap_or_default() as u64, MAX_BODY_LEN as u64);
    if value > limit {
        let too_high = Invalid::TooHigh { field: "the longest body", value, limit };
        return Err(Problem::from(too_high).at("body_limit"));
    }
    Ok(())
}

fn invalid(field: &str, detail: &str) -> Problem {
    Problem::new(ProblemType::Invalid, detail).at(field)
}

/// Checks the number of entries in a batch.
pub(super) fn check_entries(field: &str, count: usize) -> Result<(), Problem> {
    check_count("entries in a batch", count).at(field)
}

/// Parses the cursor `after`.
pub(super) fn cursor(after: Option<String>) -> Result<Option<JobId>, Problem> {
    after.map(JobId::new).transpose().at("after")
}

/// Change jobs of several kinds.
#[utoipa::path(
    post, path = "/v1/change", tag = "jobs", operation_id = "change_jobs_of_any_kind",
    request_body = ChangeBatch,
    responses(
        (
            status = 200, description = "One result per job, in the order of the request.",
            body = Results<ChangeDone>
        ),
        Problems
    )
)]
pub(super) async fn change_any(
    State(app): State<App>,
    Json(batch): Json<ChangeBatch>,
) -> ApiResult<Json<Results<ChangeDone>>> {
    check_entries("jobs", batch.jobs.len())?;
    let reading = app.reading();
    let body_bytes = batch.jobs.iter().map(ChangeEntry::body_len).sum();
    let read = off_runtime(body_bytes, move || {
        BatchErrors::read("jobs", batch.jobs, |job: ChangeEntry| job.read(&reading))
    });
    change_all(&app, read.await).await
}

async fn change_all(
    app: &App,
    (changes, errors): (Vec<Change>, BatchErrors),
) -> ApiResult<Json<Results<ChangeDone>>> {
    let changed = if changes.is_empty() { Vec::new() } else { app.store().change(changes).await? };
    Ok(Json(errors.join(changed.into_iter().map(|changed| changed.map(ChangeDone::from)))))
}

/// Cancel jobs, by id or by filter.
#[utoipa::path(
    post, path = "/v1/kinds/{kind}/cancel", tag = "jobs", operation_id = "cancel_jobs",
    params(KindPath), request_body = ChangeIds,
    responses(ChangeResponse, Problems)
)]
pub(super) async fn cancel_some(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    KindPath(kind): KindPath,
    Json(request): Json<ChangeIds>,
) -> ApiResult<Response> {
    change_some(&app, &caller, kind, ChangeKind::Cancel, request).await
}

/// Make jobs due now, by id or by filter.
#[utoipa::path(
    post, path = "/v1/kinds/{kind}/run-now", tag = "jobs", operation_id = "run_jobs_now",
    params(KindPath), request_body = ChangeIds,
    responses(ChangeResponse, Problems)
)]
pub(super) async fn run_some_now(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    KindPath(kind): KindPath,
    Json(request): Json<ChangeIds>,
) -> ApiResult<Response> {
    change_some(&app, &caller, kind, ChangeKind::RunNow, request).await
}

/// Revive dead jobs, by id or by filter.
#[utoipa::path(
    post, path = "/v1/kinds/{kind}/revive", tag = "jobs", operation_id = "revive_jobs",
    params(KindPath), request_body = ChangeIds,
    responses(ChangeResponse, Problems)
)]
pub(super) async fn revive_some(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    KindPath(kind): KindPath,
    Json(request): Json<ChangeIds>,
) -> ApiResult<Response> {
    change_some(&app, &caller, kind, ChangeKind::Revive, request).await
}

/// One result per id, or counts for a filter.
#[derive(utoipa::ToSchema)]
#[schema(title = "ChangedSome")]
#[serde(untagged)]
#[allow(dead_code, reason = "only its schema is used")]
#[derive(serde::Serialize)]
pub(super) enum ChangedSome {
    /// The results for `ids`.
    Some(Results<ChangeDone>),
    /// The counts for `all`.
    All(BulkChangeResult),
}

/// One result per job; with `all`, the number of changed jobs.
#[derive(utoipa::IntoResponses)]
#[response(status = 200)]
#[expect(dead_code, reason = "only its documentation is used")]
struct ChangeResponse(ChangedSome);

async fn change_some(
    app: &App,
    caller: &Caller,
    kind: Kind,
    action: ChangeKind,
    request: ChangeIds,
) -> ApiResult<Response> {
    match (request.ids, request.all) {
        (Some(ids), None) => {
            for (field, is_there) in
                [("after", request.after.is_some()), ("limit", request.limit.is_some())]
            {
                if is_there {
                    return Err(
                        invalid(field, "this field is only allowed together with all").into()
                    );
                }
            }
            check_entries("ids", ids.len())?;
            let read = |id: String| {
                let (kind, action) = (kind.clone(), action.clone());
                Ok(Change { kind, id: JobId::new(id).map_err(Problem::from)?, action })
            };
            Ok(change_all(app, BatchErrors::read("ids", ids, read)).await?.into_response())
        }
        (None, Some(all)) => {
            let limit = request.limit.unwrap_or(MAX_SCANNED);
            if limit == 0 {
                let detail = "the limit must be from 1 to 10000";
                return Err(invalid("limit", detail).into());
            }
            if limit > MAX_SCANNED {
                let (what, count) = ("jobs to change in one request", limit);
                let invalid = Invalid::TooMany { what, count, limit: MAX_SCANNED };
                return Err(Problem::from(invalid).at("limit").into());
            }
            let filter = all.read(&app.reading()).within("all.")?;
            let after = cursor(request.after)?;
            let scan = app.scan_slot(caller).await?;
            let change = async move |store: &dyn Store| {
                Ok(bulk::change(store, kind, action, &filter, after, limit).await?)
            };
            Ok(Json(scan.run(change).await?).into_response())
        }
        (Some(_), Some(_)) => Err(invalid("ids", "only one of ids and all is allowed").into()),
        (None, None) => Err(invalid("ids", "ids or all is required").into()),
    }
}
