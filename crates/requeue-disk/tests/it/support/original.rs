//! A store with a known history, to be damaged: what every job was at any time, and what each
//! group of the log changed.

use super::simulated_disk::SimulatedDisk;
use super::small;
use super::workload::{View, Workload, WorkloadShape, clock_at, content};
use requeue_disk::{Disk, DiskStore, Loss, Salvage};
use requeue_jobs::{JobState, JobView, Kind, Query, Schedule, Store, StoreError, Timestamp};
use requeue_testkit::block_on;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex};

/// Kind and id of a job.
pub(crate) type Name = (String, String);

pub(crate) struct Original {
    pub(crate) disk: SimulatedDisk,
    /// The same disk at earlier times.
    pub(crate) earlier: Vec<SimulatedDisk>,
    /// The contents at the end.
    pub(crate) last: View,
    pub(crate) now: Timestamp,
    /// All versions of each job that were acknowledged, without their failed attempts.
    versions: BTreeMap<Name, Vec<JobView>>,
    schedules: Vec<Schedule>,
    /// The jobs that each group of the log changed.
    changed: BTreeMap<u64, BTreeSet<Name>>,
    /// The jobs after each step, as hashes.
    states: BTreeSet<u64>,
}

/// The size of an [`Original`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct OriginalShape {
    pub(crate) steps: usize,
    pub(crate) ids: usize,
    /// Bytes in memory before a flush, and bytes of a segment.
    pub(crate) memory: usize,
    pub(crate) segment: u64,
    /// Whether the store is closed at the end, or its process is killed.
    pub(crate) closed: bool,
}

impl Original {
    pub(crate) fn random(seed: u64, shape: OriginalShape) -> Original {
        let (steps, ids) = (shape.steps, shape.ids);
        let workload =
            Workload::random(seed, WorkloadShape { steps, ids, content: content::<600> });
        let disk = SimulatedDisk::new();
        let (clock, wall_clock) = clock_at(workload.now(0));
        let mut options = small(&wall_clock);
        (options.memory, options.segment) = (shape.memory, shape.segment);
        let store = DiskStore::open_on(Arc::new(disk.clone()), options).expect("it opens");
        let (mut versions, mut changed) = (BTreeMap::<_, Vec<JobView>>::new(), BTreeMap::new());
        let (mut schedules, mut earlier) = (Vec::new(), Vec::new());
        let (mut group, mut states) = (0, BTreeSet::from([hash(&[])]));
        for (at, step) in workload.steps.iter().enumerate() {
            clock.advance(step.now.saturating_since(wall_clock.now()));
            assert_eq!(step.operation.run(&store), step.result);
            states.insert(hash(&step.after.jobs));
            let (before, after) = (by_name(&step.before.jobs), by_name(&step.after.jobs));
            for (name, job) in &after {
                let versions = versions.entry(name.clone()).or_default();
                if versions.last() != Some(job) {
                    versions.push(job.clone());
                }
            }
            schedules.extend(step.after.schedules.iter().flatten().cloned());
            let names = before.keys().chain(after.keys());
            let names: BTreeSet<Name> =
                names.filter(|name| before.get(*name) != after.get(*name)).cloned().collect();
            let last = last_group(&disk);
            (group + 1..=last).for_each(|group| drop(changed.insert(group, names.clone())));
            group = last;
            if at % (steps / 4).max(1) == 0 {
                earlier.push(disk.after_kill());
            }
        }
        let killed = disk.after_kill();
        drop(store);
        let last = workload.steps.last().expect("there are steps");
        let (last, now) = (last.after.clone(), last.now);
        let disk = if shape.closed { disk } else { killed };
        schedules.dedup();
        Original { disk, earlier, last, now, versions, schedules, changed, states }
    }

    /// Whether the store had these jobs after one of its operations.
    pub(crate) fn is_earlier(&self, jobs: &[JobView]) -> bool {
        self.states.contains(&hash(jobs))
    }

    /// Whether the last segment of the log differs.
    pub(crate) fn end_differs(&self, damaged: &SimulatedDisk) -> bool {
        let names = self.disk.names().expect("the power is on");
        let last = names.into_iter().filter(|name| name.starts_with("log-")).max();
        let there = damaged.names().expect("the power is on");
        last.is_some_and(|last| {
            !there.contains(&last) || damaged.bytes(&last) != self.disk.bytes(&last)
        })
    }

