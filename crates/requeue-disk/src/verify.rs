//! Checks all files of a directory, and reports all damage.
//!
//! ```text
//!   every manifest                                        checksum, runs, range tombstones
//!   every table of any manifest      once, front to end   blocks, order of keys, filter, footer;
//!                                                         each job decodes and is under its key
//!   both trees of the newest         once, merged         every id refers to its job, every job
//!   manifest that can be opened                           has its id, the counts are correct
//!   every segment of the log         once, in order       frames, no gap; the groups that are
//!                                                         newer than the tables can be replayed
//! ```
//!
//! Nothing is written, and memory use does not grow with the number of jobs: ids and jobs are
//! compared by a sum over each. Only if the sums differ are they compared one by one, to name the
//! jobs that do not match.

mod entries;
mod files;
mod lists;
#[cfg(test)]
mod tests;

use crate::disk::Disk;
use crate::error::{Corrupt, DiskError};
use crate::lock::Lock;
use crate::log::{self, LogEnd, SegmentView};
use crate::manifest::{self, Manifest};
use crate::progress::{ByteProgress, Meter};
use crate::state::State;
use crate::tables::run::Run;
use crate::tables::{Checked, Entry, Version, table};
use entries::ManifestKinds;
use files::Files;
pub(crate) use files::ReadOnly;
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

/// How many problems are listed one by one. If there are more, the disk itself is the problem.
const MAX_PROBLEMS: usize = 1000;

/// The result of [`verify`](verify()).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Verified {
    /// Damage that cannot be repaired: jobs are missing or cannot be read, or the store cannot be
    /// opened. At most the first thousand.
    pub problems: Vec<Corrupt>,
    /// Damage that does no harm, because the next open repairs it from a second copy: files that a
    /// crash left incomplete, and damage to older files that are kept only in case a newer one is
    /// damaged. At most the first thousand.
    pub harmless: Vec<Corrupt>,
    /// The number of further entries that the two lists leave out.
    pub more: u64,
    /// Names of files that nothing refers to: leftovers of a crash, which the next open removes,
    /// and files that do not belong to the store.
    pub orphans: Vec<String>,
    /// The number of kinds.
    pub kinds: usize,
    /// The number of jobs, including dead ones.
    pub jobs: u64,
    /// The number of groups in the log, including those that the tables contain as well.
    pub groups: u64,
    /// The number of tables.
    pub tables: usize,
    /// The size of all files that were read, in bytes.
    pub bytes: u64,
}

impl Verified {
    /// Returns `true` if [`problems`](Self::problems) is empty: no job is lost or damaged.
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

/// Reads all files of a store's directory, and reports all damage.
///
/// The store must not be open, and cannot be opened while this runs. Nothing in the directory is
/// changed, except the process id in the file `lock`. `progress` is called now and then with the
/// number of bytes read.
///
/// Damage is not an error: it is in the returned [`Verified`]. The call fails only if it cannot
/// check the directory: it does not exist, it is in use, or a version with another format wrote it.
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
    progress: impl FnMut(ByteProgress),
) -> Result<Verified, DiskError> {
    let directory = directory.as_ref();
    let disk = ReadOnly::new(directory)?;
    let _lock = Lock::take_to_read(directory)?;
    verify_on(&disk, progress)
}

