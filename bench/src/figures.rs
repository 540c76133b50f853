//! Figures in documents, copied from the files in `bench/results`.
//!
//! A figure stands between two comments, the first of which says where it comes from:
//!
//! ```text
//!   <!--core cycle-1k requeue-->57 ns<!--/-->                 the median of a system
//!   <!--core cycle-1k requeue/client-go-->2.7<!--/-->         how much better it is than a peer
//!   <!--core cycle-1k requeue/client-go bold-->**2.7**<!--/-->      bold if it is better
//!   <!--core cycle-1k requeue/client-go range-->**2.7** (2.6–3.4)<!--/-->
//!   <!--core commit-->425b617244df<!--/-->                    where the results come from
//!   <!--core machine-->AMD EPYC<!--/-->
//! ```
//!
//! `bench/run` ends with an update of the documents, and a test compares them with the files.

use crate::report::{plain, shown};
use requeue_bench::Unit;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The documents that contain figures, in the root of the repository.
const DOCUMENTS: &[&str] = &["README.md", "docs/benchmarks.md"];

const BEGIN: &str = "<!--";
const END: &str = "-->";
const LAST: &str = "<!--/-->";

/// A line of a results file: its origin, a measurement, or a comparison.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Measurement { workload: String, system: String, unit: Unit, median: f64 },
    Comparison { workload: String, system: String, peer: String, ratio: f64, low: f64, high: f64 },
    Origin { commit: String, machine: String },
}

/// All figures, by the text of their comments.
#[derive(Default)]
struct Figures(BTreeMap<String, String>);

impl Figures {
    /// Reads the results files of a folder.
    fn read(folder: &Path) -> Result<Self, String> {
        let mut figures = Figures::default();
        let files = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        for file in files {
            let path = file.map_err(|e| format!("{}: {e}", folder.display()))?.path();
            if path.extension().is_some_and(|extension| extension == "jsonl") {
                let text = fs::read_to_string(&path);
                let text = text.map_err(|e| format!("{}: {e}", path.display()))?;
                let suite = path.file_stem().unwrap_or_default().to_string_lossy();
                figures.add(&suite, &text).map_err(|e| format!("{}: {e}", path.display()))?;
            }
        }
        Ok(figures)
    }

    fn add(&mut self, suite: &str, text: &str) -> Result<(), String> {
        for line in text.lines() {
            match serde_json::from_str(line).map_err(|e| format!("{line}: {e}"))? {
                Line::Measurement { workload, system, unit, median } => {
                    let name = format!("{suite} {workload} {system}");
                    self.0.insert(name, shown(median, unit));
                }
                Line::Comparison { workload, system, peer, ratio, low, high } => {
                    let name = format!("{suite} {workload} {system}/{peer}");
                    let shown = plain(ratio);
                    let bold = if ratio > 1.0 { format!("**{shown}**") } else { shown.clone() };
                    let range = format!("{bold} ({}–{})", plain(low), plain(high));
                    self.0.insert(format!("{name} bold"), bold);
                    self.0.insert(format!("{name} range"), range);
                    self.0.insert(name, shown);
                }
                Line::Origin { commit, machine } => {
                    self.0.insert(format!("{suite} commit"), commit);
                    self.0.insert(format!("{suite} machine"), machine);
                }
            }
        }
        Ok(())
    }

    /// Returns a document with the figures of the files.
    fn update(&self, text: &str) -> Result<String, String> {
        let (mut out, mut text) = (String::with_capacity(text.len()), text);
        while let Some((figure, rest)) = text.split_once(LAST) {
            text = rest;
            let (before, rest) = figure.rsplit_once(BEGIN).ok_or("a figure has no beginning")?;
            let (name, _) = rest.split_once(END).ok_or("a comment has no end")?;
            let figure = self.0.get(name.trim());
            let figure = figure.ok_or_else(|| format!("no results file contains {name:?}"))?;
            out.extend([before, BEGIN, name, END, figure, LAST]);
        }
        out.push_str(text);
        Ok(out)
    }
}

/// Returns the documents of a repository that differ from the results files, each with the text that
/// it should have.
fn outdated(root: &Path) -> Result<Vec<(PathBuf, String)>, String> {
    let figures = Figures::read(&root.join("bench/results"))?;
    let mut outdated = Vec::new();
    for document in DOCUMENTS {
        let path = root.join(document);
        let failed = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
        let text = fs::read_to_string(&path).map_err(|e| failed(&e))?;
        let updated = figures.update(&text).map_err(|e| failed(&e))?;
        if updated != text {
            outdated.push((path, updated));
        }
    }
    Ok(outdated)
}

/// Copies the figures into the documents of a repository.
pub(crate) fn update(root: &Path) -> Result<(), String> {
    for (path, text) in outdated(root)? {
        fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
        println!("updated {}", path.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESULTS: &str = r#"{"suite":"core","machine":"m","cores":2,"commit":"c0ffee","quick":false}
{"suite":"core","workload":"cycle","system":"requeue","unit":"ns","runs":[57.2],"median":57.2}
{"suite":"core","workload":"cycle","system":"requeue","peer":"a","ratio":2.74,"low":2.6,"high":31.4}
{"suite":"core","workload":"cycle","system":"requeue","peer":"b","ratio":0.5,"low":0.5,"high":0.5}"#;

    fn updated(text: &str) -> Result<String, String> {
        let mut figures = Figures::default();
        figures.add("core", RESULTS).unwrap();
        figures.update(text)
    }

    #[test]
    fn figures_are_replaced_and_all_else_stays() {
        for (name, figure) in [
            ("core commit", "c0ffee"),
            ("core machine", "m"),
            ("core cycle requeue", "57 ns"),
            ("core cycle requeue/a", "2.7"),
            ("core cycle requeue/a bold", "**2.7**"),
            ("core cycle requeue/b bold", "0.50"),
            ("core cycle requeue/a range", "**2.7** (2.6–31)"),
        ] {
            let document = |figure| format!("a <!-- b --> <!--{name}-->{figure}<!--/--> c");
            assert_eq!(updated(&document("old")), Ok(document(figure)));
        }
        assert_eq!(updated("no figure <!-- b -->"), Ok("no figure <!-- b -->".to_owned()));
    }

    #[test]
    fn a_figure_without_a_result_is_an_error() {
        let error = updated("<!--core cycle c-->1<!--/-->").unwrap_err();
        assert_eq!(error, r#"no results file contains "core cycle c""#);
        assert!(updated("1<!--/-->").is_err());
    }

    #[test]
    fn the_documents_have_the_figures_of_the_files() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let outdated: Vec<_> = outdated(&root).unwrap().into_iter().map(|(path, _)| path).collect();
        assert_eq!(outdated, Vec::<PathBuf>::new(), "run bench/run, or bench/run figures");
    }
}
