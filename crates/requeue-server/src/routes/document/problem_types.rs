//! The problem types in the OpenAPI document: a client can compare its list with this one.

use super::reference;
use requeue_http::{Problem, ProblemType};
use serde_json::{Value, json};

/// Adds the schema `ProblemType`, which lists all types, and refers to it.
pub(super) fn add(document: &mut Value) {
    let types: Vec<_> = ProblemType::all().collect();
    let uris: Vec<_> = types.iter().map(|kind| Problem::new(*kind, "").type_uri).collect();
    let names: Vec<_> = types.iter().map(|kind| kind.name()).collect();
    let rows = types.iter().map(|kind| {
        let (name, status, title) = (kind.name(), kind.status(), kind.title());
        format!("- `/v1/problems/{name}`: {title} (status {status})")
    });
    let heading = "The types of problems that this version of the server reports:".to_owned();
    let description: Vec<_> = std::iter::once(heading).chain(rows).collect();
    let schemas = &mut document["components"]["schemas"];
    schemas["ProblemType"] = json!({
        "type": "string",
        "description": description.join("\n"),
        "enum": uris,
        "x-enum-varnames": names,
    });
    // A later version may report other types: a client must not reject them.
    let of_problem = &mut schemas["Problem"]["properties"]["type"];
    let text = of_problem["description"].as_str().unwrap_or_default();
    *of_problem = json!({
        "description": format!("{text} Later versions may add types: then decide by `status`."),
        "anyOf": [reference("ProblemType"), {"type": "string"}],
    });
    let parameters = &mut document["paths"]["/v1/problems/{name}"]["get"]["parameters"];
    parameters[0]["schema"]["examples"] = json!(names);
}
