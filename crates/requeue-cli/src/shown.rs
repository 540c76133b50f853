//! Jobs as they are shown: in JSON as the HTTP API has them, and in text.

use crate::out::{cut, plain};
use crate::times::{local, relative};
use requeue_http::wire::StateJson;
use requeue_jobs::{Body, JobView, Timestamp};
use serde::Serialize;

/// What became of a job, and of which.
#[derive(Debug, Serialize)]
pub(crate) struct OfJob<'a, T> {
    pub(crate) kind: &'a str,
    pub(crate) id: &'a str,
    #[serde(flatten)]
    pub(crate) done: T,
}

/// Characters of a body or an error in a table.
pub(crate) const CELL: usize = 60;

/// A word of the API, as JSON has it.
pub(crate) fn word(word: impl Serialize) -> String {
    let json = serde_json::to_value(word).expect("it is plain data");
    json.as_str().unwrap_or_default().to_owned()
}

/// How a body begins, on one line.
pub(crate) fn body_cell(body: &Body) -> String {
    match str::from_utf8(body.bytes()) {
        Ok(text) => plain(&cut(text, CELL)),
        Err(_) => format!("{} bytes of {}", body.len(), plain(body.content_type())),
    }
}

/// The latest error of a job.
pub(crate) fn error_cell(job: &JobView) -> String {
    job.failures.last().map_or_else(String::new, |failure| {
        plain(&cut(failure.error.as_deref().unwrap_or("its lease expired"), CELL))
    })
}

/// All about a job, for people.
pub(crate) fn job_text(job: &JobView, now: Timestamp) -> String {
    let mut lines = vec![
        ("job", format!("{} of kind {}", plain(job.id.as_str()), job.kind)),
        ("state", word(StateJson::from(job.state))),
        ("due", local(job.due, now)),
        ("generation", job.generation.to_string()),
        ("attempts", format!("{} failed", job.attempts)),
    ];
    if let Some(lease) = &job.lease {
        let ends = local(lease.ends_at, now);
        let cancelled = if lease.cancelled { ", cancelled" } else { "" };
        lines.push(("leased by", format!("{}{cancelled}", plain(lease.worker.as_str()))));
        lines.push(("lease ends", ends));
    }
    if let Some(next) = &job.next {
        let due = relative(next.due, now);
        lines.push(("next", format!("due {due}: {}", body_cell(&next.body))));
    }
    if job.deaths > 0 {
        let died = job.died_at.map_or_else(String::new, |at| format!(", {}", local(at, now)));
        lines.push(("deaths", format!("{}{died}", job.deaths)));
    }
    lines.push(("created", local(job.created_at, now)));
    lines.push(("updated", local(job.updated_at, now)));
    for failure in &job.failures {
        let error = failure.error.as_deref().unwrap_or("its lease expired");
        let (at, worker) = (relative(failure.ended_at, now), plain(failure.worker.as_str()));
        lines.push(("failure", format!("{at}, {worker}: {}", plain(error))));
    }
    lines.push(("content", plain(job.body.content_type())));
    let body = str::from_utf8(job.body.bytes()).map_or_else(|_| body_cell(&job.body), plain);
    lines.push(("body", body));
    lines.iter().map(|(name, value)| format!("{name:<11} {value}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use requeue_jobs::{Generation, JobId, JobState, Kind};

    #[test]
    fn words_are_those_of_the_api() {
        assert_eq!(word(StateJson::from(JobState::Dead)), "dead");
    }

    #[test]
    fn a_hostile_id_does_not_reach_the_terminal() {
        let (kind, id) = (Kind::new("mail").unwrap(), JobId::new("\u{1b}[2J").unwrap());
        let at = Timestamp::from_millis(1);
        let text = job_text(&JobView::new(kind, id, Body::default(), at, Generation(7)), at);
        assert!(!text.contains('\u{1b}'), "{text}");
    }
}
