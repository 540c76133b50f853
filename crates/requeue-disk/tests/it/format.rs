//! A directory that was written when the format was specified still opens, and contains the same
//! jobs. So a change of the format by accident is found.
//!
//! `REQUEUE_WRITE_FIXTURE=1 cargo test -p requeue-disk --test it -- --ignored format` writes the
//! directory again. Do this only while the format is not released.

use crate::support::forge::set_format;
use crate::support::sample_data::{
    BEGAN_AT, SampleWriter, StoreContents, beginning, kind, read_contents,
};
use crate::support::simulated_disk::SimulatedDisk;
use requeue::ManualClock;
use requeue_disk::{Disk, DiskError, DiskStore, Options, Salvage, verify_on};
use requeue_jobs::{
    Body, Claim, Content, Due, Fence, JobId, JobView, MemoryStore, Mode, Priority, Put, Receipt,
    Settings, Settle, Settled, Settlement, Store, Timestamp, WallClock, WorkerName,
};
use requeue_testkit::block_on;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// A copy of the fixture.
fn copy() -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    for entry in fs::read_dir(fixtures().join("format-1")).unwrap() {
        let entry = entry.unwrap();
        disk.put(entry.file_name().to_str().unwrap(), &fs::read(entry.path()).unwrap());
    }
    disk
}

fn options(wall_clock: &WallClock) -> Options {
    let mut options = Options::default();
    options.wall_clock = wall_clock.clone();
    (options.memory, options.segment, options.background) = (256 << 10, 8 << 10, false);
    options
}

/// The contents of a store as text, to compare it with the text of the fixture.
fn tell(seen: &StoreContents, now: Timestamp, receipts: &[Receipt]) -> String {
    let mut text = format!("now {}\n", now.as_millis());
    for (view, settings, schedules) in &seen.kinds {
        let (name, counts) = (&view.kind, view.counts);
        writeln!(
            text,
            "\nkind {name}: {} pending, {} ready, {} leased, {} dead, generation {}, fence {}",
            counts.pending,
            counts.ready,
            counts.leased,
            counts.dead,
            view.generation.0,
            view.fence.0
        )
        .unwrap();
        if counts.done > 0 {
            writeln!(text, "{} done", counts.done).unwrap();
        }
        if let Some(until) = view.throttled_until {
            writeln!(text, "throttled until {}", until.as_millis()).unwrap();
        }
        writeln!(
            text,
            "settings: lease {:?}, backoff {:?} to {:?} less {}%, attempts {}, concurrency {:?}, \
             paused {}, retention {:?} and {}",
            settings.lease,
            settings.backoff.base,
            settings.backoff.max,
            settings.backoff.jitter_percent,
            settings.max_attempts,
            settings.concurrency,
            settings.paused,
            settings.retention.age,
            settings.retention.count
        )
        .unwrap();
        tell_optional_settings(&mut text, settings);
        for schedule in schedules {
            writeln!(
                text,
                "schedule {}: {} in {}, missed {:?}, next {}, {}",
                schedule.id,
                schedule.when,
                schedule.time_zone,
                schedule.missed,
                schedule.next.as_millis(),
                content(&schedule.content)
            )
            .unwrap();
        }
        for job in seen.jobs.iter().filter(|job| job.kind == *name) {
            tell_job(&mut text, job);
        }
    }
    text.push('\n');
    for receipt in receipts {
        let (fence, nonce) = (receipt.fence().0, receipt.nonce());
        writeln!(text, "receipt {} {} {fence} {nonce}", receipt.kind(), receipt.id()).unwrap();
    }
    text
}

/// Settings that are not always set, if they differ from the default.
fn tell_optional_settings(text: &mut String, settings: &Settings) {
    if let Some(rate) = settings.rate {
        writeln!(text, "rate: {} per {:?}, burst {}", rate.jobs, rate.per, rate.bucket()).unwrap();
    }
    if settings.ageing != Settings::default().ageing {
        writeln!(text, "ageing: {:?}", settings.ageing).unwrap();
    }
    if let Some(push) = &settings.push {
        writeln!(text, "push: {} {}", push.config, push.secrets.expose()).unwrap();
    }
    if let Some(keep) = settings.keep_done {
        writeln!(text, "keeps done jobs: {:?} and {}", keep.age, keep.count).unwrap();
    }
}

fn body(body: &Body) -> String {
    format!("{} \"{}\"", body.content_type(), body.bytes().escape_ascii())
}

fn content(content: &Content) -> String {
    let Content { body, head } = content;
    let mut text = self::body(body);
    if let Some(envelope) = &head.envelope {
        let bytes = envelope.bytes().escape_ascii();
        write!(text, " with {} \"{bytes}\"", envelope.of_type()).unwrap();
    }
    text
}

