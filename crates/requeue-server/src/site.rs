//! Pages of other sites may not use the API behind their visitor's back.
//!
//! A browser sends what any page tells it to, also to 127.0.0.1, where no token is needed. It says so:
//! such requests are refused. What is no browser says nothing of the kind, and is not asked.

use crate::answer::Failure;
use axum::extract::Request;
use axum::http::{HeaderMap, Method, header};
use axum::response::{IntoResponse, Response};
use requeue_http::{Problem, ProblemType};
use std::net::IpAddr;

/// What such a request is answered. `local_names`: one that was sent to any name but `localhost`
/// is taken for one, too.
pub(crate) fn refused(request: &Request, local_names: bool) -> Option<Response> {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let detail = if !reads && is_foreign(request.headers()) {
        "a page of another site has sent this; the API is not for pages of others".to_owned()
    } else if local_names && let Some(name) = name_of_another(request.headers()) {
        format!(
            "this was sent to {name:?}: without tokens only 127.0.0.1, other addresses of digits \
             and localhost are served; set a token, or say --allow-anyone"
        )
    } else {
        return None;
    };
    Some(Failure(Problem::new(ProblemType::Forbidden, detail)).into_response())
}

/// The name that the request was sent to, where it is not of this machine. What sends none is no
/// browser.
fn name_of_another(headers: &HeaderMap) -> Option<&str> {
    let host = headers.get(header::HOST)?.to_str().unwrap_or("?");
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let is_local = name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok();
    (!is_local).then_some(host)
}

fn is_foreign(headers: &HeaderMap) -> bool {
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
    fn only_pages_of_other_sites_are_foreign() {
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
        for (headers, foreign) in cases {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.insert(*name, value.parse().unwrap());
            }
            assert_eq!(is_foreign(&map), foreign, "{headers:?}");
        }
    }

    #[test]
    fn names_that_are_not_of_this_machine_are_of_another() {
        let other = |host: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            name_of_another(&headers).is_some()
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
        assert!(name_of_another(&HeaderMap::new()).is_none());
    }
}
