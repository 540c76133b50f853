//! The keys on a server match `docs/redis-keys.md`.
//!
//! `tests/fixtures/keys.txt` contains all keys of a deployment with jobs in every state, byte by byte. If this test
//! changes, so does the format: see the last section of the page.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use crate::support::deployment::{Deployment, HOUR, id, kind, text};
use crate::support::key_reader::Keys;
use requeue_jobs::{Body, ChangeKind, Due, Missed, Mode, Schedule, Store, Ticked, Timestamp};
use requeue_testkit::{Fixture, block_on, check_histories};
use std::fmt::Write;

/// The latest time that fits into six bytes.
const LAST: u64 = (1 << 48) - 1;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns all keys of a kind as text, and shortens long values.
fn dump(keys: &Keys) -> String {
    let mut all = String::new();
    for (name, list) in ["due", "leased", "dead", "done"].iter().zip(&keys.lists) {
        list.iter().for_each(|(id, score)| writeln!(all, "{name} {id} {score}").unwrap());
    }
    let Keys { job, lease, next, past, schedules, .. } = keys;
    for (name, hash) in
        [("job", job), ("lease", lease), ("next", next), ("past", past), ("schedules", schedules)]
    {
        for (id, value) in hash {
            let (bytes, rest) = value.split_at(value.len().min(200));
            writeln!(all, "{name} {id} {} and {} bytes", hex(bytes), rest.len()).unwrap();
        }
    }
    keys.meta.iter().for_each(|(field, value)| writeln!(all, "meta {field} {value}").unwrap());
    all
}

#[test]
fn every_state_is_stored_as_documented() {
    let all = Deployment::new();
    all.restored();
    all.waiting_and_ready();
    all.leased();
    all.failed_and_dead();
    all.heads();
    all.expired();
    all.put("ready", text("ready"), Due::Now, Mode::Replace);
    all.priorities_and_done();
    all.settings_and_schedules();
    all.check();
    let keys = all.read().remove("order.close").unwrap();
    let (found, fixture) = (dump(&keys), include_str!("../fixtures/keys.txt"));
    for (found, expected) in found.lines().zip(fixture.lines()) {
        assert_eq!(found, expected);
    }
    assert_eq!(found.lines().count(), fixture.lines().count(), "all keys:\n{found}");
}

/// Splits a value into numbers of these widths, and the rest.
fn fields<const N: usize>(mut bytes: &[u8], widths: [usize; N]) -> ([u64; N], &[u8]) {
    let numbers = widths.map(|width| {
        let (number, rest) = bytes.split_at(width);
        bytes = rest;
        number.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    });
    (numbers, bytes)
}

