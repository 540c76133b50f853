//! Formats jobs for people.

use crate::output::{Cell, count, escape, truncate};
use crate::text::{Text, Tone};
use crate::times::{local, relative, rough};
use requeue_http::wire::{StateJson, Word};
use requeue_jobs::{Body, JobState, JobView, Timestamp};
use serde::Serialize;

/// The JSON output for one job: its name and the result of an operation.
#[derive(Debug, Serialize)]
pub(crate) struct JobResult<'a, T> {
    pub(crate) kind: &'a str,
    pub(crate) id: &'a str,
    #[serde(flatten)]
    pub(crate) done: T,
}

/// The maximum width of a body or an error in a table, in characters.
pub(crate) const CELL_WIDTH: usize = 60;

fn state_tone(state: JobState) -> Tone {
    match state {
        JobState::Ready => Tone::Good,
        JobState::Leased => Tone::Busy,
        JobState::Dead => Tone::Bad,
        _ => Tone::Plain,
    }
}

/// The state of a job.
pub(crate) fn state_cell(state: JobState) -> Cell {
    Cell::new(state_tone(state), StateJson::from(state).name())
}

/// A number of bytes, such as `512 bytes` or `1.2 MiB`.
pub(crate) fn byte_size(bytes: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return count(bytes, "byte");
    }
    let (mut tenths, mut unit) = (u128::from(bytes) * 10 / 1024, 0);
    while tenths >= 10_240 {
        (tenths, unit) = (tenths / 1024, unit + 1);
    }
    format!("{}.{} {}", tenths / 10, tenths % 10, units[unit])
}

/// The beginning of a body, on one line.
pub(crate) fn body_cell(body: &Body) -> String {
    match str::from_utf8(body.bytes()) {
        Ok(text) => escape(&truncate(text, CELL_WIDTH)),
        Err(_) => format!("{} of {}", byte_size(body.len() as u64), escape(body.content_type())),
    }
}

/// The last error of a job.
pub(crate) fn error_cell(job: &JobView) -> String {
    job.failures.last().map_or_else(String::new, |failure| {
        escape(&truncate(failure.error.as_deref().unwrap_or("the lease expired"), CELL_WIDTH))
    })
}

/// All details of a job, one per line.
pub(crate) fn job_text(job: &JobView, now: Timestamp) -> Text {
    let mut lines = vec![
        ("job", format!("{} of kind {}", escape(job.id.as_str()), job.kind)),
        ("state", StateJson::from(job.state).name().to_owned()),
        ("due", local(job.version.due, now)),
        ("priority", job.version.priority.to_string()),
        ("generation", job.version.generation.to_string()),
        ("attempts", format!("{} failed", job.attempts)),
    ];
    if let Some(lease) = &job.lease {
        let ends = local(lease.ends_at, now);
        let cancelled = if lease.cancelled { ", cancelled" } else { "" };
        lines.push(("leased by", format!("{}{cancelled}", escape(lease.worker.as_str()))));
        lines.push(("lease ends", ends));
    }
    if let Some(next) = &job.next {
        let due = relative(next.due, now);
        lines.push(("next", format!("due {due}: {}", body_cell(&next.content.body))));
    }
    if job.deaths > 0 {
        let died = job.died_at.map_or_else(String::new, |at| format!(", {}", local(at, now)));
        lines.push(("deaths", format!("{}{died}", job.deaths)));
    }
    if let Some(done) = &job.done {
        let worker = escape(done.worker.as_str());
        lines.push(("done", local(done.done_at, now)));
        lines.push(("done by", format!("{worker}, in {}", rough(done.took()))));
    }
    lines.push(("created", local(job.created_at, now)));
    lines.push(("updated", local(job.updated_at, now)));
    for failure in &job.failures {
        let error = failure.error.as_deref().unwrap_or("the lease expired");
        let (at, worker) = (relative(failure.ended_at, now), escape(failure.worker.as_str()));
        lines.push(("failure", format!("{at}, {worker}: {}", escape(error))));
    }
    let text = |body: &Body| str::from_utf8(body.bytes()).map_or_else(|_| body_cell(body), escape);
    match &job.done {
        None => {
            lines.push(("content type", escape(job.body().content_type())));
            let head = job.version.content.head.entries().into_iter();
            lines.extend(head.map(|(name, value)| (name, escape(&value))));
            lines.push(("body", text(job.body())));
        }
        // A done job has no body.
        Some(done) => {
            if let Some(result) = &done.result {
                lines.push(("result type", escape(result.content_type())));
                lines.push(("result", text(result)));
            }
        }
    }
    let line = |(name, value): (&str, String)| {
        let tone = match name {
            "state" => state_tone(job.state),
            "failure" => Tone::Bad,
            _ => Tone::Plain,
        };
        vec![(Tone::Plain, format!("{name:<13} ")), (tone, value)]
    };
    Text(lines.into_iter().map(line).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use requeue_jobs::{Generation, JobId, Kind, Version};

    #[test]
    fn bytes_have_a_unit_that_people_read() {
        for (number, shown) in [
            (0, "0 bytes"),
            (1, "1 byte"),
            (1023, "1023 bytes"),
            (1024, "1.0 KiB"),
            (1_258_291, "1.1 MiB"),
            (1_048_575, "1023.9 KiB"),
            (u64::MAX, "15.9 EiB"),
        ] {
            assert_eq!(byte_size(number), shown);
        }
    }

    #[test]
    fn control_characters_in_an_id_are_escaped() {
        let (kind, id) = (Kind::new("mail").unwrap(), JobId::new("\u{1b}[2J").unwrap());
        let at = Timestamp::from_millis(1);
        let text =
            job_text(&JobView::new(kind, id, Version::new(Body::default(), at, Generation(7))), at);
        let text = text.render(false);
        assert!(!text.contains('\u{1b}'), "{text}");
    }
}
