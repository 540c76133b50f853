//! Reads the jobs of responses, and ignores unknown fields.
//!
//! The types of [`wire`](crate::wire) that are also sent in requests reject unknown fields, so that a
//! typing error is noticed. In a response, a newer server may send fields that this client does not
//! know.

use crate::wire::{
    DoneJson, FailureJson, JobJson, LeaseJson, ResultJson, StateJson, SuccessorJson, any_json,
};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// A job, with unknown fields ignored.
#[derive(Deserialize)]
pub(super) struct LenientJob(#[serde(with = "AnyJob")] pub(super) JobJson);

/// A page of jobs, with unknown fields ignored.
#[derive(Deserialize)]
pub(super) struct LenientPage {
    pub(super) jobs: Vec<LenientJob>,
    pub(super) cursor: Option<String>,
}

#[derive(Deserialize)]
#[serde(remote = "JobJson")]
struct AnyJob {
    kind: String,
    id: String,
    state: StateJson,
    #[serde(default, deserialize_with = "any_json")]
    body: Option<Box<RawValue>>,
    #[serde(default)]
    body_text: Option<String>,
    #[serde(default)]
    body_base64: Option<String>,
    #[serde(default)]
    body_bytes: Option<usize>,
    content_type: String,
    due: String,
    #[serde(default)]
    priority: u8,
    generation: u64,
    attempts: u32,
    #[serde(default, deserialize_with = "lease")]
    lease: Option<LeaseJson>,
    #[serde(default, deserialize_with = "next")]
    next: Option<SuccessorJson>,
    #[serde(default, deserialize_with = "failures")]
    failures: Vec<FailureJson>,
    #[serde(default)]
    deaths: u32,
    #[serde(default)]
    died_at: Option<String>,
    #[serde(default, deserialize_with = "done")]
    done: Option<DoneJson>,
    created_at: String,
    updated_at: String,
}

#[derive(Deserialize)]
#[serde(remote = "LeaseJson")]
struct AnyLease {
    worker: String,
    claimed_at: String,
    ends_at: String,
    #[serde(default)]
    cancelled: bool,
    #[serde(default)]
    fence: u64,
}

#[derive(Deserialize)]
#[serde(remote = "SuccessorJson")]
struct AnySuccessor {
    #[serde(default, deserialize_with = "any_json")]
    body: Option<Box<RawValue>>,
    #[serde(default)]
    body_text: Option<String>,
    #[serde(default)]
    body_base64: Option<String>,
    #[serde(default)]
    body_bytes: Option<usize>,
    content_type: String,
    due: String,
    #[serde(default)]
    priority: u8,
    generation: u64,
}

#[derive(Deserialize)]
#[serde(remote = "DoneJson")]
struct AnyDone {
    worker: String,
    started_at: String,
    done_at: String,
    #[serde(default, deserialize_with = "result")]
    result: Option<ResultJson>,
}

#[derive(Deserialize)]
#[serde(remote = "ResultJson")]
struct AnyResult {
    #[serde(default, deserialize_with = "any_json")]
    body: Option<Box<RawValue>>,
    #[serde(default)]
    body_text: Option<String>,
    #[serde(default)]
    body_base64: Option<String>,
    #[serde(default)]
    body_bytes: Option<usize>,
    #[serde(default)]
    content_type: Option<String>,
}

#[derive(Deserialize)]
#[serde(remote = "FailureJson")]
struct AnyFailure {
    worker: String,
    started_at: String,
    ended_at: String,
    error: Option<String>,
}

fn lease<'de, D: Deserializer<'de>>(input: D) -> Result<Option<LeaseJson>, D::Error> {
    #[derive(Deserialize)]
    struct Lenient(#[serde(with = "AnyLease")] LeaseJson);
    Ok(Option::<Lenient>::deserialize(input)?.map(|Lenient(lease)| lease))
}

fn next<'de, D: Deserializer<'de>>(input: D) -> Result<Option<SuccessorJson>, D::Error> {
    #[derive(Deserialize)]
    struct Lenient(#[serde(with = "AnySuccessor")] SuccessorJson);
    Ok(Option::<Lenient>::deserialize(input)?.map(|Lenient(next)| next))
}

fn done<'de, D: Deserializer<'de>>(input: D) -> Result<Option<DoneJson>, D::Error> {
    #[derive(Deserialize)]
    struct Lenient(#[serde(with = "AnyDone")] DoneJson);
    Ok(Option::<Lenient>::deserialize(input)?.map(|Lenient(done)| done))
}

fn result<'de, D: Deserializer<'de>>(input: D) -> Result<Option<ResultJson>, D::Error> {
    #[derive(Deserialize)]
    struct Lenient(#[serde(with = "AnyResult")] ResultJson);
    Ok(Option::<Lenient>::deserialize(input)?.map(|Lenient(result)| result))
}

fn failures<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<FailureJson>, D::Error> {
    #[derive(Deserialize)]
    struct Lenient(#[serde(with = "AnyFailure")] FailureJson);
    Ok(Vec::<Lenient>::deserialize(input)?.into_iter().map(|Lenient(failure)| failure).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Adds an unknown field to every object.
    fn with_unknown_fields(mut value: Value) -> Value {
        match &mut value {
            Value::Object(fields) => {
                fields.values_mut().for_each(|field| *field = with_unknown_fields(field.take()));
                fields.insert("unknown_field".to_owned(), json!({"a": [1]}));
            }
            Value::Array(items) => {
                items.iter_mut().for_each(|item| *item = with_unknown_fields(item.take()))
            }
            _ => {}
        }
        value
    }

    #[test]
    fn unknown_fields_of_a_newer_server_are_ignored() {
        let job = json!({
            "kind": "mail", "id": "a", "state": "leased", "body_text": "hello",
            "content_type": "text/plain", "due": "2026-12-01T08:00:00.000Z", "generation": 1,
            "attempts": 1, "deaths": 0, "died_at": "2026-12-01T08:00:00.000Z",
            "lease": {
                "worker": "w", "claimed_at": "2026-12-01T08:00:00.000Z",
                "ends_at": "2026-12-01T08:00:30.000Z", "cancelled": false, "fence": 7,
            },
            "next": {
                "body": null, "content_type": "application/json",
                "due": "2026-12-01T08:00:00.000Z", "generation": 2,
            },
            "failures": [{
                "worker": "w", "started_at": "2026-12-01T07:00:00.000Z",
                "ended_at": "2026-12-01T07:00:30.000Z", "error": null,
            }],
            "created_at": "2026-12-01T07:00:00.000Z", "updated_at": "2026-12-01T08:00:00.000Z",
        });
        let page = with_unknown_fields(json!({"jobs": [job], "cursor": "a"})).to_string();
        let page: LenientPage = serde_json::from_str(&page).unwrap();
        assert_eq!(page.cursor.as_deref(), Some("a"));
        assert_eq!(serde_json::to_value(&page.jobs[0].0).unwrap(), job);
    }
}
