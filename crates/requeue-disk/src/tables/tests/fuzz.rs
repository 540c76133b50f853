//! Whatever bytes the decoders get, with valid checksums or not: there is no panic, and memory is
//! not taken by a length that was read.

use super::{flush_jobs, open, small, with_seeds};
use crate::bytes::{Bytes, Malformed, put_bytes};
use crate::codec::{self, Draft, Parts};
use crate::disk::Disk;
use crate::error::DiskError;
use crate::manifest::{self, Manifest};
use crate::simulated_disk::SimulatedDisk;
use crate::stored_kinds::{self, StoredKind};
use crate::tables::filter::Filter;
use crate::tables::index::Index;
use crate::tables::keys::JobLocation;
use crate::tables::run::Run;
use crate::tables::table::{self, Footer, Table, TableEnd};
use crate::tables::{Batch, SalvagedTables, TableCache, Tree, Version, block};
use crate::verify_on;
use requeue_jobs::rules::{Counters, Lease, List, RateUse, Record, Status, Successor};
use requeue_jobs::{
    Body, DoneView, FailedAttempt, Fence, Generation, JobId, Kind, Missed, Priority, PushSetting,
    Rate, Retention, Schedule, Settings, Timestamp, Version as JobVersion, WorkerName,
};
use requeue_testkit::Random;
use std::sync::Arc;
use std::time::Duration;

/// Tables in two manifests, so that the newest is not read completely when it is opened. Returns
/// the number of the first table of the due tree too.
fn tables() -> (SimulatedDisk, Arc<Version>) {
    let disk = SimulatedDisk::new();
    let tables = open(&disk, small());
    flush_jobs(&tables, 0..100);
    tables.flush().commit(Batch { live: 100, ..Batch::default() }).unwrap();
    let version = tables.version();
    (disk, version)
}

/// Replaces the footer of a table, with a valid checksum, and lists it in a new manifest.
fn with_footer(change: impl FnOnce(&mut Footer)) -> SimulatedDisk {
    let (disk, version) = tables();
    let number = version.due[0].tables[0].number;
    let mut end = TableEnd::read(&disk, number).unwrap();
    change(&mut end.footer);
    let mut bytes = disk.bytes(&table::name(number));
    bytes.truncate(end.footer_at as usize);
    let (footer, crc) = end.footer.encode(end.footer_at);
    bytes.extend_from_slice(&footer);
    disk.put(&table::name(number), &bytes);
    let mut version = Version::clone(&version);
    let run = &version.due[0];
    let mut tables = run.tables.clone();
    let old = &tables[0];
    tables[0] = Arc::new(Table {
        number,
        file: old.file.clone(),
        bytes: bytes.len() as u64,
        crc,
        entries: old.entries,
        tombstones: old.tombstones,
        smallest: old.smallest.clone(),
        largest: old.largest.clone(),
        sections: old.sections.clone(),
        index: Index::default(),
        filter: None,
    });
    version.due[0] = Arc::new(Run { tables, ..Run::clone(run) });
    for number in [8, 9] {
        disk.put(&manifest::name(number), &manifest::encode(number, &version, 99));
    }
    for name in disk.names().unwrap() {
        let old = name.strip_prefix("manifest-").is_some_and(|n| n.parse::<u64>().unwrap() < 8);
        if old {
            disk.remove(&name).unwrap();
        }
    }
    disk
}

type ChangeFooter = fn(&mut Footer);

