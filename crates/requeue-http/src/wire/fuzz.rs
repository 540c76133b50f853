//! Valid requests and responses, mutated at random: reading them never panics, and an error of a
//! request names its field.

use super::*;
use crate::problem::Problem;
use requeue_jobs::{Kind, Timestamp};
use requeue_testkit::{Random, check_seeds};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Number of mutated texts per seed and type.
const ROUNDS: usize = 20;

/// Longest text of an error. Values that it repeats are cut.
const MAX_DETAIL: usize = 4000;

/// Reads JSON of one type, and returns the problems with it. `None` if serde rejects its shape.
type Read = fn(&str) -> Option<Vec<Problem>>;

fn context() -> ParseContext {
    ParseContext { now: Timestamp::from_millis(1_790_000_000_000) }
}

fn kind() -> Kind {
    Kind::new("mail").expect("a valid kind")
}

fn parsed<T: DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_str::<JsonObject<T>>(text).ok().map(|JsonObject(value)| value)
}

fn problems<T>(results: impl IntoIterator<Item = Result<T, Problem>>) -> Option<Vec<Problem>> {
    Some(results.into_iter().filter_map(Result::err).collect())
}

fn entries<J, T>(
    list: &str,
    entries: Vec<J>,
    read: impl Fn(J) -> Result<T, Problem>,
) -> Option<Vec<Problem>> {
    Some(errors(BatchErrors::read(list, entries, read).1))
}

fn errors(errors: BatchErrors) -> Vec<Problem> {
    let results = errors.join(std::iter::repeat_with(|| Ok::<_, Problem>(()))).results;
    results.into_iter().filter_map(|result| result.into_result().err()).collect()
}

/// A valid value of each type that a server reads, and how it is read.
fn requests() -> Vec<(Value, Read)> {
    let put = json!({
        "kind": "mail", "id": "a", "body": {"a": [1.50]}, "content_type": "application/json",
        "delay": "1h", "mode": "debounce", "max_wait": "2h", "if_absent": false,
        "if_generation": null,
    });
    let time = "2026-12-01T08:00:00.000Z";
    let job = json!({
        "kind": "mail", "id": "a", "state": "leased", "body": 1,
        "content_type": "application/json", "due": time, "generation": 1, "attempts": 1,
        "lease": {"worker": "w", "claimed_at": time, "ends_at": time, "cancelled": false},
        "next": {"body_text": "x", "content_type": "text/plain", "due": time, "generation": 2},
        "failures": [{"worker": "w", "started_at": time, "ended_at": time, "error": "e"}],
        "deaths": 0, "died_at": null, "created_at": time, "updated_at": time,
    });
    let reschedule = json!({
        "delay": "1h", "priority": 3, "body_text": "x", "content_type": "text/plain",
        "if_generation": 7,
    });
    let lease = |how: &str| json!({"receipt": "1f.a.mail/a", "how": how});
    let mut retry = lease("retry");
    (retry["error"], retry["delay"]) = (json!("no"), json!("5m"));
    let mut extend = lease("extend");
    extend["lease"] = json!("30s");
    vec![
        (put.clone(), |text| problems([parsed::<PutRequest>(text)?.read(None, None, &context())])),
        (json!({"jobs": [put]}), |text| {
            let batch = parsed::<PutBatch>(text)?.jobs;
            entries("jobs", batch, |put: PutRequest| put.read(None, None, &context()))
        }),
        (json!({"leases": [lease("ack"), retry, extend]}), |text| {
            let batch = parsed::<SettleBatch>(text)?.leases;
            entries("leases", batch, |lease: SettleLease| lease.read(None, &context()))
        }),
        (
            json!({"jobs": [{"kind": "mail", "id": "a", "what": "run-now"},
                   {"kind": "mail", "id": "a", "what": "reschedule", "set": reschedule}]}),
            |text| {
                let batch = parsed::<ChangeBatch>(text)?.jobs;
                entries("jobs", batch, |change: ChangeEntry| change.read(&context()))
            },
        ),
        (reschedule.clone(), |text| {
            problems([parsed::<RescheduleRequest>(text)?.read(&context())])
        }),
        (
            json!({"ids": ["a"], "all": {"state": "dead", "prefix": "x", "priority": 7,
                   "error": "y", "error_group": "z", "expired": true, "died_before": "1h ago"}, "after": "a", "limit": 10}),
            |text| {
                let all = parsed::<ChangeIds>(text)?.all.unwrap_or_default();
                problems([all.read(&context())])
            },
        ),
        (
            json!({"kinds": ["mail"], "worker": "w", "max": 10, "lease": "1m", "wait": "1s",
                   "nonce": "ff"}),
            |text| problems([parsed::<ClaimRequest>(text)?.read(7)]),
        ),
        (json!({"kinds": ["mail"], "wait": "0s"}), |text| {
            problems([parsed::<WaitRequest>(text)?.read()])
        }),
        (json!({"generation": 2, "fence": 2, "jobs": [job]}), |text| {
            Some(errors(parsed::<RestoreRequest>(text)?.read(kind(), &context()).1))
        }),
        (json!({"max": 10}), |text| parsed::<ReapRequest>(text).map(|_| Vec::new())),
        (
            json!({"lease": "30s", "backoff": {"base": "1s", "max": "1h", "jitter_percent": 20},
                   "max_attempts": 20, "concurrency": 7, "paused": false,
                   "retention": {"age": "7d", "count": 100}}),
            |text| {
                let patch = parsed::<SettingsPatch>(text)?;
                problems([patch.apply(requeue_jobs::Settings::default())])
            },
        ),
        (
            json!({"cron": "0 6 * * *", "time_zone": "UTC", "body": 1, "missed": "one",
                   "content_type": "application/json", "priority": 3, "jitter": "30s",
                   "catch_up": "1d", "overlap": "allow", "paused": false,
                   "starts_at": "tomorrow UTC", "ends_at": "in 9d"}),
            |text| problems([parsed::<ScheduleRequest>(text)?.create(&context())]),
        ),
        (json!({"every": "90s", "paused": null, "body_text": "x"}), |text| {
            let present = requeue_jobs::ScheduleSpec::cron("@daily", "UTC");
            problems([parsed::<ScheduleRequest>(text)?.change(present, &context())])
        }),
    ]
}

