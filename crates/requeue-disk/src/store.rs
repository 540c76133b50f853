//! Jobs in a directory.
//!
//! Whoever asks for a change hands it to the writer, and is answered when it is safe. Whoever
//! only looks does so beside the writer, and waits for the change that it may have seen.

use crate::backup::{Backup, Snapshot};
use crate::disk::{Directory, Disk};
use crate::error::{Corrupt, DiskError};
use crate::inbox::{News, Op};
use crate::listing;
use crate::lock::Lock;
use crate::open::Threads;
use crate::options::Options;
use crate::progress::Progress;
use crate::reply::{Reply, reply};
use crate::state::State;
use crate::writer::Shared;
use requeue_jobs::limits::MAX_SPANS;
use requeue_jobs::rules::{self, check_count};
use requeue_jobs::{
    BatchResults, Change, ChangeError, Changed, Claim, Claimed, Invalid, JobId, JobView, Kind,
    KindView, Page, Placed, Put, PutError, Query, Reaped, Restore, Restored, Schedule, Settings,
    Settle, SettleError, Settled, Spans, Store, StoreError, StoreFuture, Tick, Ticked, Timestamp,
    check_batch,
};
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Jobs in a directory: what was answered is on disk.
///
/// Clones share one store. When the last is dropped, it is closed: what has been asked for is
/// done and written first.
#[derive(Clone)]
pub struct DiskStore {
    open: Arc<Open>,
}

struct Open {
    shared: Arc<Shared>,
    threads: Threads,
}

impl DiskStore {
    /// Opens the store in this directory, which is made if there is none.
    ///
    /// One process may have it open at a time. Blocks until all is read that has to be: about a
    /// second after a crash, however many jobs there are.
    ///
    /// ```
    /// use requeue_disk::{DiskError, DiskStore};
    /// # let directory = std::env::temp_dir().join(format!("requeue-open-{}", std::process::id()));
    ///
    /// let store = DiskStore::open(&directory)?;
    /// let error = DiskStore::open(&directory).unwrap_err();
    /// assert!(matches!(error, DiskError::InUse { pid, .. } if pid == std::process::id().to_string()));
    /// # drop(store);
    /// # std::fs::remove_dir_all(&directory)?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn open(directory: impl AsRef<Path>) -> Result<Self, DiskError> {
        DiskStore::open_with(directory, Options::default())
    }

    /// Opens the store in this directory, with these options.
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

    /// Opens the store on this disk. Nobody else may use it meanwhile.
    pub fn open_on(disk: Arc<dyn Disk>, options: Options) -> Result<Self, DiskError> {
        DiskStore::start(disk, options, None)
    }

    fn start(disk: Arc<dyn Disk>, options: Options, lock: Option<Lock>) -> Result<Self, DiskError> {
        let (shared, threads) = Threads::start(disk, options, lock)?;
        Ok(DiskStore { open: Arc::new(Open { shared, threads }) })
    }

    /// Makes a copy of the store, as it is now, while it goes on working.
    ///
    /// The directory must be empty, or not be there yet. The copy is a store like any other: open
    /// it, or put its files in place of those that were lost. All that was answered before this is
    /// called is in it, and what is asked for meanwhile is in it or not. Its files are synced and
    /// read once more before it counts; what damage is found on the way is an error that names it.
    /// A copy that was not ended, for whatever reason, is refused when it is opened.
    ///
    /// Blocks until it is done, and tells `progress` on the way; the store's own threads only make
    /// a list of files. Within tokio, call it by `spawn_blocking`.
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
        progress: impl FnMut(Progress),
    ) -> Result<Backup, DiskError> {
        self.snapshot()?.copy_into(to.as_ref(), progress)
    }

    /// The same to a disk that is empty, and that nobody else uses.
    pub fn backup_on(
        &self,
        disk: &dyn Disk,
        progress: impl FnMut(Progress),
    ) -> Result<Backup, DiskError> {
        self.snapshot()?.copy_to(disk, "the disk", progress)
    }

    fn snapshot(&self) -> Result<Snapshot, DiskError> {
        let (reply, waiting) = mpsc::channel();
        self.shared().inbox.tell(News::Snapshot(reply));
        let gone = |_| DiskError::io("copy", "the store")(io::Error::other("its writer has ended"));
        waiting.recv().map_err(gone)
    }

    /// What was found damaged when it was opened, and made good from the log: a table that a power
    /// cut tore, for example. Empty where all was well.
    ///
    /// Such damage is no loss. More of it than power cuts tells of a disk that does not keep what
    /// it was told to.
    pub fn mended(&self) -> &[Corrupt] {
        &self.open.threads.mended
    }

    /// Checks that what is kept beside the jobs fits them; for tests.
    ///
    /// # Panics
    ///
    /// If anything does not hold.
    pub fn check(&self) {
        listing::check(&self.shared().state);
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.open.shared
    }

    fn now(&self) -> Timestamp {
        self.shared().wall_clock.now()
    }

    /// Hands a change to the writer.
    async fn ask<T>(&self, op: impl FnOnce(Reply<T>) -> Op) -> Result<T, StoreError> {
        let (reply, waiting) = reply();
        self.shared().inbox.send(op(reply));
        waiting.await
    }

    /// Waits until what somebody saw just now is safe.
    async fn safe(&self) -> Result<(), StoreError> {
        if State::lock(&self.shared().state).unsynced {
            self.ask(Op::Nothing).await?;
        }
        Ok(())
    }

    /// Looks at much, on the thread that is there for it.
    async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Shared) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, waiting) = reply();
        let shared = self.shared().clone();
        self.open.threads.look(Box::new(move || reply.send(look(&shared))));
        let answer = waiting.await?;
        self.safe().await?;
        Ok(answer)
    }

    /// Looks at little, here.
    async fn peek<T>(&self, peek: impl FnOnce(&mut State) -> T) -> Result<T, StoreError> {
        let answer = peek(&mut State::lock(&self.shared().state));
        self.safe().await?;
        Ok(answer)
    }
}

