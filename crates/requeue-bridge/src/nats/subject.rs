//! Subjects: the names that NATS routes by, such as `orders.eu.due`.

use std::fmt::Write;

/// The longest name of a consumer or a stream that is made from a subject.
const MAX_NAME: usize = 64;

/// Returns a value as one token of a subject: full stops, wildcards and spaces are percent-encoded.
pub(super) fn token(value: &str) -> String {
    encode(value, |c| c == '.')
}

/// Returns a value as one or more tokens: as [`token`], and full stops separate tokens as they do in subjects.
pub(super) fn tokens(value: &str) -> String {
    encode(value, |_| false)
}

fn encode(value: &str, is_special: impl Fn(char) -> bool) -> String {
    let mut encoded = String::new();
    for c in value.chars() {
        if c <= ' ' || matches!(c, '*' | '>' | '%' | '\x7f') || is_special(c) {
            write!(encoded, "%{:02X}", u32::from(c)).expect("a string can be written to");
        } else {
            encoded.push(c);
        }
    }
    encoded
}

/// Whether messages can be published to the subject.
pub(super) fn is_publishable(subject: &str) -> bool {
    is_valid(subject) && subject.split('.').all(|token| token != "*" && token != ">")
}

/// Whether messages of the subject can be consumed: it may contain wildcards.
pub(super) fn is_valid(subject: &str) -> bool {
    let is_token = |token: &str| !token.is_empty() && token.chars().all(|c| c > ' ' && c != '\x7f');
    subject.split('.').all(is_token) && subject.split('.').rev().skip(1).all(|token| token != ">")
}

/// Returns a name for a stream or a consumer of the subject. Those names contain no full stops and wildcards.
pub(super) fn name(prefix: &str, subject: &str) -> String {
    let readable = subject.replace('*', "any").replace('>', "all");
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let joined = format!("{prefix}-{readable}");
    let name: String = joined.chars().map(|c| if is_plain(c) { c } else { '-' }).collect();
    name.chars().take(MAX_NAME).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_become_tokens() {
        assert_eq!(token("a.b *>é%"), "a%2Eb%20%2A%3Eé%25");
        assert_eq!(tokens("orders.eu.*"), "orders.eu.%2A");
    }

    #[test]
    fn invalid_subjects_are_recognized() {
        for (subject, valid, publishable) in [
            ("a", true, true),
            ("a.b", true, true),
            ("a.*.c", true, false),
            ("a.>", true, false),
            (">.a", false, false),
            ("a..b", false, false),
            (".a", false, false),
            ("a b", false, false),
            ("", false, false),
        ] {
            assert_eq!(
                (is_valid(subject), is_publishable(subject)),
                (valid, publishable),
                "{subject}"
            );
        }
    }

    #[test]
    fn names_are_made_from_subjects() {
        assert_eq!(name("requeue", "orders.delayed.>"), "requeue-orders-delayed-all");
        assert_eq!(name("r", &"x".repeat(100)).len(), 64);
    }
}