    /// The jobs that these groups changed.
    fn changed_by(&self, groups: &[(u64, u64)]) -> BTreeSet<Name> {
        let all = groups.iter().flat_map(|(first, last)| self.changed.range(first..=last));
        all.flat_map(|(_, names)| names.clone()).collect()
    }

    /// Whether a job was like this at some time.
    fn was(&self, name: &Name, job: &JobView) -> bool {
        let job = plain(job);
        self.versions.get(name).is_some_and(|all| all.iter().any(|version| plain(version) == job))
    }

    /// Checks what is left of a damaged copy. Without `claims` about which parts are damaged, the
    /// disk may have been changed in ways that no checksum can detect.
    pub(crate) fn check_salvaged(
        &self,
        damaged: &SimulatedDisk,
        wrong: Wrong,
    ) -> Result<Salvaged, String> {
        let found = Salvaged::read(damaged, self.now)?;
        if wrong == Wrong::Forged {
            return Ok(found);
        }
        let expected = by_name(&self.last.jobs);
        let returned = by_name(&found.jobs);
        if returned.len() != found.jobs.len() {
            return Err("a job was returned twice".to_owned());
        }
        for (name, job) in &returned {
            if !name.0.starts_with("unknown-kind-") && !self.was(name, job) {
                return Err(format!("job {name:?} never was {job:?}\n{:#?}", found.losses));
            }
        }
        for schedule in found.schedules.iter().flatten() {
            if !self.schedules.contains(schedule) {
                return Err(format!("a schedule never was {schedule:?}"));
            }
        }
        if wrong == Wrong::RolledBack {
            return Ok(found);
        }
        if found.losses.is_empty() && self.is_earlier(&found.jobs) && self.end_differs(damaged) {
            // Groups at the end of the log of which nothing is left.
            return Ok(found);
        }
        let (mut groups, mut named) = (Vec::new(), BTreeSet::new());
        let (mut due, mut ids, mut manifests) = (false, false, false);
        for loss in &found.losses {
            match loss {
                Loss::Groups { first, last } => groups.push((*first, *last)),
                Loss::Job { kind, id, .. }
                | Loss::Version { kind, id, .. }
                | Loss::FailedAttempts { kind, id } => {
                    named.insert((kind.as_str().to_owned(), id.as_str().to_owned()));
                }
                Loss::Bytes { file, contents, .. } => {
                    ids |= contents.starts_with("ids ");
                    due |= file.starts_with("table-") && !contents.starts_with("ids ");
                    manifests |= file.starts_with("manifest-");
                    // Behind the last group that can be read, nothing shows how many there were.
                    if file.starts_with("log-") {
                        let names = self.disk.names().expect("the power is on");
                        let there = names.contains(file);
                        let first = there
                            .then(|| groups_of(&self.disk.bytes(file)).first().copied())
                            .flatten();
                        groups.push((first.unwrap_or(0), u64::MAX));
                    }
                }
                _ => manifests = true,
            }
        }
        if manifests {
            return Ok(found);
        }
        // Only if both trees are damaged can a job be in a lost part of both.
        let anything = ids && due;
        let affected = self.changed_by(&groups);
        let tolerated = |name: &Name| anything || affected.contains(name) || named.contains(name);
        for (name, job) in &expected {
            if returned.get(name) != Some(job) && !tolerated(name) {
                return Err(format!(
                    "job {name:?} is not named\n  expected {job:?}\n  found    {:?}\n{:#?}",
                    returned.get(name),
                    found.losses
                ));
            }
        }
        for name in returned.keys() {
            if !expected.contains_key(name) && !anything && !affected.contains(name) {
                return Err(format!("job {name:?} is back\n{:#?}", found.losses));
            }
        }
        if found.losses.is_empty() && found.schedules != self.last.schedules {
            return Err("schedules are missing, but nothing is lost".to_owned());
        }
        if found.losses.iter().any(|loss| loss.to_string().contains('\n')) {
            return Err("a loss is not one line".to_owned());
        }
        Ok(found)
    }
}

/// How a disk was damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wrong {
    /// Bytes were changed, and checksums detect it.
    Detectable,
    /// Files are as they were earlier, or are missing. Their checksums are valid.
    RolledBack,
    /// Bytes were changed, and the checksums too.
    Forged,
}