#[test]
fn a_footer_that_does_not_match_its_table_is_damage() {
    let changes: [(&str, ChangeFooter); 9] = [
        ("largest", |footer| footer.largest = vec![0xff; 21]),
        ("larger than the last key", |footer| footer.largest[20] += 1),
        ("smallest", |footer| footer.smallest = vec![0xff; 21]),
        ("empty", |footer| footer.largest.clear()),
        ("no sections", |footer| footer.sections.clear()),
        ("a section", |footer| footer.sections[0].prefix = [9; 5]),
        ("entries", |footer| footer.entries = u64::MAX),
        ("entries of a section", |footer| footer.sections[0].entries = u64::MAX),
        ("tombstones", |footer| footer.tombstones = u64::MAX),
    ];
    for (what, change) in changes {
        let disk = with_footer(change);
        let verified = verify_on(&disk, |_| ()).unwrap();
        assert!(!verified.is_sound(), "{what}");
        let opened = crate::tables::Tables::open(Arc::new(disk), small());
        assert!(matches!(opened, Err(DiskError::Corrupt(_))), "{what}");
    }
}

#[test]
fn numbers_in_manifests_that_were_never_assigned_are_damage() {
    let changes: [fn(&mut Version, &mut u64); 8] = [
        |version, _| version.next_flush = u64::MAX,
        |version, _| version.next_flush = 0,
        |version, _| version.flushed_through = u64::MAX,
        |version, _| version.live = u64::MAX,
        |_, next_file| *next_file = u64::MAX,
        |_, next_file| *next_file = 0,
        |version, _| version.due[0] = Arc::new(Run { lo: 9, ..Run::clone(&version.due[0]) }),
        |version, _| version.ids[0] = Arc::new(Run { hi: 99, ..Run::clone(&version.ids[0]) }),
    ];
    for (at, change) in changes.into_iter().enumerate() {
        let (disk, version) = tables();
        let (mut version, mut next_file) = (Version::clone(&version), 99);
        change(&mut version, &mut next_file);
        for name in disk.names().unwrap() {
            if name.starts_with("manifest-") {
                disk.remove(&name).unwrap();
            }
        }
        disk.put(&manifest::name(7), &manifest::encode(7, &version, next_file));
        assert!(!verify_on(&disk, |_| ()).unwrap().is_sound(), "{at}");
        let opened = crate::tables::Tables::open(Arc::new(disk), small());
        assert!(matches!(opened, Err(DiskError::Corrupt(_))), "{at}");
    }
    for name in [manifest::name(u64::MAX), table::name(u64::MAX)] {
        let (disk, _) = tables();
        disk.put(&name, b"");
        let opened = crate::tables::Tables::open(Arc::new(disk), small());
        assert!(matches!(opened, Err(DiskError::Corrupt(corrupt)) if corrupt.file == name));
    }
}

fn record(random: &mut Random) -> Record {
    let time = |random: &mut Random| Timestamp::from_millis(random.number() >> 20);
    let body = |random: &mut Random| Body::octets(vec![7; random.below(40)]).unwrap();
    let worker = WorkerName::new("worker").unwrap();
    let mut record =
        Record::new(JobVersion::new(body(random), time(random), Generation(3)), 4, time(random));
    let (started_at, ended_at) = (time(random), time(random));
    let failure =
        FailedAttempt { worker: worker.clone(), started_at, ended_at, error: Some("no".into()) };
    record.failures = vec![failure; random.below(5)];
    let priority = |random: &mut Random| Priority::new(random.below(10) as u8).unwrap();
    record.version.priority = priority(random);
    if random.chance(20) {
        let (started_at, done_at) = (time(random), time(random));
        let result = random.chance(50).then(|| body(random));
        record.status = Status::Done(Box::new(DoneView { worker, started_at, done_at, result }));
    } else if random.chance(10) {
        record.status = Status::Dead { died_at: time(random) };
    } else if random.chance(60) {
        let (due, put_at) = (time(random), time(random));
        let (content, priority) = (body(random).into(), priority(random));
        let version = JobVersion { content, due, priority, generation: Generation(5) };
        let next = Successor { version, put_at };
        record.status = Status::Leased(Box::new(Lease {
            fence: Fence(9),
            nonce: random.number(),
            worker,
            claimed_at: time(random),
            ends_at: time(random),
            cancelled: random.chance(50),
            next: random.chance(50).then_some(next),
        }));
    }
    record
}

