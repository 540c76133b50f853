//! The OpenAPI document, generated from the request types. Some types are used at several paths
//! with different fields: here each path gets its own schema.

mod problem_types;

use serde_json::{Value, json};
use utoipa::openapi::OpenApi;

/// The schema of a request body at some paths.
struct RequestSchema {
    /// The name of the schema.
    name: &'static str,
    /// The general schema that it is derived from.
    of: &'static str,
    /// The fields that are allowed.
    fields: &'static [&'static str],
    /// The fields that are required here, but not in the general schema.
    required: &'static [&'static str],
    /// For batches: the schema of the batch, and its only field.
    batch: Option<(&'static str, &'static str)>,
    paths: &'static [&'static str],
}

const PUT: [&str; 14] = [
    "kind",
    "id",
    "body",
    "body_text",
    "body_base64",
    "content_type",
    "due",
    "delay",
    "priority",
    "mode",
    "max_wait",
    "if_absent",
    "if_new",
    "if_generation",
];

const PUTS: Option<(&str, &str)> = Some(("PutBatch", "jobs"));
const LEASES: Option<(&str, &str)> = Some(("SettleBatch", "leases"));

const SCHEMAS: [RequestSchema; 10] = [
    RequestSchema {
        name: "PutJob",
        of: "PutRequest",
        fields: PUT.split_at(2).1,
        required: &[],
        batch: None,
        paths: &["/v1/kinds/{kind}/jobs/{id}"],
    },
    RequestSchema {
        name: "PutKindJob",
        of: "PutRequest",
        fields: PUT.split_at(1).1,
        required: &["id"],
        batch: PUTS,
        paths: &["/v1/kinds/{kind}/jobs"],
    },
    RequestSchema {
        name: "PutAnyJob",
        of: "PutRequest",
        fields: &PUT,
        required: &["kind", "id"],
        batch: PUTS,
        paths: &["/v1/put"],
    },
    RequestSchema {
        name: "AnyLease",
        of: "SettleLease",
        fields: &["receipt", "how", "result", "error", "delay", "lease"],
        required: &["how"],
        batch: LEASES,
        paths: &["/v1/settle"],
    },
    RequestSchema {
        name: "AckLease",
        of: "SettleLease",
        fields: &["receipt", "result"],
        required: &[],
        batch: LEASES,
        paths: &["/v1/ack"],
    },
    RequestSchema {
        name: "OnlyLease",
        of: "SettleLease",
        fields: &["receipt"],
        required: &[],
        batch: LEASES,
        paths: &["/v1/release"],
    },
    RequestSchema {
        name: "RetryLease",
        of: "SettleLease",
        fields: &["receipt", "error", "delay"],
        required: &[],
        batch: LEASES,
        paths: &["/v1/retry"],
    },
    RequestSchema {
        name: "BuryLease",
        of: "SettleLease",
        fields: &["receipt", "error"],
        required: &[],
        batch: LEASES,
        paths: &["/v1/bury"],
    },
    RequestSchema {
        name: "RequeueLease",
        of: "SettleLease",
        fields: &["receipt", "delay"],
        required: &["delay"],
        batch: LEASES,
        paths: &["/v1/requeue"],
    },
    RequestSchema {
        name: "ExtendLease",
        of: "SettleLease",
        fields: &["receipt", "lease"],
        required: &[],
        batch: LEASES,
        paths: &["/v1/extend"],
    },
];

/// General schemas that no path uses directly.
const GENERAL: [&str; 5] = ["PutRequest", "PutBatch", "SettleLease", "SettleBatch", "ChangeIds"];

/// Returns the document as JSON.
pub(super) fn text(document: &OpenApi) -> String {
    let mut document = serde_json::to_value(document).expect("the document can be serialized");
    for shape in &SCHEMAS {
        let narrowed = narrowed(&document["components"]["schemas"][shape.of], shape);
        document["components"]["schemas"][shape.name] = narrowed;
        let mut sent = shape.name.to_owned();
        if let Some((batch, list)) = shape.batch {
            let mut batch = document["components"]["schemas"][batch].clone();
            batch["properties"][list]["items"] = reference(shape.name);
            sent += "s";
            document["components"]["schemas"][&sent] = batch;
        }
        for path in shape.paths {
            let method = if shape.batch.is_some() { "post" } else { "put" };
            *request(&mut document, path, method) = reference(&sent);
        }
    }
    changes(&mut document);
    names(&mut document);
    problem_types::add(&mut document);
    let schemas = document["components"]["schemas"].as_object_mut().expect("there are schemas");
    schemas.retain(|name, _| !GENERAL.contains(&&**name));
    document.to_string()
}

/// Returns the schema with only the fields of `shape`.
fn narrowed(schema: &Value, shape: &RequestSchema) -> Value {
    let mut narrowed = schema.clone();
    let properties = narrowed["properties"].as_object_mut().expect("it is an object");
    properties.retain(|name, _| shape.fields.contains(&&**name));
    debug_assert_eq!(properties.len(), shape.fields.len(), "{}", shape.name);
    for name in shape.required {
        let property = &mut properties[*name];
        // A required field is not null.
        match property.get("oneOf") {
            Some(either) => *property = either[0].clone(),
            None => property["type"] = property["type"][0].clone(),
        }
    }
    if !shape.required.is_empty() {
        let before = narrowed["required"].as_array().into_iter().flatten().cloned();
        let required = before.chain(shape.required.iter().map(|&name| name.into()));
        narrowed["required"] = required.collect();
    }
    narrowed
}

/// A request changes jobs of a kind either by id or by filter.
fn changes(document: &mut Value) {
    let mut some = document["components"]["schemas"]["ChangeIds"].clone();
    let mut matching = some.clone();
    for (schema, only, required) in
        [(&mut some, &["ids"][..], "ids"), (&mut matching, &["all", "after", "limit"], "all")]
    {
        let properties = schema["properties"].as_object_mut().expect("it is an object");
        properties.retain(|name, _| only.contains(&&**name));
        schema["required"] = json!([required]);
    }
    some["properties"]["ids"]["type"] = json!("array");
    some["properties"]["ids"]["items"] = id();
    matching["properties"]["all"] = matching["properties"]["all"]["oneOf"][0].clone();
    document["components"]["schemas"]["SomeJobs"] = some;
    document["components"]["schemas"]["MatchingJobs"] = matching;
    for verb in ["cancel", "run-now", "revive"] {
        let either = json!({"oneOf": [reference("SomeJobs"), reference("MatchingJobs")]});
        *request(document, &format!("/v1/kinds/{{kind}}/{verb}"), "post") = either;
    }
}

/// Kinds in lists have the same pattern as elsewhere.
fn names(document: &mut Value) {
    let kind = json!({"type": "string", "maxLength": 128, "pattern": "^[A-Za-z0-9._-]+$"});
    for schema in ["ClaimRequest", "WaitRequest"] {
        document["components"]["schemas"][schema]["properties"]["kinds"]["items"] = kind.clone();
    }
}

fn id() -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": 512})
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// Returns the schema of the request body at a path.
fn request<'a>(document: &'a mut Value, path: &str, method: &str) -> &'a mut Value {
    &mut document["paths"][path][method]["requestBody"]["content"]["application/json"]["schema"]
}