/// A valid value of each type that a client reads. Their errors need not name a field.
fn responses() -> Vec<(Value, Read)> {
    let time = "2026-12-01T08:00:00.000Z";
    let settings = json!({
        "lease": "30s", "backoff": {"base": "1s", "max": "1h", "jitter_percent": 20},
        "max_attempts": 20, "concurrency": null, "paused": false,
        "retention": {"age": "7d", "count": 100},
    });
    let claimed = json!({
        "receipt": "1f.a.mail/a", "kind": "mail", "id": "a", "body_base64": "AP8=",
        "content_type": "x/y", "attempt": 1, "generation": 1, "fence": 31, "due": time,
        "lease_ends_at": time, "created_at": time,
    });
    vec![
        (json!({"jobs": [claimed], "errors": []}), |text| {
            let response = serde_json::from_str::<ClaimResponse>(text).ok()?;
            problems(response.jobs.into_iter().map(|job| job.read(&context())))
        }),
        (settings, |text| problems([serde_json::from_str::<SettingsJson>(text).ok()?.read()])),
        (
            json!({"kind": "mail", "pending": 1, "ready": 1, "ready_capped": false, "leased": 0,
                   "dead": 0, "oldest_ready": time, "paused": false, "generation": 1, "fence": 7}),
            |text| problems([serde_json::from_str::<KindStats>(text).ok()?.read(&context())]),
        ),
        (json!({"result": "retry", "at": time}), |text| {
            problems([serde_json::from_str::<SettleDone>(text).ok()?.read(&context())])
        }),
        (
            json!({"kind": "mail", "id": "s", "every": "1m30s", "body": 1, "priority": 0,
                   "content_type": "application/json", "jitter": "0s", "missed": "all",
                   "catch_up": null, "overlap": "none", "paused": false, "starts_at": time,
                   "ends_at": null, "next": time, "next_times": [time]}),
            |text| problems([serde_json::from_str::<ScheduleJson>(text).ok()?.read(&context())]),
        ),
    ]
}

