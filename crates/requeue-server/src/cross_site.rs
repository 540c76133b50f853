//! Protection against cross-site requests and DNS rebinding.
//!
//! A browser lets any web page send requests, also to 127.0.0.1, where the server needs no token.
//! Browsers mark such requests with the headers `Sec-Fetch-Site` and `Origin`: they are rejected, also
//! those that only read. A page cannot see their responses, but whether a script or an image loads tells it
//! the status, and so whether a job exists. Only a link that a person follows is allowed.
//! Other clients do not send these headers and are not affected.
//!
//! Browsers send `Sec-Fetch-Site` only to HTTPS and to the local host, and `Origin` not with what images and
//! scripts request. A `Referer` proves nothing: the page decides whether it is sent. So responses to reads say
//! that no other site may use them, see [`protect`]: the page learns the same of all of them.

use crate::response::ProblemResponse;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use axum::response::{IntoResponse, Response};
use requeue_http::{Problem, ProblemType};
use std::net::IpAddr;

/// Returns the response to a request that must be rejected, or `None` if it is allowed. If
/// `local_names` is set, requests to a host name other than `localhost` are rejected, too.
pub(crate) fn rejection(request: &Request, local_names: bool) -> Option<Response> {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let is_link = reads && is_navigation(request.headers());
    let detail = if !is_link && is_cross_site(request.headers()) {
        "a web page of another site sent this request; cross-site requests are rejected".to_owned()
    } else if local_names && let Some(name) = foreign_host(request.headers()) {
        format!(
            "this request was sent to the host {name:?}: a server without tokens only accepts \
             requests to localhost and to IP addresses; set a token, or start it with \
             --allow-anyone"
        )
    } else {
        return None;
    };
    Some(ProblemResponse(Problem::new(ProblemType::Forbidden, detail)).into_response())
}

/// Adds to the response to a read that browsers show it to no other site, not even whether it is a success, and
/// do not guess its type.
pub(crate) fn protect(headers: &mut HeaderMap) {
    let policy = HeaderName::from_static("cross-origin-resource-policy");
    headers.insert(policy, HeaderValue::from_static("same-origin"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}

/// Returns the `Host` of the request if it is neither an IP address nor `localhost`. Browsers
/// always send this header.
fn foreign_host(headers: &HeaderMap) -> Option<&str> {
    let host = headers.get(header::HOST)?.to_str().unwrap_or("?");
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let is_local = name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok();
    (!is_local).then_some(host)
}

/// Returns whether the response is shown as a page of its own: not in a frame, and not to a script.
fn is_navigation(headers: &HeaderMap) -> bool {
    let is = |name, value: &str| headers.get(name).is_some_and(|found| found == value);
    is("sec-fetch-mode", "navigate") && is("sec-fetch-dest", "document")
}

/// Returns whether a web page of another origin sent the request.
fn is_cross_site(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    if let Some(site) = text(HeaderName::from_static("sec-fetch-site")) {
        return !matches!(site, "same-origin" | "none");
    }
    match (text(header::ORIGIN), text(header::HOST)) {
        (None, _) => false,
        (Some(origin), host) => origin.split_once("://").map(|(_, host)| host) != host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requests_of_other_sites_are_cross_site() {
        let cases: [(&[(&str, &str)], bool); 8] = [
            (&[("host", "127.0.0.1:7654")], false),
            (&[("host", "127.0.0.1:7654"), ("origin", "http://127.0.0.1:7654")], false),
            (&[("host", "127.0.0.1:7654"), ("origin", "http://127.0.0.1:8000")], true),
            (&[("host", "127.0.0.1:7654"), ("origin", "https://example.org")], true),
            (&[("host", "127.0.0.1:7654"), ("origin", "null")], true),
            (&[("sec-fetch-site", "same-origin"), ("origin", "https://behind.a.proxy")], false),
            (&[("sec-fetch-site", "cross-site")], true),
            (&[("sec-fetch-site", "same-site")], true),
        ];
        for (headers, cross_site) in cases {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.insert(*name, value.parse().unwrap());
            }
            assert_eq!(is_cross_site(&map), cross_site, "{headers:?}");
        }
    }

    fn is_rejected(method: Method, headers: &[(&str, &str)]) -> bool {
        let mut request = axum::http::Request::builder().method(method).uri("/v1/kinds/a/jobs/b");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        rejection(&request.body(axum::body::Body::empty()).unwrap(), false).is_some()
    }

    #[test]
    fn of_other_sites_only_links_that_a_person_follows_are_allowed() {
        let sent = |site: &'static str, mode: &'static str, dest: &'static str| {
            [("sec-fetch-site", site), ("sec-fetch-mode", mode), ("sec-fetch-dest", dest)]
        };
        for site in ["cross-site", "same-site", "odd"] {
            assert!(!is_rejected(Method::GET, &sent(site, "navigate", "document")), "{site}");
            for method in [Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS] {
                assert!(is_rejected(method, &sent(site, "navigate", "document")), "{site}");
            }
            for (mode, dest) in [
                ("no-cors", "script"),
                ("no-cors", "image"),
                ("no-cors", "empty"),
                ("cors", "empty"),
                ("navigate", "iframe"),
                ("navigate", "object"),
                ("websocket", "empty"),
                ("odd", "document"),
            ] {
                for method in [Method::GET, Method::HEAD] {
                    assert!(is_rejected(method, &sent(site, mode, dest)), "{site} {mode} {dest}");
                }
            }
            assert!(is_rejected(Method::GET, &[("sec-fetch-site", site)]));
        }
        for site in ["same-origin", "none"] {
            assert!(!is_rejected(Method::GET, &sent(site, "cors", "empty")));
            assert!(!is_rejected(Method::POST, &sent(site, "cors", "empty")));
        }
        // Browsers without these headers send the origin with what scripts request.
        assert!(is_rejected(Method::GET, &[("host", "a"), ("origin", "http://b")]));
        assert!(!is_rejected(Method::GET, &[("host", "a"), ("origin", "http://a")]));
        assert!(!is_rejected(Method::GET, &[("host", "a")]));
    }

    #[test]
    fn only_localhost_and_ip_addresses_are_local_hosts() {
        let other = |host: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            foreign_host(&headers).is_some()
        };
        for host in
            ["127.0.0.1", "127.0.0.1:7654", "[::1]:7654", "[::1]", "LocalHost:80", "10.0.0.1"]
        {
            assert!(!other(host), "{host}");
        }
        for host in [
            "example.org",
            "example.org:7654",
            "127.0.0.1.example.org:1",
            "localhost.evil",
            "",
            "[x]",
        ] {
            assert!(other(host), "{host}");
        }
        assert!(foreign_host(&HeaderMap::new()).is_none());
    }
}
