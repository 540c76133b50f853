//! A disk in memory that knows what would survive a power cut.

#![allow(dead_code, reason = "each test that includes it uses a part")]

// With paths, because the unit tests of the crate include this file by its path.
#[path = "simulated_disk/content.rs"]
mod content;
#[path = "simulated_disk/file.rs"]
mod file;

use file::File;
use requeue_disk::{Disk, DiskFile};
use requeue_testkit::Random;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The operations that are counted, and that can be cut or fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Op {
    Write,
    Sync,
    Create,
    Rename,
    Remove,
    SyncNames,
    /// It can fail, but changes nothing: it has no number, and the power is not cut during it.
    Read,
}

/// A disk in memory. Clones are the same disk; [`SimulatedDisk::snapshot`] makes another.
///
/// Writes that are not synced are visible until the power is cut. [`SimulatedDisk::after_cut`]
/// keeps a random part of them, as a real disk might.
#[derive(Clone, Default)]
pub(crate) struct SimulatedDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Clone, Default)]
struct State {
    /// All files that ever had a name, by number. Those without one may still be open.
    files: Vec<File>,
    names: BTreeMap<String, usize>,
    /// The names that are synced.
    synced_names: BTreeMap<String, usize>,
    /// The changes of names since they were synced, in order.
    changes: Vec<Change>,
    counts: BTreeMap<Op, u64>,
    /// Operations so far.
    operations: u64,
    /// The number of the operation during which the power is cut; the first is 0.
    cut_at: Option<u64>,
    faults: Vec<Fault>,
    /// Prefixes of names of files whose syncs do nothing.
    lying: Vec<String>,
    /// The size of the blocks that a failed write or sync destroys, if it does.
    torn: Option<u64>,
    capacity: Option<u64>,
}

/// A change of the directory: these names now refer to these files, or to none.
#[derive(Debug, Clone)]
struct Change {
    names: Vec<(String, Option<usize>)>,
    /// The file that is created, renamed or removed.
    file: usize,
}

/// Operations that fail.
#[derive(Debug, Clone)]
struct Fault {
    op: Op,
    /// Applies to files whose names begin with this.
    prefix: String,
    skip: u64,
    times: u64,
}

impl SimulatedDisk {
    /// An empty disk without limits.
    pub(crate) fn new() -> SimulatedDisk {
        SimulatedDisk::default()
    }

    /// Another disk with the same contents, settings and counts.
    pub(crate) fn snapshot(&self) -> SimulatedDisk {
        SimulatedDisk { state: Arc::new(Mutex::new(self.state().clone())) }
    }

    /// The number of operations so far.
    pub(crate) fn operations(&self) -> u64 {
        self.state().operations
    }

    /// The number of operations of this type so far.
    pub(crate) fn count(&self, op: Op) -> u64 {
        self.state().counts.get(&op).copied().unwrap_or(0)
    }

    /// Cuts the power during the operation with this number, counted from 0 since the disk was
    /// created. This operation fails, and so do all later ones.
    pub(crate) fn cut_at(&self, operation: u64) {
        self.state().cut_at = Some(operation);
    }

    /// Whether the power is off.
    pub(crate) fn is_cut(&self) -> bool {
        let state = self.state();
        state.cut_at.is_some_and(|cut| state.operations > cut)
    }

    /// Makes `times` operations fail, after `skip` that succeed, on files whose names begin with
    /// `prefix`. A write that fails writes a part. The writes that a failed sync covers never
    /// become durable, whatever is synced later.
    pub(crate) fn fail(&self, op: Op, prefix: &str, skip: u64, times: u64) {
        self.state().faults.push(Fault { op, prefix: prefix.to_owned(), skip, times });
    }

    /// Makes writes and syncs that [fail](Self::fail) destroy any bytes of the blocks of this size
    /// that they touch, including bytes that were synced before. After a failed sync, the process
    /// may still see the bytes as they were written.
    pub(crate) fn tear(&self, block: u64) {
        self.state().torn = Some(block);
    }

    /// Removes all faults.
    pub(crate) fn heal(&self) {
        let mut state = self.state();
        state.faults.clear();
        state.torn = None;
    }

    /// Makes the syncs of files whose names begin with `prefix` do nothing.
    pub(crate) fn lie(&self, prefix: &str) {
        self.state().lying.push(prefix.to_owned());
    }

    /// Sets the limit for the size of all files together.
    pub(crate) fn set_capacity(&self, bytes: Option<u64>) {
        self.state().capacity = bytes;
    }

    /// The size of all files together.
    pub(crate) fn used(&self) -> u64 {
        self.state().used()
    }

