//! Reads all that is in a directory, and says all that is wrong with it.
//!
//! ```text
//!   every manifest                                        checksum, runs, floors
//!   every table of any manifest      once, front to end   blocks, order of keys, filter, footer;
//!                                                         each job decodes and is in its place
//!   both trees of the newest         once, merged         every id leads to its job, every job is
//!   manifest that can be opened                           led to, counts are as counted
//!   every segment of the log         once, in order       frames, no gap; what it did after the
//!                                                         tables were written can be done again
//! ```
//!
//! Nothing is written, and memory does not grow with the number of jobs: that ids and jobs fit
//! each other is seen by a sum over both. Only where it does not come out are they compared one
//! by one, to say which.

mod entries;
mod files;
mod lists;
#[cfg(test)]
mod tests;

use crate::bytes::Malformed;
use crate::disk::Disk;
use crate::error::{Corrupt, DiskError, chain};
use crate::lock::Lock;
use crate::log::{self, SegmentView};
use crate::manifest::{self, Manifest};
use crate::progress::{Meter, Progress};
use crate::state::{Replay, State};
use crate::tables::run::Run;
use crate::tables::{Checked, Entry, Version, table};
use entries::Kinds;
use files::{Files, ReadOnly};
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

/// How many problems are told one by one. Who has more has one problem: the disk.
const MAX_PROBLEMS: usize = 1000;

/// What was found in a directory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Verified {
    /// What is wrong and stays so: jobs are missing or cannot be read, or a store does not open.
    /// At most the first thousand.
    pub problems: Vec<Corrupt>,
    /// What is wrong and does no harm. The next to open the directory makes it good from what is
    /// there twice: what a crash left half done, and damage to what is only kept in case a newer
    /// file were damaged.
    pub harmless: Vec<Corrupt>,
    /// How many more of both there are.
    pub more: u64,
    /// Files that nothing refers to: what a crash left, which the next to open the directory
    /// removes, and what is not of the store.
    pub orphans: Vec<String>,
    /// Kinds of jobs.
    pub kinds: usize,
    /// Jobs, dead ones included.
    pub jobs: u64,
    /// Groups in the log, those included that tables have too.
    pub groups: u64,
    /// Tables.
    pub tables: usize,
    /// Bytes of all files that were read.
    pub bytes: u64,
}

impl Verified {
    /// Whether every job that was answered is there, and as it was.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }

    fn problem(&mut self, corrupt: Corrupt) {
        note(&mut self.problems, &mut self.more, corrupt);
    }

    fn harmless(&mut self, corrupt: Corrupt) {
        note(&mut self.harmless, &mut self.more, corrupt);
    }
}

fn note(noted: &mut Vec<Corrupt>, more: &mut u64, corrupt: Corrupt) {
    if noted.len() >= MAX_PROBLEMS {
        *more += 1;
    } else if !noted.contains(&corrupt) {
        noted.push(corrupt);
    }
}

/// Reads all that is in the directory of a store, and says all that is wrong with it.
///
/// Nobody may have it open, and nobody can while it is read. Nothing in it is changed, except the
/// name of the process in the file `lock`. `progress` is told now and then how much is read.
///
/// An error is what keeps it from looking: there is no such directory, somebody has it open, a
/// newer program wrote it. What it finds is no error.
///
/// ```
/// use requeue_disk::{DiskStore, verify};
/// # let directory = std::env::temp_dir().join(format!("requeue-verify-{}", std::process::id()));
///
/// drop(DiskStore::open(&directory)?);
/// let verified = verify(&directory, |progress| {
///     eprintln!("{} of {} bytes", progress.bytes, progress.total);
/// })?;
/// for problem in &verified.problems {
///     println!("{problem}"); // table-0000000007 is damaged at byte 16384: …
/// }
/// assert!(verified.is_sound());
/// # std::fs::remove_dir_all(&directory)?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub fn verify(
    directory: impl AsRef<Path>,
    progress: impl FnMut(Progress),
) -> Result<Verified, DiskError> {
    let directory = directory.as_ref();
    let disk = ReadOnly::new(directory)?;
    let _lock = Lock::take_to_read(directory)?;
    verify_on(&disk, progress)
}

