//! The store: the public API, and the implementation of the `Store` contract.
//!
//! Every operation that changes something goes to the writer thread, unless its caller is alone and
//! runs it itself, and returns when it is synced.
//! Every read runs on a reader thread. If it may have seen a change that is not synced yet, it
//! returns when that change is synced.

use crate::backup::{Backup, Snapshot};
use crate::disk::{Directory, Disk};
use crate::error::{Corrupt, DiskError};
use crate::health::Problem;
use crate::inbox::Notice;
use crate::listing;
use crate::lock::Lock;
use crate::open::Threads;
use crate::operations::{
    Operation, ReadNextClaims, Reap, RemoveSchedule, Set, SetSchedule, submit,
};
use crate::options::Options;
use crate::progress::ByteProgress;
use crate::reply::{Reply, reply};
use crate::state::State;
use crate::writer::Shared;
use requeue_jobs::limits::MAX_SPANS;
use requeue_jobs::rules;
use requeue_jobs::{
    BatchResults, Change, ChangeError, Changed, Claim, Claimed, Invalid, JobId, JobView, Kind,
    KindView, Page, Placed, Put, PutError, Query, Reaped, Restore, Restored, Schedule,
    ScheduleCondition, Settings, Settle, SettleError, Settled, Spans, Store, StoreError,
    StoreFuture, StoreStatus, Tick, Ticked, TimePage, TimeQuery, Timestamp,
};
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// A job store in a directory. An operation returns when its change is on disk.
///
/// A poll of an operation does not block, with one exception: if operations come one at a time and
/// the disk is fast, a small operation runs on the thread that polls it, and blocks that thread for
/// one sync, usually less than half a millisecond.
///
/// Clones share one store. Dropping the last clone closes the store: it first finishes and writes
/// all operations that were submitted, and blocks until that is done.
#[derive(Clone)]
pub struct DiskStore {
    open: Arc<Open>,
}

struct Open {
    shared: Arc<Shared>,
    threads: Threads,
}

