//! Percent-encoding of paths and queries.

use serde::Serialize;

/// Returns a URL path of these segments, each of which can be any text.
///
/// Characters with a meaning in URLs are percent-encoded. So are the segments `.` and `..`, which would
/// otherwise be resolved as relative paths.
///
/// ```
/// use requeue_http::client::path;
///
/// assert_eq!(path(&["v1", "kinds", "mail", "jobs", "a/b ü"]), "/v1/kinds/mail/jobs/a%2Fb%20%C3%BC");
/// assert_eq!(path(&["v1", ".."]), "/v1/%2E%2E");
/// ```
pub fn path(segments: &[&str]) -> String {
    let mut path = String::new();
    for segment in segments {
        path.push('/');
        let dots = matches!(*segment, "." | "..");
        escape(segment, |byte| is_unreserved(byte) && !(dots && byte == b'.'), &mut path);
    }
    path
}

/// Returns a path followed by a query: each field of a struct or map that has a value.
///
/// ```
/// use requeue_http::client::{path, with_query};
/// use requeue_http::wire::CountQuery;
///
/// let query = CountQuery { prefix: Some("a+b".into()), priority: Some(7), ..CountQuery::default() };
/// let path = with_query(path(&["v1", "kinds", "mail", "count"]), &query);
/// assert_eq!(path, "/v1/kinds/mail/count?prefix=a%2Bb&priority=7");
/// ```
pub fn with_query(mut path: String, query: &impl Serialize) -> String {
    let query = serde_json::to_value(query).expect("a query can be serialized");
    let mut separator = '?';
    for (name, value) in query.as_object().into_iter().flatten() {
        path.push(separator);
        path.push_str(name);
        path.push('=');
        match value.as_str() {
            Some(text) => escape(text, is_unreserved, &mut path),
            None => path.push_str(&value.to_string()),
        }
        separator = '&';
    }
    path
}

/// The unreserved characters of RFC 3986, which have no meaning in URLs.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

fn escape(text: &str, is_unreserved: impl Fn(u8) -> bool, out: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in text.bytes() {
        if is_unreserved(byte) {
            out.push(char::from(byte));
        } else {
            let digit = |half: u8| char::from(DIGITS[usize::from(half)]);
            out.extend(['%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_characters_are_escaped() {
        for (id, expected) in [
            ("order-42_a.b~c", "/order-42_a.b~c"),
            ("a/b", "/a%2Fb"),
            ("%2F", "/%252F"),
            (".", "/%2E"),
            ("..", "/%2E%2E"),
            ("...", "/..."),
            ("\n", "/%0A"),
            ("a?b#c&d=e+f", "/a%3Fb%23c%26d%3De%2Bf"),
        ] {
            assert_eq!(path(&[id]), expected);
        }
    }
}
