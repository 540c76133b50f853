//! Where the jobs of one kind are.

use super::Record;
use crate::error::StoreError;
use crate::names::JobId;
use crate::time::Timestamp;

/// The lists of a kind: every job is in exactly one, as its [status](super::Status) says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum List {
    /// Those that wait or are ready, by due time.
    Pending,
    /// Those that are leased, by the end of their leases.
    Leased,
    /// Those that are dead, by the time of their death.
    Dead,
}

impl List {
    /// All of them.
    pub const ALL: [List; 3] = [List::Pending, List::Leased, List::Dead];
}

/// Where a job stands in its list: by time, then in the order of puts. No two are in one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// By which time it is sorted.
    pub at: Timestamp,
    /// The job's [`seq`](Record::seq).
    pub seq: u64,
}

/// Where the jobs of one kind are.
///
/// The rules take a job out, and then keep it changed, put it back as it was, or do neither: then
/// it is gone. They do so before they take another, and before they answer. So at most one job
/// is out at a time, and one that was taken can be noted as gone until it comes back.
///
/// Reading may fail; nothing has changed then, neither here nor for the rules. What was read can
/// always be kept: [`keep`](JobTable::keep) and [`put_back`](JobTable::put_back) must not fail.
pub trait JobTable: Send {
    /// Looks at a job.
    fn peek(&mut self, id: &JobId) -> Result<Option<&Record>, StoreError>;

    /// Takes a job out.
    fn take(&mut self, id: &JobId) -> Result<Option<Box<Record>>, StoreError>;

    /// Takes the first of a list out.
    fn take_first(&mut self, list: List) -> Result<Option<(JobId, Box<Record>)>, StoreError>;

    /// Keeps a job that was taken out and changed, or one that is new. There is none of this id.
    fn keep(&mut self, id: JobId, record: Box<Record>);

    /// Keeps the job that was taken out last, exactly as it was: nothing has changed.
    fn put_back(&mut self, id: JobId, record: Box<Record>) {
        self.keep(id, record);
    }

    /// Where the first of a list stands.
    fn first(&mut self, list: List) -> Result<Option<Place>, StoreError>;

    /// How many are in a list.
    fn count(&self, list: List) -> u64;

    /// How many leases end after `now`, counted up to `limit`.
    fn unexpired(&mut self, now: Timestamp, limit: usize) -> Result<usize, StoreError>;

    /// When the first lease that ends after `now` does.
    fn first_to_end(&mut self, now: Timestamp) -> Result<Option<Timestamp>, StoreError>;
}