impl DiskStore {
    /// Opens the store in this directory. Creates the directory if it does not exist.
    ///
    /// Blocks until the store is ready, which takes about a second after a crash, however many jobs
    /// there are. Fails with [`DiskError::InUse`] if the directory is open already, in this process
    /// or in another.
    ///
    /// ```
    /// use requeue_disk::{DiskError, DiskStore};
    /// # let directory = std::env::temp_dir().join(format!("requeue-open-{}", std::process::id()));
    ///
    /// let store = DiskStore::open(&directory)?;
    /// let error = DiskStore::open(&directory).unwrap_err();
    /// assert!(matches!(error, DiskError::InUse { pid, .. } if pid ==
    /// std::process::id().to_string()));
    /// # drop(store);
    /// # std::fs::remove_dir_all(&directory)?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn open(directory: impl AsRef<Path>) -> Result<Self, DiskError> {
        DiskStore::open_with(directory, Options::default())
    }

    /// Opens the store in this directory with these options. See [`open`](Self::open).
    ///
    /// ```
    /// use requeue_disk::{DiskStore, Options};
    /// # let directory = std::env::temp_dir().join(format!("requeue-with-{}", std::process::id()));
    ///
    /// let mut options = Options::default();
    /// options.memory = 16 << 20; // a small machine
    /// let store = DiskStore::open_with(&directory, options)?;
    /// # drop(store);
    /// # std::fs::remove_dir_all(&directory)?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn open_with(directory: impl AsRef<Path>, options: Options) -> Result<Self, DiskError> {
        let directory = directory.as_ref();
        let name = directory.display().to_string();
        let disk = Directory::new(directory).map_err(DiskError::io("open", &name))?;
        let lock = Lock::take(directory)?;
        DiskStore::start(Arc::new(disk), options, Some(lock))
    }

    /// Opens the store on this disk. The caller makes sure that nothing else uses the disk: there
    /// is no lock.
    pub fn open_on(disk: Arc<dyn Disk>, options: Options) -> Result<Self, DiskError> {
        DiskStore::start(disk, options, None)
    }

    fn start(disk: Arc<dyn Disk>, options: Options, lock: Option<Lock>) -> Result<Self, DiskError> {
        let (shared, threads) = Threads::start(disk, options, lock)?;
        Ok(DiskStore { open: Arc::new(Open { shared, threads }) })
    }

    /// Copies the store into another directory while the store stays in use.
    ///
    /// `to` must be empty or must not exist. The backup is a complete store: open it, or move its
    /// files to where the lost ones were. It contains every operation that returned before this
    /// call. An operation that runs concurrently is in the backup completely or not at all.
    ///
    /// The copied files are synced and read again before the backup is complete. If they are
    /// damaged, the call fails with an error that names the damage. An incomplete backup cannot be
    /// opened by mistake: opening it fails.
    ///
    /// Blocks until the backup is complete, and calls `progress` now and then. The copying runs on
    /// the calling thread; the store's own threads only make a list of files. In tokio, call it in
    /// `spawn_blocking`.
    ///
    /// ```
    /// use requeue_disk::{DiskStore, verify};
    /// # let of = |name| std::env::temp_dir().join(format!("requeue-{name}-{}", std::process::id()));
    /// # let (directory, copy) = (of("backup-from"), of("backup-to"));
    ///
    /// let store = DiskStore::open(&directory)?;
    /// let backup = store.backup(&copy, |progress| {
    ///     eprintln!("{} of {} bytes", progress.bytes, progress.total);
    /// })?;
    /// println!("{} bytes in {} files", backup.bytes, backup.files);
    /// assert!(verify(&copy, |_| ())?.is_sound());
    /// # drop(store);
    /// # std::fs::remove_dir_all(&directory)?;
    /// # std::fs::remove_dir_all(&copy)?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn backup(
        &self,
        to: impl AsRef<Path>,
        progress: impl FnMut(ByteProgress),
    ) -> Result<Backup, DiskError> {
        self.snapshot()?.copy_into(to.as_ref(), progress)
    }

    /// Copies the store to a disk that is empty and not in use. See [`backup`](Self::backup).
    pub fn backup_on(
        &self,
        disk: &dyn Disk,
        progress: impl FnMut(ByteProgress),
    ) -> Result<Backup, DiskError> {
        self.snapshot()?.copy_to(disk, "the target disk", progress)
    }

    fn snapshot(&self) -> Result<Snapshot, DiskError> {
        let (reply, waiting) = mpsc::channel();
        self.shared().inbox.notify(Notice::Snapshot(reply));
        let gone =
            |_| DiskError::io("copy", "the store")(io::Error::other("the writer thread has ended"));
        waiting.recv().map_err(gone)
    }

    /// Returns the damage that was found, and repaired from the log, when the store was opened: for
    /// example a table that was incomplete after a power cut. Usually empty.
    ///
    /// Repaired damage loses nothing. But if it occurs without a power cut, the disk does not keep
    /// what it reported as synced.
    pub fn repaired(&self) -> &[Corrupt] {
        &self.open.threads.repaired
    }

    /// Checks the internal invariants: the counts and indexes of every kind match its jobs. For
    /// tests; it reads all jobs.
    ///
    /// # Panics
    ///
    /// Panics if an invariant does not hold.
    pub fn check(&self) {
        listing::check(&self.shared().state);
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.open.shared
    }

    fn now(&self) -> Timestamp {
        self.shared().wall_clock.now()
    }

    /// Runs an operation. Returns its result once it is synced.
    async fn run<O: Operation>(&self, operation: O) -> Result<O::Output, StoreError> {
        operation.check()?;
        let (operation, result) = submit(operation);
        self.open.threads.submit(operation);
        result.await
    }

    /// Reads one job or one kind, on a thread of the store: a read waits for the writer's lock
    /// and for the disk, and must not block the caller's executor.
    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Shared) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, result) = reply();
        self.open.threads.read(self.read_task(read, reply));
        result.await
    }

    /// Reads many jobs, on another thread of the store.
    async fn scan<T: Send + 'static>(
        &self,
        scan: impl FnOnce(&Shared) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, result) = reply();
        self.open.threads.scan(self.read_task(scan, reply));
        result.await
    }

    fn read_task<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Shared) -> Result<T, StoreError> + Send + 'static,
        reply: Reply<T>,
    ) -> Box<dyn FnOnce() + Send> {
        let shared = self.shared().clone();
        Box::new(move || {
            let result = read(&shared);
            let mut state = State::lock(&shared.state);
            // The value may show a change that a crash would still undo.
            if state.unsynced && result.is_ok() {
                if !shared.inbox.has_ended() {
                    state.after_sync.push(Box::new(move || reply.send(result)));
                }
                // Otherwise the reply is dropped, which the caller learns.
                return;
            }
            drop(state);
            reply.send(result);
        })
    }
}

