//! The [`JobTable`] trait: storage for the jobs of one kind.

use super::Record;
use crate::error::StoreError;
use crate::names::JobId;
use crate::time::Timestamp;

/// The lists of a kind. Every job is in exactly one, which its [status](super::Status) determines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum List {
    /// Waiting and ready jobs, ordered by due time.
    Pending,
    /// Leased jobs, ordered by the end of their leases.
    Leased,
    /// Dead jobs, ordered by their time of death.
    Dead,
}

impl List {
    /// All lists.
    pub const ALL: [List; 3] = [List::Pending, List::Leased, List::Dead];
}

/// The position of a job in its list: by time, then in the order of puts. No two jobs of a kind have
/// the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The due time, the end of the lease or the time of death, depending on the list.
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

    /// Returns the number of leases that end after `now`, counted up to `limit`.
    fn unexpired(&mut self, now: Timestamp, limit: usize) -> Result<usize, StoreError>;

    /// Returns the end of the first lease that ends after `now`.
    fn first_to_end(&mut self, now: Timestamp) -> Result<Option<Timestamp>, StoreError>;
}
