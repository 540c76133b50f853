//! Replays the log on the state that is in the tables.

use super::State;
use crate::bytes::{Bytes, Malformed};
use crate::codec::Parts;
use crate::error::{Corrupt, DiskError};
use crate::job_table::DiskJobTable;
use crate::log::Group;
use crate::log_entry::{LogEntry, kind_name};
use requeue_jobs::rules::{JobTable, KindState, List, Record, Status};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

/// Why a change could not be applied.
pub(super) enum Replay {
    Malformed(Malformed),
    /// A job that it changes could not be read.
    Disk(DiskError),
}

impl Replay {
    /// `malformed` turns a description into the damage.
    pub(super) fn into_error(self, malformed: impl FnOnce(&str) -> Corrupt) -> DiskError {
        match self {
            Replay::Malformed(Malformed(what)) => malformed(what).into(),
            Replay::Disk(error) => error,
        }
    }
}

impl From<Malformed> for Replay {
    fn from(malformed: Malformed) -> Self {
        Replay::Malformed(malformed)
    }
}

impl From<DiskError> for Replay {
    fn from(error: DiskError) -> Self {
        Replay::Disk(error)
    }
}

impl State {
    /// Applies a group of the log.
    pub(crate) fn replay(&mut self, group: &Group<'_>) -> Result<(), DiskError> {
        let Group { file, offset, number, .. } = group;
        let malformed = |what: &str| {
            Corrupt::new(file, *offset, format!("group {number} is malformed: {what}"))
        };
        let mut sections = Bytes::new(group.payload);
        while !sections.is_empty() {
            let section = self.replay_section(&mut sections);
            section.map_err(|replay| replay.into_error(malformed))?;
        }
        Ok(())
    }

    /// Applies the changes of one kind.
    fn replay_section(&mut self, group: &mut Bytes<'_>) -> Result<(), Replay> {
        let (number, name) = (group.number32()?, group.text()?);
        if !name.is_empty() {
            self.add_new(number, name)?;
        }
        let mut changes = Bytes::new(group.bytes()?);
        let unknown = Malformed("an entry refers to an unknown kind");
        let name = self.names.get(&number).ok_or(unknown)?;
        let kind = self.kinds.kind_mut(name).ok_or(unknown)?;
        let mut renamed = None;
        while !changes.is_empty() {
            match LogEntry::read(&mut changes)? {
                LogEntry::Kept(id, draft) => {
                    let before = kind.table.take_out(&id)?;
                    let record = draft.complete(before.as_deref().map(Parts::of).as_ref())?;
                    count(kind, &record);
                    kind.table.keep(id, Box::new(record));
                }
                LogEntry::Gone(id) => {
                    let absent = Malformed("a job is removed that does not exist");
                    kind.table.take_out(&id)?.ok_or(absent)?;
                    kind.table.finish();
                }
                LogEntry::Settings(settings) => kind.settings = settings,
                LogEntry::RateUse(rate_use) => {
                    kind.rate_use = rate_use;
                    self.rate_uses.insert(number, rate_use);
                }
                LogEntry::Schedule(schedule) => {
                    self.schedules.insert((name.clone(), schedule.id.clone()));
                    kind.schedules.insert(schedule.id.clone(), schedule);
                }
                LogEntry::NoSchedule(id) => {
                    kind.schedules.remove(&id);
                    self.schedules.insert((name.clone(), id));
                }
                LogEntry::Counters { generation, fence } => {
                    kind.counters.generation = kind.counters.generation.max(generation);
                    kind.counters.fence = kind.counters.fence.max(fence);
                }
                // Other entries of the group refer to the kind under its new name, too. The kind
                // before had no settings.
                LogEntry::Renamed(to) => renamed = Some(to),
            }
        }
        kind.table.drain(|_| ());
        self.weight = self.weight.saturating_add_signed(kind.table.grown());
        self.hidden += kind.table.hidden();
        if let Some(to) = renamed
            && to != *name
        {
            if self.kinds.kind(&to).is_some() {
                return Err(Malformed("a kind gets the name of another").into());
            }
            let from = name.clone();
            self.kinds.rename(&from, &to);
            self.renamed(number, &from, &to);
        }
        Ok(())
    }

    /// Adds a kind that is not in the tables.
    fn add_new(&mut self, number: u32, name: &str) -> Result<(), Replay> {
        let name = kind_name(name)?;
        let version = self.version.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.numbered.fetch_max(number.saturating_add(1), Ordering::Relaxed);
        self.logged.insert(number);
        self.names.insert(number, name.clone());
        self.kinds.insert(KindState::new(
            name,
            DiskJobTable::new(number, self.numbered.clone(), version, [0; List::END]),
        ));
        Ok(())
    }
}

/// Raises the counters of a kind, so that no number of this record is assigned again.
fn count(kind: &mut KindState<DiskJobTable>, record: &Record) {
    let counters = &mut kind.counters;
    counters.seq = counters.seq.max(record.seq);
    counters.generation = counters.generation.max(record.newest_generation().0);
    if let Status::Leased(lease) = &record.status {
        counters.fence = counters.fence.max(lease.fence.0);
    }
}
