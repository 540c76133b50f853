//! The reference pages are complete: every path, problem, metric and option is on its page.

use super::page::{Block, Example, inline_code};
use super::root;
use crate::support::{Dir, Server};
use requeue_testkit::servers::PostgresServer;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;

const LIMITS: &str = include_str!("../../../../../docs/limits.md");
const CLIENTS: &str = include_str!("../../../../../docs/clients.md");
const OPERATIONS: &str = include_str!("../../../../../docs/operations.md");

#[test]
fn the_pages_have_an_example_of_every_endpoint() {
    let dir = Dir::new();
    let server = Server::start(&dir, &[]);
    let document = dir.http_body(&server.url, "/v1/openapi.json");
    let document: Value = serde_json::from_str(&document).expect("it is JSON");
    let paths = document["paths"].as_object().expect("it has paths");
    assert!(paths.len() > 30, "{document}");
    let blocks = sources("docs", "md")
        .into_iter()
        .flat_map(|page| Block::all(&page).expect("the page can be read"));
    let shown = |block: &Block| {
        block.language == "console" || block.language == "text" && block.has_commands()
    };
    let examples: Vec<_> = blocks.filter(shown).flat_map(|block| block.examples()).collect();
    for (path, methods) in paths {
        for method in methods.as_object().expect("it has methods").keys() {
            let is_shown = examples.iter().any(|example| requests(example, method, path));
            assert!(is_shown, "there is no example of {method} {path}");
        }
    }
}

#[test]
fn the_bounds_of_every_request_with_content_are_listed() {
    let dir = Dir::new();
    let server = Server::start(&dir, &[]);
    let document = dir.http_body(&server.url, "/v1/openapi.json");
    let document: Value = serde_json::from_str(&document).expect("it is JSON");
    let (_, bounds) = LIMITS.split_once("\n## Requests\n").expect("the section");
    let bounds = bounds.split("\n## ").next().expect("its text");
    // `PUT`, `PATCH /path`; `POST /path`, `/path`
    let listed: BTreeSet<String> = bounds
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once(" |"))
        .flat_map(|(cell, _)| cell.split(';'))
        .flat_map(|group| {
            let words = group.split([' ', ',', '`']).filter(|word| !word.is_empty());
            let (paths, methods): (Vec<_>, Vec<_>) = words.partition(|word| word.starts_with('/'));
            let pairs = |path| methods.iter().map(move |method| format!("{method} {path}"));
            paths.into_iter().flat_map(pairs).collect::<Vec<_>>()
        })
        .collect();
    let mut with_content = 0;
    for (path, methods) in document["paths"].as_object().expect("it has paths") {
        for (method, operation) in methods.as_object().expect("it has methods") {
            if operation.get("requestBody").is_some() {
                let request = format!("{} {path}", method.to_uppercase());
                assert!(listed.contains(&request), "{request} is not in {listed:?}");
                with_content += 1;
            }
        }
    }
    assert!(with_content > 20, "{document}");
}

/// Whether an example is a request of this method for a path of this template.
fn requests(example: &Example, method: &str, template: &str) -> bool {
    let Some((before, after)) = example.command.split_once("localhost:7654") else { return false };
    let path = after.split([' ', '\'', '?']).next().unwrap_or_default();
    let fits = |(part, of): (&str, &str)| of.starts_with('{') || part == of;
    let has = |option: &str| example.command.contains(&format!(" {option} "));
    let sent = match before.split_once("-X ") {
        Some((_, rest)) => rest.split(' ').next().unwrap_or_default().to_lowercase(),
        None if !has("-G") && (has("--json") || has("-d")) => "post".to_owned(),
        None => "get".to_owned(),
    };
    sent == method
        && path.split('/').count() == template.split('/').count()
        && path.split('/').zip(template.split('/')).all(fits)
}