/// Returns how many of the mutated texts were read without an error.
fn check(samples: &[(Value, Read)], random: &mut Random, named: bool) -> Result<usize, String> {
    let mut accepted = 0;
    for (sample, read) in samples {
        if read(&sample.to_string()).is_none_or(|problems| !problems.is_empty()) {
            return Err(format!("{sample} is not a valid sample"));
        }
        for _ in 0..ROUNDS {
            let mut value = sample.clone();
            for _ in 0..=random.below(3) {
                mutate(&mut value, random);
            }
            let mut text = value.to_string();
            if random.chance(10) {
                text = broken(&text, random);
            }
            let Some(problems) = read(&text) else { continue };
            accepted += usize::from(problems.is_empty());
            for problem in problems {
                if problem.detail.len() > MAX_DETAIL || (named && problem.field.is_none()) {
                    return Err(format!("{text}\nhas the problem {problem:?}"));
                }
            }
        }
    }
    Ok(accepted)
}

/// Replaces, removes, renames or doubles a random part of the value.
fn mutate(value: &mut Value, random: &mut Random) {
    match value {
        Value::Object(fields) if !fields.is_empty() && random.chance(85) => {
            let names: Vec<String> = fields.keys().cloned().collect();
            let name = random.pick(&names);
            match random.below(10) {
                0 => drop(fields.remove(name)),
                1 => {
                    let taken = fields.remove(name).unwrap_or_default();
                    fields.insert(text(random), taken);
                }
                _ => mutate(&mut fields[name], random),
            }
        }
        Value::Array(items) if !items.is_empty() && random.chance(85) => {
            let at = random.below(items.len());
            match random.below(10) {
                0 => drop(items.remove(at)),
                1 => items.push(items[at].clone()),
                _ => mutate(&mut items[at], random),
            }
        }
        Value::String(old) if random.chance(50) => *old = broken(old, random),
        other => *other = odd(random),
    }
}

fn odd(random: &mut Random) -> Value {
    match random.below(9) {
        0 => Value::Null,
        1 => json!(random.chance(50)),
        2 => json!(random.number()),
        3 => json!(*random.pick(&[-1i64, 0, 1, i64::MIN, 1 << 53])),
        4 => json!(*random.pick(&[0.5, -0.0, 1e308, 1e-320])),
        5 => json!([]),
        6 => json!({}),
        _ => json!(text(random)),
    }
}

fn text(random: &mut Random) -> String {
    let texts = [
        "",
        " ",
        "0",
        "-1s",
        "5m",
        "1e9s",
        "99999999999999999999w",
        "now",
        "tomorrow 25:00",
        "@0",
        "9999-12-31T23:59:59.999999999999Z",
        "1969-12-31",
        "1969-12-31Z",
        "12:00 Mars/Olympus",
        "in 1y",
        "\u{0}",
        "\u{1b}[2J",
        "\u{202e}",
        "ü/ö",
        "/",
        "..",
        "0.0.k/i",
        "ffffffffffffffffff.0.k/i",
        "AP8",
        "=",
        "dead",
        "ack",
        "debounce",
        "application/json",
    ];
    match random.below(10) {
        0 => "x".repeat(random.below(3000)),
        1 => "é".repeat(random.below(600)),
        _ => (*random.pick(&texts)).to_owned(),
    }
}

/// Inserts, replaces or removes characters.
fn broken(text: &str, random: &mut Random) -> String {
    let mut text: Vec<char> = text.chars().collect();
    for _ in 0..=random.below(3) {
        let at = random.below(text.len() + 1);
        let any = char::from_u32(random.below(0x300) as u32).unwrap_or('x');
        let c = *random.pick(&['0', '9', '.', ':', '-', '+', 'Z', 's', '/', '"', '{', ']', any]);
        match random.below(3) {
            0 if at < text.len() => text[at] = c,
            1 if at < text.len() => drop(text.remove(at)),
            _ => text.insert(at, c),
        }
    }
    text.into_iter().collect()
}

#[test]
fn no_request_makes_the_reader_panic_and_problems_name_their_field() {
    let samples = requests();
    check_seeds(&[], "REQUEUE_WIRE", 100, |seed| {
        let accepted = check(&samples, &mut Random::new(seed), true)?;
        // If some are valid, the invalid ones are close to valid ones.
        if accepted == 0 { Err("no mutated request was valid".to_owned()) } else { Ok(()) }
    });
}

#[test]
fn no_response_makes_the_reader_panic() {
    let samples = responses();
    check_seeds(&[], "REQUEUE_WIRE", 100, |seed| {
        check(&samples, &mut Random::new(seed), false).map(drop)
    });
}
