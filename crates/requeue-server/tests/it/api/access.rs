//! Attacks of people without a token, with one that permits little, and with one that was revoked.

use crate::api::support::{Client, JSON, Server, until};
use requeue_server::Limits;
use requeue_server::auth::{Access, Right};
use requeue_server::listen::Options;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use std::{env, fs, process};

pub(crate) const FULL: &str = "full-token-0123456789";
pub(crate) const READ: &str = "read-token-0123456789";

/// A file with tokens, which is gone with the test.
pub(crate) struct TokenFile(PathBuf);

impl TokenFile {
    pub(crate) fn new(name: &str, lines: &str) -> Self {
        let file = TokenFile(env::temp_dir().join(format!("requeue-{name}-{}", process::id())));
        file.write(lines);
        file
    }

    /// Replaces the tokens, and lets the server read them again.
    pub(crate) fn replace(&self, access: &Access, lines: &str) {
        self.write(lines);
        access.reload().expect("the tokens are valid");
    }

    fn write(&self, lines: &str) {
        fs::write(&self.0, lines).expect("a folder for temporary files");
    }

    pub(crate) fn access(&self) -> Access {
        Access::new([], Some(self.0.clone())).expect("the tokens are valid")
    }
}

impl Drop for TokenFile {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.0));
    }
}

fn both() -> Access {
    let tokens = [(Right::Full, FULL.to_owned()), (Right::Read, READ.to_owned())];
    Access::new(tokens, None).expect("the tokens are valid")
}

/// Sends a request with a token on a connection of its own, and leaves the response unread.
fn send(server: &Server, method: &str, path: &str, token: &str, body: &Value) -> Client {
    let mut client = server.client();
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {token}\r\n\
         content-type: {JSON}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    client.send((head + &body).as_bytes());
    client
}

fn status(server: &Server, method: &str, path: &str, token: &str) -> u16 {
    send(server, method, path, token, &Value::Null).response().status
}

/// Returns how many requests wait for work.
fn waiting(server: &Server) -> u64 {
    let stats = send(server, "GET", "/v1/stats", FULL, &Value::Null).response().json();
    stats["waiting_claims"].as_u64().expect("a number")
}

fn form(path: &str, headers: &str, length: usize) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\n{headers}\
         content-type: application/x-www-form-urlencoded\r\ncontent-length: {length}\r\n\r\n"
    )
}

#[test]
fn a_form_without_a_login_is_answered_before_any_of_it_arrives() {
    let server = Server::guarded(&both(), Limits::default(), Options::default());
    for path in [
        "/bulk",
        "/confirm",
        "/cancel",
        "/put",
        "/settings",
        "/pause",
        "/resume",
        "/run-now",
        "/revive",
        "/reschedule",
        "/delete-kind",
        "/run-schedule",
        "/pause-schedule",
        "/resume-schedule",
    ] {
        let mut client = server.client();
        client.send(form(path, "", 4 << 20).as_bytes());
        let response = client.response();
        let location = response.header("location").unwrap_or_default().to_owned();
        assert_eq!((response.status, location.starts_with("login")), (303, true), "{path}");
        let mut client = server.client();
        let token = format!("authorization: Bearer {READ}\r\n");
        client.send(form(path, &token, 4 << 20).as_bytes());
        let response = client.response();
        assert_eq!(response.status, 403, "{path} with a read token: {}", response.text());
    }
}

#[test]
fn the_form_of_the_login_is_short() {
    let server = Server::guarded(&both(), Limits::default(), Options::default());
    let login = |length: usize| {
        let body = format!("token={}", "x".repeat(length - 6));
        let mut client = server.client();
        client.send((form("/login", "", length) + &body).as_bytes());
        client.response()
    };
    assert_eq!(login(8 << 10).status, 401);
    let problem = login((8 << 10) + 1).is("too-large");
    assert_eq!(problem["limit"], 8192);
    // The announced length is enough.
    let mut client = server.client();
    client.send(form("/logout", "", 8193).as_bytes());
    assert_eq!(client.response().status, 303, "the logout reads no form at all");
}

