//! Imports of files that are not exports, are incomplete, or were edited by hand.

use super::{VERSION_1, error_chain, imported};
use requeue_jobs::MemoryStore;
use requeue_jobs::transfer::import;
use requeue_testkit::{Fixture, MemoryFixture, Random, block_on, check_seeds};
use std::io;

#[test]
fn errors_name_line_field_and_value() {
    let long = format!("\"id\":\"{}\"", "x".repeat(600));
    let large = format!("\"body\":\"{}\"", "x".repeat(1 << 20));
    let content_type = format!("\"content_type\":\"{}\"", "x".repeat(129));
    let table: &[(&str, &str, &str)] = &[
        // The file as a whole.
        ("requeue-export", "other", r#"line 1: type is "other": expected "requeue-export""#),
        (r#""version":1"#, r#""version":2"#, "format version 2; the newest supported version is 1"),
        (
            r#""version":1"#,
            r#""version":"1""#,
            r#"line 1: version is "1": invalid type: string "1", expected u64"#,
        ),
        (r#"1,"jobs":3}"#, r#"1,"jobs":3"#, "line 1 is not a JSON object: EOF"),
        (r#"{"type":"schedule""#, r#"["schedule""#, "line 3 is not a JSON object"),
        (r#"{"type":"schedule""#, r#"{"kind":"mail"}"#, "line 3 is not a JSON object"),
        (
            r#""type":"schedule""#,
            r#""type":"timer""#,
            r#"line 3: type is "timer": expected kind, schedule, job or end"#,
        ),
        (r#""type":"schedule""#, r#""colour":"red""#, "line 3: field type is missing"),
        (
            "\"schedules\":1,\"jobs\":3}\n",
            "\"schedules\":1,\"jobs\":3}\n{\"type\":\"end\"}\n",
            "line 9 follows the end line",
        ),
        (
            r#""schedules":1,"jobs":3"#,
            r#""schedules":1,"jobs":4"#,
            "line 8 gives a total of 4 jobs, but the export contains 3",
        ),
        (
            r#""kinds":2"#,
            r#""kinds":1"#,
            "line 8 gives a total of 1 kinds, but the export contains 2",
        ),
        (
            r#""schedules":1"#,
            r#""schedules":0"#,
            "line 8 gives a total of 0 schedules, but the export contains 1",
        ),
        // Kinds.
        (
            r#""kind":"mail","gen"#,
            r#""kind":"ma il","gen"#,
            r#"line 2: kind is "ma il": kind "ma il" contains the character ' '"#,
        ),
        (
            r#""kind":"sms","id""#,
            r#""kind":"fax","id""#,
            r#"line 7: kind is "fax": expected "sms", the kind of the preceding lines"#,
        ),
        (
            r#""generation":12"#,
            r#""generation":-1"#,
            "line 2: generation is -1: invalid value: integer `-1`, expected u64",
        ),
        (
            r#""generation":12"#,
            r#""generation":9007199254740992"#,
            "the store rejected line 2: the kind's generation is 9007199254740992; the limit is 4503599627370496",
        ),
        (
            r#""secs":20,"#,
            r#""secs":0,"#,
            "the store rejected line 2: the lease is 1ns; the range is 10ms to 86400s",
        ),
        (
            r#""secs":20,"#,
            r#""secs":"20","#,
            r#"line 2: settings.lease is {"secs":"20","nanos":1}: invalid type: string "20", expected u64"#,
        ),
        (
            r#""jitter_percent":7"#,
            r#""jitter_percent":256"#,
            "line 2: settings.backoff.jitter_percent is 256: ",
        ),
        (
            r#""jitter_percent":7"#,
            r#""jitter":7"#,
            "line 2: field settings.backoff.jitter_percent is missing",
        ),
        (
            r#""jitter_percent":7"#,
            r#""jitter_percent":7,"x":[1]"#,
            "line 2: unknown field settings.backoff.x with value [1]",
        ),
        (
            r#""paused":true"#,
            r#""paused":true,"priority":3"#,
            "line 2: unknown field settings.priority with value 3",
        ),
        // Schedules.
        (
            r#""missed":"skip""#,
            r#""missed":"each""#,
            r#"line 3: missed is "each": expected one, skip or all"#,
        ),
        (
            r#""when":"0 3"#,
            r#""when":7,"was":"0 3"#,
            "line 3: when is 7: invalid type: integer `7`, expected a string",
        ),
        (r#""id":"nightly""#, r#""id":"""#, r#"line 3: id is "": the id must not be empty"#),
        // Jobs.
        (r#""id":"dead""#, &long, "xxx…\": the id has 600 bytes; the limit is 512"),
        (
            r#""state":"dead""#,
            r#""state":"dying""#,
            r#"line 4: state is "dying": expected waiting, ready, leased, dead or done"#,
        ),
        (
            r#""state":"dead""#,
            r#""state":"ready""#,
            r#"the store rejected line 4: job "dead" is inconsistent"#,
        ),
        (
            r#""AP8=""#,
            r#""AP8""#,
            r#"line 4: body_base64 is "AP8": not valid base64: Invalid padding"#,
        ),
        (
            r#""body_base64":"AP8=""#,
            r#""body_base64":"AP8=","body":1"#,
            "line 4: body is 1: only one of body, body_text and body_base64 is allowed",
        ),
        (r#""body_base64":"AP8=","#, "", "line 4: field body is missing"),
        (
            r#""body_base64":"AP8=""#,
            &large,
            "line 4: body is 1048578 bytes: the body has 1048578 bytes; the limit is 1048576",
        ),
        (
            r#""content_type":"application/octet-stream""#,
            &content_type,
            "…\": the content type has 129 bytes; the limit is 128",
        ),
        (
            r#""worker":"w","started"#,
            r#""worker":"","started"#,
            r#"line 4: failures[0].worker is "": the worker's name must not be empty"#,
        ),
        (
            r#""error":null"#,
            r#""error":{}"#,
            "line 4: failures[1].error is {}: invalid type: map, expected a string",
        ),
        (
            r#""error":null"#,
            r#""error":null,"code":1"#,
            "line 4: unknown field failures[1].code with value 1",
        ),
        (
            r#""due_ms":1700000009000"#,
            r#""due_ms":"2026""#,
            r#"line 5: due_ms is "2026": invalid type: string "2026", expected u64"#,
        ),
        (
            r#""due_ms":1700000009000"#,
            r#""due_ms":1700000009000.5"#,
            "line 5: due_ms is 1700000009000.5: ",
        ),
        (
            r#""due_ms":1700000009000"#,
            r#""due_ms":9700000009000"#,
            "the store rejected line 5: the due time is ",
        ),
        (r#""due_ms":1700000009000,"#, "", "line 5: field due_ms is missing"),
        (
            r#""generation":8"#,
            r#""generation":8,"generation2":8"#,
            "line 5: unknown field generation2 with value 8",
        ),
        (
            r#""cancelled":false"#,
            r#""cancelled":"no""#,
            r#"line 7: lease.cancelled is "no": invalid type: string "no", expected a boolean"#,
        ),
        (
            r#""cancelled":false}"#,
            r#""cancelled":false,"fence":1}"#,
            "line 7: unknown field lease.fence with value 1",
        ),
        (r#""due_ms":1700000090000,"#, "", "line 7: field next.due_ms is missing"),
        (
            r#""next":{"#,
            r#""next":7,"was":{"#,
            "line 7: next is 7: invalid type: integer `7`, expected a map",
        ),
    ];
    for (old, new, expected) in table {
        let file = VERSION_1.replacen(old, new, 1);
        assert_ne!(file, VERSION_1, "{old} is not in the fixture");
        let error = imported(&*MemoryFixture::new().store(), &file).expect_err(expected);
        let error = error_chain(error);
        assert!(error.contains(expected), "\n{old} -> {new}\n{error}\n{expected}");
        assert!(error.len() < 400, "{error}");
    }
}

#[test]
fn invalid_settings_are_rejected_with_their_line_and_limit() {
    let invalid = VERSION_1.replace(r#""concurrency":3"#, r#""concurrency":0"#);
    assert_ne!(invalid, VERSION_1);
    let error = imported(&*MemoryFixture::new().store(), &invalid).expect_err("0 is too low");
    let error = error_chain(error);
    assert!(error.contains("the store rejected line"), "{error}");
    assert!(error.contains("is 0") && error.contains('1'), "{error}");
}

/// Exports with lines, values or bytes that were changed: an import fails with an error that names the
/// line, or leaves a store that can be exported and imported again.
#[test]
fn no_damaged_export_makes_an_import_panic_or_a_store_that_cannot_be_exported() {
    check_seeds(&[], "REQUEUE_IMPORTS", 1500, |seed| {
        let mut random = Random::new(seed);
        let mut lines: Vec<String> = VERSION_1.lines().map(str::to_owned).collect();
        for _ in 0..=random.below(2) {
            let at = random.below(lines.len());
            match random.below(12) {
                0 => drop(lines.remove(at)),
                1 => lines.insert(at, lines[random.below(lines.len())].clone()),
                2 => lines.swap(at, 1),
                _ => lines[at] = damaged(&lines[at], &mut random),
            }
        }
        let file = lines.join("\n") + "\n";
        let fixture = MemoryFixture::new();
        let store = fixture.store();
        let result = imported(&*store, &file);
        fixture.check();
        if let Err(error) = result {
            let error = error_chain(error);
            let named = ["line ", "export "].iter().any(|word| error.contains(word));
            if !named || error.len() > 1000 {
                return Err(format!("{error}\n{file}"));
            }
        }
        let again = super::exported(&*store);
        match imported(&*MemoryFixture::new().store(), &again) {
            Ok(_) => Ok(()),
            Err(error) => Err(format!("{}\n{file}\nexported as\n{again}", error_chain(error))),
        }
    });
}

/// Changes a value of a line, or some of its characters.
fn damaged(line: &str, random: &mut Random) -> String {
    let odd = [
        "null",
        "true",
        "-1",
        "0",
        "1e3",
        "0.5",
        "18446744073709551615",
        "9007199254740992",
        "9007199254740991",
        "253402300800000",
        "[]",
        "{}",
        "[[[]]]",
        "\"\"",
        "\"dead\"",
        "\"\\u0000\"",
        "\"\\ud800\"",
        "{\"secs\":0,\"nanos\":4294967295}",
        "{\"secs\":18446744073709551615,\"nanos\":999999999}",
    ];
    let colons: Vec<usize> = line.match_indices(':').map(|(at, _)| at).collect();
    if random.chance(70) && !colons.is_empty() {
        let start = *random.pick(&colons) + 1;
        let end = line[start..].find([',', '}', ']']).map_or(line.len(), |len| start + len);
        return format!("{}{}{}", &line[..start], random.pick(&odd), &line[end..]);
    }
    let mut text: Vec<char> = line.chars().collect();
    for _ in 0..=random.below(3) {
        let at = random.below(text.len());
        let any = char::from_u32(random.below(0x300) as u32).unwrap_or('x');
        let c = *random.pick(&['"', '{', '}', '[', ',', '\\', '0', '9', any]);
        match random.below(3) {
            0 => text[at] = c,
            1 if text.len() > 1 => drop(text.remove(at)),
            _ => text.insert(at, c),
        }
    }
    text.into_iter().filter(|&c| c != '\n').collect()
}

#[test]
fn a_schedule_or_job_before_its_kind_is_rejected() {
    let mut lines: Vec<&str> = VERSION_1.lines().collect();
    lines.remove(1);
    let error = imported(&MemoryStore::new(), &lines.join("\n")).unwrap_err().to_string();
    assert_eq!(error, r#"line 2: kind is "mail": expected a line of type kind before this line"#);
}

#[test]
fn an_endless_line_and_invalid_utf8_are_rejected() {
    let header = VERSION_1.lines().next().unwrap();
    let mut endless = io::BufReader::new(io::Read::chain(header.as_bytes(), io::repeat(b' ')));
    let error = block_on(import(&MemoryStore::new(), &mut endless, |_| {})).unwrap_err();
    assert_eq!(error.to_string(), "line 1 is longer than 16777216 bytes");
    let error = block_on(import(&MemoryStore::new(), &mut &b"{\"a\xff"[..], |_| {})).unwrap_err();
    assert!(error.to_string().starts_with("line 1 is not a JSON object: invalid utf-8"), "{error}");
}
