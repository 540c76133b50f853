//! Settings and job counts of kinds.

use super::Problems;
use super::jobs::cursor;
use crate::app::App;
use crate::auth::Caller;
use crate::bulk;
use crate::extract::{Json, KindPath, QueryParams};
use crate::listen::Delivery;
use crate::response::ApiResult;
use crate::response_memory::{list_response, weight};
use crate::trouble;
use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use requeue_http::wire::{
    AfterQuery, KindDeleted, KindList, KindStats, SettingsJson, SettingsPatch, Upcoming,
    UpcomingQuery,
};
use requeue_http::{Problem, ProblemType};
use requeue_jobs::{Kind, Settings, Store, StoreError};
use requeue_push::{InvalidPush, PushConfig};

/// List all kinds that have jobs, settings or schedules.
#[utoipa::path(
    get, path = "/v1/kinds", tag = "kinds", operation_id = "list_kinds",
    responses((status = 200, description = "The kinds, sorted by name.", body = KindList), Problems)
)]
pub(super) async fn all(
    State(app): State<App>,
    Extension(delivery): Extension<Delivery>,
) -> ApiResult<Response> {
    let kinds = app.kinds().await?;
    delivery.hold(app.response_memory().reserve(weight(&kinds)).await?);
    let encode = |kind| KindStats::from(&kind);
    let kinds = Vec::clone(&kinds);
    Ok(list_response("kinds", kinds, encode, String::new(), delivery))
}

/// Get the counts and settings of a kind.
///
/// A kind that was never used has zero counts and the default settings. A kind that was deleted keeps
/// its `generation` and `fence`, because they are never assigned again.
#[utoipa::path(
    get, path = "/v1/kinds/{kind}", tag = "kinds", operation_id = "get_kind",
    params(KindPath),
    responses(
        (status = 200, description = "The counts and settings of the kind.", body = KindStats),
        Problems
    )
)]
pub(super) async fn one(
    State(app): State<App>,
    KindPath(kind): KindPath,
) -> ApiResult<Json<KindStats>> {
    let settings = app.store().settings(kind.clone()).await?;
    let view = app.store().kind(kind.clone()).await?;
    let push_state = settings.push.is_some().then(|| app.push().state(&kind));
    let settings = Some(shown(&settings));
    let trouble = trouble::of_kind(&app, &view);
    Ok(Json(KindStats { settings, push_state, trouble, ..KindStats::from(&view) }))
}

/// Get the settings of a kind, or the defaults.
#[utoipa::path(
    get, path = "/v1/kinds/{kind}/settings", tag = "kinds", operation_id = "get_kind_settings",
    params(KindPath),
    responses(
        (status = 200, description = "All settings of the kind.", body = SettingsJson),
        Problems
    )
)]
pub(super) async fn settings(
    State(app): State<App>,
    KindPath(kind): KindPath,
) -> ApiResult<Json<SettingsJson>> {
    Ok(Json(shown(&app.store().settings(kind).await?)))
}

/// Set all settings of a kind.
///
/// Omitted settings become the defaults.
#[utoipa::path(
    put, path = "/v1/kinds/{kind}", tag = "kinds", operation_id = "set_kind",
    params(KindPath), request_body = SettingsPatch,
    responses(
        (status = 200, description = "All settings of the kind.", body = SettingsJson),
        Problems
    )
)]
pub(super) async fn set(
    State(app): State<App>,
    KindPath(kind): KindPath,
    Json(settings): Json<SettingsPatch>,
) -> ApiResult<Json<SettingsJson>> {
    store_settings(&app, kind, Settings::default(), &settings).await
}

/// Applies the patch to `before`, stores the settings and returns them.
async fn store_settings(
    app: &App,
    kind: Kind,
    before: Settings,
    patch: &SettingsPatch,
) -> ApiResult<Json<SettingsJson>> {
    let mut settings = patch.apply(before)?;
    if let Some(change) = &patch.push {
        let before = settings.push.take();
        let changed = change.as_ref().map(|change| PushConfig::changed(before.as_ref(), change));
        settings.push = changed.transpose().map_err(invalid_push)?;
    }
    app.store().set(kind.clone(), settings.clone()).await?;
    app.push().settings_changed(kind, settings.push.is_some());
    Ok(Json(shown(&settings)))
}

