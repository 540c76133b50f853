//! The state of the store: all kinds, and how their changes are written to the log, replayed from
//! the log, and frozen to be flushed to tables.

mod replay;

use crate::bytes::{Bytes, Malformed, put_bytes, put_number};
use crate::codec;
use crate::due_buckets::ListKey;
use crate::error::{Corrupt, DiskError};
use crate::job_table::{DiskJobTable, Jobs, totals};
use crate::log_entry;
use crate::next_claims::{NextClaim, NextClaims};
use crate::stored_kinds::{self, StoredKind};
use crate::tables::Version;
use replay::Replay;
use requeue_jobs::rules::{KindState, Kinds, List, RateUse};
use requeue_jobs::{JobId, Kind, Schedule, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A few times what a flush writes for a kind that did not change.
const KIND_BYTES: usize = 512;

/// The number of the list of schedules in tables.
pub(crate) const SCHEDULES: u8 = 3;

pub(crate) struct State {
    pub(crate) kinds: Kinds<DiskJobTable>,
    /// The names of kinds by number.
    names: BTreeMap<u32, Kind>,
    /// How much of each rate limit is used according to the log, by the number of the kind. Without
    /// an entry: nothing.
    rate_uses: BTreeMap<u32, RateUse>,
    numbered: Arc<AtomicU32>,
    version: Arc<Mutex<Arc<Version>>>,
    /// Kinds that the current operation may have changed.
    touched: Vec<Kind>,
    /// Kinds that changed in this group, each once, and the bytes of their log entries.
    changed: Vec<Kind>,
    changed_len: usize,
    /// Kinds whose names are in the log or in the manifest.
    logged: BTreeSet<u32>,
    /// Schedules that changed since the last freeze.
    schedules: BTreeSet<(Kind, JobId)>,
    /// For callers that wait.
    next_claims: Arc<NextClaims>,
    /// The numbers of kinds that are published as [unread](NextClaim::Unread), and those of them
    /// that an operation of this group has touched.
    unread: BTreeSet<u32>,
    to_read: Vec<Kind>,
    /// The number of the kind to begin with when some are reaped.
    pub(crate) reap_first: u32,
    /// The approximate size of the active layers, in bytes.
    weight: usize,
    /// The approximate size of the jobs that the next flush makes obsolete.
    hidden: u64,
    /// Whether the state contains changes that are not synced.
    pub(crate) unsynced: bool,
    /// Deliver results of reads that may show those changes. The writer calls them after the sync.
    pub(crate) after_sync: Vec<Box<dyn FnOnce() + Send>>,
}

/// A frozen layer, to be flushed.
pub(crate) struct Frozen {
    pub(crate) kinds: Vec<FrozenKind>,
    pub(crate) blob: Vec<u8>,
    /// The last group of the log that it contains.
    pub(crate) through: u64,
    /// The number of all jobs. Further entries in tables are obsolete.
    pub(crate) live: u64,
}

pub(crate) struct FrozenKind {
    pub(crate) number: u32,
    pub(crate) jobs: Arc<Jobs>,
    /// For each list that was read, the key below which the tables are consumed.
    pub(crate) consumed_below: Vec<(List, ListKey)>,
    pub(crate) schedules: Vec<(JobId, Option<Schedule>)>,
}

impl State {
    pub(crate) fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
        state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state that is stored in the tables and in the manifest. The log is replayed on it.
    pub(crate) fn open(version: Arc<Version>, blob: &[u8]) -> Result<Self, DiskError> {
        let numbered = Arc::new(AtomicU32::new(0));
        let shared = Arc::new(Mutex::new(version.clone()));
        let make = {
            let (numbered, version) = (numbered.clone(), shared.clone());
            move |_: &Kind| {
                let version = version.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let number = numbered.fetch_add(1, Ordering::Relaxed);
                DiskJobTable::new(number, numbered.clone(), version, [0; List::END])
            }
        };
        let mut state = State {
            kinds: Kinds::new(make),
            names: BTreeMap::new(),
            rate_uses: BTreeMap::new(),
            numbered,
            version: shared,
            touched: Vec::new(),
            changed: Vec::new(),
            changed_len: 0,
            logged: BTreeSet::new(),
            schedules: BTreeSet::new(),
            next_claims: Arc::default(),
            unread: BTreeSet::new(),
            to_read: Vec::new(),
            reap_first: 0,
            weight: 0,
            hidden: 0,
            unsynced: false,
            after_sync: Vec::new(),
        };
        stored_kinds::read(blob, |kind| state.add(kind, &version))
            .map_err(|replay| replay.into_error(|what| Corrupt::new("the manifest", 0, what)))?;
        Ok(state)
    }

    fn add(&mut self, stored: StoredKind, version: &Arc<Version>) -> Result<(), Replay> {
        let StoredKind { number, name, counters, counts, settings, rate_use } = stored;
        if rate_use != RateUse::default() {
            self.rate_uses.insert(number, rate_use);
        }
        let table = DiskJobTable::new(number, self.numbered.clone(), version.clone(), counts);
        let mut kind = KindState::new(name, table);
        (kind.counters, kind.settings, kind.rate_use) = (counters, settings, rate_use);
        kind.table.load_leases()?;
        let mut cursor = kind.table.version().scan(number, SCHEDULES, (0, 0));
        while let Some((_, value)) = cursor.next()? {
            let schedule = codec::schedule(&mut Bytes::new(value));
            let schedule = schedule.map_err(|Malformed(what)| cursor.damage(what))?;
            kind.schedules.insert(schedule.id.clone(), schedule);
        }
        self.numbered.fetch_max(number.saturating_add(1), Ordering::Relaxed);
        self.names.insert(number, kind.name().clone());
        self.logged.insert(number);
        self.kinds.insert(kind);
        Ok(())
    }

    pub(crate) fn next_claims(&self) -> &Arc<NextClaims> {
        &self.next_claims
    }

    /// Ends the replay of the log: from now on operations run.
    pub(crate) fn replayed(&mut self) {
        self.kinds.resume_turns();
        for kind in self.kinds.iter() {
            // To know when the next claim is due, tables would have to be read. The first claim of
            // each kind does that.
            let totals = totals(&kind.table.counts());
            if totals.pending + totals.leased > 0 {
                self.unread.insert(kind.table.number());
                self.next_claims.publish(kind.name(), Some(NextClaim::Unread));
            }
        }
    }

    /// All kinds, beginning with the one at which the last reap stopped.
    pub(crate) fn kinds_to_reap(&self) -> Vec<(u32, Kind)> {
        let first = self.reap_first;
        let names = self.names.range(first..).chain(self.names.range(..first));
        names.map(|(number, name)| (*number, name.clone())).collect()
    }

    // Writing to the log.

    /// Notes that the current operation may have changed a kind.
    pub(crate) fn touch(&mut self, kind: &Kind) {
        if self.touched.last() != Some(kind) {
            self.touched.push(kind.clone());
        }
    }

    pub(crate) fn settings_changed(&mut self, kind: &Kind) {
        if let Some(kind) = self.kinds.kind_mut(kind) {
            let settings = &kind.settings;
            kind.table.note(|out| log_entry::put_settings(out, settings));
        }
        self.touch(kind);
    }

    pub(crate) fn counters_changed(&mut self, kind: &Kind) {
        if let Some(kind) = self.kinds.kind_mut(kind) {
            let counters = &kind.counters;
            kind.table.note(|out| log_entry::put_counters(out, counters));
        }
        self.touch(kind);
    }

    pub(crate) fn schedule_changed(&mut self, kind: &Kind, id: &JobId) {
        if let Some(kind) = self.kinds.kind_mut(kind) {
            let schedule = kind.schedules.get(id);
            kind.table.note(|out| log_entry::put_schedule(out, id, schedule));
        }
        self.schedules.insert((kind.clone(), id.clone()));
        self.touch(kind);
    }

    /// Ends an operation. Returns the size of the log entries of the group so far.
    ///
    /// Looks only at kinds that the operation touched: a group has a thousand operations, of which
    /// each may name a thousand kinds.
    pub(crate) fn end(&mut self) -> usize {
        for (old, new) in self.kinds.take_replaced() {
            self.replaced(&old, &new);
        }
        for name in self.touched.drain(..) {
            let Some(kind) = self.kinds.kind_mut(&name) else { continue };
            let number = kind.table.number();
            let logged = self.rate_uses.get(&number).copied().unwrap_or_default();
            if kind.rate_use != logged {
                let rate_use = kind.rate_use;
                self.rate_uses.insert(number, rate_use);
                kind.table.note(|out| log_entry::put_rate_use(out, &rate_use));
            }
            let (len, grown) = kind.table.end();
            self.changed_len += grown;
            if grown > 0 && grown == len {
                self.changed.push(name);
            } else if !self.unread.is_empty() && self.unread.remove(&number) {
                self.to_read.push(name);
            }
        }
        self.changed_len
    }

    /// Another kind has taken the place of an idle one: it has its number and its table.
    fn replaced(&mut self, old: &Kind, new: &Kind) {
        let Some(kind) = self.kinds.kind_mut(new) else { return };
        let number = kind.table.number();
        kind.table.note(|out| log_entry::put_renamed(out, new));
        self.renamed(number, old, new);
        self.changed.iter_mut().filter(|kind| *kind == old).for_each(|kind| *kind = new.clone());
        self.next_claims.publish(old, None);
        self.counters_changed(new);
    }

    /// The kind of this number has another name.
    fn renamed(&mut self, number: u32, old: &Kind, new: &Kind) {
        if let Some(name) = self.names.get_mut(&number) {
            *name = new.clone();
        }
        // That these schedules were removed is not in the tables yet.
        for (kind, id) in mem::take(&mut self.schedules) {
            let kind = if kind == *old { new.clone() } else { kind };
            self.schedules.insert((kind, id));
        }
    }

    /// The group was synced. Returns the [reads](State::after_sync) that waited for that.
    pub(crate) fn synced(&mut self) -> Vec<Box<dyn FnOnce() + Send>> {
        self.unsynced = false;
        mem::take(&mut self.after_sync)
    }

    /// Appends the log entries of the group to `out`. Returns whether callers that wait have to be
    /// woken.
    pub(crate) fn group(&mut self, out: &mut Vec<u8>, now: Timestamp) -> bool {
        let mut sooner = false;
        self.end();
        self.changed_len = 0;
        for name in mem::take(&mut self.changed) {
            let Some(kind) = self.kinds.kind_mut(&name) else { continue };
            let number = kind.table.number();
            self.unsynced = true;
            put_number(out, number.into());
            if self.logged.insert(number) {
                put_bytes(out, name.as_str().as_bytes());
                self.names.insert(number, name.clone());
            } else {
                put_bytes(out, b"");
            }
            kind.table.drain(|changes| put_bytes(out, changes));
            self.weight = self.weight.saturating_add_signed(kind.table.grown());
            self.hidden += kind.table.hidden();
            sooner |= self.publish_next_claim(&name, now);
        }
        for name in mem::take(&mut self.to_read) {
            sooner |= self.publish_next_claim(&name, now);
        }
        sooner
    }

    /// Publishes when the next claim of a kind can return a job. Returns whether callers that
    /// wait have to be woken.
    fn publish_next_claim(&mut self, name: &Kind, now: Timestamp) -> bool {
        let Some(kind) = self.kinds.kind_mut(name) else { return false };
        let number = kind.table.number();
        let next = match kind.next_claimable(now) {
            Ok(next) => {
                self.unread.remove(&number);
                next.map(NextClaim::At)
            }
            // A claim will report the error.
            Err(_) => {
                self.unread.insert(number);
                Some(NextClaim::Unread)
            }
        };
        self.next_claims.publish(name, next)
    }

    // Flushing to tables.

    /// Whether the active layers are larger than `memory` bytes. With many kinds the limit is
    /// higher: a flush writes some bytes for every kind, and should be worth that.
    pub(crate) fn is_past(&self, memory: usize) -> bool {
        self.weight >= memory.max(self.kinds.len() * KIND_BYTES)
    }

    /// The approximate size of the active layers, in bytes.
    pub(crate) fn weight(&self) -> usize {
        self.weight
    }

    /// How much space flushing and merging would free, about, besides the log: the size of the jobs
    /// that were removed, or changed, without the size of what has to be written.
    pub(crate) fn flush_gain(&self, logged: u64) -> u64 {
        (self.hidden + logged).saturating_sub(self.weight as u64)
    }

    /// Freezes all active layers.
    pub(crate) fn freeze(&mut self, through: u64) -> Frozen {
        let mut schedules: BTreeMap<Kind, Vec<(JobId, Option<Schedule>)>> = BTreeMap::new();
        for (kind, id) in mem::take(&mut self.schedules) {
            let state = self.kinds.kind(&kind);
            let schedule = state.and_then(|kind| kind.schedules.get(&id).cloned());
            schedules.entry(kind).or_default().push((id, schedule));
        }
        (self.weight, self.hidden) = (0, 0);
        let mut frozen = Vec::new();
        let (mut blob, mut live) = (Vec::new(), 0);
        for name in self.names.values() {
            let Some(kind) = self.kinds.kind_mut(name) else { continue };
            let consumed_below = kind.table.all_consumed_below();
            let jobs = kind.table.freeze();
            let schedules = schedules.remove(name).unwrap_or_default();
            if !jobs.is_empty() || !schedules.is_empty() {
                frozen.push(FrozenKind {
                    number: kind.table.number(),
                    jobs,
                    consumed_below,
                    schedules,
                });
            }
            stored_kinds::put(
                &mut blob,
                &StoredKind {
                    number: kind.table.number(),
                    name: name.clone(),
                    counters: kind.counters,
                    counts: kind.table.counts(),
                    settings: kind.settings.clone(),
                    rate_use: kind.rate_use,
                },
            );
            live = kind.table.counts().into_iter().fold(live, u64::saturating_add);
        }
        Frozen { kinds: frozen, blob, through, live }
    }

    /// The frozen layers are in the tables of this version now. Returns them, because dropping them
    /// takes time that the writer does not have.
    pub(crate) fn flushed(&mut self, version: &Arc<Version>) -> Box<dyn Send> {
        let flushed = |kind: &mut KindState<DiskJobTable>| kind.table.flushed(version.clone());
        let frozen: Vec<_> = self.kinds.iter_mut().map(flushed).collect();
        self.moved(version);
        Box::new(frozen)
    }

    /// The same jobs are in other tables now, because of a merge.
    pub(crate) fn moved(&mut self, version: &Arc<Version>) {
        self.kinds.iter_mut().for_each(|kind| kind.table.moved(version.clone()));
        *self.version.lock().unwrap_or_else(PoisonError::into_inner) = version.clone();
    }
}
