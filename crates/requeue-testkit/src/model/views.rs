//! Reads of the model. Everything is counted and sorted on each call.

use super::{KindFacts, Model};
use crate::operations::list_time;
use requeue_jobs::{
    Counts, JobId, JobState, JobView, Kind, KindView, Page, Query, Settings, Spans, TimeQuery,
    Timestamp,
};

impl Model {
    /// Returns a job.
    pub fn get(&self, kind: &Kind, id: &JobId, now: Timestamp) -> Option<JobView> {
        Some(self.jobs[self.find(kind, id)?].view(now))
    }

    /// Returns a page of the jobs of a kind.
    pub fn list(&self, query: &Query, now: Timestamp) -> Page {
        let views = self.of(&query.kind).map(|job| job.view(now));
        let mut jobs: Vec<JobView> = views
            .filter(|job| query.state.is_none_or(|state| job.state == state))
            .filter(|job| job.id.as_str().starts_with(&query.prefix))
            .filter(|job| query.after.as_ref().is_none_or(|after| job.id > *after))
            .collect();
        jobs.sort_by(|a, b| a.id.cmp(&b.id));
        let more = jobs.len() > query.limit.max(1);
        jobs.truncate(query.limit.max(1));
        let cursor = jobs.last().filter(|_| more).map(|job| job.id.clone());
        Page { jobs, cursor }
    }

    /// Returns the jobs of all pages of a list by time. Those of the same millisecond are ordered by
    /// id.
    pub fn list_by_time(&self, query: &TimeQuery, now: Timestamp) -> Vec<JobView> {
        let views = self.of(&query.kind).map(|job| job.view(now));
        let mut jobs: Vec<JobView> = views.filter(|job| job.state == query.state).collect();
        jobs.sort_by(|a, b| {
            let times = list_time(a).cmp(&list_time(b));
            let times = if query.newest_first { times.reverse() } else { times };
            times.then_with(|| a.id.cmp(&b.id))
        });
        jobs
    }

    /// Returns all kinds that have jobs, settings or schedules.
    pub fn kinds(&self, now: Timestamp) -> Vec<KindView> {
        let mut facts: Vec<&KindFacts> = self.kinds.iter().collect();
        facts.sort_by(|a, b| a.name.cmp(&b.name));
        facts.retain(|facts| {
            facts.settings != Settings::default()
                || !facts.schedules.is_empty()
                || self.of(&facts.name).next().is_some()
        });
        let view = |facts: &KindFacts| {
            let jobs: Vec<JobView> = self.of(&facts.name).map(|job| job.view(now)).collect();
            let count = |state| jobs.iter().filter(|job| job.state == state).count() as u64;
            let ready = count(JobState::Ready);
            let pending = ready + count(JobState::Waiting);
            let (leased, dead) = (count(JobState::Leased), count(JobState::Dead));
            let done = count(JobState::Done);
            let ready_jobs = jobs.iter().filter(|job| job.state == JobState::Ready);
            KindView {
                kind: facts.name.clone(),
                counts: Counts { pending, leased, dead, done, ready },
                oldest_ready: ready_jobs.map(|job| job.version.due).min(),
                paused: facts.settings.paused,
                push: facts.settings.push.is_some(),
                throttled_until: facts
                    .settings
                    .rate
                    .and_then(|rate| facts.tokens.throttled_until(&rate, now)),
                generation: facts.generation,
                fence: facts.fence,
            }
        };
        facts.into_iter().map(view).collect()
    }

    /// Returns the number of pending jobs that are due in each span.
    pub fn upcoming(&self, kind: &Kind, spans: Spans) -> Vec<u64> {
        let begins = |span: usize| spans.from.saturating_add(spans.length * span as u32);
        let pending = || self.of(kind).filter(|job| job.is_pending());
        let due_in = |span: usize| {
            let due = begins(span)..begins(span + 1);
            pending().filter(|job| due.contains(&job.view.version.due)).count() as u64
        };
        (0..spans.count).map(due_in).collect()
    }
}