    /// Flips bits of a byte, as a failing disk might.
    pub(crate) fn flip(&self, name: &str, offset: u64, bits: u8) {
        self.state().file(name).expect("a file to damage").flip(offset, bits);
    }

    /// Truncates a file. The change is durable.
    pub(crate) fn truncate(&self, name: &str, bytes: u64) {
        self.state().file(name).expect("a file to damage").truncate(bytes);
    }

    /// The contents of a file.
    pub(crate) fn bytes(&self, name: &str) -> Vec<u8> {
        let file = self.open(name).expect("a file to read");
        let mut bytes = vec![0; file.size().expect("its size") as usize];
        file.read_at(&mut bytes, 0).expect("its bytes");
        bytes
    }

    /// Creates a file. The change is durable.
    pub(crate) fn put(&self, name: &str, bytes: &[u8]) {
        let mut state = self.state();
        let number = state.files.len();
        state.files.push(File::of(bytes));
        state.names.insert(name.to_owned(), number);
        state.synced_names.insert(name.to_owned(), number);
    }

    /// The disk that is found after a power cut now: everything that was synced, and a random part
    /// of the rest, which depends on the seed. It has no faults left, but the same capacity.
    pub(crate) fn after_cut(&self, seed: u64) -> SimulatedDisk {
        let mut random = Random::new(seed);
        let state = self.state();
        let mut found = State { capacity: state.capacity, ..State::default() };
        let names = names_after_cut(&state, &mut random);
        let mut numbers = BTreeMap::new();
        for (name, number) in names {
            let number = *numbers.entry(number).or_insert_with(|| {
                found.files.push(state.files[number].after_cut(&mut random));
                found.files.len() - 1
            });
            found.names.insert(name, number);
        }
        found.synced_names = found.names.clone();
        SimulatedDisk { state: Arc::new(Mutex::new(found)) }
    }

    /// The disk that a new process finds if this one is killed now: all changes are visible, and
    /// those that were not synced are still not synced. It has no faults left, and the power is on.
    pub(crate) fn after_kill(&self) -> SimulatedDisk {
        let disk = self.snapshot();
        let mut state = disk.state();
        state.cut_at = None;
        state.faults.clear();
        state.torn = None;
        state.lying.clear();
        drop(state);
        disk
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handle(&self, number: usize) -> Arc<dyn DiskFile> {
        Arc::new(Handle { disk: self.clone(), number })
    }
}

/// Each change happened or not; but none without those before it that concern the same file or
/// the same name.
fn names_after_cut(state: &State, random: &mut Random) -> BTreeMap<String, usize> {
    let percent = *random.pick(&[0, 50, 50, 90, 100]);
    let mut names = state.synced_names.clone();
    let mut undone: Vec<&Change> = Vec::new();
    for change in &state.changes {
        let linked = |other: &&Change| {
            let shares = |(name, _): &(String, _)| other.names.iter().any(|(n, _)| n == name);
            other.file == change.file || change.names.iter().any(shares)
        };
        if undone.iter().any(linked) || !random.chance(percent) {
            undone.push(change);
            continue;
        }
        change.apply(&mut names);
    }
    names
}

impl Change {
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        for (name, file) in &self.names {
            match file {
                Some(file) => names.insert(name.clone(), *file),
                None => names.remove(name),
            };
        }
    }
}

/// What becomes of an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Done,
    /// The power is cut meanwhile: any part of it may have been done.
    Cut,
    Fails,
}

impl Outcome {
    fn result(self) -> io::Result<()> {
        match self {
            Outcome::Done => Ok(()),
            Outcome::Cut => Err(power_cut()),
            Outcome::Fails => Err(io::Error::other("the disk has a fault")),
        }
    }
}

impl State {
    fn file(&mut self, name: &str) -> io::Result<&mut File> {
        let number = *self.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(&mut self.files[number])
    }

    fn used(&self) -> u64 {
        let mut numbers: Vec<usize> = self.names.values().copied().collect();
        numbers.dedup();
        numbers.into_iter().map(|number| self.files[number].size()).sum()
    }

    fn name_of(&self, number: usize) -> Option<&str> {
        self.names.iter().find(|(_, n)| **n == number).map(|(name, _)| name.as_str())
    }

    /// Counts an operation. An error is that of a power that is off already.
    fn count(&mut self, op: Op, name: &str) -> io::Result<Outcome> {
        let operation = self.operations;
        if self.cut_at.is_some_and(|cut| operation > cut) {
            return Err(power_cut());
        }
        self.operations += 1;
        *self.counts.entry(op).or_default() += 1;
        if self.cut_at == Some(operation) {
            return Ok(Outcome::Cut);
        }
        Ok(if self.fails(op, name) { Outcome::Fails } else { Outcome::Done })
    }

