//! The pages of the dashboard, as far as no browser is needed. `tests/browser` has the rest.

use crate::api::support::{Client, Server};
use serde_json::{Value, json};
use std::time::Duration;

/// Every page that can be requested without parameters.
const PAGES: [&str; 8] =
    ["/", "/dead", "/workers", "/schedules", "/push", "/events", "/put", "/help"];

/// Sends a request as a browser would.
fn browse(server: &Server, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Page {
    let mut client = server.client();
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    if method == "POST" {
        let form = "application/x-www-form-urlencoded";
        head += &format!("content-type: {form}\r\ncontent-length: {}\r\n", body.len());
    }
    client.send(format!("{head}\r\n{body}").as_bytes());
    let response = client.response();
    Page {
        status: response.status,
        headers: response.headers.clone(),
        text: response.text().to_owned(),
    }
}

struct Page {
    status: u16,
    headers: Vec<(String, String)>,
    text: String,
}

impl Page {
    fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|header| header.0 == name).map_or("", |header| &header.1)
    }
}

const HTML: [(&str, &str); 1] = [("accept", "text/html")];

#[test]
fn programs_get_a_text_at_the_root_and_browsers_a_page() {
    let server = Server::start();
    let text = browse(&server, "GET", "/", &[("accept", "*/*")], "");
    assert_eq!((text.status, text.header("content-type")), (200, "text/plain; charset=utf-8"));
    assert!(text.text.contains("/v1/openapi.json"));
    let page = browse(&server, "GET", "/", &HTML, "");
    assert_eq!((page.status, page.header("content-type")), (200, "text/html; charset=utf-8"));
    assert!(page.text.starts_with("<!DOCTYPE html>"));
}

#[test]
fn every_page_permits_only_its_own_script_and_style() {
    let server = Server::start();
    for path in PAGES {
        let page = browse(&server, "GET", path, &HTML, "");
        assert_eq!(page.status, 200, "{path}: {}", page.text);
        let policy = page.header("content-security-policy");
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self'; style-src 'sha256-"),
            "{policy}"
        );
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(page.header("x-content-type-options"), "nosniff");
        assert_eq!(page.header("x-frame-options"), "DENY");
        assert_eq!(page.header("cache-control"), "no-store");
        assert!(!page.text.contains(" style=") && !page.text.contains(" onclick="), "{path}");
        let absolute = ["href=\"/", "src=\"/", "action=\"/", "href=\"http", "src=\"http"];
        assert!(
            absolute.iter().all(|link| !page.text.contains(link)),
            "{path}: links are relative"
        );
    }
}

#[test]
fn a_form_changes_a_job_and_the_next_page_says_so_once() {
    let server = Server::start();
    server.call("PUT", "/v1/kinds/mail/jobs/a%2Fb", json!({"delay": "1h"})).json();
    let done = browse(&server, "POST", "/run-now", &[], "kind=mail&id=a%2Fb");
    assert_eq!((done.status, done.header("location")), (303, "job?kind=mail&id=a%2Fb"));
    let job = server.get("/v1/kinds/mail/jobs/a%2Fb").json();
    assert_eq!(job["state"], "ready");
    let cookie = done.header("set-cookie").split(';').next().unwrap_or_default();
    let headers = [HTML[0], ("cookie", cookie)];
    let page = browse(&server, "GET", "/job?kind=mail&id=a%2Fb", &headers, "");
    assert!(page.text.contains("a/b is due now."), "{}", page.text);
    assert!(page.header("set-cookie").contains("Max-Age=0"), "{}", page.header("set-cookie"));
}

#[test]
fn no_action_is_offered_for_a_kind_that_the_service_uses_for_itself() {
    let server = Server::start();
    let body = json!({"every": "1d"});
    let set = server.call("PUT", "/v1/kinds/report/schedules/daily", body);
    assert_eq!(set.status, 200, "{}", set.text());
    let timers = server.get("/v1/kinds/requeue.schedules/jobs").json();
    let id = timers["jobs"][0]["id"].as_str().expect("the schedule has a timer").to_owned();
    let id: String = id.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let pages = |kind: &str, id: &str| {
        [
            format!("/kind?kind={kind}&state=all"),
            format!("/job?kind={kind}&id={id}"),
            format!("/settings?kind={kind}"),
        ]
    };
    let offers = |path: &str| {
        let page = browse(&server, "GET", path, &HTML, "");
        assert_eq!(page.status, 200, "{path}: {}", page.text);
        let content = page.text.split("<main").nth(1).expect("the content").to_owned();
        content.contains("method=\"post\"") || content.contains("type=\"checkbox\"")
    };
    for path in pages("requeue.schedules", &id) {
        assert!(!offers(&path), "{path}");
    }
    server.call("PUT", "/v1/kinds/mail/jobs/a", json!({"delay": "1h"}));
    for path in pages("mail", "a") {
        assert!(offers(&path), "{path}");
    }
}

#[test]
fn a_form_of_another_site_changes_nothing() {
    let server = Server::start();
    server.call("PUT", "/v1/kinds/mail/jobs/a", json!({"delay": "1h"})).json();
    for header in
        [("sec-fetch-site", "cross-site"), ("origin", "https://evil.example"), ("origin", "null")]
    {
        let page = browse(&server, "POST", "/cancel", &[header], "kind=mail&id=a");
        assert_eq!(page.status, 403, "{header:?}");
    }
    assert_eq!(server.get("/v1/kinds/mail/jobs/a").json()["state"], "waiting");
    let own = [("origin", "http://localhost")];
    assert_eq!(browse(&server, "POST", "/cancel", &own, "kind=mail&id=a").status, 303);
    server.get("/v1/kinds/mail/jobs/a").is("absent");
}

#[test]
fn a_problem_is_a_page_with_its_status() {
    let server = Server::start();
    let page = browse(&server, "GET", "/job?kind=mail&id=nobody", &HTML, "");
    assert_eq!(page.status, 404);
    assert!(page.text.contains("There is no job &quot;nobody&quot; of kind mail"), "{}", page.text);
    let page = browse(&server, "POST", "/pause", &[], "kind=a+b");
    assert_eq!(page.status, 422, "{}", page.text);
}

/// Reads the next event of a stream: its name, and its data.
fn event(client: &mut Client) -> (String, Value) {
    let text = client.chunk();
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name} in {text}")).trim().to_owned()
    };
    (field("event:"), serde_json::from_str(&field("data:")).expect("JSON"))
}

#[test]
fn a_page_is_also_a_stream_of_the_parts_that_change() {
    let server = Server::start();
    let mut client = server.client();
    client.send(b"GET /schedules HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n");
    let head = client.head();
    assert!(head.contains("text/event-stream"), "{head}");
    let (name, part) = event(&mut client);
    assert_eq!((name.as_str(), &part["id"]), ("part", &json!("schedules")));
    assert!(part["html"].as_str().expect("html").contains("There are no schedules"));
    server.call("PUT", "/v1/kinds/report/schedules/daily", json!({"every": "1h"})).json();
    // Only a change is sent, so the next event is that of the new schedule.
    server.clock.advance(Duration::from_secs(2));
    let (_, part) = event(&mut client);
    assert!(part["html"].as_str().expect("html").contains("every 1h"), "{part}");
    server.app.shutdown().request();
    assert_eq!(client.chunk(), "", "the stream ends with the server");
}
