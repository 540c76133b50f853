//! Schedules of a [`Jobs`].

use super::Jobs;
use crate::cron::{
    Schedule, ScheduleCondition, ScheduleError, ScheduleSpec, ScheduleView, timer_put,
};
use crate::error::{PutError, StoreError};
use crate::names::{JobId, Kind};
use crate::put::{Placed, Put};
use crate::time::Timestamp;

impl Jobs {
    /// Sets a schedule: a recurring job. It replaces the schedule with the same kind and id. Requires the
    /// feature `cron`.
    ///
    /// If the schedule exists and has the same times, its next run stays, so that a program can set its
    /// schedules whenever it starts. A [`JobWorker`](crate::JobWorker) or the service starts the runs.
    ///
    /// Fails if the cron expression or the time zone is invalid, if a value is out of range, and if there
    /// is no run after now.
    ///
    /// ```
    /// use requeue_jobs::{Jobs, MemoryStore, ScheduleSpec};
    /// use std::sync::Arc;
    /// use std::time::Duration;
    ///
    /// # requeue_testkit::block_on(async {
    /// let jobs = Jobs::new(Arc::new(MemoryStore::new()));
    /// let mornings = ScheduleSpec::cron("0 9 * * MON-FRI", "Europe/Berlin");
    /// let view = jobs.set_schedule("report", "daily", mornings).await?;
    /// assert_eq!(view.next, Some(view.next_times[0]));
    ///
    /// let never = ScheduleSpec::cron("0 0 31 2 *", "UTC");
    /// let error = jobs.set_schedule("report", "daily", never).await.unwrap_err();
    /// assert_eq!(error.to_string(), "the cron expression \"0 0 31 2 *\" never fires");
    /// # Ok::<(), requeue_jobs::ScheduleError>(())
    /// # }).unwrap();
    /// ```
    pub async fn set_schedule(
        &self,
        kind: &str,
        id: &str,
        spec: ScheduleSpec,
    ) -> Result<ScheduleView, ScheduleError> {
        let (kind, id) = (Kind::new(kind)?, JobId::new(id)?);
        loop {
            let present = self.store().schedule(kind.clone(), id.clone()).await?;
            let view = self.replace_schedule(&kind, &id, present.as_ref(), &spec).await?;
            if let Some(view) = view {
                return Ok(view);
            }
        }
    }

    /// Changes a schedule. Returns the new one. Requires the feature `cron`.
    ///
    /// Fails with [`ScheduleError::Absent`] if there is no such schedule, and like
    /// [`set_schedule`](Self::set_schedule).
    ///
    /// ```
    /// use requeue_jobs::{Jobs, MemoryStore, ScheduleSpec};
    /// use std::sync::Arc;
    ///
    /// # requeue_testkit::block_on(async {
    /// let jobs = Jobs::new(Arc::new(MemoryStore::new()));
    /// jobs.set_schedule("report", "daily", ScheduleSpec::cron("@daily", "UTC")).await?;
    /// let view = jobs.change_schedule("report", "daily", |spec| spec.paused = true).await?;
    /// assert_eq!(view.next, None);
    /// # Ok::<(), requeue_jobs::ScheduleError>(())
    /// # }).unwrap();
    /// ```
    pub async fn change_schedule(
        &self,
        kind: &str,
        id: &str,
        change: impl Fn(&mut ScheduleSpec),
    ) -> Result<ScheduleView, ScheduleError> {
        let change = |spec: &mut ScheduleSpec| {
            change(spec);
            Ok(())
        };
        self.change_schedule_with(kind, id, change).await
    }

    /// Like [`change_schedule`](Jobs::change_schedule), with a change that may fail. If it fails, the
    /// schedule is not stored, and its error is returned. Requires the feature `cron`.
    ///
    /// ```
    /// use requeue_jobs::{Jobs, MemoryStore, ScheduleError, ScheduleSpec};
    /// use std::sync::Arc;
    ///
    /// # requeue_testkit::block_on(async {
    /// let jobs = Jobs::new(Arc::new(MemoryStore::new()));
    /// jobs.set_schedule("report", "daily", ScheduleSpec::cron("@daily", "UTC")).await?;
    /// let refused = jobs
    ///     .change_schedule_with("report", "daily", |spec| {
    ///         spec.paused = true;
    ///         if spec.ends_at.is_some() { Ok(()) } else { Err(ScheduleError::Over) }
    ///     })
    ///     .await;
    /// assert_eq!(refused.unwrap_err(), ScheduleError::Over);
    /// # Ok::<(), requeue_jobs::ScheduleError>(())
    /// # }).unwrap();
    /// ```
    pub async fn change_schedule_with<E: From<ScheduleError>>(
        &self,
        kind: &str,
        id: &str,
        change: impl Fn(&mut ScheduleSpec) -> Result<(), E>,
    ) -> Result<ScheduleView, E> {
        let kind = Kind::new(kind).map_err(ScheduleError::from)?;
        let id = JobId::new(id).map_err(ScheduleError::from)?;
        loop {
            let present = self.find_schedule(&kind, &id).await?;
            let mut spec = ScheduleSpec::from_schedule(&present).map_err(ScheduleError::from)?;
            change(&mut spec)?;
            if let Some(view) = self.replace_schedule(&kind, &id, Some(&present), &spec).await? {
                return Ok(view);
            }
        }
    }

