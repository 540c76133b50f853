//! The site of the real documentation, and of small repositories with one thing wrong.

use docs_site::{Files, Site, read_sources};
use std::fs;
use std::path::{Path, PathBuf};

/// A repository with these files, in a folder of its own.
fn repository(name: &str, files: &[(&str, &str)]) -> PathBuf {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&root);
    for (path, text) in
        [("README.md", "# Readme"), ("docs/index.md", "# Index")].iter().chain(files)
    {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("it is below the root")).expect("a folder");
        fs::write(path, text).expect("a file");
    }
    root
}

fn render(root: &Path, repository: Option<&str>) -> Result<Files, String> {
    let sources = read_sources(root)?;
    Site::parse(root, &sources, repository)?.render()
}

fn text<'a>(files: &'a Files, path: &str) -> &'a str {
    std::str::from_utf8(&files[path]).expect("UTF-8")
}

#[test]
fn the_documentation_has_no_broken_link() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let files = render(root, None).unwrap_or_else(|problems| panic!("\n{problems}"));
    let docs = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().file_name());
    for name in docs.map(|name| name.into_string().unwrap()).filter(|name| name.ends_with(".md")) {
        let output = name.replace(".md", ".html");
        assert!(files.contains_key(&output), "{name} is not rendered");
        assert!(
            text(&files, "index.html").contains(&format!("href=\"{output}\"")),
            "docs/index.md does not link to {name}"
        );
    }
    for page in ["README.html", "clients/python/README.html", "crates/requeue-jobs/README.html"] {
        assert!(files.contains_key(page), "{page} is missing");
    }
    for path in files.keys().filter(|path| path.ends_with(".html")) {
        let html = text(&files, path);
        for loaded in ["<script", "src=\"http", "@import", "url("] {
            assert!(!html.contains(loaded), "{path} contains {loaded}");
        }
        assert_eq!(
            html.matches("<link ").count(),
            1,
            "{path} loads its stylesheet and nothing else"
        );
    }
}

#[test]
fn links_between_pages_are_rewritten() {
    let root = repository(
        "rewritten",
        &[
            ("docs/index.md", "# Index\n\n## Use\n\n- [A & B](a.md)\n- [Go](../clients/go)\n"),
            (
                "docs/a.md",
                "# A\n\n[b](#two) [top](../README.md#readme) [x](https://example.com/)\n\n## Two\n",
            ),
            ("clients/go/README.md", "# Go\n\n[two](../../docs/a.md#two) ![Queue](queue.png)\n"),
            ("clients/go/queue.png", "an image"),
        ],
    );
    let files = render(&root, None).unwrap();
    let a = text(&files, "a.html");
    assert!(a.contains("<a href=\"#two\">b</a>"), "{a}");
    assert!(a.contains("<a href=\"README.html#readme\">top</a>"), "{a}");
    assert!(a.contains("<a href=\"https://example.com/\">x</a>"), "{a}");
    assert!(a.contains("<h2 id=\"two\">"), "{a}");
    assert!(a.contains("<a href=\"a.html\" aria-current=\"page\">A &amp; B</a>"), "{a}");
    let go = text(&files, "clients/go/README.html");
    assert!(go.contains("<a href=\"../../a.html#two\">two</a>"), "{go}");
    assert!(go.contains("href=\"../../style.css\""), "{go}");
    assert!(go.contains("<img src=\"queue.png\" alt=\"Queue\""), "{go}");
    assert_eq!(text(&files, "clients/go/queue.png"), "an image");
}

#[test]
fn a_link_to_another_file_leads_to_the_repository_or_is_text() {
    let root = repository(
        "others",
        &[("docs/a.md", "# A\n\nsee [the *licence*](../LICENSE).\n"), ("LICENSE", "free")],
    );
    let files = render(&root, None).unwrap();
    assert!(text(&files, "a.html").contains("<p>see the <em>licence</em>.</p>"));
    let files = render(&root, Some("https://example.com/blob/main")).unwrap();
    assert!(text(&files, "a.html").contains("href=\"https://example.com/blob/main/LICENSE\""));
}

#[test]
fn code_blocks_have_a_class_for_their_language_and_tables_scroll() {
    let page = "# A\n\n```rust,no_run\nlet a = 1 < 2;\n```\n\n| a |\n|---|\n| b |\n\n<!-- a note\nof two lines -->\n";
    let files = render(&repository("blocks", &[("docs/a.md", page)]), None).unwrap();
    let html = text(&files, "a.html");
    assert!(html.contains("<pre><code class=\"language-rust\">let a = 1 &lt; 2;"), "{html}");
    assert!(html.contains("<div class=\"table\" tabindex=\"0\"><table>"), "{html}");
    assert!(!html.contains("a note"), "{html}");
}

#[test]
fn every_problem_is_reported_with_its_page_and_link() {
    let root = repository(
        "problems",
        &[(
            "docs/a.md",
            "# A\n\n[1](gone.md) [2](index.md#gone) [3](#gone) [4](../../x) ![5](https://example.com/x.png)\n",
        )],
    );
    let problems = render(&root, None).unwrap_err();
    let expected = [
        "docs/a.md: gone.md: there is no such file",
        "docs/a.md: index.md#gone: there is no such heading",
        "docs/a.md: #gone: there is no such heading",
        "docs/a.md: ../../x: leaves the repository",
        "docs/a.md: https://example.com/x.png: an image has to be a file of the repository",
    ];
    assert_eq!(problems.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn markup_in_a_page_is_rejected() {
    for (name, page) in [
        ("block", "# A\n\n<script src=x></script>\n"),
        ("inline", "# A\n\na<br>b\n"),
        ("between-comments", "# A\n\n<!-- a --><b>b</b><!-- c -->\n"),
    ] {
        let problem = render(&repository(name, &[("docs/a.md", page)]), None).unwrap_err();
        assert!(problem.starts_with("docs/a.md: HTML is not supported: <"), "{problem}");
    }
}
