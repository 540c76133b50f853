//! What happens to every request: access checks, metrics, tracing and logs.
//!
//! Plain calls around the router, not layers of it: axum boxes the future of each layer, and clones
//! the services of all layers for each request.

use crate::app::App;
use crate::auth::Access;
use crate::cross_site;
use crate::dashboard;
use crate::routes;
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::Method;
use axum::response::Response;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;
use tower::Service;
use tracing::field::Empty;
use tracing::{Instrument, Span, info_span};

/// The routes behind the access checks.
#[derive(Clone)]
pub(crate) struct Endpoint {
    router: Router,
    gate: Option<Arc<Gate>>,
}

struct Gate {
    app: App,
    access: Access,
    /// Finds the template of a path, such as `/v1/kinds/{kind}`, for the metrics.
    templates: matchit::Router<Box<str>>,
}

/// Routes without checks, metrics and logs, for tests of the listener.
impl From<Router> for Endpoint {
    fn from(router: Router) -> Self {
        Endpoint { router, gate: None }
    }
}

impl Endpoint {
    pub(crate) fn new(app: App, access: Access) -> Self {
        let (api, paths) = routes::router(app.clone());
        let pages = dashboard::router(app.clone(), api.clone(), access.clone());
        let router = api.merge(pages);
        let paths = paths.into_iter().chain(dashboard::PATHS.map(str::to_owned));
        let mut templates = matchit::Router::new();
        for path in paths {
            let template = path.clone().into_boxed_str();
            templates.insert(path, template).expect("the router has accepted these paths");
        }
        Endpoint { router, gate: Some(Arc::new(Gate { app, access, templates })) }
    }

    /// Returns the record of a request that begins now.
    pub(crate) fn begin(&self, request: &Request) -> RequestRecord {
        let record = self.gate.as_ref().map(|gate| {
            let (method, path) = (request.method().clone(), request.uri().path().to_owned());
            let span = info_span!("request", %method, route = gate.template(&path), status = Empty);
            Record { gate: Arc::clone(gate), began: Instant::now(), method, path, span }
        });
        RequestRecord(record)
    }

    /// Returns the response to a request: of its route, or a rejection.
    pub(crate) async fn call(&self, request: Request) -> Response {
        // Browsers send the origin with all other methods, which is checked.
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        let mut response = self.respond(request).await;
        if reads && self.gate.is_some() {
            cross_site::protect(response.headers_mut());
        }
        response
    }

    async fn respond(&self, mut request: Request) -> Response {
        if let Some(gate) = &self.gate
            && let Err(rejection) = gate.check(&mut request)
        {
            return *rejection;
        }
        let result: Result<Response, Infallible> = self.router.clone().call(request).await;
        result.unwrap_or_else(|never| match never {})
    }
}

/// Adds to a request of the API who sends it. Fails with the response to a request that is not allowed.
fn admit(access: &Access, request: &mut Request) -> Result<(), Box<Response>> {
    if let Some(caller) = access.check(request)? {
        request.extensions_mut().insert(caller);
    }
    Ok(())
}

impl Gate {
    /// Fails with the response to a request that is not allowed. The pages of the dashboard check
    /// themselves who requests them, because browsers send a session in a cookie.
    fn check(&self, request: &mut Request) -> Result<(), Box<Response>> {
        if dashboard::is_page(request.uri().path()) {
            return self
                .access
                .cross_site_rejection(request)
                .map_or(Ok(()), |no| Err(Box::new(no)));
        }
        admit(&self.access, request)
    }

    /// Returns the template of a path, or an empty text if it has no route.
    fn template(&self, path: &str) -> &str {
        self.templates.at(path).map_or("", |found| found.value)
    }
}

/// A request in flight, for metrics and logs.
pub(crate) struct RequestRecord(Option<Record>);

struct Record {
    gate: Arc<Gate>,
    began: Instant,
    method: Method,
    /// A copy: a clone of the URI would keep the read buffer of hyper while a claim waits.
    path: String,
    span: Span,
}

impl RequestRecord {
    /// Runs `work` in the span of the request.
    pub(crate) fn instrument<F: Future>(
        &self,
        work: F,
    ) -> impl Future<Output = F::Output> + use<F> {
        let span = self.0.as_ref().map_or_else(Span::none, |record| record.span.clone());
        work.instrument(span)
    }

    /// Records the response.
    pub(crate) fn finish(self, response: &Response<Body>) {
        let Some(Record { gate, began, method, path, span }) = self.0 else { return };
        let (status, took) = (response.status().as_u16(), began.elapsed());
        span.record("status", status);
        let metrics = gate.app.instrumented().metrics();
        metrics.request_finished(gate.template(&path), method.as_str(), status, took);
        if response.status().is_server_error() {
            tracing::warn!(%method, path, status, ?took, "request failed");
        } else {
            tracing::debug!(%method, path, status, ?took, "request finished");
        }
    }
}
