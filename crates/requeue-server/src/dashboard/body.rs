//! The body of a job: as a tree of JSON, as text, or as bytes.

use super::format::{bytes, count, start, text};
use super::tables::{Choice, choices};
use base64::Engine;
use maud::{Markup, html};
use requeue_http::wire::BodyFields;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::fmt;

/// How much of a text is shown at first, in bytes.
const TEXT_LIMIT: usize = 64 << 10;

/// How much is shown as bytes.
const HEX_LIMIT: usize = 4 << 10;

/// How many values a tree has at most: browsers are slow with more elements.
const TREE_LIMIT: usize = 2000;

/// Returns the bytes of a body.
fn decoded(body: BodyFields<'_>) -> Vec<u8> {
    let decode = |text| base64::prelude::BASE64_STANDARD.decode(text).unwrap_or_default();
    match (body.json.or(body.text), body.base64) {
        (Some(text), _) => text.as_bytes().to_vec(),
        (None, Some(text)) => decode(text),
        (None, None) => Vec::new(),
    }
}

/// Shows a body. `shown` is the chosen form; `link` returns the link to another one.
pub(super) fn show(
    body: BodyFields<'_>,
    shown: Option<&str>,
    full: bool,
    link: impl Fn(&str, bool) -> String,
) -> Markup {
    let all = decoded(body);
    let written = body.json.or(body.text);
    let forms = [("tree", body.json.is_some()), ("text", written.is_some()), ("hex", true)];
    let possible = || forms.into_iter().filter(|(_, possible)| *possible).map(|(form, _)| form);
    let form = possible().find(|form| Some(*form) == shown);
    let form = form.or_else(|| possible().next()).unwrap_or("hex");
    let tabs: Vec<Choice> =
        possible().map(|name| (name.to_owned(), link(name, false), name == form)).collect();
    html! {
        div .head {
            p .quiet { (text(body.content_type)) ", " (bytes(all.len())) }
            @if !all.is_empty() { (choices("Form of the body", &tabs)) }
        }
        @if all.is_empty() { p .empty { "The body is empty." } } @else {
            @match form {
                "tree" => (tree(body.json.unwrap_or_default())),
                "text" => (whole_text(written.unwrap_or_default(), full, &link("text", true))),
                _ => (hex(&all)),
            }
        }
    }
}

fn whole_text(whole: &str, full: bool, link: &str) -> Markup {
    let limit = if full { whole.len() } else { TEXT_LIMIT };
    let shown = start(whole, limit);
    html! {
        pre .bodytext tabindex="0" { (text(shown)) }
        @if shown.len() < whole.len() {
            p { "The first " (bytes(shown.len())) " of " (bytes(whole.len())) ". " a href=(link) { "Show all" } }
        }
    }
}

/// Returns a dump of the first bytes: offset, hexadecimal, ASCII.
fn hex(all: &[u8]) -> Markup {
    let shown = &all[..all.len().min(HEX_LIMIT)];
    let mut dump = String::new();
    for (n, line) in shown.chunks(16).enumerate() {
        let bytes: String = line.iter().map(|byte| format!("{byte:02x} ")).collect();
        let is_visible = |byte: &u8| byte.is_ascii_graphic() || *byte == b' ';
        let ascii = line.iter().map(|byte| if is_visible(byte) { char::from(*byte) } else { '.' });
        dump += &format!("{:06x}  {bytes:<48} {}\n", n * 16, ascii.collect::<String>());
    }
    html! {
        pre .hex tabindex="0" { (dump) }
        @if shown.len() < all.len() { p .quiet { "The first " (bytes(shown.len())) " of " (bytes(all.len())) "." } }
    }
}

fn tree(json: &str) -> Markup {
    let mut left = TREE_LIMIT;
    html! {
        div .tree { (node(None, json, 0, &mut left)) }
        @if left == 0 {
            p .quiet { "The first " (count(TREE_LIMIT as u64)) " values. Show it as text to see all." }
        }
    }
}

/// The fields of a JSON object, in their order. Values are kept as they are written, because a number
/// may have more digits than a float.
struct Fields<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct FieldsVisitor;

        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Fields<'de>, M::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }

        input.deserialize_map(FieldsVisitor)
    }
}

/// Returns a value of a tree. The API limits how deep bodies are nested.
fn node(name: Option<&str>, json: &str, depth: usize, left: &mut usize) -> Markup {
    if *left == 0 {
        return html! {};
    }
    *left -= 1;
    let label = html! { @if let Some(name) = name { span .name { (text(name)) } ": " } };
    let group = |open: &str, children: Vec<Markup>, size: usize, close: &str| {
        html! {
            details open[depth < 3] {
                summary { (label) span .quiet { (open) " " (size) " " (close) } }
                ul { @for child in children { li { (child) } } }
            }
        }
    };
    let json = json.trim();
    if json.starts_with('{')
        && let Ok(Fields(fields)) = serde_json::from_str(json)
        && !fields.is_empty()
    {
        let child =
            |(name, value): &(String, &RawValue)| node(Some(name), value.get(), depth + 1, left);
        let children = fields.iter().map(child).collect();
        return group("{", children, fields.len(), "}");
    }
    if json.starts_with('[')
        && let Ok(items) = serde_json::from_str::<Vec<&RawValue>>(json)
        && !items.is_empty()
    {
        let children = items.iter().map(|value| node(None, value.get(), depth + 1, left)).collect();
        return group("[", children, items.len(), "]");
    }
    match serde_json::from_str::<String>(json) {
        Ok(value) => html! { (label) span .string { "\"" (text(&value)) "\"" } },
        Err(_) => html! { (label) span .literal { (text(json)) } },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(json: Option<&str>, base64: Option<&str>, form: &str) -> String {
        let body = BodyFields { json, text: None, base64, content_type: "application/json" };
        show(body, Some(form), false, |form, _| format!("job?view={form}")).into_string()
    }

    #[test]
    fn hostile_json_is_text_in_every_form() {
        let json = r#"{"<script>alert(1)</script>":"</pre><img src=x onerror=alert(1)>"}"#;
        for form in ["tree", "text", "hex"] {
            let html = shown(Some(json), None, form);
            assert!(!html.contains("<script>") && !html.contains("<img"), "{html}");
        }
    }

    #[test]
    fn a_tree_keeps_the_order_of_fields_and_all_digits() {
        let json = r#" {"z": 12345678901234567890.10, "a": [true, {}], "z": null} "#;
        let html = shown(Some(json), None, "tree");
        let at = |part: &str| html.find(part).unwrap_or_else(|| panic!("{part} in {html}"));
        assert!(
            at(">z<") < at("12345678901234567890.10") && at("12345678901234567890.10") < at(">a<")
        );
        assert!(at("true") < at("{}") && at("{}") < at("null"));
    }

    #[test]
    fn bytes_that_are_not_text_are_dumped() {
        let html = shown(None, Some("AP9B"), "tree");
        assert!(html.contains("000000  00 ff 41"), "{html}");
        assert!(html.contains("..A"), "{html}");
    }

    #[test]
    fn a_large_tree_ends_at_its_limit() {
        let json = format!("[{}1]", "1,".repeat(5000));
        let html = shown(Some(&json), None, "tree");
        assert!(html.contains("The first 2,000 values"));
        assert!(html.len() < 200_000, "{}", html.len());
    }
}
