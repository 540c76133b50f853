//! Sessions of browsers: what a login leaves in the browser, and when it ends.

use crate::api::access::{FULL, READ, TokenFile};
use crate::api::support::{Server, TestResponse};
use requeue_server::Limits;
use requeue_server::auth::{Access, Right, SessionKey};
use requeue_server::listen::Options;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

fn server(access: &Access) -> Server {
    Server::guarded(access, Limits::default(), Options::default())
}

fn access(key: Option<&[u8]>) -> Access {
    let tokens = [(Right::Full, FULL.to_owned()), (Right::Read, READ.to_owned())];
    let access = Access::new(tokens, None).expect("the tokens are valid");
    match key {
        Some(key) => access.with_session_key(&SessionKey::new(key).expect("a valid key")),
        None => access,
    }
}

fn log_in(server: &Server, token: &str, scheme: &str) -> TestResponse {
    let mut client = server.client();
    let body = format!("token={token}&next=dead");
    let request = format!(
        "POST /login HTTP/1.1\r\nhost: localhost\r\norigin: {scheme}://localhost\r\n\
         content-type: application/x-www-form-urlencoded\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    client.send(request.as_bytes());
    client.response()
}

/// Returns the cookie of a login: its name with its value, and its attributes.
fn cookie(response: &TestResponse) -> (String, String) {
    assert_eq!(response.status, 303, "{}", response.text());
    let cookie = response.header("set-cookie").expect("a login sets a cookie");
    let (cookie, attributes) = cookie.split_once("; ").expect("it has attributes");
    (cookie.to_owned(), attributes.to_owned())
}

fn get(server: &Server, path: &str, cookie: &str) -> TestResponse {
    let mut client = server.client();
    let request = format!(
        "GET {path} HTTP/1.1\r\nhost: localhost\r\naccept: text/html\r\ncookie: {cookie}\r\n\r\n"
    );
    client.send(request.as_bytes());
    client.response()
}

#[test]
fn a_login_leaves_a_sealed_session_and_not_the_token() {
    let server = server(&access(None));
    let response = log_in(&server, FULL, "http");
    assert_eq!(response.header("location"), Some("dead"));
    let (cookie, attributes) = cookie(&response);
    assert!(cookie.starts_with("requeue-") && !cookie.contains(FULL), "{cookie}");
    assert_eq!(attributes, "Max-Age=43200; HttpOnly; SameSite=Strict");
    assert_eq!(get(&server, "/dead", &cookie).status, 200);
    // It is worth nothing to the API: neither as a cookie nor as a token.
    get(&server, "/v1/kinds", &cookie).is("unauthorized");
    let value = cookie.split_once('=').expect("a value").1;
    let mut client = server.client();
    let as_token = format!(
        "GET /v1/kinds HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {value}\r\n\r\n"
    );
    client.send(as_token.as_bytes());
    client.response().is("unauthorized");
    // The token as a cookie is not a login.
    let name = cookie.split_once('=').expect("a name").0;
    for wrong in [format!("requeue_token={FULL}"), format!("{name}={FULL}")] {
        assert_eq!(get(&server, "/dead", &wrong).status, 303, "{wrong}");
    }
    assert_eq!(log_in(&server, "wrong", "http").status, 401);
    assert!(log_in(&server, "wrong", "http").header("set-cookie").is_none());
}

#[test]
fn with_https_browsers_keep_the_cookie_for_this_host_and_https_only() {
    let server = server(&access(None));
    let (secure, attributes) = cookie(&log_in(&server, FULL, "https"));
    assert!(secure.starts_with("__Host-requeue-"), "{secure}");
    assert_eq!(attributes, "Max-Age=43200; HttpOnly; SameSite=Strict; Path=/; Secure");
    assert_eq!(get(&server, "/dead", &secure).status, 200);
    // Under the other name, which a page of plain http can set, it is nothing.
    let plain = secure.trim_start_matches("__Host-");
    assert_eq!(get(&server, "/dead", plain).status, 303);
}

#[test]
fn a_session_ends_after_twelve_hours_also_on_a_page_that_is_open() {
    let server = server(&access(None));
    let (cookie, _) = cookie(&log_in(&server, FULL, "http"));
    server.clock.advance(12 * HOUR - Duration::from_secs(1));
    assert_eq!(get(&server, "/dead", &cookie).status, 200);
    let mut pages = ["/dead", "/events"].map(|page| {
        let mut live = server.client();
        let request = format!(
            "GET {page} HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\ncookie: {cookie}\r\n\r\n"
        );
        live.send(request.as_bytes());
        assert!(live.head().starts_with("HTTP/1.1 200"), "{page}");
        live
    });
    assert!(pages[0].chunk().starts_with("event: part"));
    server.clock.advance(Duration::from_secs(2));
    for page in &mut pages {
        assert!(page.chunk().starts_with("event: login"));
        assert_eq!(page.chunk(), "", "the stream ends");
    }
    let response = get(&server, "/dead", &cookie);
    assert_eq!(response.header("location"), Some("login?next=dead"));
}

#[test]
fn a_session_permits_what_its_token_permits_now_and_ends_when_it_is_revoked() {
    let file = TokenFile::new("session", &format!("full {FULL}\nread {READ}\n"));
    let access = file.access();
    let server = server(&access);
    let (cookie, _) = cookie(&log_in(&server, FULL, "http"));
    let post = || {
        let mut client = server.client();
        let request = format!(
            "POST /pause HTTP/1.1\r\nhost: localhost\r\ncookie: {cookie}\r\n\
             content-type: application/x-www-form-urlencoded\r\ncontent-length: 9\r\n\r\nkind=mail"
        );
        client.send(request.as_bytes());
        client.response()
    };
    assert_eq!(post().header("location"), Some("kind?kind=mail"));
    file.replace(&access, &format!("read {FULL}\nread {READ}\n"));
    assert_eq!((post().status, get(&server, "/dead", &cookie).status), (403, 200));
    file.replace(&access, &format!("read {READ}\n"));
    assert!(post().header("location").expect("a redirect").starts_with("login"));
    assert_eq!(get(&server, "/dead", &cookie).header("location"), Some("login?next=dead"));
    // The same token again is the same identity.
    file.replace(&access, &format!("full {FULL}\n"));
    assert_eq!(get(&server, "/dead", &cookie).status, 200);
}

#[test]
fn nodes_with_the_same_key_share_sessions_and_other_servers_of_a_host_do_not_fight() {
    let key: &[u8] = &[b'k'; 32];
    let (one, two) = (server(&access(Some(key))), server(&access(Some(key))));
    let (other, random) = (server(&access(Some(&[b'o'; 32]))), server(&access(None)));
    let (session, _) = cookie(&log_in(&one, FULL, "http"));
    assert_eq!(get(&two, "/dead", &session).status, 200);
    for server in [&other, &random] {
        assert_eq!(get(server, "/dead", &session).status, 303);
        // The browser sends both cookies to both: their names are different.
        let (own, _) = cookie(&log_in(server, FULL, "http"));
        let sent = format!("{session}; {own}");
        assert_eq!(
            [get(server, "/dead", &sent).status, get(&one, "/dead", &sent).status],
            [200, 200]
        );
    }
}

#[test]
fn a_log_out_removes_both_cookies() {
    let server = server(&access(None));
    let mut client = server.client();
    client.send(b"POST /logout HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n");
    let response = client.response();
    let cookies = response.headers.iter().filter(|(name, _)| name == "set-cookie");
    let cookies: Vec<&str> = cookies.map(|(_, value)| value.as_str()).collect();
    assert_eq!(cookies.len(), 2);
    assert!(cookies[0].starts_with("__Host-requeue-") && cookies[0].ends_with("Path=/; Secure"));
    assert!(cookies.iter().all(|cookie| cookie.contains("=; Max-Age=0; ")), "{cookies:?}");
}

#[test]
fn without_tokens_a_login_sets_no_cookie() {
    let server = Server::start();
    let response = log_in(&server, FULL, "http");
    assert_eq!((response.status, response.header("set-cookie")), (303, None));
}