#[test]
fn values_have_the_documented_fields() {
    let all = Deployment::new();
    all.waiting_and_ready();
    let receipt = all.leased().remove("leased-next").unwrap();
    let retry_at = all.failed_and_dead().as_millis();
    all.heads();
    all.priorities_and_done();
    // Six jobs of 60,500 parts each, and 100 parts less for each of the 15 milliseconds before the last.
    let parts = all.read()["order.close"].counter("rate_parts");
    assert_eq!(parts, 6 * 60_500 - 15 * 100);
    all.settings_and_schedules();
    let keys = all.read().remove("order.close").unwrap();
    let view = |job: &str| block_on(all.store.get(kind(), id(job))).unwrap().unwrap();
    let millis = Timestamp::as_millis;

    let leased = view("leased-next");
    let (lease, next) = (leased.lease.unwrap(), leased.next.unwrap());
    let (record, content) = fields(&keys.job["leased-next"], [7, 6, 6]);
    assert_eq!(
        record,
        [leased.version.generation.0, millis(leased.created_at), millis(leased.created_at)]
    );
    assert_eq!(content, b"\x02body of leased-next");
    let (found, worker) = fields(&keys.lease["leased-next"], [7, 8, 6, 6, 6, 1]);
    let [due, claimed, updated] =
        [leased.version.due, lease.claimed_at, leased.updated_at].map(millis);
    assert_eq!(found, [receipt.fence().0, receipt.nonce(), due, claimed, updated, 0]);
    assert_eq!(worker, lease.worker.as_str().as_bytes());
    let (found, content) = fields(&keys.next["leased-next"], [6, 7, 6]);
    assert_eq!(found, [millis(next.due), next.generation.0, claimed + 1]);
    assert_eq!(content, b"\x02later");
    assert_eq!(fields(&keys.lease["leased-cancelled-next"], [33, 1]).0[1], 1);

    let head = view("head").version.content.head;
    let (_, content) = fields(&keys.job["head"], [7, 6, 6]);
    let ([flags, counted, length], rest) = fields(content, [1, 4, 4]);
    let (encoding, rest) = rest.split_at(length as usize);
    assert_eq!((flags, counted, encoding), (128 | 3, head.len() as u64, &*head.encode()));
    assert_eq!(*rest, *b"\x0bimage/x-odd\0\xff\x07");
    let head = [&[0, 0, 0, 23, 0, 0, 0, 26][..], encoding].concat();
    for (value, at, flags, body) in [
        (&keys.job["head-next"], 19, 128 | 2, &b"body"[..]),
        (&keys.next["head-next"], 19, 128, b""),
        (&keys.schedules["head"], 6 + 2 + 1 + 2 + 8 + 2, 128 | 2, b"tick"),
    ] {
        assert_eq!(value[at..], [&[flags][..], &head, body].concat());
    }

    let failed = view("failed-often");
    let (past, failures) = fields(&keys.past["failed-often"], [4, 4, 6, 6, 6, 6, 1]);
    let (first, updated) = (millis(failed.created_at), millis(failed.updated_at));
    assert_eq!(past, [7, 0, retry_at, first, 0, updated, 5]);
    let ([started, ended, length], rest) = fields(failures, [6, 6, 1]);
    let failure = &failed.failures[0];
    assert_eq!([started, ended], [failure.started_at, failure.ended_at].map(millis));
    let (worker, rest) = rest.split_at(length as usize);
    assert_eq!(worker, failure.worker.as_str().as_bytes());
    let error = failure.error.as_deref().unwrap();
    assert_eq!(fields(rest, [2]).0[0], error.len() as u64 + 1);
    assert!(rest[2..].starts_with(error.as_bytes()));
    assert_eq!(
        fields(&keys.past["acked-next"], [14, 6]).0[1],
        0,
        "the next put counts as the first"
    );
    let first = fields(&keys.past["put-again"], [14, 6]).0[1];
    assert_eq!(first, millis(view("put-again").updated_at));
    assert!(!keys.past.contains_key("octets") && !keys.past.contains_key("leased-next"));

    let done = view("done-text").done.unwrap();
    let (record, content) = fields(&keys.job["done-text"], [13, 6]);
    assert_eq!(record[1], millis(done.done_at));
    assert_eq!(content, [&[64 | 2 << 2 | 2][..], b"paid"].concat());
    assert_eq!(keys.job["done"][19..], [2 << 2]);
    let ([_, failures, started], worker) = fields(&keys.past["done-text"], [32, 1, 6]);
    assert_eq!((failures, started), (0, millis(done.started_at)));
    assert_eq!(worker, done.worker.as_str().as_bytes());

    let schedule = &block_on(all.store.schedules(kind())).unwrap()[0];
    assert_eq!(schedule.id.as_str(), "daily");
    let ([next, begins, missed, length], rest) = fields(&keys.schedules["daily"], [6, 2, 1, 2]);
    assert_eq!((next, missed), (millis(schedule.next), 0));
    let (when, rest) = rest.split_at(length as usize);
    assert_eq!(
        (when, fields(rest, [2]).1),
        (&b"0 6 * * *"[..], &b"Europe/Berlin\x02good morning"[..])
    );
    assert_eq!(keys.schedules["daily"][begins as usize - 1..], *b"\x02good morning");

    let field = |field: &str| keys.meta.get(field).map(String::as_str);
    assert_eq!(field("levels"), Some("97532"));
    assert_eq!([field("lease"), field("paused")], [Some("45500.250000"), Some("1")]);
}

#[test]
fn a_kind_without_jobs_uses_no_priorities() {
    let all = Deployment::new();
    all.priorities_and_done();
    let jobs: Vec<_> = all.read().remove("order.close").unwrap().job.into_keys().collect();
    jobs.iter().for_each(|job| all.change(job, ChangeKind::Cancel));
    all.advance(11 * HOUR);
    block_on(all.store.reap(100)).unwrap();
    let keys = all.read().remove("order.close").unwrap();
    assert_eq!((keys.job.len(), keys.meta.get("levels")), (0, None));
    all.put("new", text("new"), Due::Now, Mode::Replace);
    all.claim("new");
    all.check();
}

#[test]
fn random_histories_keep_the_documented_invariants() {
    check_histories(Deployment::new, &[], 10);
}

#[test]
fn a_time_that_is_too_late_is_stored_as_the_latest_that_fits() {
    let far_away = Deployment::new();
    let (at, next) = (Timestamp::from_millis, far_away.now());
    let (when, time_zone, body) = (String::new(), String::new(), Body::default());
    let schedule =
        Schedule { id: id("s"), when, time_zone, content: body.into(), missed: Missed::One, next };
    for far in [LAST, LAST + 1, 1 << 60, u64::MAX] {
        block_on(far_away.store.set_schedule(kind(), schedule.clone(), Default::default()))
            .unwrap();
        assert_eq!(far_away.tick("s", next, at(far)), Ticked::Skipped);
        let stored = fields(&far_away.read()["order.close"].schedules["s"], [6]).0[0];
        assert_eq!(stored, LAST, "{far}");
        assert_eq!(far_away.tick("s", at(far), next), Ticked::Skipped, "{far} is expected");
    }
}
