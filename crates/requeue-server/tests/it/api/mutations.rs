//! Valid requests of every endpoint, mutated at random: none causes a 5xx, each rejected one gets a
//! problem, and the server keeps working.

use crate::api::samples::{self, Sample, places};
use crate::api::support::{JSON, Server, request};
use requeue_testkit::{Random, check_seeds};
use serde_json::{Map, Value, json};

/// Number of requests per seed.
const ROUNDS: usize = 300;

#[test]
fn random_mutations_of_requests_do_no_harm() {
    check_seeds(&[], "REQUEUE_MUTATIONS", 5, |seed| {
        let mut random = Random::new(seed);
        let server = Server::in_real_time();
        server.call("PUT", "/v1/kinds/kept/jobs/kept", json!({"body": "kept"})).json();
        let mut client = server.client();
        let samples = samples::all();
        let mut accepted = 0;
        for _ in 0..ROUNDS {
            let Sample { method, path, mut body, .. } = random.pick(&samples).clone();
            for _ in 0..random.below(3) {
                mutate(&mut body, &mut random);
            }
            let path =
                if random.chance(10) { mutated_path(path, &mut random) } else { path.to_owned() };
            let mut bytes = body.to_string().into_bytes();
            if random.chance(10) {
                break_bytes(&mut bytes, &mut random);
            }
            client.send(&request(method, &path, JSON, &bytes));
            let text = String::from_utf8_lossy(&bytes);
            let Some(response) = client.try_response(method) else {
                return Err(format!("{method} {path} {text}: the connection was closed"));
            };
            match response.status {
                200 => drop(response.json()),
                204 => {}
                400..500 => drop(response.problem()),
                status => {
                    return Err(format!("{method} {path} {text}: {status} {}", response.text()));
                }
            }
            accepted += usize::from(response.status < 300);
            // If a request is rejected before it was read, the rest of it is not awaited.
            if response.status >= 400 && bytes.len() > 4000 {
                client = server.client();
            }
            let kept = client.get("/v1/kinds/kept/jobs/kept").json();
            if kept["body"] != "kept" {
                return Err(format!("{method} {path} {text}: {kept}"));
            }
        }
        // If some are valid, the invalid ones are close to valid ones.
        if accepted < ROUNDS / 10 { Err(format!("only {accepted} were accepted")) } else { Ok(()) }
    });
}

/// Changes a random part of the body.
fn mutate(body: &mut Value, random: &mut Random) {
    let all = places(body);
    if all.is_empty() {
        return *body = odd(random);
    }
    let (_, pointer) = random.pick(&all).clone();
    let (parent, key) = pointer.rsplit_once('/').expect("it begins with one");
    let key = &key.replace("~1", "/").replace("~0", "~");
    let value = body.pointer(&pointer).expect("it is there").clone();
    let other = {
        let (_, other) = random.pick(&all);
        body.pointer(other).expect("it is there").clone()
    };
    let parent = body.pointer_mut(parent).expect("it is there");
    match (random.below(5), parent) {
        (0, Value::Object(fields)) => drop(fields.remove(key)),
        (1, Value::Object(fields)) => drop(fields.insert(text(random), value)),
        (2, Value::Array(values)) => values.extend(vec![value; random.below(3)]),
        (3, parent) => replace(parent, key, other),
        (_, parent) => replace(parent, key, odd(random)),
    }
}

fn replace(parent: &mut Value, key: &str, value: Value) {
    match parent {
        Value::Object(fields) => drop(fields.insert(key.to_owned(), value)),
        Value::Array(values) => {
            let number: usize = key.parse().expect("it is the number of an entry");
            values[number] = value;
        }
        _ => {}
    }
}

/// Returns an unusual value.
fn odd(random: &mut Random) -> Value {
    match random.below(12) {
        0 => Value::Null,
        1 => json!(random.chance(50)),
        2 => json!(random.number()),
        3 => json!(-(random.below(1000) as i64)),
        4 => json!(random.number() as f64 / 7.0),
        5 => json!([]),
        6 => json!({}),
        7 => Value::Array(vec![odd(random); random.below(4)]),
        8 => Value::Object(Map::from_iter([(text(random), odd(random))])),
        _ => Value::String(text(random)),
    }
}

/// Returns a text with or without a special meaning.
fn text(random: &mut Random) -> String {
    let known = [
        "",
        "0",
        "now",
        "1s",
        "5m",
        "10000w",
        "-1s",
        "tomorrow",
        "tomorrow UTC",
        "1970-01-01Z",
        "9999-12-31T23:59:59Z",
        "@18446744073709551615ms",
        "ack",
        "retry",
        "requeue",
        "cancel",
        "revive",
        "dead",
        "samples",
        "a/b",
        "1.1.samples/a",
        "ffffffffffffffff.0.samples/a",
        "\0",
        "\u{feff}",
        "é",
        "😀",
        "..",
        "application/json",
        "null",
        "/w==",
        "in 5m",
        "1e5s",
        "09:00 Europe/Berlin",
        "debounce",
    ];
    if random.chance(70) {
        return (*random.pick(&known)).to_owned();
    }
    let length = [1, 5, 130, 600, 3000][random.below(5)];
    let character = |random: &mut Random| match random.below(4) {
        0 => char::from_u32(random.below(0x11_0000) as u32).unwrap_or('\u{fffd}'),
        _ => char::from(random.below(128) as u8),
    };
    (0..length).map(|_| character(random)).collect()
}

/// Returns a mutated path.
fn mutated_path(path: &str, random: &mut Random) -> String {
    let escaped: String =
        text(random).bytes().take(600).map(|byte| format!("%{byte:02x}")).collect();
    let parts: Vec<&str> = path.split('/').collect();
    let bent = 2 + random.below(parts.len() - 2);
    let parts = parts.iter().enumerate().map(|(n, part)| if n == bent { &*escaped } else { part });
    let path = parts.collect::<Vec<_>>().join("/");
    if random.chance(50) { path } else { format!("{path}?{escaped}={escaped}") }
}

/// Removes, doubles or changes random bytes.
fn break_bytes(bytes: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(bytes.len());
    match random.below(4) {
        0 => bytes.truncate(at),
        1 => drop(bytes.remove(at)),
        2 => bytes.insert(at, random.number() as u8),
        _ => bytes[at] = random.number() as u8,
    }
}
