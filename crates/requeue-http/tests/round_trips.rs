//! A server reads exactly what a client sends, and a client exactly what a server returns: every byte
//! of a body, and times and durations without rounding.

use requeue_http::wire::{
    ChangeDone, ChangeEntry, ClaimRequest, ClaimedView, JobJson, ParseContext, PutDone, PutRequest,
    RestoreRequest, ScheduleJson, ScheduleRequest, SettingsJson, SettleDone, SettleLease,
};
use requeue_jobs::json::BodyJson;
use requeue_jobs::limits::{MAX_DELAY, MAX_LEASE, MAX_RATE_PERIOD, MIN_LEASE};
use requeue_jobs::{
    Backoff, Body, Change, ChangeKind, Changed, Claim, ClaimedJob, Condition, Content, DoneView,
    Due, Envelope, FailedAttempt, Fence, Generation, HeadFields, JobId, JobState, JobView, Kind,
    LeaseView, Missed, Mode, Placed, Priority, Put, PutOutcome, Rate, Receipt, Reschedule, Restore,
    Retention, ScheduleSpec, ScheduleView, Settings, Settle, Settled, Settlement, Timestamp,
    Version, WorkerName,
};
use requeue_testkit::{Random, check_seeds};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;

const CONTEXT: ParseContext = ParseContext { now: Timestamp::from_millis(1_800_000_000_000) };

