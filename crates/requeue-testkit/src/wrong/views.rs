//! Answers, settings and upkeep done wrong.

use super::store::{Right, Wrong};
use requeue_jobs::{
    JobState, JobView, Kind, KindView, Page, Placed, Put, PutError, PutOutcome, Query, Reaped,
    Settings, Store, StoreFuture, Tick, Ticked,
};
use std::collections::HashMap;
use std::time::Duration;

/// The failures are in the record of the pending job, and a dead one has another.
pub(super) struct DeadLoseErrors;

impl Wrong for DeadLoseErrors {
    fn tell(&mut self, _: &Right, view: &mut JobView) {
        if view.state == JobState::Dead {
            view.failures.clear();
        }
    }
}

/// Time changes records: looking at a job ends its lease.
pub(super) struct EagerReaper;

impl Wrong for EagerReaper {
    fn tell(&mut self, right: &Right, view: &mut JobView) {
        right.reap(1000);
        if let Some(now) = right.get(&(view.kind.clone(), view.id.clone())) {
            *view = now;
        }
    }
}

/// Nobody ends leases, and nobody drops the dead.
pub(super) struct NoReaper;

impl Wrong for NoReaper {
    fn reap(&mut self, _: &Right, _: usize) -> Reaped {
        Reaped::default()
    }
}

/// A setting that is kept, told, and not enforced.
pub(super) struct NotEnforced(pub(super) fn(&mut Settings));

impl Wrong for NotEnforced {
    fn enforce(&mut self, settings: &mut Settings) {
        (self.0)(settings);
    }
}

/// Who waits is not told of anything.
pub(super) struct DeafWait;

impl Wrong for DeafWait {
    fn wait<'a>(&mut self, right: &'a Right, _: Vec<Kind>, limit: Duration) -> StoreFuture<'a, ()> {
        right.store.wait(Vec::new(), limit)
    }
}

/// The cursor points behind what was shown.
pub(super) struct PagingSkips;

impl Wrong for PagingSkips {
    fn list(&mut self, right: &Right, query: Query) -> Page {
        let mut page = right.list(query);
        if page.cursor.is_some() {
            page.jobs.pop();
        }
        page
    }
}

/// Every put counts one more.
#[derive(Default)]
pub(super) struct CountsDrift {
    drift: HashMap<Kind, u64>,
}

impl Wrong for CountsDrift {
    fn put(&mut self, right: &Right, put: Put) -> Result<Placed, PutError> {
        let kind = put.kind.clone();
        let placed = right.put(put)?;
        if placed.outcome == PutOutcome::Updated {
            *self.drift.entry(kind).or_default() += 1;
        }
        Ok(placed)
    }

    fn kinds(&mut self, right: &Right) -> Vec<KindView> {
        let mut kinds = right.kinds();
        for view in &mut kinds {
            view.counts.pending += self.drift.get(&view.kind).copied().unwrap_or_default();
        }
        kinds
    }
}

/// A tick reads, puts and writes, and compares nothing.
pub(super) struct TicksTwice;

impl Wrong for TicksTwice {
    fn tick(&mut self, right: &Right, mut tick: Tick) -> Ticked {
        let schedules = right.schedules(&tick.kind);
        if let Some(schedule) = schedules.iter().find(|schedule| schedule.id == tick.id) {
            tick.expected = schedule.next;
        }
        right.tick(tick)
    }
}
