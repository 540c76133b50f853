//! Measures the text of a JSON document without parsing it.

/// What a JSON text consists of.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Measured {
    /// Bytes of the longest string, between its quotation marks.
    pub(crate) longest: usize,
    /// Bytes of white space between values, which a parsed request does not keep.
    pub(crate) padding: usize,
}

/// Measures a text, which need not be valid JSON.
pub(crate) fn measure(mut text: &[u8]) -> Measured {
    let mut measured = Measured::default();
    loop {
        let outside = text.iter().position(|&byte| byte == b'"').unwrap_or(text.len());
        let is_space = |byte: &&u8| matches!(byte, b' ' | b'\n' | b'\r' | b'\t');
        measured.padding += text[..outside].iter().filter(is_space).count();
        let Some(string) = text.get(outside + 1..) else { return measured };
        let length = string_length(string);
        measured.longest = measured.longest.max(length);
        text = string.get(length + 1..).unwrap_or_default();
    }
}

/// Returns the length of the string that a text begins with.
fn string_length(text: &[u8]) -> usize {
    let mut at = 0;
    loop {
        match text[at..].iter().position(|byte| matches!(byte, b'"' | b'\\')) {
            None => return text.len(),
            Some(next) if text[at + next] == b'"' => return at + next,
            // The escaped byte may be a quotation mark.
            Some(next) => at = (at + next + 2).min(text.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_and_the_space_around_them_are_measured() {
        for (text, longest, padding) in [
            ("", 0, 0),
            (" \n", 0, 2),
            (r#"{"a":"b c","def" : [1,  2]}"#, 3, 4),
            (r#"["\"", "\\", " "]"#, 2, 2),
            (r#"["\\\" x"]"#, 6, 0),
            // Not JSON.
            (r#" "unfinished"#, 10, 1),
            (r#""\"#, 1, 0),
            (r#"""#, 0, 0),
        ] {
            assert_eq!(measure(text.as_bytes()), Measured { longest, padding }, "{text}");
        }
    }
}