/// Serializes a value, and deserializes it again.
fn sent<T: Serialize + DeserializeOwned>(value: &T) -> T {
    let text = serde_json::to_string(value).expect("the value can be serialized");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn requests_and_responses_survive_the_round_trip() {
    check_seeds(&[], "REQUEUE_ROUND_TRIPS", 2000, |seed| {
        let random = &mut Random::new(seed);
        check(random);
        Ok(())
    });
}

fn check(random: &mut Random) {
    let put = put(random);
    let read = sent(&PutRequest::from(put.clone())).read(None, None, &CONTEXT);
    assert_eq!(read, Ok(put));
    let placed = placed(random);
    assert_eq!(Placed::from(sent(&PutDone::from(placed))), placed);
    let claim = claim(random);
    let read = sent(&ClaimRequest::from(&claim)).read(0);
    assert_eq!(read, Ok((claim, Duration::ZERO)));
    let job = claimed(random);
    assert_eq!(sent(&ClaimedView::from(&job)).read(&CONTEXT), Ok(job));
    let settle = settle(random);
    assert_eq!(sent(&SettleLease::from(settle.clone())).read(None, &CONTEXT), Ok(settle));
    let settled = settled(random);
    assert_eq!(sent(&SettleDone::from(settled)).read(&CONTEXT), Ok(settled));
    let action = change_kind(random);
    let change = Change { kind: kind(random), id: id(random), action };
    assert_eq!(sent(&ChangeEntry::from(change.clone())).read(&CONTEXT), Ok(change));
    let changed = changed(random);
    assert_eq!(Changed::try_from(sent(&ChangeDone::from(changed))), Ok(changed));
    let job = view(random);
    assert_eq!(sent(&JobJson::from(&job)).read(&CONTEXT), Ok(job.clone()));
    let (generation, fence) = (generation(random), Fence(random.number() >> 12));
    let restore = Restore { kind: job.kind.clone(), generation, fence, jobs: vec![job] };
    let (read, _) = sent(&RestoreRequest::from(&restore)).read(restore.kind.clone(), &CONTEXT);
    assert_eq!(read, restore);
    let settings = settings(random);
    assert_eq!(sent(&SettingsJson::from(&settings)).read(), Ok(settings));
    let (kind, id, spec) = (kind(random), id(random), schedule(random));
    assert_eq!(sent(&ScheduleRequest::from(&spec)).create(&CONTEXT), Ok(spec.clone()));
    let schedule = spec.to_schedule(id, time(random).min(Timestamp::from_millis(1 << 47)));
    let view = ScheduleView::new(&kind, &schedule, CONTEXT.now);
    let read = sent(&ScheduleJson::from(&view)).read(&CONTEXT);
    match view.problem {
        None => assert_eq!(read, Ok(schedule)),
        Some(_) => assert_eq!(read.map(|schedule| schedule.when), Ok(schedule.when)),
    }
}

#[test]
fn bodies_are_written_in_the_most_readable_form() {
    let body = |bytes: &[u8], content_type| Body::new(bytes, content_type).expect("small");
    let fields = |body: &Body| {
        let BodyJson { body, body_text, body_base64, .. } = BodyJson::new(body);
        [body.is_some(), body_text.is_some(), body_base64.is_some()]
    };
    let (json, text, base64) = ([true, false, false], [false, true, false], [false, false, true]);
    for (bytes, content_type, expected) in [
        (&b"null"[..], "application/json", json),
        (b"{\"a\":\n1e99}", "application/json", json),
        // No 64-bit float.
        (b"{\"a\":\n1e999}", "application/json", text),
        (b" 1", "application/json", text),
        (b"{", "application/json", text),
        (b"", "application/json", text),
        (b"hello", "text/plain", text),
        (b"", "text/plain; charset=utf-8", text),
        (b"\xFF", "text/plain", base64),
        (b"hello", "application/octet-stream", text),
        (b"\xFF\x00", "application/octet-stream", base64),
        (b"", "application/octet-stream", [false; 3]),
    ] {
        let body = body(bytes, content_type);
        assert_eq!(fields(&body), expected, "{bytes:?} as {content_type}");
        assert_eq!(BodyJson::new(&body).into_body(), Ok(body));
    }
}

fn kind(random: &mut Random) -> Kind {
    Kind::new(*random.pick(&["mail", "order.close", "-", "A_1"])).expect("a valid kind")
}

fn id(random: &mut Random) -> JobId {
    JobId::new(text(random) + "x").expect("a valid id")
}

fn worker(random: &mut Random) -> WorkerName {
    WorkerName::new(text(random) + "w").expect("a valid name")
}

fn text(random: &mut Random) -> String {
    let pieces = ["a", "/", "\"", "\\", "\n", "ü", "\0", "🦀", "\u{2028}", " ", "%2F", "."];
    (0..random.below(8)).map(|_| *random.pick(&pieces)).collect()
}

fn body(random: &mut Random) -> Body {
    let types = ["application/json", "text/plain", "application/octet-stream", "", "Text/HTML"];
    let content_type = *random.pick(&types);
    let bytes = match random.below(4) {
        0 => serde_json::to_vec(&text(random)).expect("text is JSON"),
        1 => b"{\"a\": [1, null, 1e400], \"a\": {}}".to_vec(),
        2 => text(random).into_bytes(),
        _ => (0..random.below(6)).map(|_| random.number() as u8).collect(),
    };
    Body::new(bytes, content_type).expect("small")
}

fn time(random: &mut Random) -> Timestamp {
    let shift = random.below(64);
    Timestamp::from_millis(random.number() >> shift)
}

/// A delay within its limit.
fn delay(random: &mut Random) -> Duration {
    duration(random).min(MAX_DELAY)
}

/// A lease duration within its limits.
fn lease(random: &mut Random) -> Duration {
    duration(random).clamp(MIN_LEASE, MAX_LEASE)
}

fn duration(random: &mut Random) -> Duration {
    let shift = random.below(64);
    Duration::new(random.number() >> shift, (random.number() % 1_000_000_000) as u32)
}

fn maybe<T>(random: &mut Random, make: impl FnOnce(&mut Random) -> T) -> Option<T> {
    random.chance(50).then(|| make(random))
}

fn generation(random: &mut Random) -> Generation {
    Generation(random.number() >> 11)
}

fn priority(random: &mut Random) -> Priority {
    Priority::new(random.below(10) as u8).expect("at most 9")
}

fn put(random: &mut Random) -> Put {
    let due = match random.below(3) {
        0 => Due::Now,
        1 => Due::After(delay(random)),
        _ => Due::At(time(random).min(CONTEXT.now.saturating_add(MAX_DELAY))),
    };
    let mode = match random.below(4) {
        0 => Mode::Replace,
        1 => Mode::Earliest,
        2 => Mode::Keep,
        _ => Mode::Debounce { max_wait: duration(random) },
    };
    let condition = match random.below(4) {
        0 => None,
        3 => Some(Condition::IfNew),
        1 => Some(Condition::IfAbsent),
        _ => Some(Condition::IfGeneration(generation(random))),
    };
    let (kind, id, priority) = (kind(random), id(random), priority(random));
    Put { kind, id, content: content(random), due, priority, mode, condition }
}

fn change_kind(random: &mut Random) -> ChangeKind {
    let put = put(random);
    let set = Reschedule {
        // Now is a delay of 0 where a missing due time leaves it as it is.
        due: maybe(random, |_| put.due).filter(|due| *due != Due::Now),
        priority: Some(put.priority),
        body: maybe(random, body),
        if_generation: maybe(random, generation),
    };
    let reschedule = ChangeKind::Reschedule(set);
    random.pick(&[ChangeKind::Cancel, ChangeKind::RunNow, ChangeKind::Revive, reschedule]).clone()
}

fn changed(random: &mut Random) -> Changed {
    use PutOutcome::{Coalesced, Revived, Updated};
    let outcome = *random.pick(&[Updated, Coalesced, Revived]);
    let rescheduled = Changed::Rescheduled(Placed { outcome, generation: generation(random) });
    let all = [Changed::Removed, Changed::Ending, Changed::Ready, Changed::Revived, rescheduled];
    *random.pick(&all)
}

fn placed(random: &mut Random) -> Placed {
    use PutOutcome::{Coalesced, Created, Kept, Revived, Updated};
    let outcome = *random.pick(&[Created, Updated, Kept, Coalesced, Revived]);
    Placed { outcome, generation: generation(random) }
}

fn claim(random: &mut Random) -> Claim {
    let kinds = (0..random.below(4)).map(|_| kind(random)).collect();
    let (lease, worker) = (maybe(random, lease), worker(random));
    Claim { kinds, max: random.below(1001), lease, worker, nonce: random.number() }
}

fn receipt(random: &mut Random) -> Receipt {
    Receipt::new(kind(random), id(random), Fence(random.number()), random.number())
}

fn content(random: &mut Random) -> Content {
    let bytes: Vec<u8> = (0..random.below(5)).map(|_| random.number() as u8).collect();
    let envelope = Envelope::new(bytes, "x/y; z=\"ü\"").expect("a valid envelope");
    let envelope = random.chance(30).then_some(envelope);
    Content { body: body(random), head: HeadFields { envelope }.into() }
}

fn version(random: &mut Random) -> Version {
    Version {
        content: content(random),
        due: time(random),
        priority: priority(random),
        generation: generation(random),
    }
}

fn claimed(random: &mut Random) -> ClaimedJob {
    let mut job = ClaimedJob::new(receipt(random), version(random));
    (job.lease_ends_at, job.created_at) = (time(random), time(random));
    job.attempt = random.number() as u32;
    job
}

fn settle(random: &mut Random) -> Settle {
    let action = match random.below(7) {
        6 => Settlement::AckWith(body(random)),
        0 => Settlement::Ack,
        1 => Settlement::Retry { delay: maybe(random, delay), error: text(random) },
        2 => Settlement::Bury { error: text(random) },
        3 => Settlement::RequeueAfter(delay(random)),
        4 => Settlement::Release,
        _ => Settlement::Extend(maybe(random, lease)),
    };
    Settle { receipt: receipt(random), action }
}

fn settled(random: &mut Random) -> Settled {
    let at = time(random);
    *random.pick(&[
        Settled::Done,
        Settled::RetryAt(at),
        Settled::Dead,
        Settled::Released,
        Settled::Extended(at),
        Settled::Cancelled,
    ])
}

fn view(random: &mut Random) -> JobView {
    let mut job = JobView::new(kind(random), id(random), version(random));
    use JobState::{Dead, Done, Leased, Ready, Waiting};
    job.state = *random.pick(&[Waiting, Ready, Leased, Dead, Done]);
    job.done = maybe(random, |random| DoneView {
        worker: worker(random),
        started_at: time(random),
        done_at: time(random),
        result: maybe(random, body),
    });
    (job.attempts, job.deaths) = (random.number() as u32, random.number() as u32);
    job.lease = maybe(random, |random| LeaseView {
        worker: worker(random),
        claimed_at: time(random),
        ends_at: time(random),
        cancelled: random.chance(50),
        fence: Fence(random.number()),
    });
    job.next = maybe(random, version);
    let failure = |random: &mut Random| FailedAttempt {
        worker: worker(random),
        started_at: time(random),
        ended_at: time(random),
        error: maybe(random, |random| text(random).into()),
    };
    job.failures = (0..random.below(3)).map(|_| failure(random)).collect();
    job.died_at = maybe(random, time);
    (job.created_at, job.updated_at) = (time(random), time(random));
    job
}

fn settings(random: &mut Random) -> Settings {
    let mut settings = Settings::default();
    settings.lease = lease(random);
    let jitter_percent = random.below(101) as u8;
    let (one, other) = (delay(random), delay(random));
    settings.backoff = Backoff { base: one.min(other), max: one.max(other), jitter_percent };
    settings.max_attempts = random.number() as u32;
    settings.concurrency = maybe(random, |random| (random.number() as u32).max(1));
    settings.rate = maybe(random, |random| Rate {
        jobs: random.below(1_000_000) as u32 + 1,
        per: duration(random).clamp(Duration::from_millis(1), MAX_RATE_PERIOD),
        burst: maybe(random, |random| random.below(1_000_000) as u32 + 1),
    });
    settings.ageing = maybe(random, |random| delay(random).max(Duration::from_millis(1)));
    settings.keep_done =
        maybe(random, |random| Retention { age: duration(random), count: random.below(1 << 40) });
    settings.paused = random.chance(50);
    settings.retention = Retention { age: duration(random), count: random.below(1 << 40) };
    settings
}

fn schedule(random: &mut Random) -> ScheduleSpec {
    let whole = |duration: Duration| Duration::from_millis(duration.as_millis() as u64);
    let mut spec = match random.below(3) {
        0 => ScheduleSpec::every(whole(delay(random)).max(Duration::from_secs(1))),
        1 => ScheduleSpec::cron("*/5 9-17 * * MON-FRI", "Europe/Berlin"),
        _ => ScheduleSpec::cron("@daily", "Europe/Atlantis"),
    };
    spec.content = content(random);
    spec.priority = priority(random);
    spec.jitter = whole(delay(random));
    spec.missed = *random.pick(&[Missed::One, Missed::Skip, Missed::All]);
    spec.catch_up = maybe(random, |random| whole(delay(random)));
    (spec.allow_overlap, spec.paused) = (random.chance(50), random.chance(50));
    (spec.starts_at, spec.ends_at) = (maybe(random, time), maybe(random, time));
    spec
}
