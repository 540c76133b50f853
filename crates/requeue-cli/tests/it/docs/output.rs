//! Compares what a command prints with what the page shows.

use serde_json::{Deserializer, Value};
use std::collections::HashMap;

/// JSON fields whose values differ from run to run.
const VARYING: [&str; 3] = ["fence", "uptime_seconds", "version"];

/// Compares output, and learns which real receipt each receipt of the page stands for.
#[derive(Default)]
pub(super) struct Reader {
    /// By the receipt on the page.
    receipts: HashMap<String, String>,
}

impl Reader {
    /// The text with the receipts of the page replaced by real ones.
    pub(super) fn translated(&self, text: &str) -> String {
        let replace = |text: String, (shown, real): (&String, &String)| text.replace(shown, real);
        self.receipts.iter().fold(text.to_owned(), replace)
    }

    /// Whether the real output is what the page shows.
    pub(super) fn agrees(&mut self, shown: &str, real: &str) -> bool {
        if let (Some(shown), Some(real)) = (values(shown), values(real)) {
            return shown.len() == real.len()
                && shown.iter().zip(&real).all(|(shown, real)| self.same("", shown, real));
        }
        matches(self.translated(shown).trim(), real.trim())
    }

    /// Whether a line of the real output is the one that the page shows.
    pub(super) fn has_line(&self, real: &str, shown: &str) -> bool {
        real.lines().any(|line| matches(&self.translated(shown), line))
    }

    /// Whether two values of a field of this name agree.
    fn same(&mut self, name: &str, shown: &Value, real: &Value) -> bool {
        match (shown, real) {
            (Value::Object(shown), Value::Object(real)) => {
                shown.len() == real.len()
                    && shown.iter().all(|(name, shown)| {
                        real.get(name).is_some_and(|real| self.same(name, shown, real))
                    })
            }
            (Value::Array(shown), Value::Array(real)) => {
                shown.len() == real.len()
                    && shown.iter().zip(real).all(|(shown, real)| self.same(name, shown, real))
            }
            (Value::String(shown), Value::String(real)) if name == "receipt" => {
                self.receipts.insert(shown.clone(), real.clone());
                true
            }
            (Value::String(shown), Value::String(real)) => {
                VARYING.contains(&name)
                    || is_time(shown) && is_time(real)
                    || matches(&self.translated(shown), real)
            }
            (Value::Number(_), Value::Number(_)) if VARYING.contains(&name) => true,
            (shown, real) => shown == real,
        }
    }
}

/// Whether a text is the same, where `…` stands for any text.
fn matches(shown: &str, mut real: &str) -> bool {
    let mut parts = shown.split('…');
    let Some(rest) = real.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    real = rest;
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return real.is_empty() };
    for part in middle {
        let Some((_, rest)) = real.split_once(part) else { return false };
        real = rest;
    }
    real.ends_with(last)
}

/// All JSON values of a text, or `None` if it is not JSON.
fn values(text: &str) -> Option<Vec<Value>> {
    let values: Vec<Value> =
        Deserializer::from_str(text).into_iter().collect::<Result<_, _>>().ok()?;
    (!values.is_empty()).then_some(values)
}

/// Such as 2026-12-01T08:00:00.000Z.
fn is_time(text: &str) -> bool {
    let pattern = "0000-00-00T00:00:00.000Z";
    let fits = |(c, p): (char, char)| if p == '0' { c.is_ascii_digit() } else { c == p };
    text.len() == pattern.len() && text.chars().zip(pattern.chars()).all(fits)
}

#[test]
fn an_ellipsis_stands_for_any_text() {
    for (shown, real) in [("a", "a"), ("a…c", "abc"), ("…", ""), ("a…b…", "a1b2"), ("…b", "b")]
    {
        assert!(matches(shown, real), "{shown} {real}");
    }
    for (shown, real) in [("a", "ab"), ("a…c", "ab"), ("a…b…c", "acb"), ("…a", "ab")] {
        assert!(!matches(shown, real), "{shown} {real}");
    }
}
