//! Applies what is left of the log to what is left of the tables.

use super::Loss;
use crate::bytes::{Bytes, Malformed};
use crate::codec::{self, Draft};
use crate::error::DiskError;
use crate::job_table::{ListCounts, position_of};
use crate::log::SalvagedLog;
use crate::log_entry::{LogEntry, kind_name};
use crate::manifest::Manifest;
use crate::state::SCHEDULES;
use crate::stored_kinds;
use crate::tables::{FoundId, FoundJob, JobLocation, SalvagedTables};
use requeue_jobs::rules::{List, Record, Status};
use requeue_jobs::{Generation, JobId, Kind, Schedule, Settings};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A kind, and its jobs in the log.
pub(super) struct KindJobs {
    pub(super) name: Kind,
    pub(super) generation: u64,
    pub(super) fence: u64,
    pub(super) settings: Settings,
    pub(super) schedules: BTreeMap<JobId, Schedule>,
    /// Jobs that the log has changed. They hide those in the tables.
    pub(super) jobs: BTreeMap<JobId, LoggedJob>,
    /// The number of the other jobs, by list.
    in_tables: ListCounts,
}

/// A job that the log has changed.
pub(super) struct LoggedJob {
    /// `None`: it was removed, or is lost.
    pub(super) record: Option<Box<Record>>,
    /// The number of gaps before the group that wrote the record.
    gaps: u32,
    lost: Option<LostVersion>,
    /// The record refers to failed attempts of a record that is lost.
    lacks_attempts: bool,
}

/// Why the latest version of a job is lost.
struct LostVersion {
    generation: Generation,
    why: &'static str,
}

impl KindJobs {
    fn new(name: Kind) -> Self {
        KindJobs {
            name,
            generation: 0,
            fence: 0,
            settings: Settings::default(),
            schedules: BTreeMap::new(),
            jobs: BTreeMap::new(),
            in_tables: [0; List::END],
        }
    }

    /// The number of jobs by list, including those in lost parts of tables.
    pub(super) fn counts(&self) -> ListCounts {
        let mut counts = self.in_tables;
        for record in self.jobs.values().filter_map(|job| job.record.as_deref()) {
            counts[record.position().0.index()] += 1;
        }
        counts
    }
}

/// The result of a replay.
pub(super) struct Replayed {
    pub(super) kinds: BTreeMap<u32, KindJobs>,
    pub(super) losses: Vec<Loss>,
}

/// Reads the kinds of the manifest and of the tables, and applies the log after the group `after`.
///
/// `manifests` are all that can be read: each may have the name of a kind.
pub(super) fn replay(
    log: &SalvagedLog,
    after: u64,
    blob: &[u8],
    manifests: &[Manifest],
    tables: &SalvagedTables,
) -> Result<Replayed, DiskError> {
    let mut replay = Replay {
        tables,
        kinds: BTreeMap::new(),
        names: BTreeMap::new(),
        elsewhere: HashMap::new(),
        gaps: 0,
        losses: Vec::new(),
    };
    for manifest in manifests {
        let each = |number, kind: KindJobs, _: ListCounts| {
            replay.names.entry(number).or_insert(kind.name);
        };
        // A manifest that does not decode has a valid checksum nevertheless. What was read of it
        // before that is right.
        let _ = read_kinds(&manifest.blob, each);
    }
    let each = |number, mut kind: KindJobs, counts| {
        kind.in_tables = counts;
        replay.kinds.insert(number, kind);
    };
    let _ = read_kinds(blob, each);
    replay.find_names_and_ids(log, after)?;
    replay.schedules()?;
    log.replay(after, |group| {
        replay.gaps += u32::from(group.behind_gap);
        if let Err(Malformed(what)) = replay.group(group.payload)? {
            let (from, to) = (group.offset, group.offset + group.payload.len() as u64);
            replay.losses.push(Loss::Bytes {
                file: group.file.to_owned(),
                from,
                to,
                what: format!("group {} is malformed: {what}", group.number),
                contents: "changes".to_owned(),
            });
        }
        Ok(())
    })?;
    let Replay { kinds, mut losses, .. } = replay;
    for kind in kinds.values() {
        for (id, job) in &kind.jobs {
            let (kind, id) = (kind.name.clone(), id.clone());
            losses.extend(match (&job.lost, &job.record) {
                (Some(LostVersion { generation, .. }), Some(record)) => Some(Loss::Version {
                    kind,
                    id,
                    lost: *generation,
                    returned: record.newest_generation(),
                }),
                (Some(LostVersion { why, .. }), None) => {
                    Some(Loss::Job { kind, id, why: (*why).to_owned() })
                }
                (None, _) => job.lacks_attempts.then_some(Loss::FailedAttempts { kind, id }),
            });
        }
    }
    Ok(Replayed { kinds, losses })
}