/// What was read from a damaged disk.
pub(crate) struct Salvaged {
    pub(crate) jobs: Vec<JobView>,
    pub(crate) schedules: Vec<Vec<Schedule>>,
    pub(crate) losses: Vec<Loss>,
    pub(crate) salvage: Salvage,
}

impl Salvaged {
    pub(crate) fn read(disk: &SimulatedDisk, now: Timestamp) -> Result<Salvaged, String> {
        let losses = Arc::new(Mutex::new(Vec::new()));
        let (_, wall_clock) = clock_at(now);
        let names = disk.names().expect("the power is on");
        let before: Vec<_> = names.iter().map(|name| disk.bytes(name)).collect();
        let operations = disk.operations();
        let salvage = Salvage::open_on(disk, wall_clock, {
            let losses = losses.clone();
            move |loss| losses.lock().expect("no panic").push(loss)
        });
        let salvage = salvage.map_err(|error| format!("not opened: {error}"))?;
        let jobs = jobs(&salvage).map_err(|error| format!("not read: {error}"))?;
        let of = |kind| block_on(salvage.schedules(kind)).expect("they are in memory");
        let schedules = super::workload::kinds().into_iter().map(of).collect();
        assert_eq!(disk.operations(), operations, "nothing is written");
        let after: Vec<_> = names.iter().map(|name| disk.bytes(name)).collect();
        assert!(before == after, "nothing is changed");
        let losses = losses.lock().expect("no panic").clone();
        assert_eq!(salvage.losses(), losses.len() as u64);
        Ok(Salvaged { jobs, schedules, losses, salvage })
    }
}

/// All jobs of a store, by kind and id.
pub(crate) fn jobs(store: &dyn Store) -> Result<Vec<JobView>, StoreError> {
    let mut jobs = Vec::new();
    for kind in block_on(store.kinds())? {
        let kind: Kind = kind.kind;
        let mut query = Query { limit: 7, ..Query::new(kind) };
        loop {
            let page = block_on(store.list(query.clone()))?;
            assert!(page.jobs.len() <= 7 && page.jobs.is_sorted_by(|a, b| a.id < b.id));
            jobs.extend(page.jobs);
            query.after = page.cursor;
            if query.after.is_none() {
                break;
            }
        }
    }
    Ok(jobs)
}

fn by_name(jobs: &[JobView]) -> BTreeMap<Name, JobView> {
    let name = |job: &JobView| (job.kind.as_str().to_owned(), job.id.as_str().to_owned());
    jobs.iter().map(|job| (name(job), job.clone())).collect()
}

/// Without what depends on the time at which it is read, and without failed attempts: some of them
/// may be missing.
fn plain(job: &JobView) -> JobView {
    let mut job = job.clone();
    if job.state == JobState::Ready {
        job.state = JobState::Waiting;
    }
    job.failures.clear();
    job
}

/// A hash of jobs that does not depend on the time at which they are read.
fn hash(jobs: &[JobView]) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    for job in jobs {
        let mut job = job.clone();
        if job.state == JobState::Ready {
            job.state = JobState::Waiting;
        }
        format!("{job:?}").hash(&mut hasher);
    }
    hasher.finish()
}

/// The number of the last group in the log of a store that is open.
fn last_group(disk: &SimulatedDisk) -> u64 {
    let names = disk.names().expect("the power is on");
    let logs = names.iter().filter(|name| name.starts_with("log-"));
    // A segment that is no longer needed may get another name meanwhile.
    let segments = logs.filter_map(|name| {
        let file = disk.open(name).ok()?;
        let mut bytes = vec![0; file.size().ok()? as usize];
        file.read_at(&mut bytes, 0).ok()?;
        groups_of(&bytes).last().copied()
    });
    segments.max().unwrap_or(0)
}

/// The numbers of the groups of a segment that is not damaged.
fn groups_of(bytes: &[u8]) -> Vec<u64> {
    let (mark, mut at, mut groups) = (&bytes[40..44], 4096, Vec::new());
    while bytes.get(at..at + 4) == Some(mark) {
        let number = bytes[at + 16..at + 24].try_into().expect("8 bytes");
        groups.push(u64::from_le_bytes(number));
        let length = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().expect("4 bytes"));
        at += (24 + length as usize).next_multiple_of(8);
    }
    groups
}
