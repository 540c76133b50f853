//! The reference pages are complete: every path, problem, metric and option is on its page.

use super::page::{Block, Example};
use crate::support::{Dir, Server};
use requeue_http::ProblemType;
use requeue_testkit::servers::PostgresServer;
use serde_json::Value;

const HTTP_API: &str = include_str!("../../../../../docs/http-api.md");
const OPERATIONS: &str = include_str!("../../../../../docs/operations.md");

#[test]
fn the_page_has_an_example_of_every_path_and_every_problem() {
    let dir = Dir::new();
    let server = Server::start(&dir, &[]);
    let document = dir.http_body(&server.url, "/v1/openapi.json");
    let document: Value = serde_json::from_str(&document).expect("it is JSON");
    let paths = document["paths"].as_object().expect("it has paths");
    assert!(paths.len() > 30, "{document}");
    let blocks = Block::all(HTTP_API).expect("the page can be read");
    let blocks = blocks.iter().filter(|block| matches!(&*block.language, "console" | "text"));
    let examples: Vec<_> = blocks.flat_map(Block::examples).collect();
    for (path, methods) in paths {
        assert!(HTTP_API.contains(&format!("{path}`")), "{path} is not in the table of the page");
        for method in methods.as_object().expect("it has methods").keys() {
            let is_shown = examples.iter().any(|example| requests(example, method, path));
            assert!(is_shown, "there is no example of {method} {path}");
        }
    }
    for sort in ProblemType::all() {
        let row = format!("| `{}` | {} |", sort.name(), sort.status());
        assert!(HTTP_API.contains(&row), "{row} is not on the page");
    }
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
