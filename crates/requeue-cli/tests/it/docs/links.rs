//! Every relative link of the documentation leads to a file and, after `#`, to a heading.

use super::root;
use std::fs;
use std::path::{Path, PathBuf};

/// All Markdown pages of the repository that people read.
fn pages() -> Vec<PathBuf> {
    let folders = ["", "docs", "docs/decisions", "bench", "conformance", "packaging"];
    let packages = ["crates", "clients", "examples"].into_iter().flat_map(|name| {
        fs::read_dir(root().join(name))
            .expect("a folder")
            .map(|entry| entry.expect("an entry").path())
    });
    let folders = folders.into_iter().map(|name| root().join(name)).chain(packages);
    folders.filter(|folder| folder.is_dir()).flat_map(|folder| markdown_in(&folder)).collect()
}

fn markdown_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder");
    let files = entries.map(|entry| entry.expect("an entry").path());
    files.filter(|path| path.extension() == Some("md".as_ref())).collect()
}

/// The lines of a page outside of code blocks.
fn prose(page: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    page.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    })
}

/// The anchor that GitHub gives to a heading.
fn anchor(heading: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    heading.trim().to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")
}

fn broken(page: &Path, link: &str) -> Option<&'static str> {
    let (file, heading) = link.split_once('#').unwrap_or((link, ""));
    let target = page.with_file_name(file);
    let target = if file.is_empty() { page } else { &target };
    if !target.exists() {
        return Some("there is no such file");
    }
    if heading.is_empty() {
        return None;
    }
    let text = fs::read_to_string(target).expect("a page");
    let found = prose(&text)
        .filter_map(|line| {
            line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#'))
        })
        .any(|title| anchor(title) == heading);
    (!found).then_some("there is no such heading")
}

#[test]
fn links_lead_somewhere() {
    let mut problems = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).expect("a page");
        let links = prose(&text).flat_map(|line| line.split("](").skip(1));
        for link in links.filter_map(|rest| rest.split(')').next()) {
            let problem = if link.contains("://") { None } else { broken(&page, link) };
            problems
                .extend(problem.map(|problem| format!("{}: {link}: {problem}", page.display())));
        }
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

#[test]
fn the_index_leads_to_every_page() {
    let index = fs::read_to_string(root().join("docs/index.md")).expect("the index");
    for folder in ["docs", "docs/decisions"] {
        for page in markdown_in(&root().join(folder)) {
            let path = page.strip_prefix(root().join("docs")).expect("a page of docs").display();
            let is_linked = index.contains(&format!("]({path})")) || path.to_string() == "index.md";
            assert!(is_linked, "docs/index.md does not link to {path}");
        }
    }
}