/// Returns the settings without secrets.
pub(super) fn shown(settings: &Settings) -> SettingsJson {
    let push = settings.push.as_ref().and_then(PushConfig::masked);
    SettingsJson { push, ..SettingsJson::from(settings) }
}

fn invalid_push(error: InvalidPush) -> Problem {
    let field = error.field().map_or_else(|| "push".to_owned(), |field| format!("push.{field}"));
    Problem::new(ProblemType::Invalid, error.to_string()).at(field)
}

/// Change some settings of a kind.
///
/// Omitted settings stay. The settings are read and then written, not atomically: of two
/// concurrent changes, one may be lost.
#[utoipa::path(
    patch, path = "/v1/kinds/{kind}", tag = "kinds", operation_id = "change_kind",
    params(KindPath), request_body = SettingsPatch,
    responses(
        (status = 200, description = "All settings of the kind.", body = SettingsJson),
        Problems
    )
)]
pub(super) async fn change(
    State(app): State<App>,
    KindPath(kind): KindPath,
    Json(settings): Json<SettingsPatch>,
) -> ApiResult<Json<SettingsJson>> {
    let now = app.store().settings(kind.clone()).await?;
    store_settings(&app, kind, now, &settings).await
}

/// Delete a kind: its schedules, jobs and settings.
///
/// One call deletes at most 10,000 jobs: while the response has a cursor, call again with it.
/// Leased jobs are removed when their leases end. Jobs that are put in the meantime may remain.
#[utoipa::path(
    delete, path = "/v1/kinds/{kind}", tag = "kinds", operation_id = "delete_kind",
    params(KindPath, AfterQuery),
    responses(
        (
            status = 200, description = "How much was deleted, and the cursor of the next call.",
            body = KindDeleted
        ),
        Problems
    )
)]
pub(super) async fn delete(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    KindPath(kind): KindPath,
    QueryParams(query): QueryParams<AfterQuery>,
) -> ApiResult<Json<KindDeleted>> {
    let after = cursor(query.after)?;
    let scan = app.scan_slot(&caller).await?;
    let deleted_kind = kind.clone();
    let delete = async move |store: &dyn Store| Ok(bulk::delete(store, deleted_kind, after).await?);
    let deleted = scan.run(delete).await?;
    app.push().settings_changed(kind, false);
    Ok(Json(deleted))
}

/// Pause a kind.
///
/// Its jobs cannot be claimed. Leased jobs are not affected.
#[utoipa::path(
    post, path = "/v1/kinds/{kind}/pause", tag = "kinds", operation_id = "pause_kind",
    params(KindPath),
    responses((status = 204, description = "The kind is paused."), Problems)
)]
pub(super) async fn pause(
    State(app): State<App>,
    KindPath(kind): KindPath,
) -> ApiResult<StatusCode> {
    Ok(set_paused(&app, kind, true).await?)
}

/// Resume a kind.
///
/// Its jobs can be claimed again.
#[utoipa::path(
    post, path = "/v1/kinds/{kind}/resume", tag = "kinds", operation_id = "resume_kind",
    params(KindPath),
    responses((status = 204, description = "The kind is not paused."), Problems)
)]
pub(super) async fn resume(
    State(app): State<App>,
    KindPath(kind): KindPath,
) -> ApiResult<StatusCode> {
    Ok(set_paused(&app, kind, false).await?)
}

async fn set_paused(app: &App, kind: Kind, paused: bool) -> Result<StatusCode, StoreError> {
    let mut settings = app.store().settings(kind.clone()).await?;
    if settings.paused != paused {
        settings.paused = paused;
        app.store().set(kind, settings).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Count pending jobs by due time.
#[utoipa::path(
    get, path = "/v1/kinds/{kind}/upcoming", tag = "kinds", operation_id = "count_upcoming_jobs",
    params(KindPath, UpcomingQuery),
    responses(
        (
            status = 200, description = "The number of jobs that become due in each span of time.",
            body = Upcoming
        ),
        Problems
    )
)]
pub(super) async fn upcoming(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    KindPath(kind): KindPath,
    QueryParams(query): QueryParams<UpcomingQuery>,
) -> ApiResult<Json<Upcoming>> {
    let spans = query.read(&app.reading())?;
    let scan = app.scan_slot(&caller).await?;
    let count = async move |store: &dyn Store| Ok(store.upcoming(kind, spans).await?);
    let counts = scan.run(count).await?;
    Ok(Json(Upcoming::new(spans, counts)))
}
