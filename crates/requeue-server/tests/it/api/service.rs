//! The OpenAPI document, problem explanations, health and readiness.

use crate::api::samples::{self, Sample, places};
use crate::api::support::Server;
use requeue_http::ProblemType;
use requeue_jobs::limits::{MAX_BATCH, MAX_RESTORED};
use requeue_server::Limits;
use requeue_server::listen::Options;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::{env, fs};

const METHODS: [&str; 5] = ["get", "put", "post", "patch", "delete"];

fn document() -> Value {
    Server::start().get("/v1/openapi.json").json()
}

/// Returns every operation of the document: path, method, description.
fn operations(document: &Value) -> Vec<(String, &'static str, &Value)> {
    let paths = document["paths"].as_object().expect("there are paths");
    let each = paths.iter().flat_map(|(path, item)| {
        METHODS.iter().filter_map(move |&method| Some((path.clone(), method, item.get(method)?)))
    });
    each.collect()
}

#[test]
fn the_document_is_valid() {
    let document = document();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1."), "{}", document["openapi"]);
    let tags: Vec<_> =
        document["tags"].as_array().unwrap().iter().map(|tag| &tag["name"]).collect();
    let mut ids = BTreeSet::new();
    for (path, method, operation) in operations(&document) {
        let id = operation["operationId"].as_str().unwrap_or_else(|| panic!("{method} {path}"));
        assert!(ids.insert(id), "{id} twice: {method} {path}");
        assert!(operation["summary"].is_string(), "{method} {path}");
        // Path templates and path parameters match.
        let of_path = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let of_path: BTreeSet<&str> = of_path.collect();
        let parameters = operation["parameters"].as_array().into_iter().flatten();
        let declared = parameters.filter(|parameter| parameter["in"] == "path");
        let declared: BTreeSet<&str> = declared.map(|one| one["name"].as_str().unwrap()).collect();
        assert_eq!(of_path, declared, "{method} {path}");
        let responses = operation["responses"].as_object().expect("it is answered");
        assert!(responses.keys().any(|status| status.starts_with('2')), "{method} {path}");
        let parameters = operation["parameters"].as_array().into_iter().flatten();
        for described in responses.values().chain(parameters) {
            let text = described["description"].as_str().unwrap_or_default();
            assert!(!text.is_empty(), "{method} {path}: {described}");
        }
        // Generators make names of methods of them. `import` alone is a keyword in many languages.
        let is_name = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase());
        assert!(id.contains('_') && id.split('_').all(is_name), "{id}");
        assert_eq!(operation["tags"].as_array().map(Vec::len), Some(1), "{method} {path}");
        assert!(tags.contains(&&operation["tags"][0]), "{method} {path}");
    }
    assert_eq!(document["servers"][0]["url"], "/");
    assert_eq!(document["components"]["securitySchemes"]["token"]["scheme"], "bearer");
    assert_eq!(document["security"], json!([{}, {"token": []}]));
    for name in references(&document) {
        let pointer = name.strip_prefix('#').expect("it is in the document");
        assert!(document.pointer(pointer).is_some(), "{name}");
    }
}

/// The models of the clients and the reference of the HTTP API are generated from the committed document.
#[test]
fn the_committed_document_is_what_the_server_returns() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../clients/openapi.json");
    let served = document();
    if env::var_os("UPDATE").is_some() {
        let text = serde_json::to_string_pretty(&served).expect("it is JSON");
        fs::write(path, text + "\n").expect("it can be written");
    }
    let committed = fs::read_to_string(path).expect("it is there");
    let committed: Value = serde_json::from_str(&committed).expect("it is JSON");
    assert!(committed == served, "clients/openapi.json is out of date: run scripts/generate");
}

#[test]
fn the_document_lists_all_problem_types() {
    let document = document();
    let listed = &document["components"]["schemas"]["ProblemType"];
    let uris: Vec<_> =
        ProblemType::all().map(|sort| format!("/v1/problems/{}", sort.name())).collect();
    assert_eq!(listed["enum"], json!(uris));
    let text = listed["description"].as_str().unwrap();
    for (sort, uri) in ProblemType::all().zip(uris) {
        let row = format!("- `{uri}`: {} (status {})", sort.title(), sort.status());
        assert!(text.lines().any(|line| line == row), "{row} is missing in\n{text}");
    }
    let used = &document["components"]["schemas"]["Problem"]["properties"]["type"]["anyOf"][0];
    assert_eq!(used["$ref"], "#/components/schemas/ProblemType");
}

