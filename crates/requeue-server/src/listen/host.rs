//! The host that a request is for.
//!
//! A request with two hosts is rejected (RFC 9112, section 3.2): a proxy in front may have decided
//! by the other one whether the request is allowed.

use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{Version, header};
use requeue_http::{Problem, ProblemType};

/// Returns the problem of a request whose host is missing, invalid or ambiguous.
pub(super) fn problem(parts: &Parts) -> Option<Problem> {
    let mut hosts = parts.headers.get_all(header::HOST).iter();
    let detail = match (hosts.next(), hosts.next()) {
        (Some(_), Some(_)) => "the request has more than one Host header".to_owned(),
        (None, _) if parts.version >= Version::HTTP_11 => {
            "the request has no Host header".to_owned()
        }
        (None, _) => return None,
        (Some(host), None) => {
            let text = String::from_utf8_lossy(host.as_bytes());
            let target = parts.uri.authority();
            let differs = target.is_some_and(|target| !target.as_str().eq_ignore_ascii_case(&text));
            if !is_host(&text) {
                format!("the Host header {text:?} is not a host name with an optional port")
            } else if differs {
                format!("the Host header {text:?} differs from the host in the request line")
            } else {
                return None;
            }
        }
    };
    Some(Problem::new(ProblemType::Malformed, detail))
}

fn is_host(text: &str) -> bool {
    // Empty if the target has no host.
    text.is_empty()
        || text.parse::<Authority>().is_ok_and(|authority| {
            let port = text.strip_prefix(authority.host());
            port.is_some_and(|port| matches!(port, "" | ":") || authority.port_u16().is_some())
        })
}
