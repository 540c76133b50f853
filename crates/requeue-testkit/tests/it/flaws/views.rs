//! Flaws of reads, settings, waits, reaping and schedules.

use super::store::{CorrectStore, Deviation};
use requeue_jobs::limits::MAX_RESULT_BYTES;
use requeue_jobs::{
    JobState, JobView, Kind, KindView, Page, Placed, Put, PutError, PutOutcome, Query, Reaped,
    ScheduleCondition, Settings, Store, StoreError, StoreFuture, Tick, Ticked,
};
use std::collections::HashMap;
use std::time::Duration;

/// Dead jobs lose the errors of their failed attempts.
pub(super) fn dead_lose_errors(_: &CorrectStore, view: &mut JobView) {
    if view.state == JobState::Dead {
        view.failures.clear();
    }
}

/// Reading a job ends its lease if it has expired.
pub(super) fn eager_reaper(correct: &CorrectStore, view: &mut JobView) {
    correct.reap(1000);
    if let Some(now) = correct.get(&(view.kind.clone(), view.id.clone())) {
        *view = now;
    }
}

/// `reap` does nothing.
pub(super) struct NoReaper;

impl Deviation for NoReaper {
    fn reap(&mut self, _: &CorrectStore, _: usize) -> Reaped {
        Reaped::default()
    }
}

/// A setting is stored and returned, but not enforced.
pub(super) struct NotEnforced(pub(super) fn(&mut Settings));

impl Deviation for NotEnforced {
    fn alter_settings(&mut self, settings: &mut Settings) {
        (self.0)(settings);
    }
}

/// A wait ends only with its limit.
pub(super) struct WaitNotWoken;

impl Deviation for WaitNotWoken {
    fn wait<'a>(
        &mut self,
        correct: &'a CorrectStore,
        _: Vec<Kind>,
        limit: Duration,
    ) -> StoreFuture<'a, ()> {
        correct.store.wait(Vec::new(), limit)
    }
}

/// The cursor of a page skips a job.
pub(super) fn paging_skips(correct: &CorrectStore, query: Query) -> Page {
    let mut page = correct.list(query);
    if page.cursor.is_some() {
        page.jobs.pop();
    }
    page
}

/// Every put on an existing job counts it once more.
#[derive(Default)]
pub(super) struct CountsDrift {
    drift: HashMap<Kind, u64>,
}

impl Deviation for CountsDrift {
    fn put(&mut self, correct: &CorrectStore, put: Put) -> Result<Placed, PutError> {
        let kind = put.kind.clone();
        let placed = correct.put(put)?;
        if placed.outcome == PutOutcome::Updated {
            *self.drift.entry(kind).or_default() += 1;
        }
        Ok(placed)
    }

    fn kinds(&mut self, correct: &CorrectStore) -> Vec<KindView> {
        let mut kinds = correct.kinds();
        for view in &mut kinds {
            view.counts.pending += self.drift.get(&view.kind).copied().unwrap_or_default();
        }
        kinds
    }
}

/// A kind without jobs, settings and schedules is shown as if it had never been used.
pub(super) struct EmptyKindsAreNew;

impl Deviation for EmptyKindsAreNew {
    fn kind(&mut self, correct: &CorrectStore, kind: Kind) -> KindView {
        let shown = correct.kinds().into_iter().find(|view| view.kind == kind);
        shown.unwrap_or_else(|| KindView::new(kind))
    }
}

/// A tick does not compare the time it expects with the schedule.
pub(super) struct TicksTwice;

impl Deviation for TicksTwice {
    fn tick(&mut self, correct: &CorrectStore, mut tick: Tick) -> Result<Ticked, StoreError> {
        let schedules = correct.schedules(&tick.kind);
        if let Some(schedule) = schedules.iter().find(|schedule| schedule.id == tick.id) {
            tick.expected = schedule.next;
        }
        correct.tick(tick)
    }
}

/// Only the bodies of the jobs themselves count towards the size of a page.
pub(super) fn successors_not_counted(correct: &CorrectStore, query: Query) -> Page {
    let mut page = correct.list(query.clone());
    let bytes = |page: &Page| page.jobs.iter().map(|job| job.body().len()).sum::<usize>();
    while page.jobs.len() < query.limit
        && let Some(after) = page.cursor.clone()
    {
        let one = correct.list(Query { after: Some(after), limit: 1, ..query.clone() });
        if bytes(&page) + bytes(&one) > MAX_RESULT_BYTES {
            break;
        }
        page.jobs.extend(one.jobs);
        page.cursor = one.cursor;
    }
    page
}

/// A schedule is set whatever the condition.
pub(super) struct SetsAnySchedule;

impl Deviation for SetsAnySchedule {
    fn alter_condition(&mut self, condition: &mut ScheduleCondition) {
        *condition = ScheduleCondition::Always;
    }
}
