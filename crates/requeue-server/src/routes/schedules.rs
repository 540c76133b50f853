//! Schedules, as the store keeps them. The client that ticks a schedule computes its next time.

use super::Problems;
use crate::app::App;
use crate::extract::{JobPath, Json, KindPath};
use crate::response::ApiResult;
use axum::extract::State;
use axum::http::StatusCode;
use requeue_http::wire::{ScheduleJson, Schedules, TickRequest, TickResult};
use requeue_http::{Problem, ProblemType};

/// List the schedules of a kind, sorted by id.
#[utoipa::path(
    get, path = "/v1/kinds/{kind}/schedules", tag = "schedules", operation_id = "list_schedules",
    params(KindPath),
    responses((status = 200, body = Schedules), Problems)
)]
pub(super) async fn all(
    State(app): State<App>,
    KindPath(kind): KindPath,
) -> ApiResult<Json<Schedules>> {
    let schedules = app.store().schedules(kind).await?;
    Ok(Json(Schedules { schedules: schedules.iter().map(ScheduleJson::from).collect() }))
}

/// Set a schedule. It replaces a schedule with the same id.
#[utoipa::path(
    put, path = "/v1/kinds/{kind}/schedules/{id}", tag = "schedules", operation_id = "set_schedule",
    params(JobPath), request_body = ScheduleJson,
    responses((status = 204, description = "The schedule is set."), Problems)
)]
pub(super) async fn set(
    State(app): State<App>,
    JobPath(kind, id): JobPath,
    Json(schedule): Json<ScheduleJson>,
) -> ApiResult<StatusCode> {
    if schedule.id.is_some() {
        return Err(Problem::new(
            ProblemType::Invalid,
            "the id is part of the path; omit this field",
        )
        .at("id")
        .into());
    }
    let schedule = schedule.read(id, &app.reading())?;
    app.store().set_schedule(kind, schedule).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Remove a schedule. Its jobs stay.
#[utoipa::path(
    delete, path = "/v1/kinds/{kind}/schedules/{id}", tag = "schedules",
    operation_id = "remove_schedule",
    params(JobPath),
    responses((status = 204, description = "The schedule is removed."), Problems)
)]
pub(super) async fn remove(
    State(app): State<App>,
    JobPath(kind, id): JobPath,
) -> ApiResult<StatusCode> {
    if app.store().remove_schedule(kind.clone(), id.clone()).await? {
        return Ok(StatusCode::NO_CONTENT);
    }
    let detail = format!("there is no schedule {id:?} of kind {kind}");
    Err(Problem::new(ProblemType::Absent, detail).into())
}

/// Tick a schedule: put its job and set its next time, if its next time is the expected one.
///
/// This is atomic: any number of clients may try, and one succeeds.
#[utoipa::path(
    post, path = "/v1/kinds/{kind}/schedules/{id}/tick", tag = "schedules",
    operation_id = "tick_schedule",
    params(JobPath), request_body = TickRequest,
    responses((status = 200, body = TickResult), Problems)
)]
pub(super) async fn tick(
    State(app): State<App>,
    JobPath(kind, id): JobPath,
    Json(request): Json<TickRequest>,
) -> ApiResult<Json<TickResult>> {
    let tick = request.read(kind, id, &app.reading())?;
    Ok(Json(app.store().tick(tick).await?.into()))
}
