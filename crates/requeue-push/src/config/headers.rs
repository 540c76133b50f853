//! Additional headers of requests: which names and values are allowed.

use super::{InvalidPush, MAX_HEADERS};
use hyper::header::HeaderName;
use std::collections::BTreeMap;

/// Headers that this crate sets itself, or that belong to a connection instead of a request. The content
/// type is the one of the job: it is set where the job is put.
const RESERVED: [&str; 14] = [
    "connection",
    "content-length",
    "content-type",
    "date",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
];

/// The prefixes of headers that this crate sets itself, in some format.
const RESERVED_PREFIXES: [&str; 3] = ["ce-", "requeue-", "webhook-"];

/// Returns the headers with their names in lower case. Fails if two names then are the same.
pub(super) fn lower_case(
    headers: BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, InvalidPush> {
    let mut lower = BTreeMap::new();
    for (name, value) in headers {
        if lower.insert(name.to_ascii_lowercase(), value).is_some() {
            let reason = "it is given twice, in upper and in lower case".to_owned();
            return Err(InvalidPush::Header { name, reason });
        }
    }
    Ok(lower)
}

/// Checks names and values. Names have to be in lower case.
pub(super) fn check(headers: &BTreeMap<String, String>) -> Result<(), InvalidPush> {
    let (count, limit) = (headers.len(), MAX_HEADERS);
    if count > limit {
        return Err(InvalidPush::TooManyHeaders { count, limit });
    }
    for (name, value) in headers {
        if let Some(reason) = wrong(name, value) {
            return Err(InvalidPush::Header { name: name.clone(), reason });
        }
    }
    Ok(())
}

fn wrong(name: &str, value: &str) -> Option<String> {
    if HeaderName::from_lowercase(name.as_bytes()).is_err() {
        return Some("it is not the name of an HTTP header".to_owned());
    }
    if name == "content-type" {
        return Some("the content type of the job is sent; put the job with this type".to_owned());
    }
    if RESERVED.contains(&name) {
        return Some("it is reserved: the sender sets it".to_owned());
    }
    if let Some(prefix) = RESERVED_PREFIXES.iter().find(|prefix| name.starts_with(**prefix)) {
        return Some(format!("names that begin with {prefix} are reserved"));
    }
    let visible = |c: char| c.is_ascii_graphic() || c == ' ';
    if value.is_empty() || value.trim() != value || !value.chars().all(visible) {
        // The value may be a credential: it is not repeated.
        let reason = "its value must be visible ASCII characters, without space at either end";
        return Some(reason.to_owned());
    }
    None
}
