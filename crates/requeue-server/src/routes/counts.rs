//! Counting jobs by filter, and grouping dead jobs by error.

use super::Problems;
use super::jobs::cursor;
use crate::app::App;
use crate::auth::Caller;
use crate::bulk;
use crate::extract::{Json, KindPath, QueryParams};
use crate::listen::Delivery;
use crate::response::{ApiResult, json};
use crate::response_memory::{self, list_response};
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use requeue_http::wire::{AfterQuery, CountQuery, ErrorGroup, ErrorGroups, JobCount};

/// Count the jobs of a kind that match a filter.
///
/// Without a filter, or with only `state`, the store has the count, and no job is examined. The count of
/// `ready` and `waiting` is an exception if 10,000 or more jobs are ready. Otherwise one call examines at
/// most 10,000 jobs: while the response has a cursor, call again with it and add up `matched`.
#[utoipa::path(
    get, path = "/v1/kinds/{kind}/count", tag = "jobs", operation_id = "count_jobs",
    params(KindPath, CountQuery),
    responses(
        (
            status = 200, description = "The number of jobs, and the cursor of the next call.",
            body = JobCount
        ),
        Problems
    )
)]
pub(super) async fn count(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    KindPath(kind): KindPath,
    QueryParams(query): QueryParams<CountQuery>,
) -> ApiResult<Json<JobCount>> {
    let filter = query.filter().read(&app.reading())?;
    let after = cursor(query.after)?;
    if after.is_none()
        && let Some(matched) = bulk::stored_count(&**app.store(), &kind, &filter).await?
    {
        return Ok(Json(JobCount { matched, ..JobCount::default() }));
    }
    let scan = app.scan_slot(&caller).await?;
    let count =
        scan.run(async move |store| Ok(bulk::count(store, kind, &filter, after).await?)).await?;
    Ok(Json(count))
}

/// Group the dead jobs of a kind by their last error.
///
/// Errors that differ only in numbers and ids are in the same group. To list or change the jobs of a
/// group, filter by `error_group`, or by `expired` for the group `null`. One call examines at most 10,000
/// jobs: while the response has a cursor, call again with it and add up the counts.
#[utoipa::path(
    get, path = "/v1/kinds/{kind}/errors", tag = "jobs", operation_id = "list_error_groups",
    params(KindPath, AfterQuery),
    responses(
        (
            status = 200, description = "The groups, and the cursor of the next call.",
            body = ErrorGroups
        ),
        Problems
    )
)]
pub(super) async fn errors(
    State(app): State<App>,
    Extension(delivery): Extension<Delivery>,
    Extension(caller): Extension<Caller>,
    KindPath(kind): KindPath,
    QueryParams(query): QueryParams<AfterQuery>,
) -> ApiResult<Response> {
    let after = cursor(query.after)?;
    let scan = app.scan_slot(&caller).await?;
    let grouped =
        scan.run(async move |store| Ok(bulk::error_groups(store, kind, after).await?)).await?;
    let room = app.response_memory().reserve(response_memory::weight(&grouped.groups)).await?;
    delivery.hold(room);
    let (other, scanned) = (grouped.other, grouped.scanned);
    let cursor = json(&grouped.cursor);
    let rest = format!(",\"other\":{other},\"scanned\":{scanned},\"cursor\":{cursor}");
    Ok(list_response("groups", grouped.groups, ErrorGroup::from, rest, delivery))
}