#[test]
fn a_form_with_very_many_fields_is_rejected_before_it_is_read() {
    let server = Server::start();
    for path in ["/bulk", "/confirm", "/cancel", "/put", "/settings"] {
        let body = "a=&".repeat((4 << 20) / 3);
        let mut client = server.client();
        client.send((form(path, "", body.len()) + &body).as_bytes());
        let response = client.response();
        assert_eq!(response.status, 422, "{path}");
        assert!(response.text().contains("fields in a form"), "{}", response.text());
    }
    let body = format!("kind=mail&action=cancel&scope=selected{}", "&id=a".repeat(1000));
    let mut client = server.client();
    client.send((form("/bulk", "", body.len()) + &body).as_bytes());
    assert_eq!(client.response().status, 303, "a thousand jobs can be selected");
}

/// Slow forms hold their connections only while nobody needs them.
#[test]
fn slow_logins_do_not_block_a_server_whose_connections_are_all_in_use() {
    let options = Options {
        max_connections: 10,
        slow_after: Duration::from_millis(100),
        ..Options::default()
    };
    let server = Server::guarded(&both(), Limits::default(), options);
    for path in ["/login", "/cancel"] {
        let mut slow: Vec<Client> = (0..11).map(|_| server.client()).collect();
        for client in &mut slow {
            client.send((form(path, "", 8000) + "token=").as_bytes());
        }
        let began = Instant::now();
        assert_eq!(server.get("/healthz").status, 200);
        // Without this it would be 10 s (the time limit of the form), or 5 s (that of the unread rest).
        assert!(began.elapsed() < Duration::from_secs(4), "{path}: {:?}", began.elapsed());
    }
}

/// The memory for the first bytes of requests is small here: four forms fill it.
#[test]
fn slow_logins_give_their_memory_to_others() {
    let options = Options {
        max_request: 10_000,
        max_buffered: 40_000,
        slow_after: Duration::from_millis(100),
        ..Options::default()
    };
    let server = Server::guarded(&both(), Limits::default(), options);
    let mut slow: Vec<Client> = (0..8).map(|_| server.client()).collect();
    for client in &mut slow {
        client.send((form("/login", "", 8000) + &"x".repeat(2500)).as_bytes());
    }
    let put = json!({"body_text": "x".repeat(2000)});
    let mut put = send(&server, "PUT", "/v1/kinds/mail/jobs/a", FULL, &put);
    assert_eq!(put.response().status, 200);
}

#[test]
fn a_login_that_does_not_arrive_in_time_is_cut_off() {
    let options = Options { head_timeout: Duration::from_millis(300), ..Options::default() };
    let server = Server::guarded(&both(), Limits::default(), options);
    let mut client = server.client();
    client.send((form("/login", "", 100) + "token=").as_bytes());
    let problem = client.response().is("too-slow");
    assert_eq!(problem["detail"], "the request body did not arrive within 300ms");
}

