//! Schedules: recurring jobs.

use super::Problems;
use crate::app::App;
use crate::auth::Caller;
use crate::extract::{JobPath, Json, KindPath, QueryParams};
use crate::listen::Delivery;
use crate::response::{ApiResult, json};
use crate::response_memory::{self, list_response};
use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use requeue_http::wire::{
    AfterQuery, PutDone, ScheduleJson, SchedulePage, ScheduleRequest, Schedules,
};
use requeue_http::{Problem, ProblemType};
use requeue_jobs::limits::MAX_BATCH;
use requeue_jobs::{Jobs, Kind};
use tokio::runtime::Handle;

/// Calls the store on a thread for blocking work, because a cron expression that rarely or never fires
/// takes up to a tenth of a second of computation.
async fn off_runtime<T: Send + 'static>(
    app: &App,
    work: impl AsyncFnOnce(&Jobs) -> T + Send + 'static,
) -> ApiResult<T> {
    let (jobs, runtime) = (app.jobs().clone(), Handle::current());
    let done = app.tasks().spawn_blocking(move || runtime.block_on(work(&jobs))).await;
    let panicked = |_| Problem::new(ProblemType::Bug, "the call panicked; see the server's log");
    Ok(done.map_err(panicked)?)
}

/// List the schedules of a kind, sorted by id.
#[utoipa::path(
    get, path = "/v1/kinds/{kind}/schedules", tag = "schedules", operation_id = "list_schedules",
    params(KindPath),
    responses(
        (status = 200, description = "The schedules, sorted by id.", body = Schedules),
        Problems
    )
)]
pub(super) async fn all(
    State(app): State<App>,
    Extension(delivery): Extension<Delivery>,
    KindPath(kind): KindPath,
) -> ApiResult<Response> {
    let mut room = app.response_memory().for_list(MAX_BATCH).await?;
    let schedules = off_runtime(&app, async move |jobs| jobs.schedules(kind.as_str()).await);
    let schedules = schedules.await??;
    room.keep(response_memory::weight(&schedules));
    delivery.hold(room);
    let encode = |schedule| ScheduleJson::from(&schedule);
    Ok(list_response("schedules", schedules, encode, String::new(), delivery))
}

/// How many kinds one call looks at, and after how many schedules a page ends.
const PAGE: usize = 200;

/// List the schedules of all kinds, sorted by kind and id.
///
/// A page contains all schedules of some kinds. It may be empty and still have a cursor.
#[utoipa::path(
    get, path = "/v1/schedules", tag = "schedules", operation_id = "list_all_schedules",
    params(AfterQuery),
    responses(
        (
            status = 200, description = "A page of schedules, and the cursor of the next page.",
            body = SchedulePage
        ),
        Problems
    )
)]
pub(super) async fn of_all_kinds(
    State(app): State<App>,
    Extension(delivery): Extension<Delivery>,
    Extension(caller): Extension<Caller>,
    QueryParams(query): QueryParams<AfterQuery>,
) -> ApiResult<Response> {
    let after = query.after.unwrap_or_default();
    // It reads up to hundreds of kinds.
    let _scan = app.scan_slot(&caller).await?;
    let mut room = app.response_memory().for_list(MAX_BATCH).await?;
    let kinds = app.kinds().await?;
    let kinds = kinds.iter().map(|view| view.kind.clone());
    let kinds: Vec<Kind> = kinds.filter(|kind| kind.as_str() > after.as_str()).collect();
    let read = async move |jobs: &Jobs| {
        let (mut schedules, mut cursor) = (Vec::new(), None);
        for (n, kind) in kinds.iter().enumerate() {
            schedules.extend(jobs.schedules(kind.as_str()).await?);
            if (schedules.len() >= PAGE || n + 1 >= PAGE) && n + 1 < kinds.len() {
                cursor = Some(kind.to_string());
                break;
            }
        }
        ApiResult::Ok((schedules, cursor))
    };
    let (schedules, cursor) = off_runtime(&app, read).await??;
    room.keep(response_memory::weight(&schedules));
    delivery.hold(room);
    let encode = |schedule| ScheduleJson::from(&schedule);
    let rest = format!(",\"cursor\":{}", json(&cursor));
    Ok(list_response("schedules", schedules, encode, rest, delivery))
}

