//! Percent-encoding of paths and queries.

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

/// Appends `?name=value` for each field that has a value.
pub(super) fn query(path: &mut String, fields: &[(&str, Option<&str>)]) {
    let mut separator = '?';
    for (name, value) in fields {
        if let Some(value) = value {
            path.push(separator);
            path.push_str(name);
            path.push('=');
            escape(value, is_unreserved, path);
            separator = '&';
        }
    }
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

    #[test]
    fn a_query_contains_the_fields_with_a_value() {
        let mut path = "/jobs".to_owned();
        query(&mut path, &[("state", None), ("prefix", Some("a+b")), ("limit", Some("5"))]);
        assert_eq!(path, "/jobs?prefix=a%2Bb&limit=5");
    }
}
