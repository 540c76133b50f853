//! Text in headers: percent-encoded, or cut to visible characters.

use std::fmt::Write;

/// Percent-encodes what a header value cannot carry, as CloudEvents specifies it (HTTP binding, 3.1.3.2):
/// spaces, quotation marks, percent signs, and all characters that are not visible ASCII.
pub(crate) fn header_text(text: &str) -> String {
    encode(text, |byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'%'))
}

/// Percent-encodes a part of a webhook id: also full stops, which separate the parts of the signed text,
/// and slashes, which separate the parts of the id.
pub(crate) fn id_part(text: &str) -> String {
    encode(text, |byte| {
        byte.is_ascii_graphic() && !matches!(byte, b'"' | b'%' | b'.' | b'/' | b',')
    })
}

fn encode(text: &str, is_plain: impl Fn(u8) -> bool) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if is_plain(byte) {
            encoded.push(char::from(byte));
        } else {
            write!(encoded, "%{byte:02X}").expect("writing to a String cannot fail");
        }
    }
    encoded
}

/// Returns the beginning of a text in at most `max` visible ASCII characters. Others become `?`, and white
/// space becomes a space.
pub(crate) fn visible(text: &str, max: usize) -> String {
    let shown = |c: char| match c {
        ' '..='~' => c,
        c if c.is_whitespace() => ' ',
        _ => '?',
    };
    text.trim().chars().map(shown).take(max).collect::<String>().trim_end().to_owned()
}

/// Returns the first bytes of a response for an error message, escaped, in at most `max` bytes.
pub(crate) fn excerpt(bytes: &[u8], max: usize) -> String {
    let mut shown = String::new();
    for c in String::from_utf8_lossy(bytes).trim().chars() {
        let before = shown.len();
        match c {
            ' '..='~' => shown.push(c),
            c => shown.extend(c.escape_default()),
        }
        if shown.len() > max {
            shown.truncate(before);
            break;
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_encoded_so_that_it_can_be_decoded() {
        assert_eq!(header_text("a b/ü%\"\n."), "a%20b/%C3%BC%25%22%0A.");
        assert_eq!(id_part("order.close/7"), "order%2Eclose%2F7");
        assert_eq!(id_part("order-7_a~b@c"), "order-7_a~b@c");
    }

    #[test]
    fn errors_are_cut_to_visible_characters() {
        assert_eq!(visible(" a\tb\nü\u{1b}[0m ", 100), "a b ??[0m");
        assert_eq!(visible("abc def", 4), "abc");
        assert_eq!(excerpt(b" {\"a\":\n1}\xff\x1b ", 100), "{\"a\":\\n1}\\u{fffd}\\u{1b}");
        assert_eq!(excerpt("aü".as_bytes(), 5), "a");
    }
}
