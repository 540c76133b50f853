//! Every command in README.md and docs/*.md works.
//!
//! For authors of these pages:
//!
//! - A `console` block is a list of commands, each after the prompt `$ `, followed by what the
//!   command prints. The test runs it and compares. JSON is compared by value; times, fences and
//!   versions may differ, and a receipt on the page stands for the real one. In other text, `…`
//!   stands for anything. `sh` and `bash` blocks contain commands only; their output is not
//!   compared. A command must exit with 0.
//! - The commands of a page share one shell, one new directory and one server, in page order. Port
//!   7654 is replaced by a free one. `requeue serve` starts a server in the background; a page
//!   that does not start one gets one anyway. `requeue work` and `requeue events` run until they
//!   have printed the lines that the page shows, and are then stopped.
//! - `cargo` commands, also `inline`, are not run: their package, target and features are checked.
//!   `cargo run … -p requeue-cli -- ARGS` runs as `requeue ARGS`. A script of this repository, such
//!   as `scripts/test`, must exist.
//! - A comment before a block changes how it is tested:
//!
//! ```text
//! <!-- test: skip because REASON -->      for what cannot run here: docker, systemctl, other hosts
//! <!-- test: first COMMAND -->            runs COMMAND, which the page does not show, before it
//! <!-- test: worker of KIND; BODY is acked; OTHER BODY is retried -->
//!                                         a program that never ends: on a server of its own, jobs
//!                                         with these bodies lead to these events
//! <!-- test: worker of KIND; BODY is acked; it stops on SIGTERM -->
//!                                         also ends on SIGTERM after its job, for which it prints
//!                                         something, and with 1 on a second one
//! ```
//!
//! - A `python` block without such a comment is a script that must exit with 0. A block of another
//!   language with lines that begin with `$ ` must be marked as skipped.

mod cargo;
mod links;
mod names;
mod output;
mod page;
mod reference;
mod session;

use cargo::Workspace;
use page::{Block, Example, inline_code};
use session::Session;
use std::fs;
use std::path::Path;

/// The root of the repository.
fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

#[test]
fn every_command_in_the_docs_works() {
    let docs = fs::read_dir(root().join("docs")).expect("docs/");
    let docs = docs.map(|entry| entry.expect("an entry").path());
    let mut pages: Vec<_> = docs.filter(|path| path.extension() == Some("md".as_ref())).collect();
    pages.push(root().join("README.md"));
    let workspace = Workspace::read(root());
    // Most of the time is spent waiting for jobs to fall due: all pages run concurrently.
    let problems: Vec<String> = std::thread::scope(|scope| {
        let check = |path: &Path| {
            let text = fs::read_to_string(path).expect("a page");
            check_page(&workspace, &text).map_err(|problem| format!("{}:{problem}", path.display()))
        };
        let pages: Vec<_> = pages.iter().map(|path| scope.spawn(move || check(path))).collect();
        pages.into_iter().filter_map(|page| page.join().expect("no panic").err()).collect()
    });
    assert!(problems.is_empty(), "\n{}", problems.join("\n\n"));
}

/// Tests a page up to the first problem, which begins with its line number.
fn check_page(workspace: &Workspace, text: &str) -> Result<(), String> {
    for (line, code) in inline_code(text) {
        if code.starts_with("cargo ") {
            let checked = workspace.check(&code);
            checked.map_err(|problem| format!("{line}: `{code}`: {problem}"))?;
        }
    }
    let mut session = None;
    for block in Block::all(text)?.iter().filter(|block| block.has_commands()) {
        let failed = |problem: String| format!("{}: {problem}", block.line);
        match block.mark.as_deref().map(|mark| mark.split_once(' ').unwrap_or((mark, ""))) {
            Some(("skip", reason)) if reason.starts_with("because ") => continue,
            Some(("worker", worker)) => {
                check_worker(block, worker).map_err(failed)?;
                continue;
            }
            Some(("first", command)) => {
                let session = session.get_or_insert_with(Session::new);
                let (line, command) = (block.line - 1, command.to_owned());
                run(workspace, session, &Example { line, command, printed: None })?;
            }
            None => {}
            Some(_) => return Err(failed("unknown `test:` comment".to_owned())),
        }
        let session = session.get_or_insert_with(Session::new);
        match &*block.language {
            "console" | "sh" | "bash" => {
                for example in block.examples() {
                    run(workspace, session, &example)?;
                }
            }
            "python" => session.script("python3", &block.text).map_err(failed)?,
            other => {
                let problem =
                    format!("commands in a block of `{other}`: use `console`, or skip it");
                return Err(failed(problem));
            }
        }
    }
    Ok(())
}

