//! The entries of a group of the log: what its operations have changed.
//!
//! They contain the resulting records, not the requests. So a replay does not need the rules of the
//! store, and its result does not depend on the time.

use crate::bytes::{Bytes, Malformed, put_bytes, put_number};
use crate::codec::{self, Draft, Parts};
use requeue_jobs::rules::{Counters, RateUse, Record};
use requeue_jobs::{JobId, Kind, Schedule, Settings};

const KEPT: u8 = 0;
const GONE: u8 = 1;
const SETTINGS: u8 = 2;
const SCHEDULE: u8 = 3;
const NO_SCHEDULE: u8 = 4;
const COUNTERS: u8 = 5;
const RATE_USE: u8 = 6;
const RENAMED: u8 = 7;

/// An entry, as the log has it.
pub(crate) enum LogEntry {
    Kept(JobId, Draft),
    Gone(JobId),
    Settings(Settings),
    Schedule(Schedule),
    NoSchedule(JobId),
    /// This generation and this fence, and those below, are not assigned again.
    Counters {
        generation: u64,
        fence: u64,
    },
    RateUse(RateUse),
    /// The number belongs to another kind from now on, which has taken the place of an idle one.
    Renamed(Kind),
}

impl LogEntry {
    pub(crate) fn read(bytes: &mut Bytes<'_>) -> Result<LogEntry, Malformed> {
        Ok(match bytes.byte()? {
            KEPT => LogEntry::Kept(codec::id(bytes)?, Draft::read(bytes)?),
            GONE => LogEntry::Gone(codec::id(bytes)?),
            SETTINGS => LogEntry::Settings(codec::settings(bytes)?),
            SCHEDULE => LogEntry::Schedule(codec::schedule(bytes)?),
            NO_SCHEDULE => LogEntry::NoSchedule(codec::id(bytes)?),
            COUNTERS => {
                LogEntry::Counters { generation: bytes.counter()?, fence: bytes.counter()? }
            }
            RATE_USE => LogEntry::RateUse(codec::rate_use(bytes)?),
            RENAMED => LogEntry::Renamed(kind_name(bytes.text()?)?),
            _ => return Err(Malformed("an entry has an unknown tag")),
        })
    }
}

pub(crate) fn kind_name(name: &str) -> Result<Kind, Malformed> {
    Kind::with_reserved(name).map_err(|_| Malformed("the name of a kind is invalid"))
}

/// Writes the record of a job. `before` has the parts of the record before.
pub(crate) fn put_kept(out: &mut Vec<u8>, id: &JobId, record: &Record, before: Option<&Parts>) {
    put_id(out, KEPT, id);
    codec::put_record(out, record, before);
}

pub(crate) fn put_gone(out: &mut Vec<u8>, id: &JobId) {
    put_id(out, GONE, id);
}

pub(crate) fn put_settings(out: &mut Vec<u8>, settings: &Settings) {
    out.push(SETTINGS);
    codec::put_settings(out, settings);
}

/// Writes the schedule of this id, or that it was removed.
pub(crate) fn put_schedule(out: &mut Vec<u8>, id: &JobId, schedule: Option<&Schedule>) {
    match schedule {
        Some(schedule) => {
            out.push(SCHEDULE);
            codec::put_schedule(out, schedule);
        }
        None => put_id(out, NO_SCHEDULE, id),
    }
}

pub(crate) fn put_counters(out: &mut Vec<u8>, counters: &Counters) {
    out.push(COUNTERS);
    put_number(out, counters.generation);
    put_number(out, counters.fence);
}

pub(crate) fn put_rate_use(out: &mut Vec<u8>, rate_use: &RateUse) {
    out.push(RATE_USE);
    codec::put_rate_use(out, rate_use);
}

pub(crate) fn put_renamed(out: &mut Vec<u8>, name: &Kind) {
    out.push(RENAMED);
    put_bytes(out, name.as_str().as_bytes());
}

fn put_id(out: &mut Vec<u8>, tag: u8, id: &JobId) {
    out.push(tag);
    put_bytes(out, id.as_str().as_bytes());
}
