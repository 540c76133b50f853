//! Groups of errors that differ only in numbers and ids.

/// The longest group, in characters.
const MAX_CHARS: usize = 200;

/// The shortest hexadecimal id, in characters. Shorter ones may be words.
const MIN_HEX_LEN: usize = 8;

/// Returns the group of an error: its first line, in which numbers and ids are replaced by `*`. Errors
/// with the same cause usually have the same group.
///
/// - Replaced are runs of the digits `0-9`, UUIDs, and words of at least 8 hexadecimal characters, also
///   after `0x`. A UUID or a word must contain a digit.
/// - A run of white space becomes one space. Blank lines and white space at the beginning, and white
///   space at the end, are removed.
/// - The result is cut to 200 characters.
///
/// The group of a group is the same group.
///
/// ```
/// use requeue_http::error_group;
///
/// assert_eq!(error_group("order 4711 not found"), "order * not found");
/// assert_eq!(error_group("no user 6fa459ea-ee8a-3ca4-894e-db77e160355e\n  at load"), "no user *");
/// assert_eq!(error_group("order * not found"), "order * not found");
/// ```
pub fn error_group(error: &str) -> String {
    let mut rest = error.trim_start().lines().next().unwrap_or_default();
    let mut group = String::new();
    // A character has at most four bytes: what follows would be cut.
    while group.len() < 4 * MAX_CHARS
        && let Some(first) = rest.chars().next()
    {
        let len = if first.is_whitespace() {
            group.push(' ');
            run_len(rest, char::is_whitespace)
        } else if let Some(len) = uuid_len(rest) {
            group.push('*');
            len
        } else if first.is_alphanumeric() {
            let len = run_len(rest, char::is_alphanumeric);
            push_word(&mut group, &rest[..len]);
            len
        } else {
            group.push(first);
            first.len_utf8()
        };
        rest = &rest[len..];
    }
    if let Some((end, _)) = group.char_indices().nth(MAX_CHARS) {
        group.truncate(end);
    }
    group.truncate(group.trim_end().len());
    // Each replacement needs a digit, so the group of this group is the same.
    debug_assert!(!has_digit(&group), "{group:?}");
    group
}

/// Appends a word of letters and digits, without its numbers.
fn push_word(group: &mut String, word: &str) {
    let digits = word.strip_prefix("0x").unwrap_or(word);
    let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_hex && word.len() >= MIN_HEX_LEN && has_digit(word) {
        group.push('*');
        return;
    }
    let mut in_number = false;
    for c in word.chars() {
        match c.is_ascii_digit() {
            false => group.push(c),
            true if !in_number => group.push('*'),
            true => {}
        }
        in_number = c.is_ascii_digit();
    }
}

/// Returns the number of bytes of the UUID with which a text begins.
fn uuid_len(text: &str) -> Option<usize> {
    const LEN: usize = 36;
    let uuid = text.get(..LEN)?;
    let is_part = |(at, byte): (usize, u8)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    let ends = !text[LEN..].starts_with(char::is_alphanumeric);
    let is_uuid = ends && has_digit(uuid) && uuid.bytes().enumerate().all(is_part);
    is_uuid.then_some(LEN)
}

/// Returns the number of bytes up to the first character that is not in the run.
fn run_len(text: &str, in_run: impl Fn(char) -> bool) -> usize {
    text.find(|c| !in_run(c)).unwrap_or(text.len())
}

fn has_digit(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_and_ids_are_replaced() {
        for (error, group) in [
            ("order 4711 not found", "order * not found"),
            ("took 1.5s, limit 1,000ms", "took *.*s, limit *,*ms"),
            ("0", "*"),
            ("20261201", "*"),
            ("2026-12-01T09:00:00Z", "*-*-*T*:*:*Z"),
            ("HTTP/1.1 503", "HTTP/*.* *"),
            ("utf8 page12345678", "utf* page*"),
            // UUIDs, in any case and without hyphens.
            ("6fa459ea-ee8a-3ca4-894e-db77e160355e", "*"),
            ("user_6FA459EA-EE8A-3CA4-894E-DB77E160355E: gone", "user_*: gone"),
            ("6fa459eaee8a3ca4894edb77e160355e", "*"),
            // Too long for a UUID.
            ("6fa459ea-ee8a-3ca4-894e-db77e160355efff", "*-ee*a-*ca*-*e-*"),
            // Hexadecimal ids have a digit and eight characters, and are whole words.
            ("commit 1bad5eed", "commit *"),
            ("deadbeef", "deadbeef"),
            ("commit 1bad5ee", "commit *bad*ee"),
            ("x1bad5eed", "x*bad*eed"),
            ("at 0x7ffe12ab (0xdeadbeef)", "at * (*)"),
            ("0x", "*x"),
        ] {
            assert_eq!(error_group(error), group, "{error}");
        }
    }

    #[test]
    fn only_the_first_line_counts_and_white_space_is_collapsed() {
        for (error, group) in [
            ("", ""),
            (" \t\n ", ""),
            ("\n\n  refused \t by\u{a0}\u{2003}peer  \n  at main.rs:7", "refused by peer"),
            ("one\r\ntwo", "one"),
            ("one\rtwo", "one two"),
        ] {
            assert_eq!(error_group(error), group, "{error:?}");
        }
    }

    #[test]
    fn text_of_any_language_is_kept_and_cut_between_characters() {
        assert_eq!(error_group("Größe 12 überschritten"), "Größe * überschritten");
        assert_eq!(error_group("注文4711が見つかりません"), "注文*が見つかりません");
        // Other digits than 0-9 stay, and a letter of any language is part of a word.
        assert_eq!(error_group("٣ x² é1bad5eed"), "٣ x² é*bad*eed");
        for c in ["x", "ü", "見", "🦀"] {
            assert_eq!(error_group(&c.repeat(200)), c.repeat(200));
            assert_eq!(error_group(&c.repeat(1000)), c.repeat(200));
        }
        // A long id does not move what comes after it beyond the cut.
        assert_eq!(error_group(&format!("{} end", "7".repeat(5000))), "* end");
        assert_eq!(error_group(&format!("{} b", "a".repeat(199))), "a".repeat(199));
    }

    proptest! {
        #[test]
        fn the_group_of_a_group_is_the_same(
            error in r"([0-9a-f]{1,9}|-|[0-9a-f]{4}(-[0-9a-f]{4}){3}|0x| |\n|[xü見*]|\PC){0,80}"
        ) {
            let group = error_group(&error);
            prop_assert_eq!(error_group(&group), group.clone());
            prop_assert!(group.chars().count() <= MAX_CHARS);
        }
    }
}