impl Store for DiskStore {
    fn put(&self, puts: Vec<Put>) -> StoreFuture<'_, BatchResults<Placed, PutError>> {
        Box::pin(self.run(puts))
    }

    fn claim(&self, claim: Claim) -> StoreFuture<'_, Claimed> {
        Box::pin(self.run(claim))
    }

    fn settle(
        &self,
        settlements: Vec<Settle>,
    ) -> StoreFuture<'_, BatchResults<Settled, SettleError>> {
        Box::pin(self.run(settlements))
    }

    fn change(&self, changes: Vec<Change>) -> StoreFuture<'_, BatchResults<Changed, ChangeError>> {
        Box::pin(self.run(changes))
    }

    fn wait(&self, kinds: Vec<Kind>, limit: Duration) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let shared = self.shared();
            if shared.next_claims.any_unread(&kinds) {
                // The contract allows a wait to end early; the claim after it returns a job or not.
                // Meanwhile the writer reads the tables, for the next wait.
                shared.inbox.send(submit(ReadNextClaims(kinds)).0);
                return Ok(());
            }
            let until_next = || Ok(shared.next_claims.until_next(&kinds, self.now()));
            rules::wait(shared.wall_clock.clock(), &shared.changes, limit, until_next).await
        })
    }

    fn restore(&self, restore: Restore) -> StoreFuture<'_, BatchResults<Restored, StoreError>> {
        Box::pin(self.run(restore))
    }

    fn reap(&self, max: usize) -> StoreFuture<'_, Reaped> {
        Box::pin(self.run(Reap(max)))
    }

    fn get(&self, kind: Kind, id: JobId) -> StoreFuture<'_, Option<JobView>> {
        let now = self.now();
        Box::pin(self.read(move |shared| listing::get(&shared.state, &kind, &id, now)))
    }

    fn list(&self, query: Query) -> StoreFuture<'_, Page> {
        let now = self.now();
        Box::pin(self.scan(move |shared| listing::list(&shared.state, &query, now)))
    }

    fn list_by_time(&self, query: TimeQuery) -> StoreFuture<'_, TimePage> {
        let now = self.now();
        Box::pin(self.scan(move |shared| listing::list_by_time(&shared.state, &query, now)))
    }

    fn kinds(&self) -> StoreFuture<'_, Vec<KindView>> {
        let now = self.now();
        Box::pin(self.scan(move |shared| listing::kinds(&shared.state, now)))
    }

    fn kind(&self, kind: Kind) -> StoreFuture<'_, KindView> {
        let now = self.now();
        Box::pin(self.scan(move |shared| listing::kind(&shared.state, kind, now)))
    }

    fn upcoming(&self, kind: Kind, spans: Spans) -> StoreFuture<'_, Vec<u64>> {
        Box::pin(async move {
            let (count, limit) = (spans.count, MAX_SPANS);
            if count > limit {
                return Err(Invalid::TooMany { what: "spans", count, limit }.into());
            }
            self.scan(move |shared| listing::upcoming(&shared.state, &kind, spans)).await
        })
    }

    fn settings(&self, kind: Kind) -> StoreFuture<'_, Settings> {
        Box::pin(self.read(move |shared| Ok(State::lock(&shared.state).kinds.settings(&kind))))
    }

    fn set(&self, kind: Kind, settings: Settings) -> StoreFuture<'_, ()> {
        Box::pin(self.run(Set(kind, settings)))
    }

    fn set_schedule(
        &self,
        kind: Kind,
        schedule: Schedule,
        condition: ScheduleCondition,
    ) -> StoreFuture<'_, bool> {
        Box::pin(self.run(SetSchedule(kind, schedule, condition)))
    }

    fn schedule(&self, kind: Kind, id: JobId) -> StoreFuture<'_, Option<Schedule>> {
        let read = move |shared: &Shared| {
            Ok(State::lock(&shared.state).kinds.schedule(&kind, &id).cloned())
        };
        Box::pin(self.read(read))
    }

    fn remove_schedule(&self, kind: Kind, id: JobId) -> StoreFuture<'_, bool> {
        Box::pin(self.run(RemoveSchedule(kind, id)))
    }

    fn schedules(&self, kind: Kind) -> StoreFuture<'_, Vec<Schedule>> {
        Box::pin(self.read(move |shared| Ok(State::lock(&shared.state).kinds.schedules(&kind))))
    }

    fn tick(&self, tick: Tick) -> StoreFuture<'_, Ticked> {
        Box::pin(self.run(tick))
    }

    fn status(&self) -> StoreStatus {
        let shared = self.shared();
        if shared.inbox.has_ended() {
            let detail = "the thread that writes has panicked, see the log of the process. Every \
                          operation fails. Restart the process";
            shared.health.report(Problem::WriterStopped, detail.to_owned());
        }
        shared.health.status()
    }
}