#[test]
fn the_page_of_operations_has_every_metric_and_every_option() {
    let postgres = PostgresServer::start();
    let dirs = [Dir::served_at(postgres.url()), Dir::served()];
    for dir in &dirs {
        dir.ask(&["put", "mail", "a"]).ok();
        let metrics = dir.http_body(dir.place()[1], "/metrics");
        let names = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let names: Vec<&str> = names.filter_map(|line| line.split(' ').next()).collect();
        assert!(names.len() > 20, "{metrics}");
        for name in names {
            assert!(OPERATIONS.contains(&format!("`{name}`")), "{name} is not on the page");
        }
    }
    let [_, dir] = &dirs;
    let help = dir.run(&["serve", "--help"]).ok().out;
    let options = help.lines().filter_map(|line| line.trim().strip_prefix("--"));
    let options: Vec<&str> = options.filter_map(|line| line.split([' ', '=']).next()).collect();
    assert!(options.len() > 10, "{help}");
    for option in options {
        assert!(OPERATIONS.contains(&format!("`--{option}")), "--{option} is not on the page");
    }
}

#[test]
fn the_table_of_calls_has_every_endpoint_and_the_methods_of_the_clients() {
    let dir = Dir::new();
    let server = Server::start(&dir, &[]);
    let document = dir.http_body(&server.url, "/v1/openapi.json");
    let document: Value = serde_json::from_str(&document).expect("it is JSON");
    let operations =
        document["paths"].as_object().expect("it has paths").iter().flat_map(|(path, methods)| {
            let methods = methods.as_object().expect("it has methods").keys();
            methods.map(move |method| format!("{} {path}", method.to_uppercase()))
        });
    let rows = call_rows();
    let endpoints: Vec<String> = rows.iter().map(|row| row.endpoint.clone()).collect();
    let unique = BTreeSet::from_iter(endpoints.iter().cloned());
    assert_eq!(endpoints.len(), unique.len(), "a row is there twice");
    assert_same("the OpenAPI document", &unique, &operations.collect());

    let clients =
        [("Python", python_methods()), ("TypeScript", typescript_methods()), ("Go", go_methods())];
    for (column, (client, methods)) in clients.iter().enumerate() {
        assert!(methods.len() > 30, "{methods:?}");
        let named = rows.iter().flat_map(|row| row.names[column].iter().cloned());
        assert_same(client, &named.collect(), methods);
    }
    let rust = RustMethods::read();
    for row in &rows {
        for name in &row.names[3] {
            // It sends any request, so naming it would hide that there is no method.
            assert_ne!(name, "HttpStore::call", "{}", row.endpoint);
            assert!(rust.has(name), "there is no {name}, which the row of {} names", row.endpoint);
        }
        let is_complete = row.names.iter().all(|names| !names.is_empty());
        assert_ne!(is_complete, row.has_reason, "say why, if not everywhere: {}", row.endpoint);
    }
}

fn assert_same(what: &str, table: &BTreeSet<String>, found: &BTreeSet<String>) {
    let stale: Vec<_> = table.difference(found).collect();
    assert!(stale.is_empty(), "the table has {stale:?}, {what} has not");
    let missing: Vec<_> = found.difference(table).collect();
    assert!(missing.is_empty(), "{what} has {missing:?}, the table has not");
}

/// A row of the table of calls.
struct CallRow {
    /// Method and path.
    endpoint: String,
    /// The names in Python, TypeScript, Go and Rust.
    names: [Vec<String>; 4],
    has_reason: bool,
}

