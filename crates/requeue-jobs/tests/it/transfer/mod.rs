//! Export of a store to a file, and import into another store.

mod bad_input;

use requeue_jobs::limits::{MAX_DELAY, MAX_RESTORED};
use requeue_jobs::transfer::{TransferError, TransferProgress, export, import};
use requeue_jobs::*;
use requeue_testkit::{
    Fault, Faulty, Fixture, MemoryFixture, block_on, check_history, check_seeds,
};
use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn kind() -> Kind {
    Kind::new("mail").expect("a valid name")
}

fn exported(store: &dyn Store) -> String {
    let mut file = Vec::new();
    block_on(export(store, &mut file, |_| {})).expect("the memory store does not fail");
    String::from_utf8(file).expect("JSON is UTF-8")
}

fn imported(store: &dyn Store, file: &str) -> Result<TransferProgress, TransferError> {
    block_on(import(store, &mut file.as_bytes(), |_| {}))
}

/// Returns the text of an error and of its sources.
fn error_chain(error: TransferError) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text += &format!(": {error}");
        source = error.source();
    }
    text
}

/// Returns an empty store with the same clock time as the other.
fn new_at_the_time_of(other: &MemoryFixture) -> MemoryFixture {
    let fixture = MemoryFixture::new();
    fixture.advance(other.now().saturating_since(fixture.now()));
    fixture
}

/// Everything that a store returns about its content.
#[derive(Debug, PartialEq)]
struct Content {
    kinds: Vec<(Kind, Generation, Fence, Settings, Vec<Schedule>)>,
    jobs: Vec<JobView>,
}

fn content(store: &dyn Store) -> Content {
    let (mut kinds, mut jobs) = (Vec::new(), Vec::new());
    for view in block_on(store.kinds()).expect("the memory store does not fail") {
        let settings =
            block_on(store.settings(view.kind.clone())).expect("the memory store does not fail");
        let schedules =
            block_on(store.schedules(view.kind.clone())).expect("the memory store does not fail");
        let query = Query { limit: 1000, ..Query::new(view.kind.clone()) };
        jobs.extend(block_on(store.list(query)).expect("the memory store does not fail").jobs);
        kinds.push((view.kind, view.generation, view.fence, settings, schedules));
    }
    Content { kinds, jobs }
}

/// Returns how a job arrives after an import, as `docs/jobs.md` specifies; `None` if it does not.
fn arrives(mut job: JobView, now: Timestamp) -> Option<JobView> {
    let lease = job.lease.take();
    let next = job.next.take();
    if let Some(lease) = lease {
        if lease.cancelled {
            let next = next?;
            let put_at = job.updated_at;
            job = JobView::new(job.kind, job.id, next);
            (job.created_at, job.updated_at) = (put_at, put_at);
        } else if let Some(next) = next {
            job.version = next;
        }
        job.version.due = job.version.due.max(lease.ends_at);
        job.state = if job.version.due <= now { JobState::Ready } else { JobState::Waiting };
    }
    Some(job)
}

fn after_import(mut content: Content, now: Timestamp) -> Content {
    content.jobs = content.jobs.into_iter().filter_map(|job| arrives(job, now)).collect();
    // A kind without jobs, settings and schedules is not listed.
    content.kinds.retain(|(kind, _, _, settings, schedules)| {
        content.jobs.iter().any(|job| job.kind == *kind)
            || *settings != Settings::default()
            || !schedules.is_empty()
    });
    content
}