#[test]
fn the_document_has_the_limits_of_a_restore() {
    let document = document();
    let fields = &document["components"]["schemas"]["RestoreRequest"]["properties"];
    for field in ["generation", "fence"] {
        assert_eq!(fields[field]["maximum"], MAX_RESTORED, "{field}");
    }
    assert_eq!(fields["jobs"]["maxItems"], MAX_BATCH);
}

fn references(value: &Value) -> Vec<&str> {
    match value {
        Value::Object(fields) => {
            let own = fields.get("$ref").and_then(Value::as_str);
            own.into_iter().chain(fields.values().flat_map(references)).collect()
        }
        Value::Array(values) => values.iter().flat_map(references).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn the_document_describes_all_fields_of_requests() {
    let document = document();
    for Sample { method, path, body, .. } in samples::all() {
        let path = path.replace("/kinds/samples", "/kinds/{kind}");
        let path = path.replace("/jobs/a", "/jobs/{id}").replace("/schedules/s", "/schedules/{id}");
        let content = &document["paths"][&path][method.to_lowercase()]["requestBody"]["content"];
        let schema = &content["application/json"]["schema"];
        assert!(fits(&document, schema, &body), "{method} {path}: {schema}");
        let mut more = body.clone();
        more["nonsense"] = json!(1);
        assert!(!fits(&document, schema, &more), "{method} {path}");
        for (_, pointer) in places(&body) {
            let mut more = body.clone();
            if let Some(Value::Object(fields)) = more.pointer_mut(&pointer)
                && !pointer.ends_with("/body")
            {
                fields.insert("nonsense".to_owned(), json!(1));
                assert!(!fits(&document, schema, &more), "{method} {path} {pointer}");
            }
        }
    }
}

/// Returns whether a value has the required fields of a schema and no unknown ones.
fn fits(document: &Value, schema: &Value, value: &Value) -> bool {
    if let Some(name) = schema["$ref"].as_str() {
        let schema = document.pointer(&name[1..]).expect("it is in the document");
        return fits(document, schema, value);
    }
    if let Some(either) = schema["oneOf"].as_array() {
        return either.iter().filter(|schema| fits(document, schema, value)).count() == 1;
    }
    let is = |name: &str| {
        schema["type"] == name
            || schema["type"].as_array().is_some_and(|types| types.iter().any(|one| one == name))
    };
    match value {
        Value::Null => schema.get("type").is_none() || is("null"),
        Value::Array(values) if is("array") => {
            values.iter().all(|value| fits(document, &schema["items"], value))
        }
        Value::Object(fields) if is("object") => {
            let required = schema["required"].as_array().into_iter().flatten();
            let mut required = required.filter_map(Value::as_str);
            let known = |(name, value): (&String, &Value)| {
                let schema = schema["properties"].get(name);
                schema.is_some_and(|schema| fits(document, schema, value))
            };
            required.all(|name| fields.contains_key(name)) && fields.iter().all(known)
        }
        Value::String(_) => schema.get("type").is_none() || is("string"),
        Value::Number(_) => schema.get("type").is_none() || is("integer"),
        Value::Bool(_) => schema.get("type").is_none() || is("boolean"),
        _ => schema.get("type").is_none(),
    }
}

#[test]
fn the_document_and_the_routes_match() {
    let server = Server::start();
    let document = document();
    let mut client = server.client();
    for (path, _, _) in operations(&document) {
        let sample = path.replace("{kind}", "k").replace("{id}", "i").replace("{name}", "bug");
        let item = &document["paths"][&path];
        for method in METHODS {
            // An event stream does not end.
            if sample == "/v1/events" && method == "get" {
                continue;
            }
            let response = client.call(&method.to_uppercase(), &sample, json!(null));
            if item.get(method).is_some() {
                // There may be no such job or schedule.
                let is_routed = response.status != 404 || !response.text().contains("no-such-path");
                assert!(is_routed, "{method} {path}");
                assert_ne!(response.status, 405, "{method} {path}");
            } else {
                response.is("wrong-method");
                let allowed = response.header("allow").expect("the allowed methods are listed");
                let allowed: BTreeSet<String> =
                    allowed.split(',').map(|method| method.trim().to_lowercase()).collect();
                let mut expected: BTreeSet<String> =
                    item.as_object().unwrap().keys().cloned().collect();
                if expected.contains("get") {
                    expected.insert("head".to_owned());
                }
                assert_eq!(allowed, expected, "{path}");
            }
        }
    }
}

#[test]
fn every_problem_is_explained() {
    let server = Server::start();
    let mut client = server.client();
    for sort in ProblemType::all() {
        let page = client.get(&format!("/v1/problems/{}", sort.name()));
        assert_eq!(page.status, 200);
        assert!(page.header("content-type").unwrap().starts_with("text/plain"));
        let status = format!("(status {})", sort.status());
        for part in [sort.name(), sort.title(), &status, sort.advice()] {
            assert!(page.text().contains(part), "{}: {part}", page.text());
        }
    }
    for name in ["nonsense", "%ff", "%00"] {
        let response = client.get(&format!("/v1/problems/{name}"));
        assert!(matches!(response.status, 400 | 404), "{name}");
        response.problem();
    }
}

#[test]
fn unknown_paths_are_named() {
    let server = Server::start();
    for path in ["/v1", "/v1/", "/v2/kinds", "/v1/kinds/", "/v1/kinds/mail/", "/v1/kinds//jobs"] {
        let problem = server.get(path).problem();
        assert!(problem["detail"].as_str().unwrap().len() > 10, "{problem}");
    }
    let problem = server.get("/v1/nothing?x=y").is("no-such-path");
    assert!(problem["detail"].as_str().unwrap().contains("/v1/nothing"), "{problem}");
}

#[test]
fn head_requests_get_no_body() {
    let server = Server::start();
    let mut client = server.client();
    server.call("PUT", "/v1/kinds/mail/jobs/a", json!({})).json();
    for path in [
        "/v1/kinds",
        "/v1/kinds/mail/jobs/a",
        "/v1/openapi.json",
        "/healthz",
        "/v1/export",
        "/metrics",
    ] {
        let head = client.call("HEAD", path, json!(null));
        assert_eq!((head.status, head.text()), (200, ""), "{path}");
        let get = client.get(path);
        assert_eq!(head.header("content-type"), get.header("content-type"), "{path}");
    }
    let head = client.call("HEAD", "/v1/kinds/mail/jobs/b", json!(null));
    assert_eq!(head.status, 404);
    assert_eq!(client.get("/healthz").text(), "ok\n");
}

#[test]
fn health_and_readiness_are_reported() {
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(client.get("/healthz").text(), "ok\n");
    assert_eq!(client.get("/readyz").text(), "ready\n");
    assert!(client.get("/").text().contains("/v1/openapi.json"));
    assert!(client.get("/metrics").text().contains("# TYPE"));
    assert_eq!(client.get("/v1/workers").json(), json!({"workers": []}));
    assert_eq!(server.get("/v1/kinds").json(), json!({"kinds": []}), "reading creates nothing");
}

#[test]
fn a_list_of_workers_shows_a_few_kinds_of_each() {
    let server = Server::start();
    let mut client = server.client();
    let kinds: Vec<_> = (0..100).map(|n| format!("k{n:02}")).collect();
    for worker in ["b", "a"] {
        let claim = json!({"kinds": kinds, "worker": worker, "max": 1});
        assert_eq!(client.call("POST", "/v1/claim", claim).status, 200);
    }
    let workers = client.get("/v1/workers").json();
    assert_eq!(
        (&workers["workers"][0]["name"], &workers["workers"][1]["name"]),
        (&json!("a"), &json!("b"))
    );
    assert_eq!(workers["workers"][0]["kinds"], json!(kinds[..16]));
}

#[test]
fn metrics_of_many_kinds_are_bounded() {
    let mut limits = Limits::default();
    limits.metrics_kinds = 2;
    let server = Server::with(limits, Options::default());
    let mut client = server.client();
    let put = |n: usize| json!({"kind": format!("k{n}"), "id": "a"});
    let jobs: Vec<_> = (0..1000).map(put).collect();
    client.call("POST", "/v1/put", json!({ "jobs": jobs })).results();
    let metrics = client.get("/metrics");
    let text = metrics.text();
    for line in [
        r#"requeue_jobs{kind="k0",state="pending"} 1"#,
        r#"requeue_jobs{kind="(other)",state="pending"} 998"#,
        r#"requeue_puts_total{kind="(other)",outcome="created"} 998"#,
        "requeue_kinds_without_label 998",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
    }
    assert!(!text.contains(r#"kind="k2""#));
    assert!(text.len() < 100_000, "{} bytes", text.len());
}