impl Store for DiskStore {
    fn put(&self, puts: Vec<Put>) -> StoreFuture<'_, BatchResults<Placed, PutError>> {
        Box::pin(async move {
            check_batch(&puts)?;
            self.ask(|reply| Op::Put(puts, reply)).await
        })
    }

    fn claim(&self, claim: Claim) -> StoreFuture<'_, Claimed> {
        Box::pin(async move {
            check_count("kinds in a claim", claim.kinds.len())?;
            check_count("jobs in a claim", claim.max)?;
            self.ask(|reply| Op::Claim(claim, reply)).await
        })
    }

    fn settle(
        &self,
        settlements: Vec<Settle>,
    ) -> StoreFuture<'_, BatchResults<Settled, SettleError>> {
        Box::pin(async move {
            check_count("entries in a batch", settlements.len())?;
            self.ask(|reply| Op::Settle(settlements, reply)).await
        })
    }

    fn change(&self, changes: Vec<Change>) -> StoreFuture<'_, BatchResults<Changed, ChangeError>> {
        Box::pin(async move {
            check_count("entries in a batch", changes.len())?;
            self.ask(|reply| Op::Change(changes, reply)).await
        })
    }

    fn wait(&self, kinds: Vec<Kind>, limit: Duration) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let shared = self.shared();
            let look = || State::lock(&shared.state).kinds.next_claimable(&kinds, self.now());
            rules::wait(shared.wall_clock.clock(), &shared.changes, limit, look).await
        })
    }

    fn restore(&self, restore: Restore) -> StoreFuture<'_, BatchResults<Restored, StoreError>> {
        Box::pin(async move { self.ask(|reply| Op::Restore(restore, reply)).await })
    }

    fn reap(&self, max: usize) -> StoreFuture<'_, Reaped> {
        Box::pin(async move { self.ask(|reply| Op::Reap(max, reply)).await })
    }

    fn get(&self, kind: Kind, id: JobId) -> StoreFuture<'_, Option<JobView>> {
        Box::pin(async move {
            let view = listing::get(&self.shared().state, &kind, &id, self.now())?;
            self.safe().await?;
            Ok(view)
        })
    }

    fn list(&self, query: Query) -> StoreFuture<'_, Page> {
        let now = self.now();
        Box::pin(self.look(move |shared| listing::list(&shared.state, &query, now)))
    }

    fn kinds(&self) -> StoreFuture<'_, Vec<KindView>> {
        let now = self.now();
        Box::pin(self.look(move |shared| listing::kinds(&shared.state, now)))
    }

    fn upcoming(&self, kind: Kind, spans: Spans) -> StoreFuture<'_, Vec<u64>> {
        Box::pin(async move {
            let (count, limit) = (spans.count, MAX_SPANS);
            if count > limit {
                return Err(Invalid::TooMany { what: "spans", count, limit }.into());
            }
            self.look(move |shared| listing::upcoming(&shared.state, &kind, spans)).await
        })
    }

    fn settings(&self, kind: Kind) -> StoreFuture<'_, Settings> {
        Box::pin(async move { self.peek(|state| state.kinds.settings(&kind)).await })
    }

    fn set(&self, kind: Kind, settings: Settings) -> StoreFuture<'_, ()> {
        Box::pin(async move { self.ask(|reply| Op::Set(kind, settings, reply)).await })
    }

    fn set_schedule(&self, kind: Kind, schedule: Schedule) -> StoreFuture<'_, ()> {
        Box::pin(async move { self.ask(|reply| Op::SetSchedule(kind, schedule, reply)).await })
    }

    fn remove_schedule(&self, kind: Kind, id: JobId) -> StoreFuture<'_, bool> {
        Box::pin(async move { self.ask(|reply| Op::RemoveSchedule(kind, id, reply)).await })
    }

    fn schedules(&self, kind: Kind) -> StoreFuture<'_, Vec<Schedule>> {
        Box::pin(async move { self.peek(|state| state.kinds.schedules(&kind)).await })
    }

    fn tick(&self, tick: Tick) -> StoreFuture<'_, Ticked> {
        Box::pin(async move { self.ask(|reply| Op::Tick(tick, reply)).await })
    }
}

impl fmt::Debug for DiskStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskStore").finish_non_exhaustive()
    }
}