fn settings(random: &mut Random) -> Settings {
    let mut settings = Settings::default();
    settings.concurrency = random.chance(50).then_some(7);
    settings.paused = random.chance(50);
    let (config, secrets) = ("{\"url\":\"https://é\"}".to_owned(), "whsec_1".to_owned().into());
    settings.push = random.chance(50).then_some(PushSetting { config, secrets });
    settings.rate = random.chance(50).then(|| Rate::new(7, Duration::from_secs(60)));
    settings.ageing = *random.pick(&[settings.ageing, None, Some(Duration::from_millis(1500))]);
    let keep = Retention { age: Duration::from_secs(3600), count: 99 };
    settings.keep_done = random.chance(50).then_some(keep);
    settings
}

fn stored_kind(random: &mut Random) -> StoredKind {
    let mut counts = [0; List::END];
    List::all().for_each(|list| counts[list.index()] = random.below(3) as u64);
    let at = Timestamp::from_millis(random.number() >> 20);
    StoredKind {
        number: random.below(1000) as u32,
        name: Kind::new("kind").unwrap(),
        counters: Counters { generation: 3, fence: 4, seq: 5 },
        counts,
        settings: settings(random),
        rate_use: RateUse { parts: random.below(1000) as u64, at },
    }
}

#[test]
fn what_is_written_is_read_again() {
    with_seeds(2000, |random| {
        let record = record(random);
        let mut bytes = Vec::new();
        codec::put_record(&mut bytes, &record, None);
        let mut rest = Bytes::new(&bytes);
        assert!(codec::record(&mut rest, None).is_ok_and(|read| read == record));
        assert!(rest.is_empty());
        let kinds = [stored_kind(random), stored_kind(random)];
        let mut bytes = Vec::new();
        kinds.iter().for_each(|kind| stored_kinds::put(&mut bytes, kind));
        let mut read = Vec::new();
        let each = |kind| {
            read.push(kind);
            Ok::<_, Malformed>(())
        };
        assert!(stored_kinds::read(&bytes, each).is_ok());
        assert!(read == kinds);
    });
}

/// Bytes that are valid, or nearly.
fn sample(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    match random.below(7) {
        0 => {
            put_bytes(&mut bytes, b"id");
            codec::put_record(&mut bytes, &record(random), None);
        }
        1 => {
            let before = record(random);
            let mut after = before.clone();
            after.attempts += 1;
            codec::put_record(&mut bytes, &after, Some(&Parts::of(&before)));
        }
        2 => codec::put_settings(&mut bytes, &settings(random)),
        5 => (0..random.below(3)).for_each(|_| stored_kinds::put(&mut bytes, &stored_kind(random))),
        3 => codec::put_schedule(
            &mut bytes,
            &Schedule {
                id: JobId::new("id").unwrap(),
                when: "0 6 * * *".into(),
                time_zone: "UTC".into(),
                content: Body::octets(*b"body").unwrap().into(),
                missed: Missed::One,
                next: Timestamp::from_millis(7),
            },
        ),
        4 => {
            let mut last = Vec::new();
            for key in [&b"a"[..], b"ab", b"b"] {
                let first = bytes.is_empty();
                block::append(&mut bytes, first, &mut last, key, Some(b"v")).unwrap();
            }
        }
        _ => bytes.resize_with(random.below(200), || random.number() as u8),
    }
    for _ in 0..random.below(4) {
        let at = random.below(bytes.len().max(1));
        match (bytes.get_mut(at), random.below(4)) {
            (Some(byte), 0) => *byte ^= 1 << random.below(8),
            (Some(byte), 1) => *byte = *random.pick(&[0, 0x7f, 0x80, 0xff]),
            (Some(_), 2) => bytes.truncate(at),
            _ => bytes.splice(at..at, [0xff; 9]).for_each(drop),
        }
    }
    bytes
}

