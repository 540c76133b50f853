//! One request for a page: who asks, when, and through which API.

use super::api::Client;
use super::layout;
use super::live;
use super::session::{Visitor, login_redirect};
use super::{Dashboard, url};
use crate::extract::{collect, off_runtime};
use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Redirect, Response};
use maud::Markup;
use requeue_http::wire::AccessJson;
use requeue_http::{Problem, ProblemType};
use requeue_jobs::limits::MAX_BATCH;
use requeue_jobs::{Invalid, Kind, Timestamp};
use serde::de::DeserializeOwned;
use std::convert::Infallible;

/// What a page needs to be rendered.
#[derive(Clone)]
pub(super) struct View {
    pub(super) api: Client,
    pub(super) access: AccessJson,
    pub(super) now: Timestamp,
    /// When the session ends, if it does.
    pub(super) ends_at: Option<Timestamp>,
    /// Whether only the parts are needed that change: for the live stream.
    pub(super) live: bool,
    /// A message about the last action.
    pub(super) notice: Option<String>,
}

impl View {
    /// Returns whether the token permits actions.
    pub(super) fn can_act(&self) -> bool {
        self.access.access == "full"
    }

    /// Returns whether the token permits to change a kind and its jobs. The service uses reserved kinds
    /// for itself, and rejects every change to them.
    pub(super) fn may_change(&self, kind: &str) -> bool {
        self.can_act() && !Kind::with_reserved(kind).is_ok_and(|kind| kind.is_reserved())
    }
}

/// A rendered page.
pub(super) struct Page {
    pub(super) title: String,
    /// The path in the navigation to which the page belongs.
    pub(super) tab: &'static str,
    pub(super) parts: Vec<Part>,
}

/// A part of a page. A live part is rendered again and again, as long as the page is open.
pub(super) struct Part {
    pub(super) id: &'static str,
    pub(super) live: bool,
    pub(super) html: Markup,
}

impl Page {
    pub(super) fn new(tab: &'static str, title: impl Into<String>) -> Self {
        Page { title: title.into(), tab, parts: Vec::new() }
    }

    /// Adds a part that does not change while the page is open.
    pub(super) fn fixed(mut self, id: &'static str, html: Markup) -> Self {
        self.parts.push(Part { id, live: false, html });
        self
    }

    /// Adds a part that is updated while the page is open.
    pub(super) fn live(mut self, id: &'static str, html: Markup) -> Self {
        self.parts.push(Part { id, live: true, html });
        self
    }
}

/// Who requests a page, and how.
pub(super) struct PageRequest {
    pub(super) visitor: Visitor,
    pub(super) uri: Uri,
    /// Whether a form was sent.
    pub(super) is_form: bool,
    headers: HeaderMap,
}

impl<S: Send + Sync> FromRequestParts<S> for PageRequest {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(PageRequest::of(parts))
    }
}

/// The parameters of a page. What is missing or invalid is explained by a page.
pub(super) struct PageQuery<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for PageQuery<T> {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Response> {
        let query = parts.uri.query().unwrap_or_default();
        serde_urlencoded::from_str(query).map(PageQuery).map_err(|error| {
            layout::failed(&Problem::new(
                ProblemType::Malformed,
                format!("invalid address: {error}"),
            ))
        })
    }
}

/// A form that a person has filled in.
pub(super) struct PageForm<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Send + 'static> FromRequest<S> for PageForm<T> {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let FormBytes(form) = FormBytes::from_request(request, state).await?;
        let read = off_runtime(form.len(), move || serde_urlencoded::from_bytes(&form));
        read.await.map(PageForm).map_err(|error| malformed_form(&error))
    }
}

/// A form of hidden fields, whose values are percent-encoded.
pub(super) struct ActionForm<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Send + 'static> FromRequest<S> for ActionForm<T> {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let FormBytes(form) = FormBytes::from_request(request, state).await?;
        let read = |fields: Vec<(String, String)>| {
            let fields = serde_urlencoded::to_string(fields).unwrap_or_default();
            serde_urlencoded::from_str(&fields).map(ActionForm).map_err(|error| malformed(&error))
        };
        let read = off_runtime(form.len(), move || decoded_fields(&form).and_then(read));
        read.await.map_err(|problem| layout::failed(&problem))
    }
}

/// The fields of any form have at most this many: one for each selected job, and some more.
const MAX_FIELDS: usize = MAX_BATCH + 100;

/// The bytes of a form with a bounded number of fields. Reading each takes a multiple of its bytes.
pub(super) struct FormBytes(pub(super) Bytes);

impl<S: Send + Sync> FromRequest<S> for FormBytes {
    type Rejection = Response;

    async fn from_request(request: Request, _: &S) -> Result<Self, Response> {
        // If the form was too large or too slow, the connection replaces this response.
        let form = collect(request.into_body()).await.map_err(|error| malformed_form(&error))?;
        let count = form.split(|byte| *byte == b'&').count();
        if count > MAX_FIELDS {
            let (what, limit) = ("fields in a form", MAX_FIELDS);
            return Err(layout::failed(&Invalid::TooMany { what, count, limit }.into()));
        }
        Ok(FormBytes(form))
    }
}

