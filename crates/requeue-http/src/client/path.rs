//! Names in paths and queries.

/// A path of these segments, each any text.
///
/// What means something in a URL is escaped: also the segments `.` and `..`, which would be
/// taken for directions.
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
        escape(segment, |byte| is_plain(byte) && !(dots && byte == b'.'), &mut path);
    }
    path
}

/// Adds `?name=value` for those that are there.
pub(super) fn query(path: &mut String, fields: &[(&str, Option<&str>)]) {
    let mut before = '?';
    for (name, value) in fields {
        if let Some(value) = value {
            path.push(before);
            path.push_str(name);
            path.push('=');
            escape(value, is_plain, path);
            before = '&';
        }
    }
}

/// What RFC 3986 calls unreserved: what means nothing anywhere.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

fn escape(text: &str, is_plain: impl Fn(u8) -> bool, out: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in text.bytes() {
        if is_plain(byte) {
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
    fn what_means_something_in_a_url_is_escaped() {
        for (id, told) in [
            ("order-42_a.b~c", "/order-42_a.b~c"),
            ("a/b", "/a%2Fb"),
            ("%2F", "/%252F"),
            (".", "/%2E"),
            ("..", "/%2E%2E"),
            ("...", "/..."),
            ("\n", "/%0A"),
            ("a?b#c&d=e+f", "/a%3Fb%23c%26d%3De%2Bf"),
        ] {
            assert_eq!(path(&[id]), told);
        }
    }

    #[test]
    fn a_query_has_what_is_there() {
        let mut path = "/jobs".to_owned();
        query(&mut path, &[("state", None), ("prefix", Some("a+b")), ("limit", Some("5"))]);
        assert_eq!(path, "/jobs?prefix=a%2Bb&limit=5");
    }
}