/// Verifies the store on a disk that is not in use. See [`verify`](verify()).
pub fn verify_on(
    disk: &dyn Disk,
    mut progress: impl FnMut(ByteProgress),
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
        let kinds =
            manifests.first().map(ManifestKinds::read).transpose().unwrap_or_else(|corrupt| {
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
        self.report_damage(files, &manifests, damaged, &checked, newest);
        self.orphans(files, &manifests, newest);
        let Some((manifest, version)) = opened else {
            // There are no tables to replay the log on.
            return self.log(u64::MAX, LogEnd::default(), None).map(drop);
        };

        let mut wrong = version.verify_runs();
        wrong.extend(manifest.check());
        wrong.into_iter().for_each(|corrupt| self.found.problem(corrupt));
        let sound = manifest.tables().all(|table| checked.wrong(table.number).is_empty());
        let counted = if sound { self.lists(manifest, &version) } else { None };
        let name = manifest::name(manifest.number);
        let mut state = self.state(&name, manifest, &version);
        let fit = self.counts(&name, state.as_mut(), counted.as_ref());
        let mut state = self.log(manifest.flushed_through, manifest.log_end, state)?;
        if let Some(state) = &state {
            self.found.kinds = state.kinds.iter().count();
            let counts = state.kinds.iter().flat_map(|kind| kind.table.counts());
            self.found.jobs = counts.fold(0, u64::saturating_add);
        }
        if fit {
            let end = files.last_segment().unwrap_or(name);
            self.counts(&end, state.as_mut(), counted.as_ref());
        }
        Ok(())
    }

    /// Checks that the counts of each kind match its jobs. If not, reports `file` as damaged.
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

    /// All manifests that can be read, the newest first, and the damage of the others.
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
    fn tables(&mut self, manifests: &[Manifest], kinds: Option<&ManifestKinds>) -> Checked {
        let mut checked = Checked::default();
        for manifest in manifests {
            let check =
                |run: &Run, entry: Entry<'_>| kinds.map_or(Ok(()), |kinds| kinds.check(run, entry));
            checked.read(self.disk, manifest, check, |bytes| self.meter.add(bytes));
        }
        checked
    }

    /// Reports damage of manifests and tables. If the log and an older manifest contain the same
    /// data, the damage is harmless.
    fn report_damage(
        &mut self,
        files: &Files,
        manifests: &[Manifest],
        damaged: Vec<Corrupt>,
        checked: &Checked,
        opened: Option<&Manifest>,
    ) {
        if manifests.is_empty() && damaged.is_empty() && !files.is_new {
            let what = "the file is missing, and so is every other manifest";
            self.found.problem(Corrupt::new(&manifest::name(1), 0, what));
        }
        let harmless = opened.is_some() || files.is_new;
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

    /// Lists the files that neither the manifest that can be opened nor the one before it needs.
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

    /// Checks that ids and jobs in the tables match each other.
    fn lists(&mut self, manifest: &Manifest, version: &Arc<Version>) -> Option<lists::Counted> {
        let meter = &mut self.meter;
        let counted = match lists::Counted::new(version, |bytes| meter.add(bytes)) {
            Ok(counted) => counted,
            Err(error) => {
                self.found.problem(error.into_corrupt(&manifest::name(manifest.number), 0));
                return None;
            }
        };
        for kind in counted.misfits() {
            lists::name_misfits(version, kind, |corrupt| self.found.problem(corrupt));
        }
        Some(counted)
    }

    /// The state that a store loads from the tables before it replays the log.
    fn state(&mut self, name: &str, manifest: &Manifest, version: &Arc<Version>) -> Option<State> {
        let state = State::open(version.clone(), &manifest.blob);
        state.map_err(|error| self.found.problem(error.into_corrupt(name, 0))).ok()
    }

    /// Reads the log, and replays the groups that are newer than the tables. Returns the state
    /// after that, unless groups are missing.
    fn log(
        &mut self,
        after: u64,
        recorded: LogEnd,
        mut state: Option<State>,
    ) -> Result<Option<State>, DiskError> {
        let segments = SegmentView::all(self.disk)?;
        let (found, meter) = (&mut self.found, &mut self.meter);
        let mut whole = true;
        let log = log::verify(&segments, after, |each| match each {
            Err(corrupt) => found.problem(corrupt),
            Ok(group) => {
                found.groups += 1;
                meter.add(group.payload.len() as u64);
                whole &= !group.behind_gap;
                let Some(state) = state.as_mut().filter(|_| group.is_new && whole) else { return };
                if let Err(error) = state.replay(&group) {
                    whole = false;
                    found.problem(error.into_corrupt(group.file, group.offset));
                }
            }
        })?;
        if let Err(corrupt) = log.check(recorded) {
            found.problem(corrupt);
            whole = false;
        }
        Ok(state.filter(|_| whole))
    }
}