#[test]
fn decoders_accept_any_bytes_without_a_panic() {
    with_seeds(20_000, |random| {
        let bytes = sample(random);
        let before = Parts::of(&record(random));
        let _ = codec::job_unless(&bytes, |_| false);
        let _ = codec::record(&mut Bytes::new(&bytes), Some(&before));
        if let Ok(draft) = Draft::read(&mut Bytes::new(&bytes)) {
            let _ = draft.complete_after_gap(Some(&record(random)));
        }
        let _ = codec::settings(&mut Bytes::new(&bytes));
        let _ = codec::rate_use(&mut Bytes::new(&bytes));
        let _ = stored_kinds::read(&bytes, |_| Ok::<_, Malformed>(()));
        let _ = codec::schedule(&mut Bytes::new(&bytes));
        let _ = (Index::decode(&bytes), Filter::decode(&bytes), JobLocation::decode(&bytes));
        let (mut at, mut key) = (0, Vec::new());
        while at < bytes.len() && block::step(&bytes, &mut at, &mut key).is_ok() {}
        let disk = SimulatedDisk::new();
        let mut file = vec![0; 24];
        file[..8].copy_from_slice(b"rq-man\r\n");
        file[8] = 1;
        file[16..24].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
        file.extend_from_slice(&bytes);
        let crc = manifest::crc(3, &file);
        file[12..16].copy_from_slice(&crc.to_le_bytes());
        disk.put(&manifest::name(3), &file);
        if let Ok(manifest) = Manifest::read(&disk, 3) {
            let _ = SalvagedTables::read(&disk, &manifest, &mut TableCache::default());
        }
    });
}

#[test]
fn changed_bytes_of_a_table_with_valid_checksums_cause_no_panic() {
    let (disk, version) = tables();
    let table = |tree| version.runs(tree)[0].tables[0].clone();
    let tables = [(Tree::Due, table(Tree::Due)), (Tree::Ids, table(Tree::Ids))];
    with_seeds(3000, |random| {
        let (_, table) = random.pick(&tables);
        let (number, name) = (table.number, table::name(table.number));
        let end = TableEnd::read(&disk, number).unwrap();
        let mut bytes = disk.bytes(&name);
        let mut parts: Vec<_> = (0..table.index.len()).map(|at| table.index.range(at)).collect();
        parts.push(end.index_at..end.footer_at - end.footer.filter_len);
        if table.filter.is_some() {
            parts.push(end.footer_at - end.footer.filter_len..end.footer_at);
        }
        parts.push(end.footer_at..bytes.len() as u64);
        let part = random.pick(&parts).clone();
        let (from, mut to) = (part.start as usize, part.end as usize - 4);
        if from as u64 == end.footer_at {
            to = bytes.len() - 20;
        }
        for _ in 0..random.below(3) + 1 {
            let at = from + random.below(to - from);
            bytes[at] = match random.below(3) {
                0 => bytes[at] ^ 1 << random.below(8),
                1 => *random.pick(&[0, 0x7f, 0x80, 0xff]),
                _ => random.number() as u8,
            };
        }
        let mut covered = bytes[from..to].to_vec();
        if from as u64 == end.footer_at {
            covered.extend_from_slice(&bytes[to + 4..]);
        }
        let crc = table::crc(number, from as u64, &covered);
        bytes[to..to + 4].copy_from_slice(&crc.to_le_bytes());
        let disk = disk.snapshot();
        disk.put(&name, &bytes);
        if let Ok(table) = Table::open(&disk, number) {
            table.verify(|_| ());
            for key in [&[0; 21][..], &[0xff; 21], &[1], &[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 4]] {
                let _ = table.get(key);
            }
        }
        let _ = verify_on(&disk, |_| ());
        for number in [2, 3] {
            if let Ok(manifest) = Manifest::read(&disk, number) {
                let cache = &mut TableCache::default();
                let tables = SalvagedTables::read(&disk, &manifest, cache).unwrap();
                let mut ids = tables.ids(1, None);
                while let Some((_, location)) = ids.next().unwrap() {
                    tables.read_job(1, &location).unwrap();
                }
            }
        }
    });
}
