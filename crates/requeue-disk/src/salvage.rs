//! Reads what is left of a damaged directory, without changing it.
//!
//! ```text
//!   manifest    the one with which the least is lost
//!   tables      the blocks that are valid                  the others are listed
//!   log         the groups that are valid                  the others are listed
//!
//!   ids tree ──▶ job ──▶ returned                           every id whose job is lost is listed
//!   due tree ──▶ jobs whose ids are in a lost part ──▶ returned
//! ```
//!
//! Only data with a valid checksum is used. The log contains results, not requests. So a group
//! after a gap is applied like any other, with one exception: a record that repeats the body of the
//! record before it. A generation has only one body; if the last known record has that generation,
//! it has the body. Otherwise the new record is lost, and listed.
//!
//! The memory contains the jobs of the log, as in an open store, the last key of every block, and
//! a limited number of ids.

mod list;
mod loss;
mod replay;

pub use loss::Loss;

use crate::disk::{Disk, open_file};
use crate::error::{Corrupt, DiskError};
use crate::file_names::FileNames;
use crate::job_table::totals;
use crate::lock;
use crate::log::SalvagedLog;
use crate::manifest::{self, Manifest};
use crate::tables::{SalvagedTables, TableCache};
use crate::verify::ReadOnly;
use list::UnindexedIds;
use replay::KindJobs;
use requeue_jobs::limits::MAX_RESTORED;
use requeue_jobs::{
    BatchResults, Change, ChangeError, Changed, Claim, Claimed, Fence, Generation, JobId, JobView,
    Kind, KindView, Page, Placed, Put, PutError, Query, Reaped, Restore, Restored, Schedule,
    ScheduleCondition, Settings, Settle, SettleError, Settled, Spans, Store, StoreError,
    StoreFuture, Tick, Ticked, TimePage, TimeQuery, WallClock,
};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// By how much the counters of every kind are raised at least.
const MIN_RAISE: u64 = 1 << 20;

/// No log entry that assigns a generation is shorter, in bytes.
const MIN_ENTRY: u64 = 8;

/// A damaged directory, opened for reading: what is left of its jobs.
///
/// Use it if [`DiskStore::open`](crate::DiskStore::open) fails because of damage, or if a store
/// cannot read some of its jobs. It is a [`Store`] whose jobs, kinds, settings and schedules can be
/// read, and where every other operation fails with [`StoreError::Unavailable`]. So
/// `requeue_jobs::transfer::export` writes what is left, to be imported into a new store.
///
/// Nothing in the directory is changed. No other process may have it open.
///
/// Only data with a valid checksum is returned. Everything that is lost is passed to a function, as
/// a [`Loss`]: when the directory is opened, the files and bytes that cannot be read; later, when
/// jobs are listed, each job that is known to exist and cannot be read.
///
/// - A job is returned as it was after the last change that can be read. If later changes are lost,
///   a job may be back that was acked, deleted or claimed.
/// - The generation and the fence of each kind are higher than the latest that can be read, by
///   [`raised`](Salvage::raised), so that no number is assigned again that a lost change assigned.
/// - The counts of [`Store::kinds`] include lost jobs.
///
/// Reads block the calling thread.
///
/// ```
/// use requeue_disk::{DiskStore, Salvage};
/// # let directory = std::env::temp_dir().join(format!("requeue-salvage-{}", std::process::id()));
/// # drop(DiskStore::open(&directory)?);
///
/// let salvage = Salvage::open(&directory, |loss| eprintln!("lost: {loss}"))?;
/// // … transfer::export(&salvage, &mut file, |_| ()).await? …
/// assert_eq!(salvage.losses(), 0);
/// # drop(salvage);
/// # std::fs::remove_dir_all(&directory)?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Salvage {
    inner: Arc<Inner>,
}

struct Inner {
    tables: SalvagedTables,
    /// By number.
    kinds: BTreeMap<u32, KindJobs>,
    names: BTreeMap<Kind, u32>,
    harmless: Vec<Corrupt>,
    raised: u64,
    wall_clock: WallClock,
    losses: AtomicU64,
    report: Mutex<Box<dyn FnMut(Loss) + Send>>,
    unindexed: Mutex<Option<UnindexedIds>>,
    /// Shared with other readers. Locked as long as the file is open.
    _lock: Option<File>,
}

impl Salvage {
    /// Opens a directory for reading, and passes everything that is lost to `report`.
    ///
    /// Reads all files, which takes as long as [`verify`](crate::verify()). Fails with
    /// [`DiskError::InUse`] if a store has the directory open, and with [`DiskError::Format`] or
    /// [`DiskError::Features`] if another version wrote it. Damage is not an error.
    pub fn open(
        directory: impl AsRef<Path>,
        report: impl FnMut(Loss) + Send + 'static,
    ) -> Result<Self, DiskError> {
        let directory = directory.as_ref();
        let disk = ReadOnly::new(directory)?;
        let lock = lock_to_read(directory)?;
        Salvage::start(&disk, WallClock::system(), lock, Box::new(report))
    }