impl fmt::Debug for DiskStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskStore").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::DiskFile;
    use crate::forwarding::{forward_disk, forward_file};
    use crate::simulated_disk::SimulatedDisk;
    use requeue_jobs::Body;
    use requeue_testkit::block_on;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    /// A disk on which the flush waits before it writes, until the writer has panicked.
    #[derive(Clone)]
    struct PanickingDisk {
        disk: SimulatedDisk,
        directory: PathBuf,
        flags: Arc<Flags>,
    }

    #[derive(Default)]
    struct Flags {
        /// The flush has begun and waits.
        flushes: AtomicBool,
        /// The writer panics with its next write.
        panics: AtomicBool,
        panicked: AtomicBool,
        /// The lock was free while the flush was about to write.
        was_free: AtomicBool,
        checked: AtomicBool,
    }

    struct PanickingFile {
        file: Arc<dyn DiskFile>,
        flags: Arc<Flags>,
    }

    impl Disk for PanickingDisk {
        fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
            let Flags { flushes, panicked, was_free, .. } = &*self.flags;
            if name.starts_with("table-") && !flushes.swap(true, Ordering::SeqCst) {
                while !panicked.load(Ordering::SeqCst) {
                    thread::yield_now();
                }
                for _ in 0..100 {
                    thread::sleep(Duration::from_millis(1));
                    was_free.fetch_or(Lock::take(&self.directory).is_ok(), Ordering::SeqCst);
                }
                self.flags.checked.store(true, Ordering::SeqCst);
            }
            let (file, flags) = (self.disk.create(name)?, self.flags.clone());
            Ok(Arc::new(PanickingFile { file, flags }))
        }

        forward_disk!(open rename remove names sync_names free);
    }

    impl DiskFile for PanickingFile {
        fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
            let in_background = ["requeue-flush", "requeue-merge", "requeue-spares"];
            let is_writer = !in_background.map(Some).contains(&thread::current().name());
            assert!(
                !is_writer || !self.flags.panics.load(Ordering::SeqCst),
                "as the test wants it"
            );
            self.file.write_at(bytes, offset)
        }

        forward_file!(read_at sync size);
    }

    #[test]
    fn if_the_writer_panics_the_lock_is_held_until_no_thread_writes() {
        let name = format!("requeue-panic-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        let (disk, flags) = (SimulatedDisk::new(), Arc::<Flags>::default());
        let disk = PanickingDisk { disk, directory: directory.clone(), flags: flags.clone() };
        let options = Options { segment: 12 << 10, ..Options::default() };
        let lock = Lock::take(&directory).unwrap();
        let store = DiskStore::start(Arc::new(disk), options, Some(lock)).unwrap();
        let put = || {
            let body = Body::octets(vec![7; 1000]).unwrap();
            let put = Put::new(Kind::new("a").unwrap(), JobId::new("1").unwrap(), body);
            block_on(store.put(vec![put]))
        };
        while !flags.flushes.load(Ordering::SeqCst) {
            put().unwrap();
        }
        flags.panics.store(true, Ordering::SeqCst);
        assert!(matches!(put(), Err(StoreError::Unknown { .. })));
        flags.panicked.store(true, Ordering::SeqCst);
        drop(store);
        while !flags.checked.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        assert!(!flags.was_free.load(Ordering::SeqCst), "somebody else could have opened it");
        drop(Lock::take(&directory).unwrap());
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
