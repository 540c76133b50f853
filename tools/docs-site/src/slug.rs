//! The anchors of headings, as GitHub makes them: links that work there work on the site.

use std::collections::HashMap;

/// Gives each heading of one page its anchor.
#[derive(Debug, Default)]
pub(crate) struct Slugs {
    /// For each anchor that was given, the number of the last heading that had to differ from it.
    given: HashMap<String, u32>,
}

impl Slugs {
    /// Returns the anchor of the next heading. A heading that repeats an anchor gets `-1`, `-2`, …
    pub(crate) fn next(&mut self, heading: &str) -> String {
        let plain = slug(heading);
        let mut unique = plain.clone();
        while self.given.contains_key(&unique) {
            let repeats = self.given.entry(plain.clone()).or_default();
            *repeats += 1;
            unique = format!("{plain}-{repeats}");
        }
        self.given.insert(unique.clone(), 0);
        unique
    }
}

/// Lower case, without punctuation, and with a hyphen for every space.
fn slug(heading: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    heading.trim().to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slug_is_what_github_makes() {
        for (heading, expected) in [
            ("Tokens", "tokens"),
            ("Backup, restore, verify", "backup-restore-verify"),
            ("Where we differ from client-go", "where-we-differ-from-client-go"),
            ("`requeue put KIND ID`", "requeue-put-kind-id"),
            ("Format (version 1)", "format-version-1"),
            ("PUT /v1/kinds/{kind}/jobs/{id}", "put-v1kindskindjobsid"),
            ("Reads & writes", "reads--writes"),
            ("a_b: C", "a_b-c"),
            ("Größe – in Bytes", "größe--in-bytes"),
        ] {
            assert_eq!(slug(heading), expected, "{heading}");
        }
    }

    #[test]
    fn repeated_headings_are_numbered() {
        let mut slugs = Slugs::default();
        let all: Vec<_> =
            ["Limits", "Limits", "Limits 1", "Limits"].map(|heading| slugs.next(heading)).into();
        assert_eq!(all, ["limits", "limits-1", "limits-1-1", "limits-2"]);
    }
}