/// Returns a store with settings, schedules and jobs in every state.
fn full() -> MemoryFixture {
    let fixture = MemoryFixture::new();
    let store = fixture.store();
    let jobs = Jobs::new(Arc::clone(&store));
    let put = async |id: &str| {
        jobs.put("mail", id, "x").await.expect("the memory store does not fail");
    };
    let claim = async |max: usize, lease: Duration| {
        let claimed = jobs
            .claim(["mail"], "worker-1")
            .max(max)
            .lease(lease)
            .await
            .expect("the memory store does not fail")
            .jobs;
        assert_eq!(claimed.len(), max);
        claimed
    };
    let fail = async |delay: Duration| {
        let job = claim(1, SECOND).await.remove(0);
        let action = Settlement::Retry { delay: Some(delay), error: "\"it\"\nbroke".to_owned() };
        jobs.settle(&job.receipt, action).await.expect("the memory store does not fail")
    };
    block_on(async {
        let mut settings = Settings::default();
        settings.lease = Duration::from_nanos(20_000_000_001);
        settings.backoff = Backoff { base: SECOND, max: 9 * SECOND, jitter_percent: 7 };
        (settings.max_attempts, settings.concurrency) = (2, Some(40));
        settings.retention = Retention { age: Duration::MAX, count: usize::MAX };
        store.set(kind(), settings).await.expect("the memory store does not fail");
        let mut paused = Settings::default();
        paused.paused = true;
        store
            .set(Kind::new("sms").expect("a valid name"), paused)
            .await
            .expect("the memory store does not fail");
        for (id, missed) in [("nightly", Missed::Skip), ("hourly", Missed::One)] {
            store
                .set_schedule(kind(), schedule(&fixture, id, missed), Default::default())
                .await
                .expect("the memory store does not fail");
        }
        for id in ["dead", "revived"] {
            put(id).await;
            fail(Duration::ZERO).await;
            assert_eq!(fail(Duration::ZERO).await, Settled::Dead);
        }
        jobs.put("mail", "revived", "y")
            .after(60 * SECOND)
            .await
            .expect("the memory store does not fail");
        put("failed").await;
        fail(60 * SECOND).await;
        for id in ["leased", "leased, next", "cancelled", "cancelled, next"] {
            put(id).await;
        }
        claim(4, 30 * SECOND).await;
        put("expired").await;
        claim(1, SECOND / 2).await;
        fixture.advance(SECOND);
        for id in ["cancelled", "cancelled, next"] {
            jobs.cancel("mail", id).await.expect("the memory store does not fail");
        }
        for id in ["leased, next", "cancelled, next"] {
            jobs.put("mail", id, "next")
                .after(60 * SECOND)
                .await
                .expect("the memory store does not fail");
        }
        put("ready").await;
        jobs.put("mail", "waiting \"ü\" \u{1F980}\n", [0, 255])
            .after(MAX_DELAY)
            .await
            .expect("the memory store does not fail");
    });
    fixture
}

fn schedule(fixture: &MemoryFixture, id: &str, missed: Missed) -> Schedule {
    Schedule {
        id: JobId::new(id).expect("a valid name"),
        when: "0 3 * * *".to_owned(),
        time_zone: "Europe/Berlin".to_owned(),
        content: Body::new(*b"{\"n\": 1}", "application/json").expect("a small body").into(),
        missed,
        next: fixture.now().saturating_add(2 * MAX_DELAY),
    }
}

#[test]
fn an_import_restores_what_was_exported() {
    let old = full();
    let new = new_at_the_time_of(&old);
    let done = imported(&*new.store(), &exported(&*old.store())).unwrap();
    let before = content(&*old.store());
    let states: Vec<JobState> = before.jobs.iter().map(|job| job.state).collect();
    for state in [JobState::Waiting, JobState::Ready, JobState::Leased, JobState::Dead] {
        assert!(states.contains(&state), "{state:?}");
    }
    assert_eq!((done.kinds, done.schedules, done.jobs), (2, 2, before.jobs.len() as u64));
    assert_eq!((done.kept, done.ended, done.jobs_in_all), (0, 1, done.jobs));
    assert_eq!(content(&*new.store()), after_import(before, old.now()));
    new.check();
}

#[test]
fn stores_after_random_histories_survive_export_and_import() {
    check_seeds(&[], "REQUEUE_TRANSFERS", 200, |seed| {
        let old = MemoryFixture::new();
        check_history(&old, seed)?;
        let new = new_at_the_time_of(&old);
        let file = exported(&*old.store());
        imported(&*new.store(), &file)
            .map_err(|error| format!("{}\n{file}", error_chain(error)))?;
        new.check();
        let (found, expected) = (content(&*new.store()), content(&*old.store()));
        let expected = after_import(expected, old.now());
        if found == expected {
            return Ok(());
        }
        Err(format!("arrived:\n{found:#?}\nexpected:\n{expected:#?}"))
    });
}