/// Returns the fields of a form whose values are percent-encoded.
pub(super) fn decoded_fields(form: &[u8]) -> Result<Vec<(String, String)>, Problem> {
    let fields: Vec<(String, String)> =
        serde_urlencoded::from_bytes(form).map_err(|error| malformed(&error))?;
    let decode = |(name, value): (String, String)| match url::decode(&value) {
        Some(value) => Ok((name, value)),
        None => {
            let detail = format!("invalid form: the field {name} is not UTF-8");
            Err(Problem::new(ProblemType::Malformed, detail))
        }
    };
    fields.into_iter().map(decode).collect()
}

fn malformed(error: &dyn std::fmt::Display) -> Problem {
    Problem::new(ProblemType::Malformed, format!("invalid form: {error}"))
}

fn malformed_form(error: &dyn std::fmt::Display) -> Response {
    layout::failed(&malformed(error))
}

impl PageRequest {
    /// Returns the request with this head, to which the dashboard has added its visitor.
    pub(super) fn of(parts: &Parts) -> Self {
        let visitor = parts.extensions.get::<Visitor>().cloned();
        PageRequest {
            visitor: visitor.expect("every page is behind the guard"),
            uri: parts.uri.clone(),
            is_form: parts.method == Method::POST,
            headers: parts.headers.clone(),
        }
    }

    /// Returns whether the live stream of the page is requested.
    pub(super) fn wants_stream(&self) -> bool {
        let accept = self.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
        accept.is_some_and(|accept| accept.starts_with("text/event-stream"))
    }

    /// Returns the page, relative to the directory of the dashboard, such as `kind?kind=mail`.
    pub(super) fn here(&self) -> String {
        let path = self.uri.path().trim_start_matches('/');
        match self.uri.query() {
            Some(query) => format!("{path}?{query}"),
            None => path.to_owned(),
        }
    }

    /// Returns the page from which a form was sent, or this page.
    pub(super) fn back(&self) -> String {
        let referer = self.header("referer").unwrap_or_default();
        let last = referer.rsplit_once('/').map_or("", |(_, last)| last);
        if last.is_empty() { self.here() } else { own_page(last) }
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

impl Dashboard {
    /// Returns a view for this request, or the response to a request of somebody who has to log in.
    pub(super) async fn view(&self, request: &PageRequest) -> Result<View, Response> {
        let Some(caller) = request.visitor.caller.clone() else {
            return Err(match request.wants_stream() {
                true => live::login_required(),
                false => login_redirect(request),
            });
        };
        let api = self.api.client(caller);
        match api.get::<AccessJson>("/v1/access").await {
            Ok(access) => Ok(View {
                api,
                access,
                now: self.app.reading().now,
                ends_at: request.visitor.ends_at,
                live: false,
                notice: request.visitor.notice.clone(),
            }),
            Err(problem) => Err(layout::failed(&problem)),
        }
    }

    /// Fails with the response to a form of somebody who may not change anything.
    pub(super) async fn check_action(&self, request: &PageRequest) -> Result<(), Response> {
        let view = self.view(request).await?;
        if view.can_act() {
            return Ok(());
        }
        let detail = "this token permits no changes; log in with a full token";
        let problem = Problem::new(ProblemType::Forbidden, detail);
        Err(layout::problem(&view, request, &problem))
    }

    /// Responds with a page, or with the stream of its changes.
    pub(super) async fn respond<F, R>(&self, request: PageRequest, render: R) -> Response
    where
        R: Fn(View) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Page, Problem>> + Send + 'static,
    {
        let view = match self.view(&request).await {
            Ok(view) => view,
            Err(response) => return response,
        };
        if request.wants_stream() {
            return live::stream(self.clone(), view, render);
        }
        let shown = view.clone();
        match render(view).await {
            Ok(page) => layout::page(&shown, &request, &page),
            Err(problem) => layout::problem(&shown, &request, &problem),
        }
    }
}

/// A form was handled: the browser loads a page next.
pub(super) fn see(page: &str) -> Response {
    // Relative, because a proxy may have removed a part of the path.
    let page = if page.is_empty() { "./" } else { page };
    Redirect::to(page).into_response()
}

/// Returns the status of a problem.
pub(super) fn status(problem: &Problem) -> StatusCode {
    StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// Returns `page` if it is a page of the dashboard, and otherwise the overview, so that a link to the
/// login cannot lead to another site.
pub(super) fn own_page(page: &str) -> String {
    let path = page.split(['?', '#']).next().unwrap_or_default();
    let is_own =
        super::is_page(&format!("/{path}")) && page.bytes().all(|byte| byte.is_ascii_graphic());
    if is_own { page.to_owned() } else { url::link("", &[]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_of_the_dashboard_are_redirect_targets() {
        for page in ["", "kind?kind=mail&state=dead", "dead", "job?kind=a&id=https%3A%2F%2Fx"] {
            assert_eq!(own_page(page), page);
        }
        for page in [
            "//evil.example",
            "/\\evil",
            "https://evil.example",
            "javascript:alert(1)",
            "v1/kinds",
            "kind\r\n",
        ] {
            assert_eq!(own_page(page), "", "{page}");
        }
    }
}