#[test]
fn a_read_token_leaves_a_share_of_streams_exports_and_waiting_requests_to_others() {
    let mut limits = Limits::default();
    limits.waiting = 10;
    limits.transfers = 4;
    let server = Server::guarded(&both(), limits, Options::default());
    let open_path = |path, token| {
        let mut client = send(&server, "GET", path, token, &Value::Null);
        let head = client.head();
        (client, head)
    };
    // More than the buffers of a connection hold: an export that is not read stays open.
    for n in 0..20 {
        let (path, body) =
            (format!("/v1/kinds/large/jobs/{n}"), json!({"body": "x".repeat(1_000_000)}));
        assert_eq!(send(&server, "PUT", &path, FULL, &body).response().status, 200);
    }
    let mut exports: Vec<_> = (0..2).map(|_| open_path("/v1/export", READ)).collect();
    let problem = send(&server, "GET", "/v1/export", READ, &Value::Null).response().is("busy");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("this token uses 2, and its share is 2 of the 4"), "{detail}");
    exports.push(open_path("/v1/export", FULL));
    assert!(exports.iter().all(|(_, head)| head.starts_with("HTTP/1.1 200")));
    drop(exports);
    until("the exports have ended", || open_path("/v1/export", READ).1.starts_with("HTTP/1.1 200"));
    let open = |token| open_path("/v1/events", token);
    let mut streams: Vec<_> = (0..50).map(|_| open(READ)).collect();
    assert!(streams.iter().all(|(_, head)| head.starts_with("HTTP/1.1 200")));
    let rejected = send(&server, "GET", "/v1/events", READ, &Value::Null).response();
    assert_eq!(rejected.header("retry-after"), Some("1"));
    let problem = rejected.is("busy");
    assert_eq!(
        problem["detail"],
        "event streams: this token uses 50, and its share is 50 of the 100 of this node; try again later"
    );
    assert_eq!(problem["limit"], 50);
    let (full, head) = open(FULL);
    assert!(head.starts_with("HTTP/1.1 200"), "the other token is not affected");
    streams.push((full, head));
    drop(streams);
    until("the streams are closed", || {
        status(&server, "GET", "/v1/access", READ) == 200
            && open(READ).1.starts_with("HTTP/1.1 200")
    });
    // Only full tokens can wait, and there is one: it may use everything.
    let claim = json!({"kinds": ["mail"], "wait": "1m"});
    let waiters: Vec<_> =
        (0..10).map(|_| send(&server, "POST", "/v1/claim", FULL, &claim)).collect();
    until("ten claims wait", || waiting(&server) == 10);
    let problem = send(&server, "POST", "/v1/claim", FULL, &claim).response().is("busy");
    assert_eq!(problem["limit"], 10);
    drop(waiters);
}

#[test]
fn browsers_show_responses_to_reads_to_no_other_site() {
    let server = Server::guarded(&both(), Limits::default(), Options::default());
    let headers = ["cross-origin-resource-policy", "x-content-type-options"];
    let of = |method, path, token| {
        let response = send(&server, method, path, token, &Value::Null).response();
        (response.status, headers.map(|name| response.header(name).map(str::to_owned)))
    };
    let protected = [Some("same-origin".to_owned()), Some("nosniff".to_owned())];
    for (path, token, status) in [
        ("/v1/kinds", READ, 200),
        ("/v1/kinds/mail/jobs/absent", READ, 404),
        ("/v1/kinds", "wrong", 401),
        ("/healthz", "wrong", 200),
        ("/login", "wrong", 200),
    ] {
        assert_eq!(of("GET", path, token), (status, protected.clone()), "{path}");
    }
    // Browsers send the origin of the page with all other methods.
    assert_eq!(of("POST", "/v1/kinds/mail/pause", FULL), (204, [None, None]));
}