    /// Opens a disk that is not in use for reading. See [`open`](Self::open).
    pub fn open_on(
        disk: &dyn Disk,
        wall_clock: WallClock,
        report: impl FnMut(Loss) + Send + 'static,
    ) -> Result<Self, DiskError> {
        Salvage::start(disk, wall_clock, None, Box::new(report))
    }

    fn start(
        disk: &dyn Disk,
        wall_clock: WallClock,
        lock: Option<File>,
        mut report: Box<dyn FnMut(Loss) + Send>,
    ) -> Result<Self, DiskError> {
        let names = FileNames::list(disk)?;
        let log = SalvagedLog::read(disk)?;
        let (mut manifests, mut harmless, mut damaged) = (Vec::new(), Vec::new(), Vec::new());
        for &number in names.manifests.iter().rev() {
            match Manifest::read(disk, number) {
                Ok(manifest) => manifests.push(manifest),
                Err(error) if error.is_other_version() => return Err(error),
                Err(error) => damaged.push(error.into_corrupt(&manifest::name(number), 0)),
            }
        }
        let mut losses = Vec::new();
        let chosen = best(disk, &manifests, &log)?;
        let (after, blob, tables) = match chosen {
            Some((manifest, tables)) => {
                // A newer manifest that is damaged is replaced by this one and the log.
                harmless.append(&mut damaged);
                (manifest.flushed_through, &*manifest.blob, tables)
            }
            None if names.is_new() => {
                // At most the first manifest, incomplete: nothing was ever stored.
                harmless.append(&mut damaged);
                (0, &[][..], SalvagedTables::default())
            }
            None => {
                losses.extend(loss::no_manifest(&names.tables, damaged));
                (0, &[][..], SalvagedTables::default())
            }
        };
        let missing = log.missing(after);
        for damage in &log.damage {
            if log.is_lost(damage, after) {
                losses.push(Loss::of_log(damage));
            } else {
                harmless.push(damage.corrupt());
            }
        }
        let groups = missing.iter().map(|groups| (*groups.start(), *groups.end()));
        losses.extend(groups.map(|(first, last)| Loss::Groups { first, last }));
        harmless.extend(tables.harmless.iter().cloned());
        let replayed = replay::replay(&log, after, blob, &manifests, &tables)?;
        let name = |number: u32| replayed.kinds.get(&number).map(|kind| kind.name.clone());
        losses.extend(tables.lost.iter().map(|lost| Loss::of_table(lost, &name)));
        losses.extend(replayed.losses);
        let count = losses.len() as u64;
        losses.into_iter().for_each(&mut report);
        let raised = MIN_RAISE.saturating_add(log.lost_bytes() / MIN_ENTRY);
        let names = replayed.kinds.iter().map(|(number, kind)| (kind.name.clone(), *number));
        let inner = Inner {
            tables,
            names: names.collect(),
            kinds: replayed.kinds,
            harmless,
            raised,
            wall_clock,
            losses: AtomicU64::new(count),
            report: Mutex::new(report),
            unindexed: Mutex::new(None),
            _lock: lock,
        };
        Ok(Salvage { inner: Arc::new(inner) })
    }

    /// Returns how many losses were reported so far. It is final when all jobs were listed.
    pub fn losses(&self) -> u64 {
        self.inner.losses.load(Ordering::Relaxed)
    }

    /// Returns the damage that loses nothing, because the data is in another place too, and the
    /// bytes of an incomplete write at the end of the log.
    pub fn harmless(&self) -> &[Corrupt] {
        &self.inner.harmless
    }

    /// Returns by how much the generation and the fence of each kind were raised.
    pub fn raised(&self) -> u64 {
        self.inner.raised
    }
}

/// The manifest with which the least is lost, and its tables. If it is the same with several, the
/// newest of them. `manifests` has the newest first.
fn best<'a>(
    disk: &dyn Disk,
    manifests: &'a [Manifest],
    log: &SalvagedLog,
) -> Result<Option<(&'a Manifest, SalvagedTables)>, DiskError> {
    let mut cache = TableCache::default();
    let mut best: Option<(u64, &Manifest, SalvagedTables)> = None;
    for manifest in manifests {
        let tables = SalvagedTables::read(disk, manifest, &mut cache)?;
        // A group is a kilobyte or so.
        let groups = log.missing(manifest.flushed_through).into_iter();
        let groups = groups.map(|groups| (groups.end() - groups.start()).saturating_add(1));
        let groups = groups.fold(0, u64::saturating_add).saturating_mul(1024);
        let lost = tables.lost_bytes().saturating_add(groups);
        if best.as_ref().is_none_or(|(least, ..)| lost < *least) {
            best = Some((lost, manifest, tables));
        }
        if lost == 0 {
            break;
        }
    }
    Ok(best.map(|(_, manifest, tables)| (manifest, tables)))
}