/// Reads the kinds of a manifest: number, kind, and counts by list.
fn read_kinds(
    blob: &[u8],
    mut each: impl FnMut(u32, KindJobs, ListCounts),
) -> Result<(), Malformed> {
    stored_kinds::read(blob, |stored| {
        let mut kind = KindJobs::new(stored.name);
        (kind.generation, kind.fence) = (stored.counters.generation, stored.counters.fence);
        kind.settings = stored.settings;
        each(stored.number, kind, stored.counts);
        Ok(())
    })
}

/// Passes the changes of a group to `each`, with the number of their kind and its name, which is
/// empty if it was named before. Goes on with the next kind after malformed bytes, and returns
/// their error at the end.
fn changes<E>(
    payload: &[u8],
    mut each: impl FnMut(u32, &str, Option<LogEntry>) -> Result<(), E>,
) -> Result<Result<(), Malformed>, E> {
    let mut group = Bytes::new(payload);
    let mut result = Ok(());
    while !group.is_empty() {
        let section = (|| Ok((group.number32()?, group.text()?, group.bytes()?)))();
        let (number, name, section) = match section {
            Ok(section) => section,
            Err(malformed) => return Ok(Err(malformed)),
        };
        each(number, name, None)?;
        let mut section = Bytes::new(section);
        while !section.is_empty() {
            match LogEntry::read(&mut section) {
                Ok(change) => each(number, name, Some(change))?,
                Err(malformed) => {
                    result = Err(malformed);
                    break;
                }
            }
        }
    }
    Ok(result)
}

struct Replay<'a> {
    tables: &'a SalvagedTables,
    kinds: BTreeMap<u32, KindJobs>,
    names: BTreeMap<u32, Kind>,
    /// The locations of jobs that the log changes and whose ids are lost, by kind and id.
    elsewhere: HashMap<(u32, String), (usize, JobLocation)>,
    gaps: u32,
    losses: Vec<Loss>,
}

/// The record of a job before a change.
struct Before {
    record: Option<Box<Record>>,
    /// Whether no change is missing between this record and the change.
    exact: bool,
    /// The job existed, but cannot be read.
    lost: bool,
    /// The record has not all failed attempts, or is not the latest version.
    lacks_attempts: bool,
}

