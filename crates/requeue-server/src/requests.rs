//! Metrics, tracing and logs of every request.

use crate::app::App;
use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use std::time::Instant;
use tracing::field::Empty;
use tracing::{Instrument, info_span};

pub(crate) fn instrument(app: &App, router: Router) -> Router {
    router.layer(from_fn_with_state(app.clone(), observe))
}

async fn observe(State(app): State<App>, request: Request, next: Next) -> Response {
    let began = Instant::now();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let route = route.as_ref().map_or("", MatchedPath::as_str);
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let span = info_span!("request", %method, route, status = Empty);
    let response = next.run(request).instrument(span.clone()).await;
    let (status, took) = (response.status().as_u16(), began.elapsed());
    span.record("status", status);
    app.instrumented().metrics().request_finished(route, method.as_str(), status, took);
    if response.status().is_server_error() {
        tracing::warn!(%method, path, status, ?took, "request failed");
    } else {
        tracing::debug!(%method, path, status, ?took, "request finished");
    }
    response
}
