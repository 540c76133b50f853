//! No page tells a reader to install a package of somebody else: nothing of this project is published, so
//! a package with one of its names in a registry is from a stranger.

use super::root;
use std::fs;
use std::path::{Path, PathBuf};

/// The beginnings of commands that install a package.
const INSTALLERS: [&str; 11] = [
    "pip install",
    "pip3 install",
    "pipx install",
    "uv add",
    "npm install",
    "npm i ",
    "pnpm add",
    "yarn add",
    "cargo add",
    "cargo install",
    "go get",
];

/// All Markdown pages, in whatever folder of the repository.
fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_ours = !name.starts_with('.') && !["target", "node_modules"].contains(&&*name);
        if path.is_dir() && !path.is_symlink() && is_ours {
            pages(&path, found);
        } else if path.extension() == Some("md".as_ref()) {
            found.push(path);
        }
    }
}

/// Why a line of a page would install a package of somebody else.
fn problem(line: &str) -> Option<&'static str> {
    if line.contains("github.com/requeue") {
        return Some("the account is not ours");
    }
    for installer in INSTALLERS {
        for (at, _) in line.match_indices(installer) {
            let command = line[at + installer.len()..].split(['`', '#', '&', ';']).next();
            let mut words = command.unwrap_or_default().split_whitespace();
            // A path has a slash, and so has the option's value after `--path`.
            if words.any(|word| word.contains("requeue") && !word.contains('/')) {
                return Some("it installs from a registry");
            }
        }
    }
    // A dependency in Cargo.toml.
    let dependency = line.split_once('=').filter(|(name, _)| {
        let name = name.trim();
        name.starts_with("requeue") && name.chars().all(|c| c.is_ascii_lowercase() || c == '-')
    });
    let (_, value) = dependency?;
    let is_version = value.trim_start().starts_with('"') || value.contains("version");
    (is_version && !value.contains("path")).then_some("it is a dependency from crates.io")
}

#[test]
fn no_page_installs_a_package_of_somebody_else() {
    let mut found = Vec::new();
    pages(root(), &mut found);
    assert!(found.len() > 40, "{found:?}");
    for page in found {
        let text = fs::read_to_string(&page).expect("a page");
        for (number, line) in text.lines().enumerate() {
            if let Some(problem) = problem(line) {
                panic!("{}:{}: {problem}: {line}", page.display(), number + 1);
            }
        }
    }
}

#[test]
fn a_line_that_installs_from_a_registry_is_found() {
    for line in [
        "$ pip install requeue",
        "$ pip install -U 'requeue-client[fast]'",
        "run `cargo install requeue-cli`, then",
        "npm i requeue-client",
        "requeue = { version = \"0.1\", features = [\"tokio\"] }",
        "requeue-jobs = \"0.1\"",
        "go get github.com/requeue/requeue/clients/go",
    ] {
        assert!(problem(line).is_some(), "{line}");
    }
    for line in [
        "$ pip install ../requeue/clients/python    # requeue is a checkout",
        "`cargo add --path ../requeue/crates/requeue-jobs`, and requeue runs",
        "cargo install --path crates/requeue-cli --features brokers",
        "requeue-jobs = { path = \"../requeue/crates/requeue-jobs\" }",
        "pip install standardwebhooks",
        "requeue_url = \"0.1\"",
    ] {
        assert_eq!(problem(line), None, "{line}");
    }
}