fn tell_job(text: &mut String, job: &JobView) {
    write!(
        text,
        "{}: {:?}, due {}, generation {}, attempts {}, deaths {}, created {}, updated {}, {}",
        job.id,
        job.state,
        job.version.due.as_millis(),
        job.version.generation.0,
        job.attempts,
        job.deaths,
        job.created_at.as_millis(),
        job.updated_at.as_millis(),
        content(&job.version.content)
    )
    .unwrap();
    if let Some(lease) = &job.lease {
        let (from, to) = (lease.claimed_at.as_millis(), lease.ends_at.as_millis());
        write!(text, ", {} from {from} to {to}", lease.worker).unwrap();
        text.push_str(if lease.cancelled { ", cancelled" } else { "" });
    }
    if let Some(next) = &job.next {
        let (due, generation) = (next.due.as_millis(), next.generation.0);
        write!(text, ", next due {due}, generation {generation}, {}", content(&next.content))
            .unwrap();
        if next.priority > Priority::default() {
            write!(text, ", next priority {}", next.priority).unwrap();
        }
    }
    if let Some(died_at) = job.died_at {
        write!(text, ", died {}", died_at.as_millis()).unwrap();
    }
    if job.version.priority > Priority::default() {
        write!(text, ", priority {}", job.version.priority).unwrap();
    }
    if let Some(done) = &job.done {
        let (from, to) = (done.started_at.as_millis(), done.done_at.as_millis());
        write!(text, ", done by {} from {from} to {to}", done.worker).unwrap();
        if let Some(result) = &done.result {
            write!(text, ", result {}", body(result)).unwrap();
        }
    }
    for failure in &job.failures {
        let (from, to) = (failure.started_at.as_millis(), failure.ended_at.as_millis());
        write!(text, ", failed {} from {from} to {to} {:?}", failure.worker, failure.error)
            .unwrap();
    }
    text.push('\n');
}

/// Makes a store that has jobs of every state in tables, and after that in the log.
fn live(store: &dyn Store, clock: &ManualClock) -> Vec<Receipt> {
    let mut writer = SampleWriter::new(store, clock);
    writer.put_samples("tables");
    // Finished jobs leave range tombstones, and jobs that were put again leave tombstones. There
    // are so many flushes that some are merged.
    for number in 0..60 {
        let body = Body::octets([b'x'; 20]).unwrap();
        writer.put("front", &format!("{number:03}"), body, Due::Now, Mode::Replace);
    }
    for round in 0..6600 {
        writer.later("again", &format!("{:02}", round % 40), &format!("round {round}"));
        if round % 120 == 119 {
            writer.ack_first("front");
        }
        clock.advance(Duration::from_millis(1));
    }
    writer.put_samples("log");
    writer.receipts
}

#[test]
#[ignore = "it writes the fixture"]
fn write_the_fixture() {
    if std::env::var("REQUEUE_WRITE_FIXTURE").is_err() {
        return;
    }
    let (clock, wall_clock) = beginning();
    let disk = SimulatedDisk::new();
    let store = DiskStore::open_on(Arc::new(disk.clone()), options(&wall_clock)).unwrap();
    let receipts = live(&store, &clock);
    let told = tell(&read_contents(&store), wall_clock.now(), &receipts);
    drop(store);

    // Check the fixture that was written.
    let (clock, wall_clock) = beginning();
    let memory = MemoryStore::with(wall_clock.clone());
    let receipts = live(&memory, &clock);
    assert_eq!(told, tell(&read_contents(&memory), wall_clock.now(), &receipts));

    let directory = fixtures().join("format-1");
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    for name in disk.names().unwrap() {
        fs::write(directory.join(&name), disk.bytes(&name)).unwrap();
    }
    fs::write(fixtures().join("format-1.txt"), told).unwrap();
}

fn told() -> String {
    fs::read_to_string(fixtures().join("format-1.txt")).unwrap()
}

/// A clock that begins at the time when a fixture was written.
fn then(told: &str) -> (ManualClock, WallClock) {
    let now = told.lines().next().unwrap().strip_prefix("now ").unwrap().parse().unwrap();
    let clock = ManualClock::new();
    let wall_clock = WallClock::manual(&clock, Timestamp::from_millis(now));
    (clock, wall_clock)
}

fn receipts(told: &str) -> Vec<Receipt> {
    let receipt = |line: &str| {
        let mut words = line.strip_prefix("receipt ")?.split(' ');
        let mut word = || words.next().unwrap();
        let (of, id) = (kind(word()), JobId::new(word()).unwrap());
        let (fence, nonce) = (word().parse().unwrap(), word().parse().unwrap());
        Some(Receipt::new(of, id, Fence(fence), nonce))
    };
    told.lines().filter_map(receipt).collect()
}

#[test]
fn the_fixture_is_sound() {
    let verified = verify_on(&copy(), |_| ()).unwrap();
    assert!(verified.is_sound() && verified.harmless.is_empty(), "{verified:?}");
    assert_eq!(verified.orphans, Vec::<String>::new());
}

