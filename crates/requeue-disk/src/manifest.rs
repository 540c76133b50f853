//! A manifest: the list of tables, and the last group of the log that they contain.
//!
//! ```text
//!   magic 8 bytes | format u32 | crc u32 | length of the rest u64          LE
//!   features in use: their number varint, then of each: its name           varint length, bytes
//!   flushed_through, live, next flush, next file                           varints
//!   log_end: last group, its segment                                       varints
//!   runs of due, runs of ids: number of them varint, then of each:
//!     lo, hi, generation, clean                                            varints
//!     from                                                                 varint length, bytes
//!     tables: number of them varint, then of each: number, bytes varints, crc u32
//!   range tombstones: number varint, then of each: prefix 5 bytes, below 16 bytes, upto varint
//!   blob                                                                   varint length, bytes
//! ```
//!
//! The crc covers the manifest's number, then all of the file except the crc. A manifest is written
//! completely, with a number that was never used before, and never changed.

use crate::bytes::{Bytes, Malformed, put_bytes, put_number};
use crate::disk::Disk;
use crate::error::{Corrupt, DiskError};
use crate::format::{self, FORMAT};
use crate::log::LogEnd;
use crate::tables::Version;
use crate::tables::range_tombstones::{RangeTombstone, RangeTombstones};
use crate::tables::run::Run;
use crate::tables::table;
use std::sync::Arc;

const MAGIC: [u8; 8] = *b"rq-man\r\n";

/// No file, flush or group has a larger number. Counting to it takes centuries.
pub(crate) const MAX_NUMBER: u64 = 1 << 62;

/// The largest manifest, in bytes. Ten thousand kinds and a million tables need less.
const MAX_BYTES: u64 = 256 << 20;

/// The largest number of features in use, and the longest name of one.
const MAX_FEATURES: u64 = 64;
const MAX_NAME: usize = 64;

/// Bytes of the head.
const HEAD: usize = 24;

pub(crate) fn name(number: u64) -> String {
    format!("manifest-{number:010}")
}

/// The contents of a manifest.
pub(crate) struct Manifest {
    pub(crate) number: u64,
    pub(crate) flushed_through: u64,
    pub(crate) live: u64,
    pub(crate) next_flush: u64,
    pub(crate) next_file: u64,
    pub(crate) log_end: LogEnd,
    pub(crate) due: Vec<RunRef>,
    pub(crate) ids: Vec<RunRef>,
    pub(crate) range_tombstones: RangeTombstones,
    pub(crate) blob: Arc<[u8]>,
}

/// A run whose tables are not open.
pub(crate) struct RunRef {
    /// Without its tables.
    pub(crate) run: Run,
    pub(crate) tables: Vec<TableRef>,
}

/// What identifies a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TableRef {
    pub(crate) number: u64,
    pub(crate) bytes: u64,
    pub(crate) crc: u32,
}

/// The bytes of the manifest of this number that describes `version`.
pub(crate) fn encode(number: u64, version: &Version, next_file: u64) -> Vec<u8> {
    let mut bytes = vec![0; HEAD];
    // No feature is in use.
    put_number(&mut bytes, 0);
    let LogEnd { group, segment } = version.log_end;
    let (through, live) = (version.flushed_through, version.live);
    for number in [through, live, version.next_flush, next_file, group, segment] {
        put_number(&mut bytes, number);
    }
    for runs in [&version.due, &version.ids] {
        put_number(&mut bytes, runs.len() as u64);
        runs.iter().for_each(|run| put_run(&mut bytes, run));
    }
    put_number(&mut bytes, version.range_tombstones.all().len() as u64);
    for tombstone in version.range_tombstones.all() {
        bytes.extend_from_slice(&tombstone.prefix);
        bytes.extend_from_slice(&tombstone.below);
        put_number(&mut bytes, tombstone.upto);
    }
    put_bytes(&mut bytes, &version.blob);
    let length = (bytes.len() - HEAD) as u64;
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    bytes[16..24].copy_from_slice(&length.to_le_bytes());
    let crc = crc(number, &bytes);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn put_run(bytes: &mut Vec<u8>, run: &Run) {
    for number in [run.lo, run.hi, run.generation.into(), run.clean] {
        put_number(bytes, number);
    }
    put_bytes(bytes, &run.from);
    put_number(bytes, run.tables.len() as u64);
    for table in &run.tables {
        put_number(bytes, table.number);
        put_number(bytes, table.bytes);
        bytes.extend_from_slice(&table.crc.to_le_bytes());
    }
}

pub(crate) fn crc(number: u64, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&number.to_le_bytes());
    hasher.update(&bytes[..12]);
    hasher.update(&bytes[16..]);
    hasher.finalize()
}

