//! Formats schedules for people.

use crate::output::{escape, truncate};
use crate::times;
use requeue_http::wire::{MissedJson, OverlapJson, ScheduleJson};
use requeue_jobs::Timestamp;

pub(super) const HEADING: [&str; 6] = ["KIND", "ID", "TIMES", "ZONE", "NEXT", ""];

/// The maximum width of a cron expression or a problem in a table, in characters.
const WIDTH: usize = 60;

/// When a schedule runs: its cron expression or period.
fn rule(schedule: &ScheduleJson) -> String {
    match (&schedule.cron, &schedule.every) {
        (Some(cron), _) => escape(&truncate(cron, WIDTH)),
        (None, Some(every)) => format!("every {}", escape(every)),
        (None, None) => String::new(),
    }
}

/// Why a schedule has no next run.
fn without_next(schedule: &ScheduleJson) -> String {
    match &schedule.problem {
        Some(problem) => format!("cannot run: {}", escape(&truncate(problem, 2 * WIDTH))),
        None if schedule.paused => "paused".to_owned(),
        None => "over".to_owned(),
    }
}

/// The next run, as part of a sentence.
pub(super) fn next(schedule: &ScheduleJson, now: Timestamp) -> String {
    match schedule.next.as_deref().and_then(times::exact) {
        Some(at) => format!("next run {}", times::local(at, now)),
        None => without_next(schedule),
    }
}

/// The row of a schedule in a list.
pub(super) fn row(schedule: &ScheduleJson, now: Timestamp) -> [String; 6] {
    let next = schedule.next.as_deref().and_then(times::exact);
    [
        escape(&schedule.kind),
        escape(&schedule.id),
        rule(schedule),
        schedule.time_zone.as_deref().map(escape).unwrap_or_default(),
        next.map_or_else(String::new, |at| times::relative(at, now)),
        if next.is_none() { without_next(schedule) } else { String::new() },
    ]
}

/// All details of a schedule, one per line.
pub(super) fn schedule(schedule: &ScheduleJson, now: Timestamp) -> String {
    let local =
        |text: &str| times::exact(text).map_or_else(|| escape(text), |at| times::local(at, now));
    let mut lines = vec![
        ("schedule", format!("{} of kind {}", escape(&schedule.id), escape(&schedule.kind))),
        ("times", rule(schedule)),
    ];
    let mut option = |name, value: Option<String>| {
        if let Some(value) = value {
            lines.push((name, value));
        }
    };
    option("time zone", schedule.time_zone.as_deref().map(escape));
    let next = schedule.next.as_deref().map(local);
    option("next", Some(next.unwrap_or_else(|| without_next(schedule))));
    for at in schedule.next_times.iter().skip(usize::from(schedule.next.is_some())) {
        option("then", Some(local(at)));
    }
    option("starts", schedule.starts_at.as_deref().map(local));
    option("ends", schedule.ends_at.as_deref().map(local));
    option("jitter", Some(format!("up to {}", escape(&schedule.jitter))));
    let missed = match schedule.missed {
        MissedJson::One => "one job for all missed runs",
        MissedJson::Skip => "missed runs are skipped",
        MissedJson::All => "a job for each missed run",
    };
    let within = schedule.catch_up.as_deref().map(|window| format!(", up to {}", escape(window)));
    option("missed", Some(format!("{missed}{}", within.unwrap_or_default())));
    option(
        "overlap",
        Some(match schedule.overlap {
            OverlapJson::None => "none: a run follows the one before".to_owned(),
            OverlapJson::Allow => "allowed: each run has a job id of its own".to_owned(),
        }),
    );
    option("priority", Some(schedule.priority.to_string()));
    option("content type", Some(escape(&schedule.content_type)));
    let body = schedule.body_fields();
    option("body", body.json.or(body.text).or(body.base64).map(escape));
    lines.iter().map(|(name, value)| format!("{name:<13} {value}")).collect::<Vec<_>>().join("\n")
}
