//! The [`JobTable`] trait: storage for the jobs of one kind.

use super::Record;
use crate::error::StoreError;
use crate::names::JobId;
use crate::priority::{Priorities, Priority};
use crate::time::Timestamp;

/// The lists of a kind. Every job is in exactly one, which its [status](super::Status) determines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum List {
    /// Waiting and ready jobs of a priority, ordered by due time.
    Pending(Priority),
    /// Leased jobs of a priority, ordered by the end of their leases.
    Leased(Priority),
    /// Dead jobs, ordered by their time of death.
    Dead,
    /// Done jobs, ordered by the time when they were done.
    Done,
}

impl List {
    /// One more than the highest number of a list.
    pub const END: usize = 5 + 2 * Priority::MAX.get() as usize;

    /// Returns the number of the list: 0 pending, 1 leased, 2 dead, 4 done, and from 5 on pending and
    /// leased jobs of higher priorities. No list has the number 3. Stores may use the numbers on disk.
    pub const fn index(self) -> usize {
        match self {
            List::Pending(priority) if priority.get() == 0 => 0,
            List::Leased(priority) if priority.get() == 0 => 1,
            List::Dead => 2,
            List::Done => 4,
            List::Pending(priority) => 3 + 2 * priority.get() as usize,
            List::Leased(priority) => 4 + 2 * priority.get() as usize,
        }
    }

    /// Returns the list with this number.
    pub fn by_index(index: usize) -> Option<List> {
        List::all().find(|list| list.index() == index)
    }

    /// Iterates over all lists.
    pub fn all() -> impl Iterator<Item = List> {
        let of = |priority| [List::Pending(priority), List::Leased(priority)];
        Priority::all().flat_map(of).chain([List::Dead, List::Done])
    }
}

/// The position of a job in its list: by time, then in the order of puts. No two jobs of a kind have
/// the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The due time, the end of the lease, the time of death or the time when the job was done,
    /// depending on the list.
    pub at: Timestamp,
    /// The job's [`seq`](Record::seq).
    pub seq: u64,
}

/// Storage for the jobs of one kind. A store implements it; the rules call it.
///
/// The rules take a job out, and then store it changed ([`keep`](JobTable::keep)), store it as it
/// was ([`put_back`](JobTable::put_back)), or do neither, which deletes it. They do so before they
/// take another job, and before they return. So at most one job is out at a time, and an
/// implementation can record a job as deleted when it is taken.
///
/// Reading may fail; then nothing has changed, neither here nor for the rules. `keep` and
/// `put_back` must not fail.
pub trait JobTable: Send {
    /// Returns a job without taking it out.
    fn peek(&mut self, id: &JobId) -> Result<Option<&Record>, StoreError>;

    /// Takes a job out.
    fn take(&mut self, id: &JobId) -> Result<Option<Box<Record>>, StoreError>;

    /// Takes the first job of a list out.
    fn take_first(&mut self, list: List) -> Result<Option<(JobId, Box<Record>)>, StoreError>;

    /// Stores a new job, or one that was taken out and changed. There is no job of this id.
    fn keep(&mut self, id: JobId, record: Box<Record>);

    /// Stores the job that was taken out last, unchanged.
    fn put_back(&mut self, id: JobId, record: Box<Record>) {
        self.keep(id, record);
    }

    /// Returns the position of the first job of a list.
    fn first(&mut self, list: List) -> Result<Option<Position>, StoreError>;

    /// Returns the number of jobs in a list.
    fn count(&self, list: List) -> u64;

    /// Returns the priorities of all pending and leased jobs. There may be others among them, which
    /// no job has.
    fn priorities(&self) -> Priorities;

    /// Returns the number of leases of a priority that end after `now`, counted up to `limit`.
    fn unexpired(
        &mut self,
        priority: Priority,
        now: Timestamp,
        limit: usize,
    ) -> Result<usize, StoreError>;

    /// Returns the end of the first lease of a priority that ends after `now`.
    fn first_to_end(
        &mut self,
        priority: Priority,
        now: Timestamp,
    ) -> Result<Option<Timestamp>, StoreError>;
}
