//! The header: where the jobs are, totals, problems, and what else needs attention.

use super::{bold, color, put};
use crate::output::{escape, truncate};
use crate::times;
use crate::top::columns::show_count;
use crate::top::state::State;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use requeue_jobs::Timestamp;
use requeue_jobs::limits::READY_COUNT_CAP;
use std::time::Duration;

/// Maximum number of lines of problems.
const MAX_PROBLEMS: usize = 3;

/// Maximum characters of a problem: a terminal shows fewer.
const MAX_PROBLEM_LEN: usize = 500;

pub(super) fn height(state: &State) -> u16 {
    2 + problems(state, Timestamp::from_millis(0)).len() as u16
}

pub(super) fn draw(state: &State, now: Timestamp, area: Rect, buffer: &mut Buffer) {
    let x = put(buffer, area, 0, 0, "requeue top", bold());
    put(buffer, area, x + 2, 0, &place(state), Style::new());
    put(buffer, area, 0, 1, &totals(state), Style::new());
    for (y, problem) in (2..).zip(problems(state, now)) {
        put(buffer, area, 0, y, &problem, color(state, Color::Red));
    }
}

fn place(state: &State) -> String {
    let stats = state.snapshot.as_ref().and_then(|snapshot| snapshot.stats.as_ref());
    let Some(stats) = stats else { return state.source.clone() };
    let (version, uptime) = (escape(&stats.version), Duration::from_secs(stats.uptime_seconds));
    format!("{}  version {version}, up {}", state.source, times::rough(uptime))
}

fn totals(state: &State) -> String {
    let Some(snapshot) = &state.snapshot else {
        return "waiting for the first response".to_owned();
    };
    let sum = |count: fn(&requeue_jobs::Counts) -> u64| {
        show_count(snapshot.kinds.iter().map(|row| count(&row.view.counts)).sum())
    };
    let capped = snapshot.kinds.iter().any(|row| row.view.counts.ready >= READY_COUNT_CAP);
    let more = if capped { "+" } else { "" };
    let mut totals = format!(
        "pending {}  ready {}{more}  leased {}  dead {}",
        sum(|counts| counts.pending),
        sum(|counts| counts.ready),
        sum(|counts| counts.leased),
        sum(|counts| counts.dead),
    );
    if let Some(stats) = &snapshot.stats {
        totals += &format!("  waiting claims {}", stats.waiting_claims);
    }
    totals
}

/// What is wrong, on one line each.
fn problems(state: &State, now: Timestamp) -> Vec<String> {
    let mut problems = Vec::new();
    if let Some(trouble) = &state.trouble {
        let since = times::in_local_zone(trouble.since, "%H:%M:%S").unwrap_or_default();
        let ago = times::relative(trouble.since.min(now), now);
        let error = truncate(&escape(&trouble.error), MAX_PROBLEM_LEN);
        problems.push(format!("! no data since {since} ({ago}): {error}"));
    }
    let stats = state.snapshot.as_ref().and_then(|snapshot| snapshot.stats.as_ref());
    for problem in stats.map_or(&[][..], |stats| &stats.problems) {
        let since = times::exact(&problem.since);
        let since = since.map_or_else(String::new, |at| times::relative(at.min(now), now));
        let detail = escape(problem.detail.as_deref().unwrap_or_default());
        let text = format!("! problem {}, {since}: {detail}", escape(&problem.name));
        problems.push(truncate(&text, MAX_PROBLEM_LEN));
    }
    for one in stats.map_or(&[][..], |stats| &stats.trouble) {
        let who = one.kind.as_ref().or(one.worker.as_ref()).map_or("", |name| name);
        let name = one.name.replace('_', " ");
        let text = format!("! {}, {}: {}", escape(who), escape(&name), escape(&one.detail));
        problems.push(truncate(&text, MAX_PROBLEM_LEN));
    }
    let more = problems.len().saturating_sub(MAX_PROBLEMS);
    problems.truncate(MAX_PROBLEMS);
    if more > 0
        && let Some(last) = problems.last_mut()
    {
        let more = format!("  (+{more} more)");
        *last = truncate(last, MAX_PROBLEM_LEN - more.len()) + &more;
    }
    problems
}