/// The same on a disk that nobody else uses meanwhile.
pub fn verify_on(
    disk: &dyn Disk,
    mut progress: impl FnMut(Progress),
) -> Result<Verified, DiskError> {
    let files = Files::list(disk)?;
    let meter = Meter::new(files.to_read(), &mut progress);
    let found = Verified { bytes: files.bytes(), ..Verified::default() };
    let mut verifier = Verifier { disk, meter, found };
    verifier.run(&files)?;
    verifier.meter.end();
    Ok(verifier.found)
}

struct Verifier<'a> {
    disk: &'a dyn Disk,
    meter: Meter<'a>,
    found: Verified,
}

impl Verifier<'_> {
    fn run(&mut self, files: &Files) -> Result<(), DiskError> {
        let (manifests, damaged) = self.manifests(files)?;
        let kinds = manifests.first().map(Kinds::read).transpose().unwrap_or_else(|corrupt| {
            self.found.problem(corrupt);
            None
        });
        let checked = self.tables(&manifests, kinds.as_ref());
        self.found.tables = checked.count();
        let opened = manifests.iter().enumerate().find_map(|(at, manifest)| {
            let version = checked.version(manifest, manifests.get(at + 1))?;
            Some((manifest, Arc::new(version)))
        });
        let newest = opened.as_ref().map(|(manifest, _)| *manifest);
        self.tell_damage(files, &manifests, damaged, &checked, newest);
        self.orphans(files, &manifests, newest);
        let Some((manifest, version)) = opened else {
            // There is nothing to do it again on.
            return self.log(u64::MAX, None).map(drop);
        };

        let mut wrong = version.verify_runs();
        wrong.extend(entries::check_manifest(manifest));
        wrong.into_iter().for_each(|corrupt| self.found.problem(corrupt));
        let sound = manifest.tables().all(|table| checked.wrong(table.number).is_empty());
        let counted = if sound { self.lists(manifest, &version) } else { None };
        let name = manifest::name(manifest.number);
        let mut state = self.state(&name, manifest, &version);
        let fit = self.counts(&name, state.as_mut(), counted.as_ref());
        let mut state = self.log(manifest.flushed_through, state)?;
        if let Some(state) = &state {
            self.found.kinds = state.kinds.iter().count();
            self.found.jobs = state.kinds.iter().flat_map(|kind| kind.table.counts()).sum();
        }
        if fit {
            let end = files.last_segment().unwrap_or(name);
            self.counts(&end, state.as_mut(), counted.as_ref());
        }
        Ok(())
    }

    /// Checks that kinds count as many jobs as there are. Where they do not, `file` says wrong.
    fn counts(
        &mut self,
        file: &str,
        state: Option<&mut State>,
        counted: Option<&lists::Counted>,
    ) -> bool {
        let (Some(state), Some(counted)) = (state, counted) else { return true };
        let mut fit = true;
        for kind in state.kinds.iter_mut() {
            if let Some(what) = lists::check_kind(kind, counted.of(kind.table.number())) {
                self.found.problem(Corrupt::new(file, 0, what));
                fit = false;
            }
        }
        fit
    }

    /// All manifests that can be read, the newest first, and what is wrong with the others.
    fn manifests(&mut self, files: &Files) -> Result<(Vec<Manifest>, Vec<Corrupt>), DiskError> {
        let (mut manifests, mut damaged) = (Vec::new(), Vec::new());
        for &(number, bytes) in files.manifests.iter().rev() {
            match Manifest::read(self.disk, number) {
                Ok(manifest) => manifests.push(manifest),
                Err(DiskError::Corrupt(corrupt)) => damaged.push(corrupt),
                Err(error) => return Err(error),
            }
            self.meter.add(bytes);
        }
        Ok((manifests, damaged))
    }

    /// Reads every table of every manifest.
    fn tables(&mut self, manifests: &[Manifest], kinds: Option<&Kinds>) -> Checked {
        let mut checked = Checked::default();
        for manifest in manifests {
            let check =
                |run: &Run, entry: Entry<'_>| kinds.map_or(Ok(()), |kinds| kinds.check(run, entry));
            checked.read(self.disk, manifest, check, |bytes| self.meter.add(bytes));
        }
        checked
    }

    /// Tells what is wrong with manifests and tables. Where the log and an older manifest have the
    /// same, that does no harm.
    fn tell_damage(
        &mut self,
        files: &Files,
        manifests: &[Manifest],
        damaged: Vec<Corrupt>,
        checked: &Checked,
        opened: Option<&Manifest>,
    ) {
        if manifests.is_empty() && damaged.is_empty() && !files.is_new() {
            let what = "it is missing, and so is every other manifest";
            self.found.problem(Corrupt::new(&manifest::name(1), 0, what));
        }
        let harmless = opened.is_some() || files.is_new();
        for corrupt in damaged {
            if harmless { self.found.harmless(corrupt) } else { self.found.problem(corrupt) }
        }
        let needed = |table| opened.is_none_or(|m| m.tables().any(|other| other.number == table));
        let mut seen = HashSet::new();
        let tables = manifests.iter().flat_map(Manifest::tables).map(|table| table.number);
        for table in tables.filter(|table| seen.insert(*table)) {
            for corrupt in checked.wrong(table).iter().cloned() {
                if needed(table) {
                    self.found.problem(corrupt)
                } else {
                    self.found.harmless(corrupt)
                }
            }
        }
    }

    /// Files that the manifest that can be opened, and the one before, do not need.
    fn orphans(&mut self, files: &Files, manifests: &[Manifest], opened: Option<&Manifest>) {
        self.found.orphans = files.others.clone();
        let Some(opened) = opened else { return };
        let kept = manifests.iter().filter(|manifest| manifest.number <= opened.number).take(2);
        let (mut names, mut tables) = (HashSet::new(), HashSet::new());
        for manifest in kept {
            names.insert(manifest.number);
            tables.extend(manifest.tables().map(|table| table.number));
        }
        let is_orphan = |kept: &HashSet<u64>, (number, _): &&(u64, u64)| !kept.contains(number);
        let manifests = files.manifests.iter().filter(|file| is_orphan(&names, file));
        self.found.orphans.extend(manifests.map(|(number, _)| manifest::name(*number)));
        let tables = files.tables.iter().filter(|file| is_orphan(&tables, file));
        self.found.orphans.extend(tables.map(|(number, _)| table::name(*number)));
    }

    /// Checks that ids and jobs of the tables fit each other.
    fn lists(&mut self, manifest: &Manifest, version: &Arc<Version>) -> Option<lists::Counted> {
        let meter = &mut self.meter;
        let counted = match lists::Counted::new(version, |bytes| meter.add(bytes)) {
            Ok(counted) => counted,
            Err(error) => {
                self.found.problem(corrupt(error, &manifest::name(manifest.number)));
                return None;
            }
        };
        for kind in counted.misfits() {
            lists::name_misfits(version, kind, |corrupt| self.found.problem(corrupt));
        }
        Some(counted)
    }

    /// What a store would find in the tables, as it begins to read the log.
    fn state(&mut self, name: &str, manifest: &Manifest, version: &Arc<Version>) -> Option<State> {
        let state = State::open(version.clone(), &manifest.blob);
        state.map_err(|error| self.found.problem(corrupt(error, name))).ok()
    }

    /// Reads the log, and does again what comes after the tables were written. Answers the state
    /// then, if nothing is missing.
    fn log(&mut self, after: u64, mut state: Option<State>) -> Result<Option<State>, DiskError> {
        let segments = SegmentView::all(self.disk)?;
        let (found, meter) = (&mut self.found, &mut self.meter);
        let mut whole = true;
        log::verify(&segments, after, |each| match each {
            Err(corrupt) => found.problem(corrupt),
            Ok(group) => {
                found.groups += 1;
                meter.add(group.payload.len() as u64);
                whole &= !group.behind_gap;
                let Some(state) = state.as_mut().filter(|_| group.is_new && whole) else { return };
                if let Err(replay) = state.replay(group.payload) {
                    whole = false;
                    let what = match replay {
                        Replay::Malformed(Malformed(what)) => what.to_owned(),
                        Replay::Disk(error) => error.to_string(),
                    };
                    let what = format!("group {} makes no sense: {what}", group.number);
                    found.problem(Corrupt::new(group.file, group.offset, what));
                }
            }
        })?;
        Ok(state.filter(|_| whole))
    }
}

/// Names the file, where an error does not.
fn corrupt(error: DiskError, file: &str) -> Corrupt {
    match error {
        DiskError::Corrupt(corrupt) => corrupt,
        error => Corrupt::new(file, 0, chain(&error)),
    }
}