#[test]
fn bodies_survive_byte_for_byte() {
    let json = "application/json";
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    let bodies: &[(&str, &[u8], &str)] = &[
        (json, br#"{"b": 1,"a":[ 1e300, 0.10, -0, 12345678901234567890123 ]}"#, "body"),
        (json, br#"{"a":1,"a":2}"#, "body"),
        (json, br#""\ud83d\ude00 \/ \u0041""#, "body"),
        (json, b"null", "body"),
        (json, b"[1,\t2]", "body"),
        (json, "\"\u{2028}\u{1F980}\"".as_bytes(), "body"),
        // JSON that some parsers cannot read.
        (json, br#""\ud800 \/ \u0041""#, "body_text"),
        (json, b"[1e400]", "body_text"),
        (json, deep.as_bytes(), "body_text"),
        // JSON that would lose white space, or does not fit on one line.
        (json, b" 1", "body_text"),
        (json, b"1\n", "body_text"),
        (json, b"{\n  \"a\": 1\r\n}", "body_text"),
        // Not JSON, in spite of the content type.
        (json, b"", "body_text"),
        (json, b"{'a': 1}", "body_text"),
        (json, b"1 2", "body_text"),
        (json, "\u{feff}1".as_bytes(), "body_text"),
        (json, b"\"\xff\"", "body_base64"),
        ("text/plain", b"1", "body_text"),
        ("text/plain", "\0 \" \\ \u{7f} ü \u{2028}\n".as_bytes(), "body_text"),
        ("", b"", "body_text"),
        ("image/png", b"\x89PNG\r\n\x1a\n\0", "body_base64"),
    ];
    let (old, new) = (MemoryStore::new(), MemoryStore::new());
    for (n, (content_type, bytes, _)) in bodies.iter().enumerate() {
        let body = Body::new(*bytes, *content_type).unwrap();
        let id = JobId::new(format!("{n:02}")).unwrap();
        block_on(old.put(vec![Put::new(kind(), id, body)])).unwrap().remove(0).unwrap();
    }
    let file = exported(&old);
    imported(&new, &file).unwrap();
    assert_eq!(content(&new), content(&old));
    let lines = file.lines().filter(|line| line.contains("\"type\":\"job\""));
    for (line, (_, bytes, field)) in lines.zip(bodies) {
        let bytes = String::from_utf8_lossy(bytes);
        assert!(line.contains(&format!("\"{field}\":")), "{field} for {bytes:?}: {line}");
    }
}

#[test]
fn an_export_contains_push_targets_without_their_secrets() {
    let old = MemoryFixture::new();
    let mut settings = Settings::default();
    let (config, secrets) = ("{\"url\":\"https://example.com\"}".to_owned(), "whsec_1".to_owned());
    settings.push = Some(PushSetting { config: config.clone(), secrets: secrets.into() });
    block_on(old.store().set(kind(), settings)).unwrap();
    let file = exported(&*old.store());
    assert!(!file.contains("whsec"), "{file}");
    let new = new_at_the_time_of(&old);
    imported(&*new.store(), &file).unwrap();
    let push = block_on(new.store().settings(kind())).unwrap().push.unwrap();
    assert_eq!((push.config, push.secrets), (config, SecretText::default()));
}

#[test]
fn existing_jobs_are_kept_and_an_import_can_be_repeated() {
    let old = full();
    let file = exported(&*old.store());
    let new = new_at_the_time_of(&old);
    let store = new.store();
    let mut settings = Settings::default();
    settings.max_attempts = 77;
    let other = Schedule { when: "never".to_owned(), ..schedule(&new, "nightly", Missed::One) };
    block_on(store.set(kind(), settings.clone())).unwrap();
    block_on(store.set_schedule(kind(), other.clone(), Default::default())).unwrap();
    let body = Body::octets(*b"mine").unwrap();
    let mine = Put::new(kind(), JobId::new("ready").unwrap(), body.clone());
    block_on(store.put(vec![mine])).unwrap().remove(0).unwrap();

    assert_eq!(imported(&*store, &file).unwrap().kept, 3);
    let once = content(&*store);
    assert_eq!(once.kinds[0].3, settings);
    assert_eq!(once.kinds[0].4[1], other);
    let ready = once.jobs.iter().find(|job| job.id.as_str() == "ready");
    assert_eq!(ready.map(|job| job.body()), Some(&body));

    let again = imported(&*store, &file).unwrap();
    assert_eq!(again.kept, 2 + 2 + again.jobs - again.ended);
    assert_eq!(content(&*store), once);
}

#[test]
fn an_import_that_failed_at_any_call_can_be_repeated() {
    let old = full();
    let file = exported(&*old.store());
    let whole = new_at_the_time_of(&old);
    imported(&*whole.store(), &file).unwrap();
    for fault in [Fault::Refused, Fault::LostReply] {
        let mut calls = 0;
        loop {
            calls += 1;
            let new = new_at_the_time_of(&old);
            let faulty = Faulty::new(new.store());
            faulty.at(calls, fault);
            match imported(&faulty, &file) {
                Ok(_) => break,
                Err(error) => assert!(error_chain(error).contains("a fault was injected")),
            }
            imported(&faulty, &file).unwrap();
            assert_eq!(content(&*new.store()), content(&*whole.store()));
        }
        // Four calls for each of two kinds, two schedules, one batch of jobs.
        assert_eq!(calls - 1, 2 * 4 + 2 + 1);
    }
}

#[test]
fn an_export_that_is_cut_at_any_byte_is_detected() {
    let old = full();
    let file = exported(&*old.store()).into_bytes();
    let new = new_at_the_time_of(&old);
    let store = new.store();
    for end in 0..file.len() - 1 {
        let error = block_on(import(&*store, &mut &file[..end], |_| {}));
        let error = error.expect_err("the export is incomplete");
        let cut = matches!(error, TransferError::Incomplete { .. } | TransferError::NotJson { .. });
        assert!(cut, "cut at {end}: {error}");
    }
    // Only the line break of the last line is missing.
    block_on(import(&*store, &mut &file[..file.len() - 1], |_| {})).unwrap();
}

#[test]
fn large_stores_are_transferred_in_pages_and_batches() {
    let old = MemoryStore::new();
    let put = |id: String, len: usize| {
        let body = Body::octets(vec![7; len]).unwrap();
        let put = Put::new(kind(), JobId::new(id).unwrap(), body);
        block_on(old.put(vec![put])).unwrap().remove(0).unwrap();
    };
    (0..1200).for_each(|n| put(format!("small {n:04}"), 10));
    (0..9).for_each(|n| put(format!("large {n}"), 1 << 20));
    let (mut file, mut steps) = (Vec::new(), Vec::new());
    let store = Faulty::new(Arc::new(old));
    let done = block_on(export(&store, &mut file, |so_far| steps.push(so_far))).unwrap();
    assert_eq!((done.jobs, done.jobs_in_all, done.bytes), (1209, 1209, file.len() as u64));
    assert_eq!(steps.len(), 13 + 1);
    assert!(steps.is_sorted_by_key(|step| (step.jobs, step.bytes)));
    assert_eq!(steps.last(), Some(&done));

    let new = Faulty::new(Arc::new(MemoryStore::new()));
    let mut steps = Vec::new();
    let done = block_on(import(&new, &mut &file[..], |so_far| steps.push(so_far))).unwrap();
    assert_eq!((done.jobs, done.jobs_in_all, done.bytes), (1209, 1209, file.len() as u64));
    // Batches: four large jobs, four more, the last with 499 small jobs, 500, and 201.
    let sent: Vec<u64> = steps.iter().map(|step| step.jobs).collect();
    assert_eq!(sent, [0, 4, 8, 508, 1008, 1209, 1209]);
    assert_eq!(new.calls(), 4 + 5);
}

#[test]
fn counters_continue_also_for_a_kind_without_jobs() {
    let (old, new) = (MemoryStore::new(), MemoryStore::new());
    let jobs = Jobs::new(Arc::new(old.clone()));
    let claimed = block_on(async {
        let mut settings = Settings::default();
        settings.max_attempts = 3;
        old.set(kind(), settings).await.unwrap();
        jobs.put("mail", "a", "x").await.unwrap();
        jobs.put("mail", "a", "x").await.unwrap();
        let claimed = jobs.claim(["mail"], "w").await.unwrap().jobs.remove(0);
        jobs.ack(&claimed.receipt).await.unwrap();
        claimed
    });
    imported(&new, &exported(&old)).unwrap();
    let put = Put::new(kind(), JobId::new("a").unwrap(), Body::default());
    let placed = block_on(new.put(vec![put])).unwrap().remove(0).unwrap();
    assert_eq!(placed.generation, Generation(3));
    assert_eq!(block_on(new.kinds()).unwrap()[0].fence, claimed.receipt.fence());
}

/// An export of version 1 that contains every field.
const VERSION_1: &str = include_str!("version-1.jsonl");

#[test]
fn version_1_is_read_and_written_unchanged() {
    let fixture = MemoryFixture::new();
    let store = fixture.store();
    assert_eq!(imported(&*store, VERSION_1).unwrap().jobs, 3);
    // Everything but the lease is exported again unchanged.
    let line = |file: &str, n: usize| file.lines().nth(n).unwrap().to_owned();
    let file = exported(&*store);
    for n in [0, 1, 2, 3, 4, 5, 7] {
        assert_eq!(line(&file, n), line(VERSION_1, n));
    }
    let arrived = line(&file, 6);
    assert!(arrived.contains(r#""state":"waiting","content_type":"text/plain","body_text":"y""#));
    assert!(
        arrived.contains(r#""due_ms":1700000090000,"generation":2,"attempts":0,"failures":[]"#)
    );
}

#[test]
fn the_longest_line_of_an_export_can_be_imported() {
    let fixture = MemoryFixture::new();
    let (store, jobs) = (fixture.store(), Jobs::new(fixture.store()));
    block_on(async {
        let body = vec![0; limits::MAX_BODY_LEN];
        jobs.put("mail", "a", &body).await.unwrap();
        for _ in 0..limits::KEPT_ATTEMPTS {
            let job = jobs.claim(["mail"], "w").await.unwrap().jobs.remove(0);
            let error = "\0".repeat(limits::MAX_ERROR_LEN);
            let action = Settlement::Retry { delay: Some(Duration::ZERO), error };
            jobs.settle(&job.receipt, action).await.unwrap();
        }
        jobs.claim(["mail"], "w").await.unwrap();
        jobs.put("mail", "a", &body).await.unwrap();
    });
    let file = exported(&*store);
    assert!(file.lines().any(|line| line.len() > 12 << 20));
    imported(&*new_at_the_time_of(&fixture).store(), &file).unwrap();
}

#[test]
fn errors_of_reader_and_writer_are_returned() {
    struct Full;
    impl io::Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let error = block_on(export(&MemoryStore::new(), &mut Full, |_| {})).unwrap_err();
    assert_eq!(error_chain(error), "the export cannot be written: no storage space");

    struct CutOff;
    impl io::Read for CutOff {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::ConnectionReset.into())
        }
    }
    let header = VERSION_1.split_inclusive('\n').next().unwrap();
    let mut input = io::BufReader::new(io::Read::chain(header.as_bytes(), CutOff));
    let error = block_on(import(&MemoryStore::new(), &mut input, |_| {})).unwrap_err();
    assert_eq!(error_chain(error), "line 2 cannot be read: connection reset");
}

#[test]
fn the_futures_are_send() {
    fn is_send<T: Send>(_: T) {}
    let store = MemoryStore::new();
    is_send(export(&store, &mut Vec::new(), |_| {}));
    is_send(import(&store, &mut &b""[..], |_| {}));
}

#[test]
fn an_export_with_numbers_above_the_limit_of_imports_can_be_imported() {
    let mut fixture = MemoryFixture::new();
    let (generation, fence) = (Generation(MAX_RESTORED), Fence(MAX_RESTORED));
    let restore = Restore { kind: kind(), generation, fence, jobs: Vec::new() };
    block_on(fixture.store().restore(restore)).expect("the numbers are at the limit");
    for round in 0..3 {
        let jobs = Jobs::new(fixture.store());
        block_on(async {
            for id in ["pending", "leased"] {
                jobs.put("mail", id, "x").after(60 * SECOND).await.expect("it has numbers");
            }
            jobs.run_now("mail", "leased").await.expect("it is pending");
            let claimed = jobs.claim(["mail"], "worker-1").lease(SECOND).await.expect("it works");
            assert_eq!(claimed.jobs.len(), 1, "{round}");
            jobs.put("mail", "leased", "next").await.expect("it has numbers");
        });
        let view = block_on(fixture.store().kind(kind())).expect("it works");
        assert!(generation < view.generation && fence < view.fence, "{view:?}");
        let next = new_at_the_time_of(&fixture);
        let done = imported(&*next.store(), &exported(&*fixture.store())).expect("it is accepted");
        assert_eq!(done.jobs, 2);
        next.advance(2 * SECOND);
        fixture = next;
    }
}

/// A file may contain jobs of them although no export writes such lines.
#[test]
fn lines_about_reserved_kinds_are_counted_as_kept_and_not_imported() {
    let from = MemoryFixture::new();
    let store = from.store();
    block_on(async {
        Jobs::new(Arc::clone(&store)).put("mail", "a", "x").await.expect("it is valid");
        let nightly = schedule(&from, "nightly", Missed::One);
        store.set_schedule(kind(), nightly, Default::default()).await.expect("it is valid");
    });
    let reserved = format!("\"kind\":\"{SCHEDULE_TIMERS}\"");
    let file = exported(&*from.store()).replace("\"kind\":\"mail\"", &reserved);
    for line in ["kind", "schedule", "job"] {
        assert!(file.contains(&format!("{{\"type\":\"{line}\",{reserved}")), "{file}");
    }
    let to = new_at_the_time_of(&from);
    let done = imported(&*to.store(), &file).expect("the lines are valid");
    assert_eq!([done.kinds, done.schedules, done.jobs, done.kept], [1, 1, 1, 3]);
    assert_eq!(content(&*to.store()), Content { kinds: Vec::new(), jobs: Vec::new() });
}
