//! The kinds whose jobs the server sends to a URL.

use super::Problems;
use super::kinds::shown;
use crate::app::App;
use crate::extract::{Json, QueryParams};
use crate::response::ApiResult;
use axum::extract::State;
use requeue_http::wire::{AfterQuery, PushList, PushedKindJson};
use requeue_jobs::KindView;

/// How many kinds a page has: the settings of each are read from the store.
const PAGE: usize = 200;

/// List the kinds whose jobs are sent to a URL, with their settings and the state of their targets.
#[utoipa::path(
    get, path = "/v1/push", tag = "service", operation_id = "list_push_targets",
    params(AfterQuery),
    responses(
        (status = 200, description = "A page of kinds, sorted by name.", body = PushList),
        Problems
    )
)]
pub(super) async fn all(
    State(app): State<App>,
    QueryParams(query): QueryParams<AfterQuery>,
) -> ApiResult<Json<PushList>> {
    let after = query.after.unwrap_or_default();
    let views = app.kinds().await?;
    let is_next = |view: &&KindView| view.push && view.kind.as_str() > after.as_str();
    let pushed: Vec<KindView> = views.iter().filter(is_next).take(PAGE + 1).cloned().collect();
    let mut list = PushList::default();
    for view in pushed.iter().take(PAGE) {
        let settings = app.store().settings(view.kind.clone()).await?;
        list.kinds.push(PushedKindJson {
            kind: view.kind.to_string(),
            pending: view.counts.pending,
            ready: view.counts.ready,
            leased: view.counts.leased,
            dead: view.counts.dead,
            paused: view.paused,
            push: shown(&settings).push,
            state: app.push().state(&view.kind),
        });
    }
    if pushed.len() > PAGE {
        list.cursor = list.kinds.last().map(|last| last.kind.clone());
    }
    Ok(Json(list))
}
