//! Directories of every released format can be opened, and contain the same jobs as when they were
//! written.
//!
//! `REQUEUE_WRITE_FIXTURE=1 cargo test -p requeue-disk --test it -- --ignored format` writes the
//! fixture of the current format again. Do this only for a format that is not released: fixtures of
//! released formats never change.

use crate::support::format_reader;
use crate::support::sample_data::{
    BEGAN_AT, SampleWriter, StoreContents, beginning, kind, read_contents,
};
use crate::support::simulated_disk::SimulatedDisk;
use requeue::ManualClock;
use requeue_disk::{Disk, DiskStore, Options, verify_on};
use requeue_jobs::{
    Body, Claim, ClaimedJob, Due, Fence, JobId, JobState, JobView, MemoryStore, Mode, Priority,
    Put, Rate, Receipt, Retention, Settings, Settle, Settled, Settlement, Store, Timestamp,
    WallClock, WorkerName,
};
use requeue_testkit::block_on;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The format of the log and of manifests that this version writes.
const NEWEST: u32 = 3;

fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// A copy of a fixture.
fn copy(format: u32) -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    for entry in fs::read_dir(fixtures().join(format!("format-{format}"))).unwrap() {
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
        tell_new_settings(&mut text, settings);
        for schedule in schedules {
            writeln!(
                text,
                "schedule {}: {} in {}, missed {:?}, next {}, {}",
                schedule.id,
                schedule.when,
                schedule.time_zone,
                schedule.missed,
                schedule.next.as_millis(),
                body(&schedule.body)
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

/// Settings that format 3 has brought, if they differ from the default.
fn tell_new_settings(text: &mut String, settings: &Settings) {
    if let Some(rate) = settings.rate {
        writeln!(text, "rate: {} per {:?}, burst {}", rate.jobs, rate.per, rate.bucket()).unwrap();
    }
    if settings.ageing != Settings::default().ageing {
        writeln!(text, "ageing: {:?}", settings.ageing).unwrap();
    }
    if let Some(keep) = settings.keep_done {
        writeln!(text, "keeps done jobs: {:?} and {}", keep.age, keep.count).unwrap();
    }
}

fn body(body: &Body) -> String {
    format!("{} \"{}\"", body.content_type(), body.bytes().escape_ascii())
}

fn tell_job(text: &mut String, job: &JobView) {
    write!(
        text,
        "{}: {:?}, due {}, generation {}, attempts {}, deaths {}, created {}, updated {}, {}",
        job.id,
        job.state,
        job.due.as_millis(),
        job.generation.0,
        job.attempts,
        job.deaths,
        job.created_at.as_millis(),
        job.updated_at.as_millis(),
        body(&job.body)
    )
    .unwrap();
    if let Some(lease) = &job.lease {
        let (from, to) = (lease.claimed_at.as_millis(), lease.ends_at.as_millis());
        write!(text, ", {} from {from} to {to}", lease.worker).unwrap();
        text.push_str(if lease.cancelled { ", cancelled" } else { "" });
    }
    if let Some(next) = &job.next {
        let (due, generation) = (next.due.as_millis(), next.generation.0);
        write!(text, ", next due {due}, generation {generation}, {}", body(&next.body)).unwrap();
        if next.priority > Priority::default() {
            write!(text, ", next priority {}", next.priority).unwrap();
        }
    }
    if let Some(died_at) = job.died_at {
        write!(text, ", died {}", died_at.as_millis()).unwrap();
    }
    if job.priority > Priority::default() {
        write!(text, ", priority {}", job.priority).unwrap();
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
    let format = NEWEST;
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

    let directory = fixtures().join(format!("format-{format}"));
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    for name in disk.names().unwrap() {
        fs::write(directory.join(&name), disk.bytes(&name)).unwrap();
    }
    fs::write(fixtures().join(format!("format-{format}.txt")), told).unwrap();
}

fn told(format: u32) -> String {
    fs::read_to_string(fixtures().join(format!("format-{format}.txt"))).unwrap()
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
fn every_format_is_sound() {
    for format in 1..=NEWEST {
        let verified = verify_on(&copy(format), |_| ()).unwrap();
        assert!(verified.is_sound() && verified.harmless.is_empty(), "{verified:?}");
        assert_eq!(verified.orphans, Vec::<String>::new());
    }
}

#[test]
fn every_format_holds_what_it_held() {
    for format in 1..=NEWEST {
        let (disk, told) = (copy(format), told(format));
        let (_, wall_clock) = then(&told);
        for _opened_again in 0..3 {
            let store = DiskStore::open_on(Arc::new(disk.clone()), options(&wall_clock)).unwrap();
            assert_eq!(tell(&read_contents(&store), wall_clock.now(), &receipts(&told)), told);
            store.check();
        }
    }
}

#[test]
fn a_closed_format_1_records_the_end_of_its_log() {
    let (disk, told) = (copy(1), told(1));
    let (_, wall_clock) = then(&told);
    let open = |disk: &SimulatedDisk| {
        DiskStore::open_on(Arc::new(disk.clone()), options(&wall_clock)).map(drop)
    };
    open(&disk).unwrap();
    let mut names = disk.names().unwrap();
    names.retain(|name| name.starts_with("log-"));
    disk.remove(names.last().unwrap()).unwrap();
    let error = open(&disk).unwrap_err().to_string();
    assert!(error.contains(names.last().unwrap()), "{error}");
}

#[test]
fn work_goes_on_with_every_format() {
    (1..=NEWEST).for_each(work_goes_on);
}

fn work_goes_on(format: u32) {
    let (disk, told) = (copy(format), told(format));
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
        let due = get(&failed).due;
        assert!(put(&failed, Due::Now, Mode::Replace) > newest);
        assert_eq!(get(&failed).due, due, "the end of its backoff was kept");
        let debounced = format!("{with}-debounced");
        let max_wait = Duration::from_secs(3 * 3600);
        put(&debounced, Due::After(Duration::from_secs(9 * 3600)), Mode::Debounce { max_wait });
        let due = get(&debounced).due.as_millis();
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
            assert!(job.due >= last || has_priorities, "in the order in which they are due");
            assert!(fences.iter().all(|fence| *fence < job.receipt.fence()));
            (last, claimed) = (job.due, claimed + 1);
        }
    }
    assert!(claimed > 60, "{claimed}");
    drop(store);
    assert!(verify_on(&disk, |_| ()).unwrap().is_sound());
}

#[test]
fn every_format_is_as_its_page_says() {
    (1..=NEWEST).for_each(check_page);
}

fn check_page(format: u32) {
    let disk = copy(format);
    let contents = format_reader::read(&disk.names().unwrap(), |name| disk.bytes(name));
    assert!(
        contents.range_tombstones > 0 && contents.tombstones > 0 && contents.merged > 0,
        "{contents:?}"
    );
    assert!(contents.runs.iter().all(|runs| *runs > 1), "{contents:?}");
    // The fixture contains every flag, tag and list.
    let new_flags = if format < 3 { 0 } else { 0b1_1100_0000_0000_0000 };
    let in_both = 0b11_1110_1101_0011 | new_flags;
    assert_eq!(contents.table_flags & contents.log_flags & in_both, in_both);
    let log_flags = 0b11_1111_1111_1111 | new_flags;
    assert_eq!(contents.log_flags, log_flags, "{:b}", contents.log_flags);
    // Since format 3, settings have another tag.
    let (tags, lists) = if format < 3 { (0b11_1111, 0b1111) } else { (0b1111_1011, (1 << 23) - 1) };
    assert_eq!((contents.tags, contents.lists), (tags, lists), "{:b}", contents.lists);
    assert_eq!(contents.log_end, (format > 1).then_some(true));
    let live = told(format).lines().filter(|line| line.contains(", due ")).count();
    assert_eq!(contents.jobs.len(), live);
    for with in ["tables", "log"] {
        let often = &contents.jobs[&("order.close".to_owned(), format!("{with}-failed-often"))];
        assert_eq!((often.attempts, often.failures.len()), (7, 5));
        assert_eq!(often.failures[4].2, "failure 7");
    }
    if format < 3 {
        return;
    }
    assert_eq!(contents.settings, 0b1111, "every flag of settings");
    assert!(contents.rate_uses["billing"].0 > 0 && contents.rate_uses["mail"] == (0, 0));
    // Two tokens of 36,000,000 parts each, of which the time since then has refilled a few.
    let (parts, at) = contents.rate_uses["sms"];
    assert!((71_900_000..=72_000_000).contains(&parts) && at > BEGAN_AT, "{parts} at {at}");
    for with in ["tables", "log"] {
        let job = |name: &str| &contents.jobs[&("billing".to_owned(), format!("{with}-{name}"))];
        for priority in 1..=9 {
            let (waiting, leased) = (format!("waiting-{priority}"), format!("leased-{priority}"));
            assert_eq!(job(&waiting).priorities, (priority, 0));
            assert_eq!(job(&leased).priorities, (priority, 0));
        }
        assert_eq!(job("successor").priorities, (2, 6));
        assert_eq!((job("dead").place.0, job("dead").priorities.0), (2, 7));
        assert_eq!((job("done-urgent").place.0, job("done-urgent").priorities.0), (4, 4));
        let result = |name: &str| job(name).result.as_deref();
        assert_eq!((result("done"), result("done-empty")), (None, Some(&b""[..])));
        assert_eq!(result("done-result"), Some(&br#"{"sent":1}"#[..]));
        assert_eq!(job("done-result").body, b"");
    }
}

fn claim(store: &DiskStore, of: &str, max: usize) -> Vec<ClaimedJob> {
    let (kinds, worker) = (vec![kind(of)], WorkerName::new("w").unwrap());
    let claim = Claim { kinds, max, lease: None, worker, nonce: 5 };
    block_on(store.claim(claim)).unwrap().jobs
}

#[test]
fn priorities_rates_and_done_jobs_work_with_every_format() {
    (1..=NEWEST).for_each(new_features_work);
}

fn new_features_work(format: u32) {
    let (disk, told) = (copy(format), told(format));
    let (_, wall_clock) = then(&told);
    let open = || DiskStore::open_on(Arc::new(disk.clone()), options(&wall_clock)).unwrap();
    let store = open();
    // Its three jobs in tables and three in the log are ready, and have no priority.
    let mail = "mail";
    let mut settings = block_on(store.settings(kind(mail))).unwrap();
    assert_eq!((settings.rate, settings.keep_done), (None, None));
    assert_eq!(settings.ageing, Settings::default().ageing);
    let rate = Some(Rate { jobs: 1, per: Duration::from_secs(3600), burst: Some(5) });
    (settings.rate, settings.ageing) = (rate, None);
    settings.keep_done = Some(Retention { age: Duration::from_secs(3600), count: 100 });
    block_on(store.set(kind(mail), settings.clone())).unwrap();
    let put = |id: &str, priority: u8| {
        let put = Put::new(kind(mail), JobId::new(id).unwrap(), Body::octets(*b"new").unwrap());
        Put { priority: Priority::new(priority).unwrap(), ..put }
    };
    let puts = vec![put("low", 1), put("high", 9), put("tables-ready-2", 5)];
    assert!(block_on(store.put(puts)).unwrap().iter().all(Result::is_ok));
    drop(store);

    let store = open();
    let jobs = claim(&store, mail, 100);
    let ids: Vec<_> = jobs.iter().map(|job| job.id().as_str()).collect();
    assert_eq!(ids, ["high", "tables-ready-2", "low", "tables-ready-0", "tables-ready-1"]);
    let result = Body::new(*b"result", "text/plain").unwrap();
    for (job, action) in
        jobs.iter().zip([Settlement::AckWith(result.clone()), Settlement::Ack, Settlement::Release])
    {
        let settle = Settle { receipt: job.receipt.clone(), action };
        block_on(store.settle(vec![settle])).unwrap().remove(0).unwrap();
    }
    let before = tell(&read_contents(&store), wall_clock.now(), &[]);
    drop(store);

    for _opened_again in 0..2 {
        let store = open();
        assert_eq!(tell(&read_contents(&store), wall_clock.now(), &[]), before);
        assert_eq!(block_on(store.settings(kind(mail))).unwrap(), settings);
        let get = |id: &str| block_on(store.get(kind(mail), JobId::new(id).unwrap())).unwrap();
        let (high, ready) = (get("high").unwrap(), get("tables-ready-2").unwrap());
        assert_eq!((high.state, high.done.unwrap().result), (JobState::Done, Some(result.clone())));
        assert_eq!((ready.state, ready.done.unwrap().result), (JobState::Done, None));
        store.check();
    }
    let store = open();
    // The job that was released has given its token back.
    let ids = claim(&store, mail, 100);
    assert_eq!(ids.iter().map(|job| job.id().as_str()).collect::<Vec<_>>(), ["low"]);
    drop(store);
    let verified = verify_on(&disk, |_| ()).unwrap();
    assert!(verified.is_sound() && verified.harmless.is_empty(), "{verified:?}");
}

/// The formats of all segments and manifests, and of all tables.
fn formats(disk: &SimulatedDisk) -> (Vec<u32>, Vec<u32>) {
    let (mut logs, mut tables) = (Vec::new(), Vec::new());
    for name in disk.names().unwrap() {
        let (bytes, prefix) = (disk.bytes(&name), name.split('-').next().unwrap().to_owned());
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        match &*prefix {
            "log" | "manifest" => logs.push(word(8)),
            "table" => tables.push(word(bytes.len() - 12)),
            _ => {}
        }
    }
    (logs, tables)
}

/// A directory that does not list the end of its log gets a manifest when it is closed.
#[test]
fn the_new_format_is_written_when_a_log_is_closed_for_the_first_time() {
    let killed = copy(2);
    killed.remove("manifest-0000000020").unwrap();
    for (disk, told) in [(copy(1), told(1)), (killed, told(2))] {
        let (_, wall_clock) = then(&told);
        drop(DiskStore::open_on(Arc::new(disk.clone()), options(&wall_clock)).unwrap());
        let (logs, _) = formats(&disk);
        assert!(logs.contains(&3), "{logs:?}");
    }
}

/// An older program refuses a newer format. So it can open the directory until this one has changed
/// something.
#[test]
fn the_new_format_is_written_with_the_first_change() {
    let (disk, told) = (copy(2), told(2));
    let (_, wall_clock) = then(&told);
    let open = || DiskStore::open_on(Arc::new(disk.clone()), options(&wall_clock)).unwrap();
    let is_old = |disk: &SimulatedDisk| {
        let (logs, tables) = formats(disk);
        logs.iter().all(|format| *format == 2) && tables.iter().all(|format| *format == 1)
    };
    let store = open();
    read_contents(&store);
    drop(store);
    assert!(is_old(&disk), "only read");
    let store = open();
    let put = Put::new(kind("mail"), JobId::new("new").unwrap(), Body::default());
    block_on(store.put(vec![put])).unwrap().remove(0).unwrap();
    assert!(formats(&disk).0.contains(&3), "before the change is acknowledged");
    drop(store);
    // The newest segment and the newest manifest.
    let newest = |prefix: &str| {
        let names = disk.names().unwrap().into_iter().filter(|name| name.starts_with(prefix));
        disk.bytes(&names.max().unwrap())[8]
    };
    assert_eq!((newest("log-"), newest("manifest-")), (3, 3));
}