fn run(workspace: &Workspace, session: &mut Session, example: &Example) -> Result<(), String> {
    let Example { line, command, printed } = example;
    let failed = |problem: String| format!("{line}: {command}\n{problem}");
    let mut command = command.as_str();
    let program;
    if command.starts_with("cargo ") {
        let (cargo, rest) = command.split_once(" && ").unwrap_or((command, ""));
        match workspace.check(cargo).map_err(failed)? {
            Some(args) => program = format!("requeue {args}"),
            None => program = rest.to_owned(),
        }
        command = &program;
    }
    let first = command.split_whitespace().next().unwrap_or_default();
    if first.is_empty() || first.contains('/') && root().join(first).is_file() {
        return Ok(());
    }
    let command = command.replace("./target/release/requeue", "requeue");
    session.check(&Example { line: *line, command, printed: printed.clone() }).map_err(failed)
}

/// Runs a worker as its comment describes: `of KIND; BODY is EVENT; …`.
fn check_worker(block: &Block, description: &str) -> Result<(), String> {
    let (description, stops) = match description.strip_suffix("; it stops on SIGTERM") {
        Some(description) => (description, true),
        None => (description, false),
    };
    let mut parts = description.split("; ");
    let kind = parts.next().and_then(|part| part.strip_prefix("of "));
    let cases: Option<Vec<_>> = parts.map(|part| part.rsplit_once(" is ")).collect();
    let (Some(kind), Some(cases)) = (kind, cases) else {
        return Err("write: worker of KIND; BODY is EVENT".to_owned());
    };
    let interpreter = if block.language == "python" { "python3" } else { "bash" };
    let mut session = Session::new();
    session.worker(interpreter, &block.text, kind, &cases)?;
    match (stops, cases.first()) {
        (true, Some((body, _))) => session.stop_worker(interpreter, kind, body),
        _ => Ok(()),
    }
}

#[test]
fn a_page_with_a_problem_is_found() {
    let workspace = Workspace::read(root());
    let good = "`cargo test`\n\n```console\n$ A=1\n$ echo $A\n1\n```\n\n```python\nprint(1)\n```\n";
    assert_eq!(check_page(&workspace, good), Ok(()));
    for (page, problem) in [
        ("```console\n$ echo 1\n2\n```", "2: echo 1\nthe page shows:\n2"),
        ("```sh\n\n# comment\nfalse\n```", "4: false\nit ends with 1"),
        ("```sh\nrequeue put mail\n```", "2: requeue put mail\nit ends with 2"),
        ("```text\n$ ls\n```", "1: commands in a block of `text`"),
        ("<!-- test: skip -->\n```sh\nls\n```", "2: unknown `test:` comment"),
        ("<!-- test: skip because -->\ntext\n```sh\nls\n```", "2: the `test:` comment above"),
        ("```console\n$ cargo run\n```", "2: cargo run\nit fits"),
        ("text\n`cargo run\n--example nothing`", "2: `cargo run --example nothing`"),
        ("```python\nraise SystemExit(1)\n```", "1: it ends with 1"),
        ("```sh\nscripts/nothing\n```", "2: scripts/nothing\nit ends with 127"),
    ] {
        let found = check_page(&workspace, page).expect_err(page);
        assert!(found.starts_with(problem), "{page}\n{found}");
    }
}
