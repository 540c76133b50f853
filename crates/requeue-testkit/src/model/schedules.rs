//! Settings and schedules of the model.

use super::Model;
use crate::tokens::Tokens;
use requeue_jobs::{
    Due, Generation, JobId, Kind, Put, PutError, Schedule, ScheduleCondition, Settings, Tick,
    Ticked, Timestamp,
};

impl Model {
    /// Sets the settings of a kind.
    pub fn set(&mut self, kind: &Kind, settings: Settings) {
        let facts = self.facts(kind);
        if facts.settings.rate != settings.rate {
            facts.tokens = Tokens::default();
        }
        facts.settings = settings;
    }

    /// Returns the settings of a kind.
    pub fn settings(&mut self, kind: &Kind) -> Settings {
        self.facts(kind).settings.clone()
    }

    /// Sets a schedule, if the condition holds. It replaces one with the same id.
    pub fn set_schedule(
        &mut self,
        kind: &Kind,
        schedule: Schedule,
        condition: ScheduleCondition,
    ) -> bool {
        let present = self.schedules(kind).into_iter().find(|other| other.id == schedule.id);
        let holds = match condition {
            ScheduleCondition::Always => true,
            ScheduleCondition::Absent => present.is_none(),
            ScheduleCondition::Next(next) => present.is_some_and(|present| present.next == next),
        };
        if holds {
            self.remove_schedule(kind, &schedule.id);
            self.facts(kind).schedules.push(schedule);
        }
        holds
    }

    /// Removes a schedule. Returns whether it existed.
    pub fn remove_schedule(&mut self, kind: &Kind, id: &JobId) -> bool {
        let schedules = &mut self.facts(kind).schedules;
        let before = schedules.len();
        schedules.retain(|schedule| schedule.id != *id);
        schedules.len() < before
    }

    /// Returns the schedules of a kind, by id.
    pub fn schedules(&mut self, kind: &Kind) -> Vec<Schedule> {
        let mut schedules = self.facts(kind).schedules.clone();
        schedules.sort_by(|a, b| a.id.cmp(&b.id));
        schedules
    }

    /// Executes a tick. If it puts a job, the generation is the one `given`.
    pub fn tick(
        &mut self,
        tick: &Tick,
        given: Option<Generation>,
        now: Timestamp,
    ) -> Result<Ticked, PutError> {
        let schedules = &mut self.facts(&tick.kind).schedules;
        let Some(schedule) = schedules.iter().find(|schedule| schedule.id == tick.id) else {
            return Ok(Ticked::Absent);
        };
        if schedule.next != tick.expected {
            return Ok(Ticked::Moved(schedule.next));
        }
        let ticked = match &tick.put {
            Some(job) => {
                let mut put = Put::new(tick.kind.clone(), job.id.clone(), job.content.clone());
                (put.due, put.priority) = (Due::At(tick.expected), job.priority);
                Ticked::Put(self.put(&put, given, now)?)
            }
            None => Ticked::Skipped,
        };
        let mut moved = self.facts(&tick.kind).schedules.iter_mut();
        if let Some(schedule) = moved.find(|schedule| schedule.id == tick.id) {
            schedule.next = tick.next;
        }
        Ok(ticked)
    }
}
