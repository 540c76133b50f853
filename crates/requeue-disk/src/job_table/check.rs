//! The invariants of the lists, for tests.

use super::{DiskJobTable, position_of};
use crate::due_buckets::ListKey;
use foldhash::HashSet;
use requeue_jobs::rules::List;
use std::collections::BTreeMap;

impl DiskJobTable {
    /// Checks that the lists contain as many jobs as are counted. For tests.
    pub(crate) fn check(&self) {
        for list in List::all() {
            if let List::Leased(_) = list {
                let leases = self.leases.get(list).map_or(0, BTreeMap::len);
                assert_eq!(self.counts[list.index()], leases as u64);
                continue;
            }
            let moved: HashSet<ListKey> = self.moved_from(list).collect();
            let records = self.all_in_memory().filter_map(|(_, entry)| entry.record.as_deref());
            let keys = records.map(position_of).filter(|position| position.0 == list);
            let keys: Vec<ListKey> = keys.map(|position| position.1).collect();
            let mut count = keys.len() as u64;
            let counted = self.due.get(list).map_or((0, 0), |due| due.through);
            let is_due = |at: &ListKey| *at <= counted;
            let mut due = keys.iter().filter(|at| is_due(at)).count() as u64;
            let mut cursor = self.version.scan(self.number, list.index() as u8, (0, 0));
            while let Some((at, _)) = cursor.next().expect("tables can be read") {
                assert!(
                    moved.contains(&at) || at >= self.consumed_below(list),
                    "{at:?} is consumed"
                );
                count += u64::from(!moved.contains(&at));
                due += u64::from(!moved.contains(&at) && is_due(&at));
            }
            assert_eq!(self.counts[list.index()], count, "jobs in {list:?}, by time");
            if let Some(counted) = self.due.get(list) {
                assert_eq!(counted.jobs, due, "jobs up to {:?}", counted.through);
            }
        }
    }
}
