//! The OpenAPI document, generated from the request types. Some types are used at several paths
//! with different fields: here each path gets its own schema.

mod problem_types;

use serde_json::{Value, json};
use utoipa::openapi::OpenApi;

/// The schema of the request body at a path.
struct RequestSchema {
    /// The name of the schema.
    name: &'static str,
    /// The general schema that it is derived from.
    of: &'static str,
    /// The fields that are not allowed.
    without: &'static [&'static str],
    /// The fields that are required here, but not in the general schema.
    required: &'static [&'static str],
    /// For batches: the schema of the batch, and its only field.
    batch: Option<(&'static str, &'static str)>,
    path: &'static str,
}

const PUTS: Option<(&str, &str)> = Some(("PutBatch", "jobs"));
const LEASES: Option<(&str, &str)> = Some(("SettleBatch", "leases"));

const SCHEMAS: [RequestSchema; 10] = [
    RequestSchema {
        name: "PutJob",
        of: "PutRequest",
        without: &["kind", "id"],
        required: &[],
        batch: None,
        path: "/v1/kinds/{kind}/jobs/{id}",
    },
    RequestSchema {
        name: "PutKindJob",
        of: "PutRequest",
        without: &["kind"],
        required: &["id"],
        batch: PUTS,
        path: "/v1/kinds/{kind}/jobs",
    },
    RequestSchema {
        name: "PutAnyJob",
        of: "PutRequest",
        without: &[],
        required: &["kind", "id"],
        batch: PUTS,
        path: "/v1/put",
    },
    RequestSchema {
        name: "AnyLease",
        of: "SettleLease",
        without: &[],
        required: &["how"],
        batch: LEASES,
        path: "/v1/settle",
    },
    RequestSchema {
        name: "AckLease",
        of: "SettleLease",
        without: &["how", "error", "delay", "lease"],
        required: &[],
        batch: LEASES,
        path: "/v1/ack",
    },
    RequestSchema {
        name: "OnlyLease",
        of: "SettleLease",
        without: &["how", "result", "error", "delay", "lease"],
        required: &[],
        batch: LEASES,
        path: "/v1/release",
    },
    RequestSchema {
        name: "RetryLease",
        of: "SettleLease",
        without: &["how", "result", "lease"],
        required: &[],
        batch: LEASES,
        path: "/v1/retry",
    },
    RequestSchema {
        name: "BuryLease",
        of: "SettleLease",
        without: &["how", "result", "delay", "lease"],
        required: &[],
        batch: LEASES,
        path: "/v1/bury",
    },
    RequestSchema {
        name: "RequeueLease",
        of: "SettleLease",
        without: &["how", "result", "error", "lease"],
        required: &["delay"],
        batch: LEASES,
        path: "/v1/requeue",
    },
    RequestSchema {
        name: "ExtendLease",
        of: "SettleLease",
        without: &["how", "result", "error", "delay"],
        required: &[],
        batch: LEASES,
        path: "/v1/extend",
    },
];

/// General schemas that no path uses directly.
const GENERAL: [&str; 7] = [
    "PutRequest",
    "PutBatch",
    "SettleLease",
    "SettleBatch",
    "ChangeIds",
    "TimeText",
    "DurationText",
];

/// Returns the document as JSON.
pub(super) fn text(document: &OpenApi) -> String {
    let mut document = serde_json::to_value(document).expect("the document can be serialized");
    tidy(&mut document);
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
        let method = if shape.batch.is_some() { "post" } else { "put" };
        *request(&mut document, shape.path, method) = reference(&sent);
    }
    changes(&mut document);
    names(&mut document);
    problem_types::add(&mut document);
    let schemas = document["components"]["schemas"].as_object_mut().expect("there are schemas");
    schemas.retain(|name, _| !GENERAL.contains(&&**name));
    document.to_string()
}

/// Returns the schema without the fields that `shape` does not allow.
fn narrowed(schema: &Value, shape: &RequestSchema) -> Value {
    let mut narrowed = schema.clone();
    let properties = narrowed["properties"].as_object_mut().expect("it is an object");
    for name in shape.without {
        properties.remove(*name).expect("it is a field of the general schema");
    }
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

/// The schemas of times and durations, which are texts with a format. The formats are ours: `time` and
/// `duration` of JSON Schema are other texts, which validators would demand.
const TEXTS: [(&str, &str); 2] = [
    ("#/components/schemas/TimeText", "time-text"),
    ("#/components/schemas/DurationText", "duration-text"),
];

/// Replaces references to the schemas of times and durations by these schemas: client generators make
/// a type of each schema with a name. Removes what says nothing: the defaults `null` and `false`, and spaces around
/// descriptions.
fn tidy(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(tidy),
        Value::Object(fields) => {
            fields.values_mut().for_each(tidy);
            fields.retain(|name, value| {
                name != "default" || !(value.is_null() || *value == json!(false))
            });
            if let Some(Value::String(text)) = fields.get_mut("description") {
                *text = text.trim().to_owned();
            }
            let target = fields.get("$ref").and_then(Value::as_str);
            if let Some((_, format)) = TEXTS.iter().find(|(name, _)| Some(*name) == target) {
                fields.remove("$ref");
                fields.extend([("type".into(), json!("string")), ("format".into(), json!(format))]);
            }
            // One that can also be null.
            let either = fields.get("oneOf").and_then(Value::as_array);
            let text =
                either.and_then(|either| either.iter().find(|one| one["format"].is_string()));
            if let Some(Value::Object(mut text)) = text.cloned() {
                text.insert("type".to_owned(), json!(["string", "null"]));
                fields.remove("oneOf");
                fields.append(&mut text);
            }
        }
        _ => {}
    }
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
