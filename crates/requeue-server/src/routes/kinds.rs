//! Kinds: settings and counts.

use super::Problems;
use super::jobs::cursor;
use crate::app::App;
use crate::bulk;
use crate::extract::{Json, KindPath, QueryParams};
use crate::response::ApiResult;
use axum::extract::State;
use axum::http::StatusCode;
use requeue_http::wire::{
    AfterQuery, KindDeleted, KindStats, Kinds, SettingsPatch, SettingsText, Upcoming, UpcomingQuery,
};
use requeue_jobs::{Counts, Kind, KindView, Settings, StoreError};

/// All kinds that have jobs, settings or schedules.
#[utoipa::path(
    get, path = "/v1/kinds", tag = "kinds", operation_id = "list_kinds",
    responses((status = 200, body = Kinds), Problems)
)]
pub(super) async fn all(State(app): State<App>) -> ApiResult<Json<Kinds>> {
    let kinds = app.store().kinds().await?;
    Ok(Json(Kinds { kinds: kinds.iter().map(KindStats::from).collect() }))
}

/// One kind: its counts and its settings. One that was never used has none, and the default ones.
#[utoipa::path(
    get, path = "/v1/kinds/{kind}", tag = "kinds", operation_id = "get_kind",
    params(KindPath),
    responses((status = 200, body = KindStats), Problems)
)]
pub(super) async fn one(
    State(app): State<App>,
    KindPath(kind): KindPath,
) -> ApiResult<Json<KindStats>> {
    let settings = app.store().settings(kind.clone()).await?;
    let kinds = app.store().kinds().await?;
    let unused = || KindView {
        kind: kind.clone(),
        counts: Counts::default(),
        oldest_ready: None,
        paused: settings.paused,
        generation: Default::default(),
        fence: Default::default(),
    };
    let view = kinds.into_iter().find(|view| view.kind == kind).unwrap_or_else(unused);
    let settings = Some(SettingsText::from(&settings));
    Ok(Json(KindStats { settings, ..KindStats::from(&view) }))
}

/// What is set for a kind; the default where nothing is.
#[utoipa::path(
    get, path = "/v1/kinds/{kind}/settings", tag = "kinds", params(("kind" = String, Path)),
    operation_id = "settings", responses((status = 200, body = SettingsText), Problems)
)]
pub(super) async fn settings(
    State(app): State<App>,
    KindPath(kind): KindPath,
) -> ApiResult<Json<SettingsText>> {
    Ok(Json(SettingsText::from(&app.store().settings(kind).await?)))
}

/// Sets all settings of a kind. What is not said becomes the default.
#[utoipa::path(
    put, path = "/v1/kinds/{kind}", tag = "kinds", operation_id = "set_kind",
    params(KindPath),
    request_body = SettingsPatch, responses((status = 200, body = SettingsText), Problems)
)]
pub(super) async fn set(
    State(app): State<App>,
    KindPath(kind): KindPath,
    Json(settings): Json<SettingsPatch>,
) -> ApiResult<Json<SettingsText>> {
    keep(&app, kind, Settings::default(), &settings).await
}

/// Sets what these settings are with the patch, and answers them.
async fn keep(
    app: &App,
    kind: Kind,
    before: Settings,
    patch: &SettingsPatch,
) -> ApiResult<Json<SettingsText>> {
    let settings = patch.apply(before, &app.reading())?;
    app.store().set(kind, settings.clone()).await?;
    Ok(Json(SettingsText::from(&settings)))
}

/// Sets some settings of a kind. What is not said stays.
///
/// It is read and then written: of two that are sent at the same time, one may be lost.
#[utoipa::path(
    patch, path = "/v1/kinds/{kind}", tag = "kinds", operation_id = "change_kind",
    params(KindPath),
    request_body = SettingsPatch, responses((status = 200, body = SettingsText), Problems)
)]
pub(super) async fn change(
    State(app): State<App>,
    KindPath(kind): KindPath,
    Json(settings): Json<SettingsPatch>,
) -> ApiResult<Json<SettingsText>> {
    let now = app.store().settings(kind.clone()).await?;
    keep(&app, kind, now, &settings).await
}

/// Deletes a kind: its schedules, its jobs, its settings.
///
/// One call deletes 10,000 jobs at most: call it again with the cursor as long as there is one. Jobs
/// that are leased end with their leases. What is put meanwhile may stay.
#[utoipa::path(
    delete, path = "/v1/kinds/{kind}", tag = "kinds", operation_id = "delete_kind",
    params(KindPath, AfterQuery),
    responses((status = 200, body = KindDeleted), Problems)
)]
pub(super) async fn delete(
    State(app): State<App>,
    KindPath(kind): KindPath,
    QueryParams(query): QueryParams<AfterQuery>,
) -> ApiResult<Json<KindDeleted>> {
    let after = cursor(query.after)?;
    Ok(Json(bulk::delete(&**app.store(), kind, after).await?))
}

/// Lets no job of a kind be claimed. What is leased goes on.
#[utoipa::path(
    post, path = "/v1/kinds/{kind}/pause", tag = "kinds", operation_id = "pause_kind",
    params(KindPath),
    responses((status = 204, description = "It is paused."), Problems)
)]
pub(super) async fn pause(
    State(app): State<App>,
    KindPath(kind): KindPath,
) -> ApiResult<StatusCode> {
    Ok(set_paused(&app, kind, true).await?)
}

/// Lets jobs of a kind be claimed again.
#[utoipa::path(
    post, path = "/v1/kinds/{kind}/resume", tag = "kinds", operation_id = "resume_kind",
    params(KindPath),
    responses((status = 204, description = "It is not paused."), Problems)
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

/// How many pending jobs fall due when.
#[utoipa::path(
    get, path = "/v1/kinds/{kind}/upcoming", tag = "kinds", operation_id = "upcoming_jobs",
    params(KindPath, UpcomingQuery),
    responses((status = 200, body = Upcoming), Problems)
)]
pub(super) async fn upcoming(
    State(app): State<App>,
    KindPath(kind): KindPath,
    QueryParams(query): QueryParams<UpcomingQuery>,
) -> ApiResult<Json<Upcoming>> {
    let spans = query.read(&app.reading())?;
    let counts = app.store().upcoming(kind, spans).await?;
    Ok(Json(Upcoming::new(spans, counts)))
}