#[test]
fn when_a_token_is_revoked_everything_that_it_has_open_ends() {
    let lines = format!("full {FULL}\nfull full-token-of-another\nread {READ}\n");
    let file = TokenFile::new("revoked", &lines);
    let access = file.access();
    let server = Server::guarded(&access, Limits::default(), Options::default());
    let another = "full-token-of-another";
    let mut streams = [READ, another].map(|token| {
        let mut client = send(&server, "GET", "/v1/events", token, &Value::Null);
        assert!(client.head().starts_with("HTTP/1.1 200"));
        client
    });
    let page = format!(
        "GET /dead HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\
         authorization: Bearer {READ}\r\n\r\n"
    );
    let mut live = server.client();
    live.send(page.as_bytes());
    assert!(live.head().starts_with("HTTP/1.1 200"));
    assert!(live.chunk().starts_with("event: part"));
    let claim = json!({"kinds": ["mail"], "wait": "1m"});
    let mut waiters = [
        send(&server, "POST", "/v1/claim", another, &claim),
        send(&server, "POST", "/v1/wait", another, &json!({"kinds": ["mail"], "wait": "1m"})),
    ];
    let mut kept =
        send(&server, "POST", "/v1/claim", FULL, &json!({"kinds": ["other"], "wait": "1m"}));
    until("three requests wait", || waiting(&server) == 3);
    let mut import = server.client();
    let head = format!(
        "POST /v1/import HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {another}\r\n\
         transfer-encoding: chunked\r\n\r\n"
    );
    import.send(head.as_bytes());

    file.replace(&access, &format!("full {FULL}\n"));
    for stream in &mut streams {
        let last = stream.chunk();
        assert!(
            last.starts_with("event: problem\ndata: {\"type\":\"/v1/problems/unauthorized\""),
            "{last}"
        );
        assert!(last.contains("the token of this request was revoked"), "{last}");
        assert_eq!(stream.chunk(), "");
    }
    assert!(live.chunk().starts_with("event: login"), "a live page asks for a login");
    for waiter in &mut waiters {
        waiter.response().is("unauthorized");
    }
    import.response().is("unauthorized");
    assert_eq!(waiting(&server), 1, "the other token is not affected");
    // No job is lost to the claims that ended.
    for kind in ["mail", "other"] {
        let put = send(&server, "PUT", &format!("/v1/kinds/{kind}/jobs/a"), FULL, &json!({}));
        { put }.response().json();
    }
    assert_eq!(kept.response().json()["jobs"][0]["kind"], "other");
    let job = send(&server, "GET", "/v1/kinds/mail/jobs/a", FULL, &Value::Null).response().json();
    assert_eq!(job["state"], "ready");
}

#[test]
fn an_export_of_a_revoked_token_is_cut() {
    let file = TokenFile::new("export", &format!("full {FULL}\nread {READ}\n"));
    let access = file.access();
    let server = Server::guarded(&access, Limits::default(), Options::default());
    let body = "x".repeat(1 << 20);
    for n in 0..40 {
        let put = json!({"body_text": body});
        send(&server, "PUT", &format!("/v1/kinds/mail/jobs/{n}"), FULL, &put).response().json();
    }
    // More than the sockets take: the export waits for its client.
    let mut export = send(&server, "GET", "/v1/export", READ, &Value::Null);
    assert!(export.head().starts_with("HTTP/1.1 200"));
    file.replace(&access, &format!("full {FULL}\n"));
    let rest = export.rest();
    let rest = String::from_utf8_lossy(&rest);
    assert!(!rest.contains("\"type\":\"end\"") && rest.len() < 40 << 20, "{} bytes", rest.len());
}

/// A page of another site sees whether a script or an image of this server loads.
#[test]
fn without_tokens_a_page_of_another_site_does_not_learn_which_jobs_exist() {
    let server = Server::start();
    server.call("PUT", "/v1/kinds/mail/jobs/a", json!({})).json();
    let asked = |site: &str, mode: &str, dest: &str, path: &str| {
        let mut client = server.client();
        let headers = format!(
            "sec-fetch-site: {site}\r\nsec-fetch-mode: {mode}\r\nsec-fetch-dest: {dest}\r\n"
        );
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n");
        client.send(request.as_bytes());
        let response = client.response();
        (response.status, response.body)
    };
    let api = ["/v1/kinds/mail/jobs/a", "/v1/kinds/mail/jobs/b"];
    let pages = ["/job?kind=mail&id=a", "/job?kind=mail&id=b"];
    for [exists, absent] in [api, pages] {
        for site in ["cross-site", "same-site"] {
            for (mode, dest) in [
                ("no-cors", "script"),
                ("no-cors", "image"),
                ("no-cors", "style"),
                ("cors", "empty"),
                ("navigate", "iframe"),
            ] {
                let response = asked(site, mode, dest, exists);
                assert_eq!(response.0, 403, "{site} {mode} {dest} {exists}");
                assert_eq!(response, asked(site, mode, dest, absent));
            }
            assert_eq!(
                asked(site, "navigate", "document", exists).0,
                200,
                "a link can be followed"
            );
        }
        assert_eq!(asked("same-origin", "cors", "empty", exists).0, 200);
        assert_eq!(asked("none", "navigate", "document", exists).0, 200);
        assert_eq!(server.get(absent).status, 404, "programs do not send these headers");
    }
}
