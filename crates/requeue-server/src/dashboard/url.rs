//! Relative links with query parameters, and paths of the API.

use std::fmt::Write;

/// Percent-encodes a text for a path segment or a query parameter.
pub(super) fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            byte => write!(encoded, "%{byte:02X}").expect("a text can be written to"),
        }
    }
    encoded
}

/// Decodes a percent-encoded text. Returns `None` if it is not UTF-8.
pub(super) fn decode(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    let (mut decoded, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        match (bytes[at], digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                decoded.push((high * 16 + low) as u8);
                at += 3;
            }
            (byte, ..) => {
                decoded.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8(decoded).ok()
}

/// Returns `path?name=value&…` with the parameters that are not empty.
pub(super) fn link(path: &str, parameters: &[(&str, &str)]) -> String {
    let mut link = path.to_owned();
    let given = parameters.iter().filter(|(_, value)| !value.is_empty());
    for (n, (name, value)) in given.enumerate() {
        link.push(if n == 0 { '?' } else { '&' });
        link.push_str(name);
        link.push('=');
        link.push_str(&encode(value));
    }
    link
}

/// Returns the link to the page of a kind.
pub(super) fn kind(kind: &str) -> String {
    link("kind", &[("kind", kind)])
}

/// Returns the link to the page of a job.
pub(super) fn job(kind: &str, id: &str) -> String {
    link("job", &[("kind", kind), ("id", id)])
}

/// Returns the path of a kind in the API, or of something below it.
pub(super) fn kind_api(kind: &str, below: &str) -> String {
    format!("/v1/kinds/{}{below}", encode(kind))
}

/// Returns the path of a job in the API.
pub(super) fn job_api(kind: &str, id: &str) -> String {
    format!("/v1/kinds/{}/jobs/{}", encode(kind), encode(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_survives_encoding() {
        for text in ["order-42", "a/b?c=d&e#f", "100 %", "+", "ü\u{202e}", "..", "<script>"] {
            let encoded = encode(text);
            assert!(encoded.bytes().all(|byte| byte.is_ascii_graphic()), "{encoded}");
            assert!(!encoded.contains(['<', '&', '#', '/', '"']), "{encoded}");
            assert_eq!(decode(&encoded).as_deref(), Some(text));
        }
        assert_eq!(decode("%ff"), None);
        assert_eq!(decode("%zz%4"), Some("%zz%4".to_owned()));
    }

    #[test]
    fn empty_parameters_are_left_out() {
        assert_eq!(
            link("kind", &[("kind", "mail"), ("state", ""), ("q", "a b")]),
            "kind?kind=mail&q=a%20b"
        );
        assert_eq!(link("dead", &[("kind", "")]), "dead");
    }
}