/// Get a schedule and its next times.
#[utoipa::path(
    get, path = "/v1/kinds/{kind}/schedules/{id}", tag = "schedules", operation_id = "get_schedule",
    params(JobPath),
    responses((status = 200, description = "The schedule.", body = ScheduleJson), Problems)
)]
pub(super) async fn one(
    State(app): State<App>,
    Extension(delivery): Extension<Delivery>,
    JobPath(kind, id): JobPath,
) -> ApiResult<Json<ScheduleJson>> {
    delivery.hold(app.response_memory().for_job().await?);
    let absent = Problem::no_schedule(&kind, &id);
    let read = async move |jobs: &Jobs| jobs.schedule(kind.as_str(), id.as_str()).await;
    match off_runtime(&app, read).await?? {
        Some(view) => Ok(Json(ScheduleJson::from(&view))),
        None => Err(absent.into()),
    }
}

/// Set a schedule. It replaces a schedule with the same id.
///
/// If the schedule exists and has the same times, its next run stays. So a program can set its
/// schedules whenever it starts.
#[utoipa::path(
    put, path = "/v1/kinds/{kind}/schedules/{id}", tag = "schedules", operation_id = "set_schedule",
    params(JobPath), request_body = ScheduleRequest,
    responses(
        (status = 200, description = "The schedule as it is now.", body = ScheduleJson),
        Problems
    )
)]
pub(super) async fn set(
    State(app): State<App>,
    Extension(delivery): Extension<Delivery>,
    JobPath(kind, id): JobPath,
    Json(request): Json<ScheduleRequest>,
) -> ApiResult<Json<ScheduleJson>> {
    delivery.hold(app.response_memory().for_job().await?);
    let reading = app.reading();
    let set = async move |jobs: &Jobs| {
        let spec = request.create(&reading)?;
        let view = jobs.set_schedule(kind.as_str(), id.as_str(), spec).await?;
        ApiResult::Ok(ScheduleJson::from(&view))
    };
    Ok(Json(off_runtime(&app, set).await??))
}

/// Change a schedule. Omitted fields stay.
#[utoipa::path(
    patch, path = "/v1/kinds/{kind}/schedules/{id}", tag = "schedules",
    operation_id = "change_schedule",
    params(JobPath), request_body = ScheduleRequest,
    responses(
        (status = 200, description = "The schedule as it is now.", body = ScheduleJson),
        Problems
    )
)]
pub(super) async fn change(
    State(app): State<App>,
    Extension(delivery): Extension<Delivery>,
    JobPath(kind, id): JobPath,
    Json(request): Json<ScheduleRequest>,
) -> ApiResult<Json<ScheduleJson>> {
    delivery.hold(app.response_memory().for_job().await?);
    let reading = app.reading();
    let change = async move |jobs: &Jobs| {
        // What is invalid may depend on the present schedule, such as a time zone for a period.
        let changed = jobs.change_schedule_with(kind.as_str(), id.as_str(), |spec| {
            *spec = request.change(spec.clone(), &reading)?;
            Ok::<_, Problem>(())
        });
        ApiResult::Ok(ScheduleJson::from(&changed.await?))
    };
    Ok(Json(off_runtime(&app, change).await??))
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
    match app.jobs().remove_schedule(kind.as_str(), id.as_str()).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Problem::no_schedule(&kind, &id).into()),
    }
}

/// Start a run of a schedule now, in addition to those at its times.
///
/// A paused schedule can be run, too.
#[utoipa::path(
    post, path = "/v1/kinds/{kind}/schedules/{id}/run", tag = "schedules",
    operation_id = "run_schedule",
    params(JobPath),
    responses(
        (
            status = 200, description = "What the put of the job did, and its generation.",
            body = PutDone
        ),
        Problems
    )
)]
pub(super) async fn run(
    State(app): State<App>,
    JobPath(kind, id): JobPath,
) -> ApiResult<Json<PutDone>> {
    Ok(Json(app.jobs().run_schedule(kind.as_str(), id.as_str()).await?.into()))
}
