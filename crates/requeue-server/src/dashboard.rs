//! The web dashboard: pages for people, at `/` of the service.
//!
//! ```text
//!   browser ──▶ page (HTML, or a live stream of it) ──▶ Api: the routes of the HTTP API, in this process
//!   browser ──▶ form (POST) ─────────────────────────▶ Api, then a redirect to a page
//! ```
//!
//! - **Only the public API.** A page knows nothing but what [`Api`](api::Api) returns: the documented
//!   endpoints, called without a socket, as the [visitor](session::Visitor). What their token does not
//!   permit, the dashboard cannot do either.
//! - **Every view is a URL**, and works without script. The script adds live updates, relative times and
//!   keys. A page that is requested as `text/event-stream` is a [stream](live) of its changed parts.
//! - **All paths are in one directory** and all links are relative, so the dashboard works below any path
//!   of a proxy without being configured.
//! - **Nothing from a job is markup.** Templates escape, [`text`](format::text) shows invisible characters,
//!   and the Content-Security-Policy allows no inline script and no other origin.
//! - **An action** is a POST of the same origin with a full token, and is [logged](actions::audit). Nothing of
//!   its form is read before it is known who sends it.

mod actions;
mod api;
mod body;
mod bulk;
mod chart;
mod confirm;
mod dead;
mod events;
mod format;
mod job;
mod jobs_table;
mod kind;
mod layout;
mod live;
mod overview;
mod push;
mod put;
mod schedules;
mod search;
mod session;
mod settings;
mod tables;
mod url;
mod view;
mod workers;

use crate::app::App;
use crate::auth::{Access, Right};
use crate::listen::BodyHandle;
use crate::shares::SharedLimit;
use api::Api;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use session::Visitor;
use std::sync::LazyLock;
use view::PageRequest;

/// The paths of the dashboard.
pub(crate) const PATHS: [&str; 29] = [
    "/",
    "/app.js",
    "/bulk",
    "/cancel",
    "/confirm",
    "/copy",
    "/dead",
    "/delete-kind",
    "/events",
    "/go",
    "/icon.svg",
    "/job",
    "/kind",
    "/login",
    "/logout",
    "/pause",
    "/pause-schedule",
    "/push",
    "/put",
    "/reschedule",
    "/resume",
    "/resume-schedule",
    "/revive",
    "/run-now",
    "/run-schedule",
    "/schedules",
    "/settings",
    "/workers",
    "/help",
];

/// Returns whether this is the path of a page or an asset of the dashboard.
pub(crate) fn is_page(path: &str) -> bool {
    !path.starts_with("/v1/") && PATHS.contains(&path)
}

const STYLE: &str = include_str!("dashboard/assets/style.css");
const SCRIPT: &str = include_str!("dashboard/assets/app.js");
const ICON: &str = include_str!("dashboard/assets/icon.svg");

/// How many live streams a node serves. Each renders its page every two seconds.
const MAX_STREAMS: usize = 100;

/// The largest form, in bytes: a body of 1 MiB in which every byte is percent-encoded, and some more.
const MAX_FORM: u64 = 4 << 20;

/// The largest form of a login, in bytes: a token, and the page to return to.
const MAX_LOGIN: u64 = 8 << 10;

/// What all pages share.
#[derive(Clone)]
struct Dashboard {
    app: App,
    api: Api,
    streams: SharedLimit,
}

/// Returns the pages. `api` are the routes of the HTTP API.
pub(crate) fn router(app: App, api: Router, access: Access) -> Router {
    let streams = SharedLimit::new("open pages", MAX_STREAMS, Right::Read);
    let dashboard = Dashboard { app, api: Api::new(api, access), streams };
    Router::new()
        .route("/", get(overview::show))
        .route("/kind", get(kind::show))
        .route("/settings", get(settings::show).post(settings::save))
        .route("/job", get(job::show))
        .route("/put", get(put::show).post(put::save))
        .route("/copy", get(put::copy))
        .route("/dead", get(dead::show))
        .route("/workers", get(workers::show))
        .route("/schedules", get(schedules::show))
        .route("/push", get(push::show))
        .route("/events", get(events::show))
        .route("/help", get(layout::help))
        .route("/go", get(search::go))
        .route("/login", get(session::form).post(session::login))
        .route("/logout", post(session::logout))
        .route("/pause", post(actions::pause))
        .route("/resume", post(actions::resume))
        .route("/delete-kind", get(confirm::delete_kind).post(actions::delete_kind))
        .route("/run-now", post(actions::run_now))
        .route("/revive", post(actions::revive))
        .route("/cancel", post(actions::cancel))
        .route("/reschedule", post(actions::reschedule))
        .route("/run-schedule", post(actions::run_schedule))
        .route("/pause-schedule", post(actions::pause_schedule))
        .route("/resume-schedule", post(actions::resume_schedule))
        .route("/confirm", post(confirm::show))
        .route("/bulk", post(bulk::run))
        .route("/app.js", get(async || asset("text/javascript; charset=utf-8", SCRIPT)))
        .route("/icon.svg", get(async || asset("image/svg+xml", ICON)))
        .layer(from_fn_with_state(dashboard.clone(), guard))
        .layer(from_fn(secured))
        .with_state(dashboard)
}

fn asset(content_type: &'static str, text: &'static str) -> Response {
    // The name of a page's script contains the version.
    let cache = "public, max-age=86400";
    ([(header::CONTENT_TYPE, content_type), (header::CACHE_CONTROL, cache)], text).into_response()
}

/// The policy of all pages: one script and one style sheet of this server, and nothing else.
static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let style = ring::digest::digest(&ring::digest::SHA256, STYLE.as_bytes());
    let style = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, style);
    let policy = format!(
        "default-src 'none'; script-src 'self'; style-src 'sha256-{style}'; img-src 'self'; \
         connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    );
    policy.try_into().expect("it is ASCII")
});

/// Finds out who requests a page. Of a form, nothing is read before it is known that the person may send it:
/// without a login anyone can send forms, except that of the login, which is short.
async fn guard(State(dashboard): State<Dashboard>, mut request: Request, next: Next) -> Response {
    let now = dashboard.app.reading().now;
    let visitor = Visitor::of(dashboard.api.access(), request.headers(), now);
    request.extensions_mut().insert(visitor);
    if request.method() != Method::POST {
        return next.run(request).await;
    }
    let is_open = matches!(request.uri().path(), "/login" | "/logout");
    if let Some(body_handle) = request.extensions().get::<BodyHandle>() {
        body_handle.limit_to(if is_open { MAX_LOGIN } else { MAX_FORM });
        if is_open {
            body_handle.is_from_anyone();
        }
    }
    if !is_open {
        let (parts, body) = request.into_parts();
        if let Err(response) = dashboard.check_action(&PageRequest::of(&parts)).await {
            return response;
        }
        request = Request::from_parts(parts, body);
    }
    next.run(request).await
}

/// Adds the headers that protect a page in the browser.
async fn secured(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    let fixed = |text| HeaderValue::from_static(text);
    headers.insert(header::CONTENT_SECURITY_POLICY, POLICY.clone());
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, fixed("nosniff"));
    headers.insert(header::X_FRAME_OPTIONS, fixed("DENY"));
    // Not `no-referrer`: browsers would then send forms with the origin `null`.
    headers.insert(header::REFERRER_POLICY, fixed("same-origin"));
    headers.insert("cross-origin-opener-policy", fixed("same-origin"));
    headers.entry(header::CACHE_CONTROL).or_insert(fixed("no-store"));
    response
}