impl Manifest {
    pub(crate) fn read(disk: &dyn Disk, number: u64) -> Result<Manifest, DiskError> {
        let name = name(number);
        let file = table::open(disk, &name)?;
        let size = file.size().map_err(DiskError::io("measure", &name))?;
        let damaged = |offset: u64, what: &str| {
            DiskError::from(Corrupt { file: name.clone(), offset, what: what.into() })
        };
        if size < HEAD as u64 {
            return Err(damaged(size, "the file ends too early"));
        }
        if size > MAX_BYTES {
            let what =
                format!("the file has {size} bytes, but no manifest has more than {MAX_BYTES}");
            return Err(damaged(0, &what));
        }
        let mut bytes = vec![0; size as usize];
        table::read(&*file, || name.clone(), &mut bytes, 0)?;
        let found_crc = u32::from_le_bytes(std::array::from_fn(|i| bytes[12 + i]));
        if crc(number, &bytes) != found_crc {
            return Err(damaged(0, "the checksum is wrong"));
        }
        let word = u32::from_le_bytes(std::array::from_fn(|i| bytes[8 + i]));
        format::check(&name, MAGIC, &bytes[..8], word)?;
        let malformed =
            |Malformed(what)| damaged(HEAD as u64, &format!("the manifest is malformed: {what}"));
        let length = u64::from_le_bytes(std::array::from_fn(|i| bytes[16 + i]));
        if length != size - HEAD as u64 {
            return Err(malformed(Malformed("its length is wrong")));
        }
        let mut rest = Bytes::new(&bytes[HEAD..]);
        let features = take_features(&mut rest).map_err(malformed)?;
        format::check_features(&name, &features)?;
        Manifest::decode(number, &mut rest).map_err(malformed)
    }

    fn decode(number: u64, rest: &mut Bytes<'_>) -> Result<Manifest, Malformed> {
        let mut next = || rest.number();
        let (flushed_through, live, next_flush, next_file) = (next()?, next()?, next()?, next()?);
        let log_end = LogEnd { group: next()?, segment: next()? };
        let (due, ids) = (take_runs(rest)?, take_runs(rest)?);
        let mut range_tombstones = Vec::new();
        for _ in 0..rest.number()? {
            let (prefix, below) = (rest.fixed()?, rest.fixed()?);
            range_tombstones.push(RangeTombstone { prefix, below, upto: rest.number()? });
        }
        let range_tombstones = RangeTombstones::from_sorted(range_tombstones)
            .ok_or(Malformed("the range tombstones are not in order"))?;
        let blob = rest.bytes()?.into();
        rest.end()?;
        Ok(Manifest {
            number,
            flushed_through,
            live,
            next_flush,
            next_file,
            log_end,
            due,
            ids,
            range_tombstones,
            blob,
        })
    }

    /// Checks that the runs and range tombstones match each other, and that no number is so large
    /// that the numbers after it do not exist.
    pub(crate) fn check(&self) -> Vec<Corrupt> {
        let mut wrong = Vec::new();
        let mut check = |holds: bool, what: &dyn Fn() -> String| {
            if !holds {
                wrong.push(Corrupt::new(&name(self.number), 0, what()));
            }
        };
        for (what, number, least) in [
            ("flushed group", self.flushed_through, 0),
            ("job", self.live, 0),
            ("flush", self.next_flush, 1),
            ("table", self.next_file, 1),
        ] {
            let holds = (least..=MAX_NUMBER).contains(&number);
            check(holds, &|| format!("the {what} number {number} was never assigned"));
        }
        for runs in [&self.due, &self.ids] {
            for run in runs {
                let (lo, hi) = (run.run.lo, run.run.hi);
                let holds = lo <= hi && hi < self.next_flush;
                check(holds, &|| format!("a run has the invalid interval of flushes {lo} to {hi}"));
                check(!run.tables.is_empty(), &|| format!("the run of flush {lo} has no tables"));
            }
            for pair in runs.windows(2) {
                let (before, run) = (&pair[0].run, &pair[1].run);
                // During a merge, the resulting run is listed before the runs that are merged.
                let holds = before.hi < run.lo || !run.from.is_empty();
                check(holds, &|| format!("flush {} is in two runs", run.lo));
            }
        }
        for table in self.tables() {
            let number = table.number;
            check(number < self.next_file, &|| {
                format!("the number of table {number} would be used again")
            });
        }
        for tombstone in self.range_tombstones.all() {
            check(tombstone.upto < self.next_flush, &|| {
                let flush = tombstone.upto;
                format!("a range tombstone refers to flush {flush}, which does not exist")
            });
        }
        wrong
    }

    pub(crate) fn tables(&self) -> impl Iterator<Item = TableRef> {
        self.due.iter().chain(&self.ids).flat_map(|run| run.tables.iter().copied())
    }
}

/// The names of the features in use.
fn take_features<'a>(rest: &mut Bytes<'a>) -> Result<Vec<&'a str>, Malformed> {
    let count = rest.number()?;
    if count > MAX_FEATURES {
        return Err(Malformed("there are too many features"));
    }
    let mut names = Vec::new();
    for _ in 0..count {
        names.push(rest.text()?);
    }
    if names.iter().any(|name| name.len() > MAX_NAME) {
        return Err(Malformed("the name of a feature is too long"));
    }
    Ok(names)
}

fn take_runs(rest: &mut Bytes<'_>) -> Result<Vec<RunRef>, Malformed> {
    let mut runs = Vec::new();
    for _ in 0..rest.number()? {
        let mut next = || rest.number();
        let (lo, hi, generation, clean) = (next()?, next()?, next()?, next()?);
        let generation = generation.try_into().map_err(|_| Malformed("a number is too large"))?;
        let from = rest.bytes()?.to_vec();
        let run = Run { lo, hi, generation, clean, from, tables: Vec::new() };
        let mut tables = Vec::new();
        for _ in 0..rest.number()? {
            let (number, bytes) = (rest.number()?, rest.number()?);
            tables.push(TableRef { number, bytes, crc: u32::from_le_bytes(rest.fixed()?) });
        }
        runs.push(RunRef { run, tables });
    }
    Ok(runs)
}
