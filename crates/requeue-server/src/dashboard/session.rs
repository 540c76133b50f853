//! Who requests a page, and the login, which leaves a [sealed session](crate::auth) in a cookie.
//!
//! Scripts cannot read the cookie (`HttpOnly`), and browsers do not send it with requests of other sites
//! (`SameSite=Strict`). The API itself does not accept it.
//!
//! A request with the header `Authorization: Bearer TOKEN` needs no session: a proxy that authenticates
//! people itself can add it. Browsers do not, so no other site can make them.

use super::format::start;
use super::view::{PageForm, PageQuery, PageRequest, own_page, see, status};
use super::{Dashboard, layout, url};
use crate::auth::{Access, Caller, LIFETIME, Session};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use requeue_http::{Problem, ProblemType};
use requeue_jobs::Timestamp;
use serde::Deserialize;

const NOTICE_COOKIE: &str = "requeue_notice";

/// The longest message that is kept for the next page, in bytes before it is encoded.
const MAX_NOTICE: usize = 600;

/// Who requests a page, in the extensions of the request.
#[derive(Debug, Clone)]
pub(super) struct Visitor {
    /// `None`: the person has to log in.
    pub(super) caller: Option<Caller>,
    /// When the session ends. `None` if there is none, or if it does not end.
    pub(super) ends_at: Option<Timestamp>,
    /// Whether the browser has sent a session, valid or not.
    had_session: bool,
    /// The result of the last action.
    pub(super) notice: Option<String>,
}

impl Visitor {
    pub(super) fn of(access: &Access, headers: &HeaderMap, now: Timestamp) -> Self {
        let cookies =
            headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let cookies: Vec<(&str, &str)> = cookies
            .flat_map(|cookies| cookies.split(';'))
            .filter_map(|cookie| cookie.trim().split_once('='))
            .collect();
        let notice = cookies.iter().find(|(name, _)| *name == NOTICE_COOKIE);
        let notice = notice.and_then(|(_, value)| url::decode(value));
        let visitor = Visitor {
            caller: access.caller(headers),
            ends_at: None,
            had_session: false,
            notice: notice.filter(|notice| !notice.is_empty()),
        };
        if visitor.caller.is_some() {
            return visitor;
        }
        let names = [true, false].map(|https| access.sessions().cookie_name(https));
        // More than one, if another server of this host has set one with the same name.
        let sent = cookies.iter().filter(|(name, _)| names.iter().any(|known| known == name));
        let mut opened = sent.clone().filter_map(|(name, value)| {
            let session = access.sessions().open(name, value, now)?;
            Some((access.caller_of(&session)?, session.ends_at()))
        });
        let (caller, ends_at) = opened.next().unzip();
        Visitor { caller, ends_at, had_session: sent.count() > 0, ..visitor }
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
    if is_linked && !request.visitor.had_session {
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
    let access = dashboard.api.access();
    let Some(caller) = access.caller_with(Some(form.token.trim().as_bytes())) else {
        let detail = "the server does not know this token";
        let problem = Problem::new(ProblemType::Unauthorized, detail);
        let page = layout::login(&next, Some(&problem)).into_string();
        return (status(&problem), Html(page)).into_response();
    };
    let mut response = see(&next);
    // Without tokens, there is nothing to log in to.
    let Some(token) = caller.token() else { return response };
    let who = caller.name().unwrap_or("a token without a name");
    tracing::info!(who, access = %caller.right(), "login to the dashboard");
    let session = Session { token, began_at: dashboard.app.reading().now };
    // The origin is that of the page that the person sees, also behind a proxy.
    let origin = headers.get(header::ORIGIN).and_then(|origin| origin.to_str().ok());
    let https = origin.is_some_and(|origin| origin.starts_with("https:"));
    let name = access.sessions().cookie_name(https);
    let value = access.sessions().seal(&name, &session);
    append_session(&mut response, https, &name, &value, LIFETIME.as_secs());
    response
}

pub(super) async fn logout(State(dashboard): State<Dashboard>) -> Response {
    let mut response = see("login");
    *response.status_mut() = StatusCode::SEE_OTHER;
    for https in [true, false] {
        let name = dashboard.api.access().sessions().cookie_name(https);
        append_session(&mut response, https, &name, "", 0);
    }
    response
}

/// Adds the cookie of a session to a response. Over http it is for the directory of the dashboard, which
/// is the path of the request; the names of cookies for https require that they are for all paths.
fn append_session(response: &mut Response, https: bool, name: &str, value: &str, age: u64) {
    let secure = if https { "; Path=/; Secure" } else { "" };
    let cookie = format!("{name}={value}; Max-Age={age}; HttpOnly; SameSite=Strict{secure}");
    append_cookie(response, &cookie);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Right;

    const TOKEN: &str = "full-token-0123456789";
    const NOW: Timestamp = Timestamp::from_millis(1_796_112_000_000);

    fn access() -> Access {
        Access::new([(Right::Full, TOKEN.to_owned())], None).unwrap()
    }

    fn visitor(access: &Access, sent: &[(&'static str, &str)]) -> Visitor {
        let mut headers = HeaderMap::new();
        for (name, value) in sent {
            headers.append(*name, value.parse().unwrap());
        }
        Visitor::of(access, &headers, NOW)
    }

    fn session(access: &Access, https: bool) -> String {
        let token = access.caller_with(Some(TOKEN.as_bytes())).unwrap().token().unwrap();
        let name = access.sessions().cookie_name(https);
        let value = access.sessions().seal(&name, &Session { token, began_at: NOW });
        format!("{name}={value}")
    }

    #[test]
    fn the_session_is_read_from_its_cookie_and_no_other() {
        let access = access();
        for https in [true, false] {
            let cookie = session(&access, https);
            let (name, _) = cookie.split_once('=').unwrap();
            for sent in [
                cookie.clone(),
                format!("a=b; {cookie}; requeue_notice=done%20it"),
                // Planted by another server of the host.
                format!("{name}=; {name}=AAAA; {cookie}"),
            ] {
                let found = visitor(&access, &[("cookie", &sent)]);
                assert!(found.caller.is_some() && found.had_session, "{sent}");
                assert_eq!(found.ends_at.unwrap().as_millis(), NOW.as_millis() + 12 * 3_600_000);
            }
            for sent in
                [format!("x{cookie}"), format!("x={cookie}"), cookie.replace("requeue-", "")]
            {
                let found = visitor(&access, &[("cookie", &sent)]);
                assert!(found.caller.is_none() && !found.had_session, "{sent}");
            }
        }
        let found = visitor(&access, &[("cookie", "requeue_notice=done%20it")]);
        assert_eq!(found.notice.as_deref(), Some("done it"));
    }

    #[test]
    fn the_token_itself_is_accepted_as_a_header_and_not_as_a_cookie() {
        let access = access();
        let header = format!("Bearer {TOKEN}");
        assert!(visitor(&access, &[("authorization", &header)]).caller.is_some());
        let name = access.sessions().cookie_name(false);
        for cookie in [format!("requeue_token={TOKEN}"), format!("{name}={TOKEN}")] {
            assert!(visitor(&access, &[("cookie", &cookie)]).caller.is_none(), "{cookie}");
        }
        // What a proxy has checked, and passes on, is no obstacle.
        let cookie = session(&access, true);
        let sent = [("authorization", "Basic YW5uOng="), ("cookie", cookie.as_str())];
        assert!(visitor(&access, &sent).caller.is_some());
    }
}
