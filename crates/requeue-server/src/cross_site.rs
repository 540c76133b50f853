//! Protection against cross-site requests and DNS rebinding.
//!
//! A browser lets any web page send requests, also to 127.0.0.1, where the server needs no token.
//! Browsers mark such requests with the headers `Sec-Fetch-Site` and `Origin`: they are rejected.
//! Other clients do not send these headers and are not affected.

use crate::response::ProblemResponse;
use axum::extract::Request;
use axum::http::{HeaderMap, Method, header};
use axum::response::{IntoResponse, Response};
use requeue_http::{Problem, ProblemType};
use std::net::IpAddr;

/// Returns the response to a request that must be rejected, or `None` if it is allowed. If
/// `local_names` is set, requests to a host name other than `localhost` are rejected, too.
pub(crate) fn rejection(request: &Request, local_names: bool) -> Option<Response> {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let detail = if !reads && is_cross_site(request.headers()) {
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

/// Returns whether a web page of another origin sent the request.
fn is_cross_site(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    if let Some(site) = text(header::HeaderName::from_static("sec-fetch-site")) {
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
