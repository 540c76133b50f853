//! Checks the contents of tables and manifests.

use crate::bytes::{Bytes, Malformed};
use crate::codec;
use crate::error::{Corrupt, chain};
use crate::flush::schedule_at;
use crate::job_table::position_of;
use crate::manifest::{self, Manifest};
use crate::state::{SCHEDULES, State};
use crate::tables::run::Run;
use crate::tables::{Entry, ListPosition, Version};
use requeue_jobs::JobId;
use requeue_jobs::limits::KEPT_ATTEMPTS;
use requeue_jobs::rules::{Counters, List, Record, Status};
use std::collections::HashMap;
use std::sync::Arc;

/// The kinds in a manifest.
pub(super) struct ManifestKinds {
    counters: HashMap<u32, Counters>,
}

impl ManifestKinds {
    pub(super) fn read(manifest: &Manifest) -> Result<Self, Corrupt> {
        let name = manifest::name(manifest.number);
        let damaged = |what: &str| Corrupt::new(&name, 0, what);
        // Without tables, so that only the manifest itself is read.
        let state = State::open(Arc::new(Version::empty()), &manifest.blob)
            .map_err(|error| damaged(&format!("the kinds are malformed: {}", chain(&error))))?;
        let kinds = state.kinds.iter();
        let live = kinds.flat_map(|kind| kind.table.counts()).fold(0, u64::saturating_add);
        if live != manifest.live {
            let what =
                format!("the manifest counts {} jobs in total, but {live} by kind", manifest.live);
            return Err(damaged(&what));
        }
        let counters = state.kinds.iter().map(|kind| (kind.table.number(), kind.counters));
        Ok(ManifestKinds { counters: counters.collect() })
    }

    /// Checks an entry, without the others.
    pub(super) fn check(&self, run: &Run, entry: Entry<'_>) -> Result<(), String> {
        match entry {
            Entry::Due { kind, position, value } => {
                let counters = self.counters(kind)?;
                match value {
                    Some(value) if position.list == SCHEDULES => check_schedule(position, value),
                    Some(value) => check_job(position, value, counters),
                    None if !is_list(position.list) => Err(no_list(position.list)),
                    None => Ok(()),
                }
            }
            Entry::Id { kind, id, location } => {
                self.counters(kind)?;
                JobId::new(id).map_err(|_| "a job id is invalid")?;
                let Some(location) = location else { return Ok(()) };
                if List::by_index(location.list.into()).is_none() {
                    return Err(no_list(location.list));
                }
                if !(run.lo..=run.hi).contains(&location.flush) {
                    return Err(format!(
                        "the entry refers to flush {}, which is not in its run",
                        location.flush
                    ));
                }
                Ok(())
            }
        }
    }

    fn counters(&self, kind: u32) -> Result<&Counters, String> {
        self.counters.get(&kind).ok_or_else(|| format!("kind {kind} is not in the manifest"))
    }
}

fn is_list(list: u8) -> bool {
    list == SCHEDULES || List::by_index(list.into()).is_some()
}

fn no_list(list: u8) -> String {
    format!("list {list} does not exist")
}

fn check_schedule(position: ListPosition, value: &[u8]) -> Result<(), String> {
    let mut bytes = Bytes::new(value);
    let schedule = codec::schedule(&mut bytes).and_then(|s| bytes.end().map(|()| s));
    let schedule = schedule.map_err(|Malformed(what)| what)?;
    if schedule_at(&schedule.id) != (position.at, position.seq) {
        return Err(format!("schedule {:?} is stored under a wrong key", schedule.id.as_str()));
    }
    Ok(())
}

fn check_job(position: ListPosition, value: &[u8], counters: &Counters) -> Result<(), String> {
    let job = codec::job_unless(value, |_| false).map_err(|Malformed(what)| what)?;
    let (id, record) = job.ok_or("the entry contains no job")?;
    let (list, at) = position_of(&record);
    if (list.index() as u8, at) != (position.list, (position.at, position.seq)) {
        return Err(format!("job {:?} is stored under a wrong key", id.as_str()));
    }
    match beyond(&record, counters) {
        Some(what) => Err(format!("job {:?} has {what}", id.as_str())),
        None => Ok(()),
    }
}

/// A number in a record that was never assigned.
fn beyond(record: &Record, counters: &Counters) -> Option<&'static str> {
    let fence = match &record.status {
        Status::Leased(lease) => lease.fence.0,
        Status::Pending | Status::Dead { .. } | Status::Done(_) => 0,
    };
    match () {
        () if record.seq > counters.seq => Some("a seq that was never assigned"),
        () if record.newest_generation().0 > counters.generation => {
            Some("a generation that was never assigned")
        }
        () if fence > counters.fence => Some("a fence that was never assigned"),
        () if record.failures.len() > KEPT_ATTEMPTS => Some("more failed attempts than are kept"),
        () => None,
    }
}
