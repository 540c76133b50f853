//! Where a link of a page leads: to a page of the site, to a file of the repository, or elsewhere.

/// The target of a link. Paths are relative to the root of the repository, with `/`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A URL with a scheme, or one that begins with `//`.
    External,
    /// A file or a folder, and the anchor in it; without an anchor, it is empty.
    File { path: String, anchor: String },
    /// A path that leaves the repository.
    Outside,
}

/// Finds out what `link` means in the file `page`.
pub(crate) fn target(page: &str, link: &str) -> Target {
    if link.starts_with("//") || has_scheme(link) {
        return Target::External;
    }
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let anchor = anchor.to_owned();
    if file.is_empty() {
        return Target::File { path: page.to_owned(), anchor };
    }
    match join(folder(page), file) {
        Some(path) => Target::File { path, anchor },
        None => Target::Outside,
    }
}

/// `mailto:x` and `https://x` have a scheme; `a/b:c` has none.
fn has_scheme(link: &str) -> bool {
    link.split_once(':').is_some_and(|(scheme, _)| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
    })
}

/// The folder of a file, empty for the root.
fn folder(file: &str) -> &str {
    file.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// Follows a relative path. Returns `None` if it leaves the root.
fn join(folder: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    if path.starts_with('/') {
        return None;
    }
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The relative link from one file to another.
pub(crate) fn relative(from: &str, to: &str) -> String {
    let from: Vec<&str> = folder(from).split('/').filter(|part| !part.is_empty()).collect();
    let to: Vec<&str> = to.split('/').collect();
    // The last part of `to` is the file: it is never shared.
    let shared = from.iter().zip(&to[..to.len() - 1]).take_while(|(a, b)| a == b).count();
    let up = "../".repeat(from.len() - shared);
    up + &to[shared..].join("/")
}

/// The file of the site that shows a page: pages of `docs/` are at the top.
pub(crate) fn output(page: &str) -> String {
    let path = page.strip_prefix("docs/").unwrap_or(page);
    format!("{}.html", path.strip_suffix(".md").unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, anchor: &str) -> Target {
        Target::File { path: path.to_owned(), anchor: anchor.to_owned() }
    }

    #[test]
    fn links_are_resolved_from_the_folder_of_their_page() {
        for (page, link, expected) in [
            ("docs/cli.md", "jobs.md", file("docs/jobs.md", "")),
            ("docs/cli.md", "jobs.md#rate-limits", file("docs/jobs.md", "rate-limits")),
            ("docs/cli.md", "#tokens", file("docs/cli.md", "tokens")),
            ("docs/cli.md", "../README.md", file("README.md", "")),
            ("docs/cli.md", "../crates/", file("crates", "")),
            ("README.md", "./docs/cli.md", file("docs/cli.md", "")),
            ("clients/go/README.md", "../../docs/clients.md", file("docs/clients.md", "")),
            ("README.md", "../elsewhere.md", Target::Outside),
            ("README.md", "/etc/hosts", Target::Outside),
            ("README.md", "https://example.com/a.md#b", Target::External),
            ("README.md", "mailto:a@example.com", Target::External),
            ("README.md", "//example.com", Target::External),
            ("README.md", "docs/a:b.md", file("docs/a:b.md", "")),
        ] {
            assert_eq!(target(page, link), expected, "{link} in {page}");
        }
    }

    #[test]
    fn a_relative_link_leads_from_one_file_to_the_other() {
        for (from, to, expected) in [
            ("cli.html", "jobs.html", "jobs.html"),
            ("cli.html", "clients/go/README.html", "clients/go/README.html"),
            ("clients/go/README.html", "clients.html", "../../clients.html"),
            ("clients/go/README.html", "clients/python/README.html", "../python/README.html"),
            ("clients/go/README.html", "clients/go/README.html", "README.html"),
        ] {
            assert_eq!(relative(from, to), expected, "{from} to {to}");
        }
    }

    #[test]
    fn pages_of_docs_are_at_the_top_of_the_site() {
        assert_eq!(output("docs/index.md"), "index.html");
        assert_eq!(output("README.md"), "README.html");
        assert_eq!(output("clients/go/README.md"), "clients/go/README.html");
    }
}