fn call_rows() -> Vec<CallRow> {
    let (_, calls) = CLIENTS.split_once("\n## Calls\n").expect("the section");
    let calls = calls.split("\n## ").next().expect("its text");
    // Endpoints without a method in any client are in a list: `- `GET /path`, `GET /other`: the reason`.
    let lines = calls.lines().filter_map(|line| line.strip_prefix("- `")?.split_once("`: "));
    let without = lines.flat_map(|(endpoints, reason)| {
        let has_reason = !reason.trim().is_empty();
        endpoints.split("`, `").map(move |endpoint| CallRow {
            endpoint: endpoint.to_owned(),
            names: Default::default(),
            has_reason,
        })
    });
    let rows = calls.lines().filter_map(|line| line.strip_prefix("| `"));
    let with_methods = rows.map(|row| {
        let mut cells = row.split(" |");
        let endpoint = cells.next().expect("an endpoint").trim_end_matches('`').to_owned();
        let mut names = || {
            let cell = cells.next().expect("a client");
            let names: Vec<String> = inline_code(cell).into_iter().map(|(_, name)| name).collect();
            assert!(!names.is_empty() || cell == " —", "{endpoint}: {cell}");
            names
        };
        let names = [names(), names(), names(), names()];
        let has_reason = cells.next().is_some_and(|reason| !reason.trim().is_empty());
        CallRow { endpoint, names, has_reason }
    });
    with_methods.chain(without).collect()
}

fn source(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The sources with this extension in a folder.
fn sources(folder: &str, extension: &str) -> Vec<String> {
    let entries = fs::read_dir(root().join(folder)).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let paths = paths.filter(|path| path.extension() == Some(extension.as_ref()));
    paths.map(|path| fs::read_to_string(path).expect("a source")).collect()
}

/// The name at the beginning of a text.
fn name_at(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// The public methods of the client of Python, which are the same with and without asyncio.
fn python_methods() -> BTreeSet<String> {
    let source = source("clients/python/src/requeue_client/client.py");
    let methods = source.lines().filter_map(|line| line.strip_prefix("    def "));
    methods.map(name_at).filter(|name| !name.starts_with('_') && name != "close").collect()
}

/// The public methods of the client of TypeScript. All of them are async.
fn typescript_methods() -> BTreeSet<String> {
    let (mut methods, mut is_internal) = (BTreeSet::new(), false);
    for line in source("clients/typescript/src/client.ts").lines() {
        if line.trim_start().starts_with(['/', '*']) {
            is_internal |= line.contains("@internal");
            continue;
        }
        if let Some(method) = line.strip_prefix("  async ").filter(|_| !is_internal) {
            methods.insert(name_at(method.trim_start_matches('*')));
        }
        is_internal = false;
    }
    methods.remove(""); // The private ones begin with a `#`.
    methods
}

/// The exported methods of the client of Go.
fn go_methods() -> BTreeSet<String> {
    let sources = sources("clients/go", "go");
    let lines = sources.iter().flat_map(|source| source.lines());
    let methods = lines.filter_map(|line| line.strip_prefix("func (c *Client) "));
    methods.map(name_at).filter(|name| name.starts_with(char::is_uppercase)).collect()
}

/// The sources of the types that make up the client of Rust.
struct RustMethods {
    jobs: Vec<String>,
    http_store: Vec<String>,
    store: Vec<String>,
}

impl RustMethods {
    fn read() -> Self {
        let mut jobs = sources("crates/requeue-jobs/src/client", "rs");
        jobs.push(source("crates/requeue-jobs/src/client.rs"));
        RustMethods {
            jobs,
            http_store: sources("crates/requeue-http/src/client", "rs"),
            store: vec![source("crates/requeue-jobs/src/store.rs")],
        }
    }

    fn has(&self, name: &str) -> bool {
        let (sources, visibility) = match name.split_once("::") {
            Some(("Jobs", _)) => (&self.jobs, "pub "),
            Some(("HttpStore", _)) => (&self.http_store, "pub "),
            // The trait.
            Some(("Store", _)) => (&self.store, ""),
            _ => return false,
        };
        let method = name.split("::").nth(1).expect("it has two parts");
        let lines = sources.iter().flat_map(|source| source.lines());
        let mut methods =
            lines.filter_map(|line| line.strip_prefix("    ")?.strip_prefix(visibility));
        methods.any(|line| {
            let line = line.strip_prefix("async ").unwrap_or(line);
            line.strip_prefix("fn ").is_some_and(|rest| name_at(rest) == method)
        })
    }
}
