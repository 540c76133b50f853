//! Texts with NUL characters, which Postgres cannot store.
//!
//! U+0000 is stored as U+0001 U+0001, and U+0001 as U+0001 U+0002. So escaped texts have the same order
//! as the originals, and an escaped prefix is a prefix of the escaped text.

use std::borrow::Cow;

/// Returns the text as it is stored.
pub(crate) fn escape(text: &str) -> Cow<'_, str> {
    if !text.contains(['\0', '\u{1}']) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.replace('\u{1}', "\u{1}\u{2}").replace('\0', "\u{1}\u{1}"))
}

/// Returns the original of a stored text.
pub(crate) fn unescape(text: &str) -> Cow<'_, str> {
    if !text.contains('\u{1}') {
        return Cow::Borrowed(text);
    }
    let (mut original, mut chars) = (String::with_capacity(text.len()), text.chars());
    while let Some(c) = chars.next() {
        match c {
            '\u{1}' if chars.next() == Some('\u{1}') => original.push('\0'),
            other => original.push(other),
        }
    }
    Cow::Owned(original)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_texts_have_no_nul_and_keep_their_order() {
        let mut texts = Vec::new();
        let parts = ["", "\0", "\u{1}", "\u{2}", "a", "ü"];
        for a in parts {
            for b in parts {
                for c in parts {
                    texts.push([a, b, c].concat());
                }
            }
        }
        for text in &texts {
            let stored = escape(text);
            assert!(!stored.contains('\0'));
            assert_eq!(unescape(&stored), *text);
            for other in &texts {
                assert_eq!(text.cmp(other), stored.cmp(&escape(other)), "{text:?} {other:?}");
                assert_eq!(text.starts_with(other), stored.starts_with(&*escape(other)));
            }
        }
    }
}