    /// Whether a fault concerns the next operation of this type.
    fn fails(&mut self, op: Op, name: &str) -> bool {
        for fault in &mut self.faults {
            if fault.op != op || fault.times == 0 || !name.starts_with(&fault.prefix) {
                continue;
            }
            if fault.skip > 0 {
                fault.skip -= 1;
                continue;
            }
            fault.times -= 1;
            return true;
        }
        false
    }

    /// A power that is off gives nothing to read.
    fn check_power(&self) -> io::Result<()> {
        match self.cut_at {
            Some(cut) if self.operations > cut => Err(power_cut()),
            _ => Ok(()),
        }
    }

    /// Does something to names. During a power cut it may still happen; a fault prevents it.
    fn change(&mut self, op: Op, name: &str, change: Change) -> io::Result<()> {
        let outcome = self.count(op, name)?;
        if outcome != Outcome::Fails {
            change.apply(&mut self.names);
            self.changes.push(change);
        }
        outcome.result()
    }
}

fn power_cut() -> io::Error {
    io::Error::other("the power is off")
}

impl Disk for SimulatedDisk {
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state();
        let number = state.files.len();
        state.files.push(File::default());
        let change = Change { names: vec![(name.to_owned(), Some(number))], file: number };
        state.change(Op::Create, name, change)?;
        Ok(self.handle(number))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let state = self.state();
        state.check_power()?;
        Ok(self.handle(*state.names.get(name).ok_or(io::ErrorKind::NotFound)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state();
        state.check_power()?;
        let number = *state.names.get(from).ok_or(io::ErrorKind::NotFound)?;
        let names = vec![(from.to_owned(), None), (to.to_owned(), Some(number))];
        state.change(Op::Rename, from, Change { names, file: number })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state();
        state.check_power()?;
        let number = *state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        let change = Change { names: vec![(name.to_owned(), None)], file: number };
        state.change(Op::Remove, name, change)
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let state = self.state();
        state.check_power()?;
        Ok(state.names.keys().cloned().collect())
    }

    fn sync_names(&self) -> io::Result<()> {
        let mut state = self.state();
        state.count(Op::SyncNames, "")?.result()?;
        state.synced_names = state.names.clone();
        state.changes.clear();
        Ok(())
    }

    fn free(&self) -> io::Result<u64> {
        let state = self.state();
        state.check_power()?;
        Ok(state.capacity.map_or(u64::MAX, |capacity| capacity.saturating_sub(state.used())))
    }
}

struct Handle {
    disk: SimulatedDisk,
    number: usize,
}

impl DiskFile for Handle {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        state.check_power()?;
        let name = match state.faults.is_empty() {
            true => String::new(),
            false => state.name_of(self.number).unwrap_or_default().to_owned(),
        };
        *state.counts.entry(Op::Read).or_default() += 1;
        if state.fails(Op::Read, &name) {
            // What a failed read leaves in the buffer is not zeros.
            bytes.fill(0xee);
            return Outcome::Fails.result();
        }
        state.files[self.number].read_at(bytes, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        let name = state.name_of(self.number).unwrap_or_default().to_owned();
        let outcome = state.count(Op::Write, &name)?;
        let free = state.capacity.map_or(u64::MAX, |all| all.saturating_sub(state.used()));
        let torn = state.torn.filter(|_| outcome == Outcome::Fails);
        let mut random = Random::new(state.operations);
        let file = &mut state.files[self.number];
        let room = file.size().saturating_add(free).saturating_sub(offset);
        let fits = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        let written = if outcome == Outcome::Fails { fits / 2 } else { fits };
        file.write_at(&bytes[..written], offset);
        if let Some(block) = torn {
            file.tear(offset..offset + bytes.len() as u64, block, true, &mut random);
        }
        outcome.result()?;
        if fits < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.state();
        let name = state.name_of(self.number).unwrap_or_default().to_owned();
        let lies = state.lying.iter().any(|prefix| name.starts_with(prefix));
        let outcome = state.count(Op::Sync, &name)?;
        let torn = state.torn.filter(|_| outcome == Outcome::Fails);
        let mut random = Random::new(state.operations);
        let file = &mut state.files[self.number];
        if let Some(block) = torn {
            let (visible, ranges) = (random.chance(50), file.unsynced());
            for range in ranges {
                file.tear(range, block, visible, &mut random);
            }
        }
        match outcome {
            Outcome::Done if !lies => file.sync(),
            Outcome::Fails => file.sync_failed(),
            Outcome::Done | Outcome::Cut => {}
        }
        outcome.result()
    }

    fn size(&self) -> io::Result<u64> {
        let state = self.disk.state();
        state.check_power()?;
        Ok(state.files[self.number].size())
    }
}
