//! A queue on plain fjall, as one would write it with an embedded database and no store of
//! jobs. Two keyspaces, and a batch per group, synced as it is committed.
//!
//! ```text
//!   due   time, number -> id, body     pending: when it is due; claimed: when the lease ends
//!   ids   id -> time, number           where it is in `due`
//! ```

use super::Queue;
use super::job::Job;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch, PersistMode, Slice};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

const LEASE: Duration = Duration::from_secs(60);

/// The position of a job in `due`.
type Position = [u8; 16];

pub(super) struct FjallQueue {
    db: Database,
    due: Keyspace,
    ids: Keyspace,
    /// Rises, also across restarts.
    number: u64,
    /// Nothing is before it. Without it, each claim would skip all jobs that were ever removed.
    front: Position,
}

impl FjallQueue {
    pub(super) fn open(dir: &Path) -> Self {
        let db = Database::builder(dir).open().expect("the directory exists");
        let keyspace = |name| db.keyspace(name, KeyspaceCreateOptions::default);
        let (due, ids) = (keyspace("due").expect("a name"), keyspace("ids").expect("a name"));
        let number = millis(Duration::ZERO) << 20;
        FjallQueue { db, due, ids, number, front: [0; 16] }
    }

    /// Puts jobs with new ids in the fastest way: sorted, into tables.
    pub(super) fn load(&mut self, jobs: &[Job]) {
        let jobs = jobs.iter().map(|job| (self.position(millis(job.delay)), job));
        let mut jobs: Vec<(Position, &Job)> = jobs.collect();
        jobs.sort_unstable_by_key(|(position, _)| *position);
        let mut due = self.due.start_ingestion().expect("the disk works");
        for (position, job) in &jobs {
            due.write(*position, value_of(job)).expect("the disk works");
        }
        due.finish().expect("the disk works");
        jobs.sort_unstable_by_key(|(_, job)| job.id.as_str());
        let mut ids = self.ids.start_ingestion().expect("the disk works");
        for (position, job) in &jobs {
            ids.write(job.id.as_bytes(), *position).expect("the disk works");
        }
        ids.finish().expect("the disk works");
    }

    fn batch(&self) -> OwnedWriteBatch {
        self.db.batch().durability(Some(PersistMode::SyncData))
    }

    /// Returns a position after all others with this time.
    fn position(&mut self, millis: u64) -> Position {
        self.number += 1;
        let mut position = [0; 16];
        position[..8].copy_from_slice(&millis.to_be_bytes());
        position[8..].copy_from_slice(&self.number.to_be_bytes());
        position
    }
}

/// Returns now plus `delay`, in milliseconds since 1970.
fn millis(delay: Duration) -> u64 {
    let at = UNIX_EPOCH.elapsed().expect("it is after 1970") + delay;
    u64::try_from(at.as_millis()).expect("the time fits")
}

fn value_of(job: &Job) -> Vec<u8> {
    let id_len = u8::try_from(job.id.len()).expect("a short id");
    [&[id_len], job.id.as_bytes(), &job.body].concat()
}

/// Returns the id in a value. Its length is the first byte.
fn id_of(value: &Slice) -> &[u8] {
    &value[1..=usize::from(value[0])]
}

impl Queue for FjallQueue {
    fn put(&mut self, jobs: &[Job]) {
        let mut batch = self.batch();
        for job in jobs {
            let position = self.position(millis(job.delay));
            if let Some(old) = self.ids.get(&job.id).expect("the disk works") {
                batch.remove(&self.due, old);
            }
            batch.insert(&self.due, position, value_of(job));
            batch.insert(&self.ids, job.id.as_bytes(), position);
            self.front = self.front.min(position);
        }
        batch.commit().expect("the disk works");
    }

    fn work_off(&mut self, count: usize) {
        let mut now = [u8::MAX; 16];
        now[..8].copy_from_slice(&millis(Duration::ZERO).to_be_bytes());
        let due = self.due.range(self.front..=now).take(count);
        let due: Vec<_> = due.map(|entry| entry.into_inner().expect("the disk works")).collect();
        assert_eq!(due.len(), count, "jobs are due and were not claimed");

        let lease_ends = millis(LEASE);
        let mut batch = self.batch();
        let mut leases = Vec::new();
        for (position, value) in due {
            let lease = self.position(lease_ends);
            self.front.copy_from_slice(&position);
            batch.remove(&self.due, position);
            batch.insert(&self.ids, id_of(&value), lease);
            batch.insert(&self.due, lease, value.clone());
            leases.push((lease, value));
        }
        batch.commit().expect("the disk works");

        let mut batch = self.batch();
        for (lease, value) in leases {
            let id = id_of(&value);
            let current = self.ids.get(id).expect("the disk works");
            assert_eq!(current.as_deref(), Some(&lease[..]), "the lease is lost");
            batch.remove(&self.due, lease);
            batch.remove(&self.ids, id);
        }
        batch.commit().expect("the disk works");
    }
}
