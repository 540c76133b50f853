//! The keys on a server match `docs/redis-keys.md`, and contain what the store returns.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use crate::support::deployment::{Deployment, HOUR, id, kind, text};
use requeue_jobs::{Body, ChangeKind, Due, Missed, Mode, Schedule, Store, Ticked, Timestamp};
use requeue_testkit::{Fixture, block_on, check_histories};
use std::collections::BTreeSet;

/// The latest time that fits into six bytes.
const LAST: u64 = (1 << 48) - 1;

#[test]
fn every_state_is_stored_as_documented() {
    let all = Deployment::new();
    all.restored();
    all.waiting_and_ready();
    let receipts = all.leased();
    let retry_at = all.failed_and_dead();
    all.expired();
    all.put("ready", text("ready"), Due::Now, Mode::Replace);
    all.settings_and_schedules();
    all.check();

    let kinds = all.read();
    let contents = &kinds["order.close"];
    let job = |id: &str| &contents.jobs[id];
    for (name, job) in &contents.jobs {
        let view = block_on(all.store.get(kind(), id(name))).unwrap();
        assert_eq!(view.as_ref(), Some(&job.view));
    }
    let states: BTreeSet<_> = contents.jobs.values().map(|job| job.view.state).collect();
    assert_eq!(states.len(), 4, "not all states are present: {states:?}");
    assert_eq!((contents.schedules.len(), contents.settings.paused), (2, true));
    // Fields that views do not contain.
    for (id, receipt) in receipts {
        let stored = job(id).fence_and_nonce;
        assert_eq!(stored, Some((receipt.fence().0, receipt.nonce())), "the receipt of {id}");
    }
    let first = |id: &str| job(id).next_first.expect("there is a successor");
    let lease = job("leased-next").view.lease.as_ref().expect("it is leased");
    assert_eq!(first("leased-next"), lease.claimed_at.as_millis() + 1);
    assert!(job("leased-cancelled-next").view.lease.as_ref().is_some_and(|it| it.cancelled));
    let past = |id: &str| job(id).past.as_ref().expect("there is a past");
    assert_eq!(past("failed-often").floor, retry_at.as_millis());
    assert_eq!(job("failed-often").view.failures.len(), 5);
    assert_eq!(past("acked-next").first, 0, "the next put counts as the first");
    assert_eq!(past("put-again").first, job("put-again").view.updated_at.as_millis());
    for job in ["octets", "debounced", "leased", "leased-next", "restored", "ready"] {
        assert!(contents.jobs[job].past.is_none(), "{job} has no past");
    }
    assert_eq!(job("expired").view.failures[0].error, None);
}

#[test]
fn priorities_done_jobs_and_rates_are_stored_as_documented() {
    let all = Deployment::new();
    all.waiting_and_ready();
    all.leased();
    all.failed_and_dead();
    all.check();
    let before = all.read().remove("order.close").unwrap().jobs;
    all.priorities_and_done();
    all.check();
    let after = all.read().remove("order.close").unwrap().jobs;
    for (id, job) in before {
        assert_eq!(after[&id].view, job.view, "{id} is the same");
    }
    let priority = |id: &str| after[id].view.priority.get();
    let known = ["octets", "leased", "urgent-later", "urgent", "urgent-dead", "done"].map(priority);
    assert_eq!(known, [0, 0, 9, 5, 3, 2]);
    assert_eq!(after["urgent"].view.next.as_ref().unwrap().priority.get(), 7);
    let done = |id: &str| after[id].view.done.clone().unwrap();
    assert_eq!((done("done").result, done("done-text").result), (None, Some(text("paid"))));
    assert_eq!(done("done").done_at.saturating_since(done("done").started_at).as_millis(), 5);
    let field = |field: &str| -> Option<String> {
        let mut get = redis::cmd("HGET");
        get.arg(format!("{{{}:order.close}}:meta", all.prefix)).arg(field);
        get.query(&mut *all.reader.lock().unwrap()).unwrap()
    };
    assert_eq!(field("levels").as_deref(), Some("97532"));
    // Six jobs of 60,500 parts each, and 100 parts less for each of the 15 milliseconds before the last.
    assert_eq!(field("rate_parts"), Some((6 * 60_500 - 15 * 100).to_string()));

    // When the kind has no more jobs, it uses no priorities.
    let jobs: Vec<_> = after.keys().map(String::as_str).collect();
    jobs.iter().for_each(|job| all.change(job, ChangeKind::Cancel));
    all.advance(11 * HOUR);
    all.advance(11 * HOUR);
    block_on(all.store.reap(100)).unwrap();
    block_on(all.store.reap(100)).unwrap();
    assert!(all.read().remove("order.close").unwrap().jobs.is_empty());
    assert_eq!(field("levels"), None);
    all.put("new", text("new"), Due::Now, Mode::Replace);
    all.claim("new");
    all.check();
}

#[test]
fn random_histories_are_stored_as_documented() {
    check_histories(Deployment::new, &[], 10);
}

#[test]
fn a_time_that_is_too_late_is_stored_as_the_latest_that_fits() {
    let far_away = Deployment::new();
    let (at, next) = (Timestamp::from_millis, far_away.now());
    let (when, time_zone, body) = (String::new(), String::new(), Body::default());
    let schedule = Schedule { id: id("s"), when, time_zone, body, missed: Missed::One, next };
    for far in [LAST, LAST + 1, 1 << 60, u64::MAX] {
        block_on(far_away.store.set_schedule(kind(), schedule.clone(), Default::default()))
            .unwrap();
        assert_eq!(far_away.tick("s", next, at(far)), Ticked::Skipped);
        assert_eq!(far_away.read()["order.close"].schedules[0].next, at(LAST), "{far}");
        assert_eq!(far_away.tick("s", at(far), next), Ticked::Skipped, "{far} is expected");
    }
}