    /// Returns a schedule, or `None` if there is no such schedule. Requires the feature `cron`.
    pub async fn schedule(&self, kind: &str, id: &str) -> Result<Option<ScheduleView>, StoreError> {
        let (kind, id) = (Kind::with_reserved(kind)?, JobId::new(id)?);
        let schedule = self.store().schedule(kind.clone(), id).await?;
        Ok(schedule.map(|schedule| ScheduleView::new(&kind, &schedule, self.now())))
    }

    /// Returns the schedules of a kind, ordered by id. Requires the feature `cron`.
    pub async fn schedules(&self, kind: &str) -> Result<Vec<ScheduleView>, StoreError> {
        let kind = Kind::with_reserved(kind)?;
        let (schedules, now) = (self.store().schedules(kind.clone()).await?, self.now());
        Ok(schedules.iter().map(|schedule| ScheduleView::new(&kind, schedule, now)).collect())
    }

    /// Removes a schedule. Returns `false` if there is no such schedule. Its jobs stay. Requires the
    /// feature `cron`.
    pub async fn remove_schedule(&self, kind: &str, id: &str) -> Result<bool, StoreError> {
        // Its timer finds no schedule, and ends.
        self.store().remove_schedule(Kind::new(kind)?, JobId::new(id)?).await
    }

    /// Starts a run of a schedule now, in addition to those at its times. Requires the feature `cron`.
    ///
    /// Fails with [`ScheduleError::Absent`] if there is no such schedule.
    pub async fn run_schedule(&self, kind: &str, id: &str) -> Result<Placed, ScheduleError> {
        let (kind, id) = (Kind::new(kind)?, JobId::new(id)?);
        let spec = ScheduleSpec::from_schedule(&self.find_schedule(&kind, &id).await?)?;
        let job = spec.job_at(&id, self.now())?;
        let put = Put { priority: job.priority, ..Put::new(kind, job.id, job.content) };
        self.place(put).await.map_err(|error| match error {
            PutError::Store(error) => error.into(),
            other => ScheduleError::Put(other),
        })
    }

    async fn find_schedule(&self, kind: &Kind, id: &JobId) -> Result<Schedule, ScheduleError> {
        let present = self.store().schedule(kind.clone(), id.clone()).await?;
        present.ok_or_else(|| ScheduleError::Absent { kind: kind.clone(), id: id.clone() })
    }

    /// Replaces the present schedule, and sets its timer. Returns `None` if another call has changed the
    /// schedule meanwhile.
    async fn replace_schedule(
        &self,
        kind: &Kind,
        id: &JobId,
        present: Option<&Schedule>,
        spec: &ScheduleSpec,
    ) -> Result<Option<ScheduleView>, ScheduleError> {
        spec.check(kind, id)?;
        // As it will be read: in whole milliseconds, without spaces around the expression.
        let spec = &ScheduleSpec::from_schedule(&spec.to_schedule(id.clone(), Schedule::NEVER))?;
        let next = self.first_run(kind, id, present, spec)?;
        let condition = match present {
            Some(present) => ScheduleCondition::Next(present.next),
            None => ScheduleCondition::Absent,
        };
        let schedule = spec.to_schedule(id.clone(), next);
        let store = self.store();
        if !store.set_schedule(kind.clone(), schedule.clone(), condition).await? {
            return Ok(None);
        }
        // Behind a service, the service sets the timer.
        if next < Schedule::NEVER && store.needs_reaping() {
            self.set_timers(vec![timer_put(kind, id, next, self.now())]).await?;
        }
        Ok(Some(ScheduleView::new(kind, &schedule, self.now())))
    }

    /// Returns the next time of a schedule that replaces the present one.
    fn first_run(
        &self,
        kind: &Kind,
        id: &JobId,
        present: Option<&Schedule>,
        spec: &ScheduleSpec,
    ) -> Result<Timestamp, ScheduleError> {
        let first = spec.occurrences(kind, id)?.next_after(self.now());
        let first = first.ok_or(ScheduleError::Over)?;
        if spec.paused {
            return Ok(Schedule::NEVER);
        }
        // A run that is due, and that nothing has started yet, is not forgotten.
        let is_same = |present: &&Schedule| {
            present.next < Schedule::NEVER
                && ScheduleSpec::from_schedule(present).is_ok_and(|old| old.has_runs_of(spec))
        };
        Ok(present.filter(is_same).map_or(first, |present| present.next))
    }

    /// Puts timers of schedules.
    pub(crate) async fn set_timers(&self, timers: Vec<Put>) -> Result<(), StoreError> {
        for placed in self.store().put(timers).await? {
            match placed {
                Ok(_) => {}
                Err(PutError::Store(error)) => return Err(error),
                Err(error) => return Err(StoreError::Unknown { reason: error.to_string() }),
            }
        }
        Ok(())
    }

    fn now(&self) -> Timestamp {
        self.wall_clock().now()
    }
}
