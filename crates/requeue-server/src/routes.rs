//! The routes of the HTTP API, and its OpenAPI document.

mod backups;
mod claim;
mod counts;
mod document;
mod jobs;
mod kinds;
mod monitoring;
mod push;
mod schedules;
mod service;
mod settle;
mod streaming;
mod transfer;

pub use backups::{BackedUp, BackupFn};

use crate::app::App;
use crate::response::ProblemResponse;
use axum::Router;
use axum::routing::get;
use requeue_http::wire::{Results, SettleDone};
use requeue_http::{Problem, ProblemType};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "requeue",
        description = "Durable jobs over HTTP. Clients put jobs; workers claim the jobs that are \
                       due and settle them. Each job is identified by kind and id, is leased to \
                       one worker at a time, and is retried with backoff when it fails.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0")
    ),
    servers((url = "/", description = "The server of this document")),
    // A server without tokens needs none.
    security((), ("token" = [])),
    // The responses of these types are declared once for several paths.
    components(schemas(jobs::ChangedSome, Results<SettleDone>)),
    modifiers(&TokenScheme),
    tags(
        (name = "jobs", description = "Put, read, list and change jobs"),
        (name = "work", description = "Claim jobs and settle their leases"),
        (name = "kinds", description = "Settings and job counts of kinds"),
        (name = "schedules", description = "Recurring jobs, by cron expression or period"),
        (name = "service", description = "Health, metrics, events, export, import and backups")
    )
)]
struct Api;

/// Describes how a request contains its token.
struct TokenScheme;

impl Modify for TokenScheme {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(
            "One of the tokens that the server was started with. A read token permits GET and HEAD \
             only.",
        ));
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(bearer.build()));
    }
}

/// Error responses: problem documents.
#[derive(utoipa::IntoResponses)]
#[allow(dead_code, reason = "only its documentation is used")]
pub(crate) enum Problems {
    /// The request is invalid, or it conflicts with the current state. Nothing was done.
    #[response(status = "4XX", content_type = "application/problem+json")]
    Refused(Problem),
    /// The server or the store failed. `type` specifies whether nothing was done or the outcome is
    /// unknown.
    #[response(status = "5XX", content_type = "application/problem+json")]
    Failed(Problem),
}

fn documented_routes() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(Api::openapi())
        .routes(routes!(jobs::put, jobs::get, jobs::reschedule, jobs::cancel))
        .routes(routes!(jobs::put_batch, jobs::list))
        .routes(routes!(counts::count))
        .routes(routes!(counts::errors))
        .routes(routes!(jobs::put_any))
        .routes(routes!(jobs::change_any))
        .routes(routes!(jobs::cancel_some))
        .routes(routes!(jobs::run_some_now))
        .routes(routes!(jobs::revive_some))
        .routes(routes!(claim::claim))
        .routes(routes!(claim::wait))
        .routes(routes!(settle::settle))
        .routes(routes!(settle::ack))
        .routes(routes!(settle::retry))
        .routes(routes!(settle::bury))
        .routes(routes!(settle::requeue))
        .routes(routes!(settle::release))
        .routes(routes!(settle::extend))
        .routes(routes!(kinds::all))
        .routes(routes!(kinds::one, kinds::set, kinds::change, kinds::delete))
        .routes(routes!(kinds::settings))
        .routes(routes!(kinds::pause))
        .routes(routes!(kinds::resume))
        .routes(routes!(kinds::upcoming))
        .routes(routes!(schedules::all))
        .routes(routes!(schedules::of_all_kinds))
        .routes(routes!(schedules::one, schedules::set, schedules::change, schedules::remove))
        .routes(routes!(schedules::run))
        .routes(routes!(transfer::restore))
        .routes(routes!(transfer::reap))
        .routes(routes!(transfer::export))
        .routes(routes!(transfer::import))
        .routes(routes!(backups::backup))
        .routes(routes!(monitoring::events))
        .routes(routes!(monitoring::workers))
        .routes(routes!(monitoring::series))
        .routes(routes!(monitoring::forecast))
        .routes(routes!(push::all))
        .routes(routes!(monitoring::metrics))
        .routes(routes!(service::stats))
        .routes(routes!(service::access))
        .routes(routes!(service::problem))
        .routes(routes!(service::healthy))
        .routes(routes!(service::ready))
}

/// Returns the router, and the paths of its routes.
pub(crate) fn router(app: App) -> (Router, Vec<String>) {
    const OPENAPI: &str = "/v1/openapi.json";
    let (router, document) = documented_routes().split_for_parts();
    let undocumented = [OPENAPI.to_owned()];
    let paths = document.paths.paths.keys().cloned().chain(undocumented).collect();
    let document = document::text(&document);
    let router = router
        .route(OPENAPI, get(move || service::document(document.clone())))
        .method_not_allowed_fallback(async || {
            ProblemResponse(Problem::new(
                ProblemType::WrongMethod,
                "this path does not support the method of the request",
            ))
        })
        .fallback(async |uri: axum::http::Uri| {
            let detail = format!("there is no endpoint at {}", uri.path());
            ProblemResponse(Problem::new(ProblemType::NoSuchPath, detail))
        })
        .with_state(app);
    (router, paths)
}
