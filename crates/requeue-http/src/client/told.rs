//! Jobs and schedules as a server tells them.
//!
//! What is also sent is read strictly, so that a slip of the pen is refused. An answer must not be:
//! a newer server may tell more, and a client that cannot ask it any more is of no use.

use crate::wire::{Failure, Job, Lease, MissedText, Next, ScheduleText, State};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// A job, whatever else is told of it.
#[derive(Deserialize)]
pub(super) struct ToldJob(#[serde(with = "AnyJob")] pub(super) Job);

/// A page of them.
#[derive(Deserialize)]
pub(super) struct ToldPage {
    pub(super) jobs: Vec<ToldJob>,
    pub(super) cursor: Option<String>,
}

/// A schedule, whatever else is told of it.
#[derive(Deserialize)]
pub(super) struct ToldSchedule(#[serde(with = "AnySchedule")] pub(super) ScheduleText);

/// All of a kind.
#[derive(Deserialize)]
pub(super) struct ToldSchedules {
    pub(super) schedules: Vec<ToldSchedule>,
}

#[derive(Deserialize)]
#[serde(remote = "Job")]
struct AnyJob {
    kind: String,
    id: String,
    state: State,
    #[serde(default, deserialize_with = "any_json")]
    body: Option<Box<RawValue>>,
    #[serde(default)]
    body_text: Option<String>,
    #[serde(default)]
    body_base64: Option<String>,
    content_type: String,
    due: String,
    generation: u64,
    attempts: u32,
    #[serde(default, deserialize_with = "lease")]
    lease: Option<Lease>,
    #[serde(default, deserialize_with = "next")]
    next: Option<Next>,
    #[serde(default, deserialize_with = "failures")]
    failures: Vec<Failure>,
    #[serde(default)]
    deaths: u32,
    #[serde(default)]
    died_at: Option<String>,
    created_at: String,
    updated_at: String,
}

#[derive(Deserialize)]
#[serde(remote = "Lease")]
struct AnyLease {
    worker: String,
    claimed_at: String,
    ends_at: String,
    #[serde(default)]
    cancelled: bool,
}

#[derive(Deserialize)]
#[serde(remote = "Next")]
struct AnyNext {
    #[serde(default, deserialize_with = "any_json")]
    body: Option<Box<RawValue>>,
    #[serde(default)]
    body_text: Option<String>,
    #[serde(default)]
    body_base64: Option<String>,
    content_type: String,
    due: String,
    generation: u64,
}

#[derive(Deserialize)]
#[serde(remote = "Failure")]
struct AnyFailure {
    worker: String,
    started_at: String,
    ended_at: String,
    error: Option<String>,
}

#[derive(Deserialize)]
#[serde(remote = "ScheduleText")]
struct AnySchedule {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    when: String,
    #[serde(default)]
    time_zone: String,
    #[serde(default, deserialize_with = "any_json")]
    body: Option<Box<RawValue>>,
    #[serde(default)]
    body_text: Option<String>,
    #[serde(default)]
    body_base64: Option<String>,
    #[serde(default)]
    content_type: Option<String>,
    #[serde(default)]
    missed: MissedText,
    next: String,
}

/// `null` is a body, too.
fn any_json<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(input).map(Some)
}

fn lease<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Lease>, D::Error> {
    #[derive(Deserialize)]
    struct Told(#[serde(with = "AnyLease")] Lease);
    Ok(Option::<Told>::deserialize(input)?.map(|Told(lease)| lease))
}

fn next<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Next>, D::Error> {
    #[derive(Deserialize)]
    struct Told(#[serde(with = "AnyNext")] Next);
    Ok(Option::<Told>::deserialize(input)?.map(|Told(next)| next))
}

fn failures<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<Failure>, D::Error> {
    #[derive(Deserialize)]
    struct Told(#[serde(with = "AnyFailure")] Failure);
    Ok(Vec::<Told>::deserialize(input)?.into_iter().map(|Told(failure)| failure).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// The same, of a server that tells more everywhere.
    fn newer(mut value: Value) -> Value {
        match &mut value {
            Value::Object(fields) => {
                fields.values_mut().for_each(|field| *field = newer(field.take()));
                fields.insert("of_tomorrow".to_owned(), json!({"a": [1]}));
            }
            Value::Array(items) => items.iter_mut().for_each(|item| *item = newer(item.take())),
            _ => {}
        }
        value
    }

    #[test]
    fn what_a_newer_server_tells_besides_is_passed_over() {
        let job = json!({
            "kind": "mail", "id": "a", "state": "leased", "body_text": "hello",
            "content_type": "text/plain", "due": "2026-12-01T08:00:00.000Z", "generation": 1,
            "attempts": 1, "deaths": 0, "died_at": "2026-12-01T08:00:00.000Z",
            "lease": {
                "worker": "w", "claimed_at": "2026-12-01T08:00:00.000Z",
                "ends_at": "2026-12-01T08:00:30.000Z", "cancelled": false,
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
        let page = newer(json!({"jobs": [job], "cursor": "a"})).to_string();
        let page: ToldPage = serde_json::from_str(&page).unwrap();
        assert_eq!(page.cursor.as_deref(), Some("a"));
        assert_eq!(serde_json::to_value(&page.jobs[0].0).unwrap(), job);

        let schedule = json!({
            "id": "s", "when": "0 6 * * *", "time_zone": "UTC", "body": [1],
            "content_type": "application/json", "missed": "skip",
            "next": "2026-12-01T08:00:00.000Z",
        });
        let told = newer(json!({"schedules": [schedule]})).to_string();
        let told: ToldSchedules = serde_json::from_str(&told).unwrap();
        assert_eq!(serde_json::to_value(&told.schedules[0].0).unwrap(), schedule);
    }
}
