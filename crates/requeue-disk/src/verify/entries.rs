//! Whether what stands in tables and manifests makes sense.

use crate::bytes::{Bytes, Malformed};
use crate::codec;
use crate::error::{Corrupt, chain};
use crate::flush::schedule_at;
use crate::job_table::stand;
use crate::manifest::{self, Manifest};
use crate::state::{SCHEDULES, State};
use crate::tables::run::Run;
use crate::tables::{Entry, Place, Version};
use requeue_jobs::JobId;
use requeue_jobs::limits::KEPT_ATTEMPTS;
use requeue_jobs::rules::{Counters, List, Record, Status};
use std::collections::HashMap;
use std::sync::Arc;

/// What a manifest says of kinds.
pub(super) struct Kinds {
    counters: HashMap<u32, Counters>,
}

impl Kinds {
    pub(super) fn read(manifest: &Manifest) -> Result<Self, Corrupt> {
        let name = manifest::name(manifest.number);
        let damaged = |what: &str| Corrupt::new(&name, 0, what);
        // Without tables there is nothing to read but what the manifest itself says.
        let state = State::open(Arc::new(Version::empty()), &manifest.blob)
            .map_err(|error| damaged(&format!("its kinds make no sense: {}", chain(&error))))?;
        let kinds = state.kinds.iter();
        let live: u64 = kinds.flat_map(|kind| kind.table.counts()).sum();
        if live != manifest.live {
            let what = format!("it counts {} jobs, and {live} by kind", manifest.live);
            return Err(damaged(&what));
        }
        let counters = state.kinds.iter().map(|kind| (kind.table.number(), kind.counters));
        Ok(Kinds { counters: counters.collect() })
    }

    /// Checks an entry by itself.
    pub(super) fn check(&self, run: &Run, entry: Entry<'_>) -> Result<(), String> {
        match entry {
            Entry::Due { kind, place, value } => {
                let counters = self.counters(kind)?;
                match value {
                    Some(value) if place.list == SCHEDULES => check_schedule(place, value),
                    Some(value) => check_job(place, value, counters),
                    None if place.list > SCHEDULES => Err(no_list(place.list)),
                    None => Ok(()),
                }
            }
            Entry::Id { kind, id, spot } => {
                self.counters(kind)?;
                JobId::new(id).map_err(|_| "an id is not as it may be")?;
                let Some(spot) = spot else { return Ok(()) };
                if spot.list > List::Dead as u8 {
                    return Err(no_list(spot.list));
                }
                if !(run.lo..=run.hi).contains(&spot.flush) {
                    return Err(format!("flush {} is not of this table", spot.flush));
                }
                Ok(())
            }
        }
    }

    fn counters(&self, kind: u32) -> Result<&Counters, String> {
        self.counters.get(&kind).ok_or_else(|| format!("kind {kind} has no name"))
    }
}

fn no_list(list: u8) -> String {
    format!("{list} is no list")
}

fn check_schedule(place: Place, value: &[u8]) -> Result<(), String> {
    let mut bytes = Bytes::new(value);
    let schedule = codec::schedule(&mut bytes).and_then(|s| bytes.end().map(|()| s));
    let schedule = schedule.map_err(|Malformed(what)| what)?;
    if schedule_at(&schedule.id) != (place.at, place.seq) {
        return Err(format!("schedule {:?} is not in its place", schedule.id.as_str()));
    }
    Ok(())
}

fn check_job(place: Place, value: &[u8], counters: &Counters) -> Result<(), String> {
    let job = codec::job_unless(value, |_| false).map_err(|Malformed(what)| what)?;
    let (id, record) = job.ok_or("there is no job")?;
    let (list, at) = stand(&record);
    if (list as u8, at) != (place.list, (place.at, place.seq)) {
        return Err(format!("job {:?} is not in its place", id.as_str()));
    }
    match beyond(&record, counters) {
        Some(what) => Err(format!("job {:?} has {what}", id.as_str())),
        None => Ok(()),
    }
}

/// What a job shows that was never given out.
fn beyond(record: &Record, counters: &Counters) -> Option<&'static str> {
    let fence = match &record.status {
        Status::Leased(lease) => lease.fence.0,
        Status::Pending | Status::Dead { .. } => 0,
    };
    match () {
        () if record.seq > counters.seq => Some("a place in line that was never given out"),
        () if record.newest_generation().0 > counters.generation => {
            Some("a generation that was never given out")
        }
        () if fence > counters.fence => Some("a fence that was never given out"),
        () if record.failures.len() > KEPT_ATTEMPTS => Some("more failed attempts than are kept"),
        () => None,
    }
}

/// Checks how the runs and floors of a manifest fit each other.
pub(super) fn check_manifest(manifest: &Manifest) -> Vec<Corrupt> {
    let mut wrong = Vec::new();
    let mut check = |holds: bool, what: &dyn Fn() -> String| {
        if !holds {
            wrong.push(Corrupt::new(&manifest::name(manifest.number), 0, what()));
        }
    };
    for runs in [&manifest.due, &manifest.ids] {
        for run in runs {
            let (lo, hi) = (run.run.lo, run.run.hi);
            let holds = lo <= hi && hi < manifest.next_flush;
            check(holds, &|| format!("a run of flushes {lo} to {hi} cannot be"));
        }
        for pair in runs.windows(2) {
            let (before, run) = (&pair[0].run, &pair[1].run);
            // While runs are merged, the one that they become stands before them.
            let holds = before.hi < run.lo || !run.from.is_empty();
            check(holds, &|| format!("flush {} is in two runs", run.lo));
        }
    }
    for table in manifest.tables() {
        let number = table.number;
        check(number < manifest.next_file, &|| format!("it numbers table {number} anew"));
    }
    for floor in manifest.floors.all() {
        check(floor.upto < manifest.next_flush, &|| format!("a floor is of flush {}", floor.upto));
    }
    wrong
}
