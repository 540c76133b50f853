//! Login with a token, which the browser keeps in a cookie.
//!
//! Scripts cannot read the cookie (`HttpOnly`), and browsers do not send it with requests of other sites
//! (`SameSite=Strict`). The API itself does not accept it.

use super::format::start;
use super::view::{PageForm, PageQuery, PageRequest, own_page, see, status};
use super::{Dashboard, layout, url};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use requeue_http::wire::AccessJson;
use requeue_http::{Problem, ProblemType};
use serde::Deserialize;

const TOKEN_COOKIE: &str = "requeue_token";
const NOTICE_COOKIE: &str = "requeue_notice";

/// How long a browser keeps the token.
const TOKEN_AGE: &str = "2592000";

/// The longest message that is kept for the next page, in bytes before it is encoded.
const MAX_NOTICE: usize = 600;

/// What the browser has sent along.
#[derive(Debug, Clone, Default)]
pub(super) struct Session {
    pub(super) token: Option<String>,
    /// The result of the last action.
    pub(super) notice: Option<String>,
}

impl Session {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let cookies =
            headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let cookies: Vec<(&str, &str)> = cookies
            .flat_map(|cookies| cookies.split(';'))
            .filter_map(|cookie| cookie.trim().split_once('='))
            .collect();
        let find = |name| {
            let cookie = cookies.iter().find(|(found, _)| *found == name);
            cookie.and_then(|(_, value)| url::decode(value)).filter(|value| !value.is_empty())
        };
        // Anything else could not be a token, and not be sent as one.
        let is_token = |token: &String| token.bytes().all(|byte| byte.is_ascii_graphic());
        Session { token: find(TOKEN_COOKIE).filter(is_token), notice: find(NOTICE_COOKIE) }
    }
}

/// Adds a message to a redirect, which the next page shows once.
pub(super) fn with_notice(mut response: Response, notice: &str) -> Response {
    let cookie = format!(
        "{NOTICE_COOKIE}={}; Max-Age=60; HttpOnly; SameSite=Strict",
        url::encode(start(notice, MAX_NOTICE))
    );
    append_cookie(&mut response, &cookie);
    response
}

/// Removes the message that this page has shown.
pub(super) fn without_notice(mut response: Response) -> Response {
    append_cookie(
        &mut response,
        &format!("{NOTICE_COOKIE}=; Max-Age=0; HttpOnly; SameSite=Strict"),
    );
    response
}

fn append_cookie(response: &mut Response, cookie: &str) {
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
}

/// Returns the response to a request for a page without a valid token: the login, and then that page.
pub(super) fn login_redirect(request: &PageRequest) -> Response {
    // A form is not sent again: the person returns to the page that had it.
    let here = if request.is_form { request.back() } else { request.here() };
    // After a click on a link of another site, browsers leave out the cookie. They send it if this page
    // itself loads the other.
    let is_linked = request.header("sec-fetch-site") == Some("cross-site");
    if is_linked && request.session.token.is_none() {
        return Html(layout::reload(&here).into_string()).into_response();
    }
    see(&url::link("login", &[("next", &here)]))
}

#[derive(Deserialize)]
pub(super) struct LoginQuery {
    #[serde(default)]
    next: String,
}

pub(super) async fn form(PageQuery(query): PageQuery<LoginQuery>) -> Response {
    Html(layout::login(&own_page(&query.next), None).into_string()).into_response()
}

#[derive(Deserialize)]
pub(super) struct LoginForm {
    token: String,
    #[serde(default)]
    next: String,
}

pub(super) async fn login(
    State(dashboard): State<Dashboard>,
    headers: HeaderMap,
    PageForm(form): PageForm<LoginForm>,
) -> Response {
    let next = own_page(&form.next);
    let token = form.token.trim().to_owned();
    let rejected = |problem: &Problem| {
        let page = layout::login(&next, Some(problem)).into_string();
        (status(problem), Html(page)).into_response()
    };
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        let detail = "the token is not valid";
        return rejected(&Problem::new(ProblemType::Unauthorized, detail));
    }
    let access = dashboard.api.client(Some(token.clone())).get::<AccessJson>("/v1/access").await;
    match access {
        Ok(access) => {
            let who = access.name.as_deref().unwrap_or("a token without a name");
            tracing::info!(who, access = access.access, "login to the dashboard");
            let mut response = see(&next);
            // The origin is that of the page that the person sees, also behind a proxy.
            let origin = headers.get(header::ORIGIN).and_then(|origin| origin.to_str().ok());
            let secure = if origin.is_some_and(|origin| origin.starts_with("https:")) {
                "; Secure"
            } else {
                ""
            };
            let cookie = format!(
                "{TOKEN_COOKIE}={}; Max-Age={TOKEN_AGE}; HttpOnly; SameSite=Strict{secure}",
                url::encode(&token)
            );
            append_cookie(&mut response, &cookie);
            response
        }
        Err(problem) if problem.problem_type() == ProblemType::Unauthorized => {
            let detail = "the server does not know this token";
            rejected(&Problem::new(ProblemType::Unauthorized, detail))
        }
        Err(problem) => rejected(&problem),
    }
}

pub(super) async fn logout() -> Response {
    let mut response = see("login");
    *response.status_mut() = StatusCode::SEE_OTHER;
    let cookie = format!("{TOKEN_COOKIE}=; Max-Age=0; HttpOnly; SameSite=Strict");
    append_cookie(&mut response, &cookie);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(cookies: &[&str]) -> Session {
        let mut headers = HeaderMap::new();
        for cookie in cookies {
            headers.append(header::COOKIE, cookie.parse().unwrap());
        }
        Session::of(&headers)
    }

    #[test]
    fn the_token_is_read_from_its_cookie_and_no_other() {
        let found = session(&["a=b; requeue_token=correct%3Bhorse; requeue_notice=done%20it"]);
        assert_eq!(found.token.as_deref(), Some("correct;horse"));
        assert_eq!(found.notice.as_deref(), Some("done it"));
        assert_eq!(session(&["xrequeue_token=a"]).token, None);
        assert_eq!(session(&["requeue_token="]).token, None);
        assert_eq!(session(&["requeue_token=a%0d%0ab"]).token, None);
    }
}