/// Locks a directory without writing to it. If there is no lock file, no store has it open.
fn lock_to_read(directory: &Path) -> Result<Option<File>, DiskError> {
    let path = directory.join(lock::NAME);
    let name = path.display().to_string();
    let file = match open_file(File::options().read(true), &path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(DiskError::io("open", &name)(error)),
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::Error(source)) => Err(DiskError::io("lock", &name)(source)),
        Err(TryLockError::WouldBlock) => Err(lock::in_use(directory, file)?),
    }
}

impl Inner {
    fn report(&self, loss: Loss) {
        self.losses.fetch_add(1, Ordering::Relaxed);
        (self.report.lock().unwrap_or_else(PoisonError::into_inner))(loss);
    }

    fn kind(&self, kind: &Kind) -> Option<(u32, &KindJobs)> {
        let number = *self.names.get(kind)?;
        Some((number, self.kinds.get(&number)?))
    }

    fn kinds(&self) -> Vec<KindView> {
        let raise = |counter: u64| counter.saturating_add(self.raised).min(MAX_RESTORED);
        let view = |number: &u32| {
            let kind = &self.kinds[number];
            let totals = totals(&kind.counts());
            KindView {
                kind: kind.name.clone(),
                counts: totals,
                oldest_ready: None,
                paused: kind.settings.paused,
                push: kind.settings.push.is_some(),
                throttled_until: None,
                generation: Generation(raise(kind.generation)),
                fence: Fence(raise(kind.fence)),
            }
        };
        self.names.values().map(view).collect()
    }
}

fn refused<T>() -> Result<T, StoreError> {
    let reason = "a damaged directory is open for reading only".to_owned();
    Err(StoreError::Unavailable { reason })
}

fn ready<T: Send + 'static>(result: Result<T, StoreError>) -> StoreFuture<'static, T> {
    Box::pin(std::future::ready(result))
}

impl Store for Salvage {
    fn put(&self, _: Vec<Put>) -> StoreFuture<'_, BatchResults<Placed, PutError>> {
        ready(refused())
    }

    fn claim(&self, _: Claim) -> StoreFuture<'_, Claimed> {
        ready(refused())
    }

    fn settle(&self, _: Vec<Settle>) -> StoreFuture<'_, BatchResults<Settled, SettleError>> {
        ready(refused())
    }

    fn change(&self, _: Vec<Change>) -> StoreFuture<'_, BatchResults<Changed, ChangeError>> {
        ready(refused())
    }

    fn restore(&self, _: Restore) -> StoreFuture<'_, BatchResults<Restored, StoreError>> {
        ready(refused())
    }

    fn wait(&self, _: Vec<Kind>, _: Duration) -> StoreFuture<'_, ()> {
        ready(refused())
    }

    fn reap(&self, _: usize) -> StoreFuture<'_, Reaped> {
        ready(refused())
    }

    fn get(&self, kind: Kind, id: JobId) -> StoreFuture<'_, Option<JobView>> {
        ready(self.inner.get(&kind, &id))
    }

    fn list(&self, query: Query) -> StoreFuture<'_, Page> {
        ready(self.inner.list(&query))
    }

    fn list_by_time(&self, _: TimeQuery) -> StoreFuture<'_, TimePage> {
        ready(refused())
    }

    fn kinds(&self) -> StoreFuture<'_, Vec<KindView>> {
        ready(Ok(self.inner.kinds()))
    }

    fn kind(&self, kind: Kind) -> StoreFuture<'_, KindView> {
        let view = self.inner.kinds().into_iter().find(|view| view.kind == kind);
        ready(Ok(view.unwrap_or_else(|| KindView::new(kind))))
    }

    fn upcoming(&self, _: Kind, _: Spans) -> StoreFuture<'_, Vec<u64>> {
        ready(refused())
    }

    fn settings(&self, kind: Kind) -> StoreFuture<'_, Settings> {
        let kind = self.inner.kind(&kind);
        ready(Ok(kind.map_or_else(Settings::default, |(_, kind)| kind.settings.clone())))
    }

    fn set(&self, _: Kind, _: Settings) -> StoreFuture<'_, ()> {
        ready(refused())
    }

    fn set_schedule(&self, _: Kind, _: Schedule, _: ScheduleCondition) -> StoreFuture<'_, bool> {
        ready(refused())
    }

    fn remove_schedule(&self, _: Kind, _: JobId) -> StoreFuture<'_, bool> {
        ready(refused())
    }

    fn schedule(&self, kind: Kind, id: JobId) -> StoreFuture<'_, Option<Schedule>> {
        let kind = self.inner.kind(&kind);
        ready(Ok(kind.and_then(|(_, kind)| kind.schedules.get(&id).cloned())))
    }

    fn schedules(&self, kind: Kind) -> StoreFuture<'_, Vec<Schedule>> {
        let kind = self.inner.kind(&kind);
        ready(
            Ok(kind.map_or_else(Vec::new, |(_, kind)| kind.schedules.values().cloned().collect())),
        )
    }

    fn tick(&self, _: Tick) -> StoreFuture<'_, Ticked> {
        ready(refused())
    }
}

impl fmt::Debug for Salvage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Salvage").field("losses", &self.losses()).finish_non_exhaustive()
    }
}