impl Replay<'_> {
    /// Reads the log once before it is applied: to know all names of kinds, and to find the jobs
    /// in the due tree whose ids cannot be looked up.
    fn find_names_and_ids(&mut self, log: &SalvagedLog, after: u64) -> Result<(), DiskError> {
        let tables = self.tables;
        let mut wanted: BTreeMap<u32, BTreeSet<String>> = BTreeMap::new();
        let mut named = BTreeMap::new();
        log.replay(0, |group| {
            let _ = changes::<DiskError>(group.payload, |number, name, change| {
                if let Ok(name) = kind_name(name) {
                    named.insert(number, name);
                }
                if let Some(LogEntry::Renamed(name)) = &change {
                    named.insert(number, name.clone());
                }
                if let Some(LogEntry::Kept(id, _) | LogEntry::Gone(id)) = change
                    && group.number > after
                    && tables.find(number, id.as_str())? == FoundId::Unknown
                {
                    wanted.entry(number).or_default().insert(id.as_str().to_owned());
                }
                Ok(())
            })?;
            Ok(())
        })?;
        for (number, name) in named {
            self.names.entry(number).or_insert(name);
        }
        for (kind, wanted) in wanted {
            let elsewhere = &mut self.elsewhere;
            tables.unindexed(kind, id_of, |age, id, location| {
                if wanted.contains(&id) {
                    let found = elsewhere.entry((kind, id)).or_insert((age, location));
                    if age >= found.0 {
                        *found = (age, location);
                    }
                }
            })?;
        }
        Ok(())
    }

    /// Reads the schedules of all kinds from the tables. Kinds of the manifest only: others are not
    /// in the tables.
    fn schedules(&mut self) -> Result<(), DiskError> {
        for (number, kind) in &mut self.kinds {
            let mut entries = self.tables.entries_of(*number, SCHEDULES);
            while let Some(entry) = entries.next()?
                && entry.position.list == SCHEDULES
            {
                let schedule = codec::schedule(&mut Bytes::new(entry.value));
                if let Ok(schedule) = schedule {
                    kind.schedules.insert(schedule.id.clone(), schedule);
                } else {
                    let (kind, why) = (&kind.name, "a schedule is malformed");
                    let contents = format!("a schedule of kind {kind}");
                    let (file, what) = ("the tables".to_owned(), why.to_owned());
                    self.losses.push(Loss::Bytes { file, from: 0, to: 0, what, contents });
                }
            }
        }
        Ok(())
    }

    /// The kind of this number, which is created if the manifest does not have it.
    fn kind(&mut self, number: u32) -> &mut KindJobs {
        let (names, kinds, losses) = (&self.names, &mut self.kinds, &mut self.losses);
        let taken: BTreeSet<_> = if kinds.contains_key(&number) {
            BTreeSet::new()
        } else {
            kinds.values().map(|kind| kind.name.clone()).collect()
        };
        kinds.entry(number).or_insert_with(|| {
            let name = names.get(&number).filter(|name| !taken.contains(*name)).cloned();
            KindJobs::new(name.unwrap_or_else(|| {
                let taken = |name: &Kind| taken.contains(name) || names.values().any(|n| n == name);
                let name = (0..).map(|at: u64| match at {
                    0 => format!("unknown-kind-{number}"),
                    at => format!("unknown-kind-{number}-{at}"),
                });
                let name = name
                    .filter_map(|name| Kind::with_reserved(name).ok())
                    .find(|name| !taken(name));
                let returned_as = name.expect("there are more numbers than kinds");
                losses.push(Loss::KindName { number, returned_as: returned_as.clone() });
                returned_as
            }))
        })
    }

    fn group(&mut self, payload: &[u8]) -> Result<Result<(), Malformed>, DiskError> {
        changes(payload, |number, _, change| match change {
            Some(change) => self.change(number, change),
            None => Ok(()),
        })
    }

    fn change(&mut self, number: u32, change: LogEntry) -> Result<(), DiskError> {
        let kind = self.kind(number);
        match change {
            LogEntry::Settings(settings) => kind.settings = settings,
            // At worst, a burst follows.
            LogEntry::RateUse(_) => {}
            LogEntry::Renamed(name) => {
                kind.name = name;
                // It was idle: what is known of its jobs is outdated, and would belong to another kind.
                kind.jobs.values_mut().for_each(|job| (job.record, job.lost) = (None, None));
            }
            LogEntry::Schedule(schedule) => {
                kind.schedules.insert(schedule.id.clone(), schedule);
            }
            LogEntry::NoSchedule(id) => drop(kind.schedules.remove(&id)),
            LogEntry::Counters { generation, fence } => {
                kind.generation = kind.generation.max(generation);
                kind.fence = kind.fence.max(fence);
            }
            LogEntry::Gone(id) => {
                self.before(number, &id)?;
                let gaps = self.gaps;
                let job = LoggedJob { record: None, gaps, lost: None, lacks_attempts: false };
                self.kind(number).jobs.insert(id, job);
            }
            LogEntry::Kept(id, draft) => self.keep(number, id, draft)?,
        }
        Ok(())
    }

    fn keep(&mut self, number: u32, id: JobId, draft: Draft) -> Result<(), DiskError> {
        let Before { record: before, exact, lost, lacks_attempts } = self.before(number, &id)?;
        let generation = draft.newest_generation();
        let no_attempts = before.as_ref().is_none_or(|before| before.failures.is_empty());
        let lacks_attempts =
            draft.repeats_failures() && (lacks_attempts || (!exact && no_attempts));
        let completed = if exact {
            draft.complete(before.as_deref().map(codec::Parts::of).as_ref()).ok()
        } else {
            draft.complete_after_gap(before.as_deref())
        };
        let gaps = self.gaps;
        let kind = self.kind(number);
        kind.generation = kind.generation.max(generation.0);
        let job = match completed {
            Some(record) => {
                if let Status::Leased(lease) = &record.status {
                    kind.fence = kind.fence.max(lease.fence.0);
                }
                LoggedJob { record: Some(Box::new(record)), gaps, lost: None, lacks_attempts }
            }
            None => {
                let why = match lost {
                    true => "its body is in a part of a table that is lost",
                    false => "its body is in a part of the log that is lost",
                };
                // Not as of this group: later changes must not rely on it.
                let lost = Some(LostVersion { generation, why });
                LoggedJob { record: before, gaps: u32::MAX, lost, lacks_attempts }
            }
        };
        kind.jobs.insert(id, job);
        Ok(())
    }

    /// The latest known record of a job.
    fn before(&mut self, number: u32, id: &JobId) -> Result<Before, DiskError> {
        let (tables, gaps) = (self.tables, self.gaps);
        let elsewhere = self.elsewhere.get(&(number, id.as_str().to_owned())).map(|found| found.1);
        let kind = self.kind(number);
        if let Some(job) = kind.jobs.get_mut(id) {
            let exact = job.gaps == gaps;
            let lost = job.lost.is_some() && job.record.is_none();
            let lacks_attempts = job.lacks_attempts || job.lost.is_some();
            return Ok(Before { record: job.record.take(), exact, lost, lacks_attempts });
        }
        let (location, found) = match tables.find(number, id.as_str())? {
            FoundId::At(location) => (Some(location), true),
            FoundId::Absent => (None, true),
            FoundId::Unknown => (elsewhere, false),
        };
        let Some(location) = location else {
            let (exact, lost) = (found && gaps == 0, !found);
            return Ok(Before { record: None, exact, lost, lacks_attempts: false });
        };
        if let Some(count) = kind.in_tables.get_mut(usize::from(location.list)) {
            *count = count.saturating_sub(1);
        }
        let record = read(tables, number, id.as_str(), &location)?.ok();
        let lost = record.is_none();
        let exact = found && gaps == 0 && !lost;
        Ok(Before { record, exact, lost, lacks_attempts: false })
    }
}

/// Reads the job at a location; the error is why it cannot be read.
pub(super) fn read(
    tables: &SalvagedTables,
    kind: u32,
    id: &str,
    location: &JobLocation,
) -> Result<Result<Box<Record>, &'static str>, DiskError> {
    let value = match tables.read_job(kind, location)? {
        FoundJob::Value(value) => value,
        FoundJob::Lost => return Ok(Err("it is in a part of a table that is lost")),
        FoundJob::Absent => return Ok(Err("it is not where its id refers to")),
    };
    Ok(match codec::job_unless(&value, |_| false) {
        Ok(Some((found, record))) => {
            let (list, at) = position_of(&record);
            let here = (list.index() as u8, at) == (location.list, (location.at, location.seq));
            if here && found.as_str() == id {
                Ok(record)
            } else {
                Err("another job is where its id refers to")
            }
        }
        Ok(None) | Err(Malformed(_)) => Err("its record is malformed"),
    })
}

/// The id of an entry in the due tree.
pub(super) fn id_of(value: &[u8]) -> Option<String> {
    codec::id(&mut Bytes::new(value)).ok().map(|id| id.as_str().to_owned())
}