#[test]
fn the_fixture_contains_what_it_contained() {
    let (disk, told) = (copy(), told());
    let (_, wall_clock) = then(&told);
    for _opened_again in 0..3 {
        let store = DiskStore::open_on(Arc::new(disk.clone()), options(&wall_clock)).unwrap();
        assert_eq!(tell(&read_contents(&store), wall_clock.now(), &receipts(&told)), told);
        store.check();
    }
}

#[test]
fn work_goes_on_with_the_fixture() {
    let (disk, told) = (copy(), told());
    let (clock, wall_clock) = then(&told);
    let store = DiskStore::open_on(Arc::new(disk.clone()), options(&wall_clock)).unwrap();
    let before = read_contents(&store);

    let mut fences = Vec::new();
    for receipt in receipts(&told) {
        fences.push(receipt.fence());
        let settle = Settle { receipt: receipt.clone(), action: Settlement::Ack };
        let settled = block_on(store.settle(vec![settle])).unwrap().remove(0).unwrap();
        let cancelled = receipt.id().as_str().contains("cancelled");
        let expected = if cancelled { Settled::Cancelled } else { Settled::Done };
        assert_eq!(settled, expected, "{}", receipt.id());
    }
    assert!(fences.len() >= 10);

    let of = kind("order.close");
    let generations = before.jobs.iter().filter(|job| job.kind == of);
    let newest = generations.map(JobView::newest_generation).max().unwrap();
    let put = |id: &str, due, mode| {
        let body = Body::octets(*b"new").unwrap();
        let put = Put { due, mode, ..Put::new(of.clone(), JobId::new(id).unwrap(), body) };
        block_on(store.put(vec![put])).unwrap().remove(0).unwrap().generation
    };
    let get = |id: &str| block_on(store.get(of.clone(), JobId::new(id).unwrap())).unwrap().unwrap();
    for with in ["tables", "log"] {
        let failed = format!("{with}-failed-once");
        let due = get(&failed).version.due;
        assert!(put(&failed, Due::Now, Mode::Replace) > newest);
        assert_eq!(get(&failed).version.due, due, "the end of its backoff was kept");
        let debounced = format!("{with}-debounced");
        let max_wait = Duration::from_secs(3 * 3600);
        put(&debounced, Due::After(Duration::from_secs(9 * 3600)), Mode::Debounce { max_wait });
        let due = get(&debounced).version.due.as_millis();
        let first = get(&debounced).created_at.as_millis();
        assert_eq!(due, first + 3 * 3_600_000, "the time of the first put was kept");
        assert!(first > BEGAN_AT);
    }

    clock.advance(Duration::from_secs(400 * 24 * 3600));
    let kinds = before.kinds.iter().map(|(view, ..)| view.kind.clone()).collect::<Vec<_>>();
    let (worker, mut claimed) = (WorkerName::new("w").unwrap(), 0);
    for of in kinds {
        let (kinds, worker, mut last) = (vec![of.clone()], worker.clone(), Timestamp::default());
        let claim = Claim { kinds, max: 1000, lease: None, worker, nonce: 5 };
        let has_priorities = of.as_str() == "billing" || of.as_str() == "sms";
        for job in block_on(store.claim(claim)).unwrap().jobs {
            assert!(
                job.version.due >= last || has_priorities,
                "in the order in which they are due"
            );
            assert!(fences.iter().all(|fence| *fence < job.receipt.fence()));
            (last, claimed) = (job.version.due, claimed + 1);
        }
    }
    assert!(claimed > 60, "{claimed}");
    drop(store);
    assert!(verify_on(&disk, |_| ()).unwrap().is_sound());
}

#[test]
fn another_format_is_refused_and_nothing_is_changed() {
    let (_, wall_clock) = then(&told());
    let names = copy().names().unwrap();
    for prefix in ["manifest-", "log-", "table-"] {
        let newest = names.iter().filter(|name| name.starts_with(prefix)).max().unwrap();
        let disk = copy();
        set_format(&disk, newest, 2);
        let before: Vec<_> = names.iter().map(|name| disk.bytes(name)).collect();
        let refused = |error: DiskError| {
            let DiskError::Format { file, found, expected } = &error else { panic!("{error}") };
            assert_eq!(file, newest);
            assert!(found.starts_with("2 (\"rq-") && expected.starts_with("1 (\"rq-"), "{error}");
        };
        let opened = DiskStore::open_on(Arc::new(disk.clone()), options(&wall_clock));
        refused(opened.err().unwrap());
        let salvaged = Salvage::open_on(&disk, wall_clock.clone(), |loss| panic!("{loss}"));
        refused(salvaged.err().unwrap());
        assert_eq!(disk.names().unwrap(), names);
        assert!(names.iter().map(|name| disk.bytes(name)).eq(before));
    }
}
