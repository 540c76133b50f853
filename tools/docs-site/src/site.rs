//! All pages together: which there are, whether their links lead somewhere, and their files.
//!
//! The pages are `docs/*.md`, `README.md`, and every Markdown file that one of the pages links to. A link to a
//! folder leads to its `README.md`. Other files of the repository are not part of the site: a link to one
//! leads to the repository, if its address is known, and otherwise is only text.

use crate::link::{self, Target};
use crate::page::{Page, Rewritten};
use crate::template::{self, NavEntry, NavSection};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The page from which the navigation is made, and which the site begins with.
const INDEX: &str = "docs/index.md";

/// The texts of all pages, by path in the repository.
pub type Sources = BTreeMap<String, String>;

/// The files of the site, by path.
pub type Files = BTreeMap<String, Vec<u8>>;

/// Reads the pages of the repository in `root`. A link that leads to no file is found later, by [`Site::parse`].
pub fn read_sources(root: &Path) -> Result<Sources, String> {
    let mut found = BTreeSet::from(["README.md".to_owned()]);
    let docs = fs::read_dir(root.join("docs")).map_err(|error| format!("docs: {error}"))?;
    for entry in docs {
        let name = entry.map_err(|error| format!("docs: {error}"))?.file_name();
        let name = name.to_str().ok_or_else(|| format!("docs/{}: not UTF-8", name.display()))?;
        if name.ends_with(".md") {
            found.insert(format!("docs/{name}"));
        }
    }
    let mut sources = Sources::new();
    while let Some(path) = found.pop_first() {
        let text =
            fs::read_to_string(root.join(&path)).map_err(|error| format!("{path}: {error}"))?;
        let page = Page::parse(&path, &text)?;
        let linked = page.links().filter_map(|link| match link::target(&path, link) {
            Target::File { path, .. } => page_at(root, &path),
            Target::External | Target::Outside => None,
        });
        found.extend(linked.filter(|linked| !sources.contains_key(linked) && *linked != path));
        sources.insert(path, text);
    }
    Ok(sources)
}

/// The page that a link to `path` leads to, if there is one.
fn page_at(root: &Path, path: &str) -> Option<String> {
    let path = if root.join(path).is_dir() { format!("{path}/README.md") } else { path.to_owned() };
    let path = path.trim_start_matches('/');
    (path.ends_with(".md") && root.join(path).is_file()).then(|| path.to_owned())
}

/// The parsed pages.
#[derive(Debug)]
pub struct Site<'a> {
    root: &'a Path,
    /// Where files that are not pages can be seen, without a `/` at the end.
    repository: Option<&'a str>,
    pages: BTreeMap<&'a str, Page<'a>>,
}

impl<'a> Site<'a> {
    /// Parses the pages of the repository in `root`.
    ///
    /// # Errors
    ///
    /// Fails if a link or an anchor leads nowhere, an image is not in the repository, two pages would have the same
    /// file, or there is no `docs/index.md`. The error lists all problems.
    pub fn parse(
        root: &'a Path,
        sources: &'a Sources,
        repository: Option<&'a str>,
    ) -> Result<Site<'a>, String> {
        let mut pages = BTreeMap::new();
        let mut outputs = BTreeMap::new();
        let mut problems = Vec::new();
        for (path, text) in sources {
            pages.insert(path.as_str(), Page::parse(path, text)?);
            if let Some(other) = outputs.insert(link::output(path), path) {
                problems.push(format!("{path}: has the same file as {other}"));
            }
        }
        if !pages.contains_key(INDEX) {
            problems.push(format!("{INDEX}: there is no such page"));
        }
        let site = Site { root, repository, pages };
        for page in site.pages.values() {
            let links = page.links().filter_map(|link| {
                let problem = site.problem(page, link)?;
                Some(format!("{}: {link}: {problem}", page.path))
            });
            let images = page.images().filter(|image| site.image(page, image).is_none());
            problems.extend(links);
            problems.extend(images.map(|image| {
                format!("{}: {image}: an image has to be a file of the repository", page.path)
            }));
        }
        if problems.is_empty() { Ok(site) } else { Err(problems.join("\n")) }
    }

    /// Why a link leads nowhere.
    fn problem(&self, page: &Page<'_>, link: &str) -> Option<&'static str> {
        let (path, anchor) = match link::target(&page.path, link) {
            Target::External => return None,
            Target::Outside => return Some("leaves the repository"),
            Target::File { path, anchor } => (path, anchor),
        };
        match page_at(self.root, &path).and_then(|path| self.pages.get(path.as_str())) {
            Some(target) if anchor.is_empty() || target.has_anchor(&anchor) => None,
            Some(_) => Some("there is no such heading"),
            None if self.root.join(&path).exists() => None,
            None => Some("there is no such file"),
        }
    }

    /// The path of an image in the repository.
    fn image(&self, page: &Page<'_>, link: &str) -> Option<String> {
        match link::target(&page.path, link) {
            Target::File { path, .. } if self.root.join(&path).is_file() => Some(path),
            _ => None,
        }
    }

    /// Renders all pages, with the stylesheet and the images.
    ///
    /// # Errors
    ///
    /// Fails if an image cannot be read.
    pub fn render(&self) -> Result<Files, String> {
        let mut files = Files::new();
        files.insert(template::STYLE_FILE.to_owned(), template::STYLE.as_bytes().to_vec());
        let navigation = self.navigation();
        for page in self.pages.values() {
            let body = page.html(|link| self.rewrite(page, link));
            let html = template::page(page, &link::output(&page.path), &navigation, &body);
            files.insert(link::output(&page.path), html.into_bytes());
            for path in page.images().filter_map(|image| self.image(page, image)) {
                let image = fs::read(self.root.join(&path));
                files.insert(path.clone(), image.map_err(|error| format!("{path}: {error}"))?);
            }
        }
        Ok(files)
    }

    fn rewrite(&self, page: &Page<'_>, link: &str) -> Rewritten {
        let from = link::output(&page.path);
        let Target::File { path, anchor } = link::target(&page.path, link) else {
            return Rewritten::To(link.to_owned());
        };
        let anchor = if anchor.is_empty() { anchor } else { format!("#{anchor}") };
        if let Some(target) = page_at(self.root, &path) {
            let to = link::output(&target);
            let same_page = to == from && !anchor.is_empty();
            let to = if same_page { String::new() } else { link::relative(&from, &to) };
            return Rewritten::To(to + &anchor);
        }
        if page.images().any(|image| image == link) {
            return Rewritten::To(link::relative(&from, &path));
        }
        match self.repository {
            Some(base) => Rewritten::To(format!("{base}/{path}{anchor}")),
            None => Rewritten::TextOnly,
        }
    }

    /// The sections of the index, each with the pages it links to. A page is listed once.
    fn navigation(&self) -> Vec<NavSection> {
        let mut listed = BTreeSet::new();
        let index = &self.pages[INDEX];
        let mut sections = Vec::new();
        for (title, links) in index.sections() {
            let pages = links.into_iter().filter_map(|(link, text)| {
                let Target::File { path, anchor } = link::target(INDEX, &link) else { return None };
                let page = page_at(self.root, &path).filter(|_| anchor.is_empty())?;
                listed.insert(page.clone()).then(|| NavEntry { output: link::output(&page), text })
            });
            let pages: Vec<NavEntry> = pages.collect();
            if !pages.is_empty() {
                sections.push(NavSection { title, pages });
            }
        }
        sections
    }
}
