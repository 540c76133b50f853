//! The workers that claim jobs.

use super::{color, put, title};
use crate::output::{count, escape};
use crate::top::columns::show_count;
use crate::top::state::State;
use crate::workers::Worker;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use requeue_http::wire::EXPIRED_IN_A_ROW;
use requeue_jobs::Timestamp;

/// Columns of the numbers and times at the right.
const RIGHT_WIDTH: u16 = 27;

/// Returns whether the leases of a worker expire instead of being settled.
fn in_trouble(worker: &Worker) -> bool {
    worker.expired_in_a_row >= EXPIRED_IN_A_ROW
}

/// Draws the workers that hold the most leases.
pub(super) fn draw(state: &State, now: Timestamp, area: Rect, buffer: &mut Buffer) {
    let workers = state.snapshot.as_ref().and_then(|snapshot| snapshot.workers.as_ref());
    let Some(workers) = workers else {
        title(buffer, area, "workers");
        let text = if state.has_server { "…" } else { "only a server knows its workers" };
        put(buffer, area, 2, 1, text, Style::new());
        return;
    };
    let mut workers: Vec<&Worker> = workers.iter().collect();
    // Those whose leases expire are first, because they hold none.
    let key = |worker: &Worker| (in_trouble(worker), worker.held);
    workers.sort_by(|a, b| key(b).cmp(&key(a)).then_with(|| a.name.cmp(&b.name)));
    let number = count(workers.len() as u64, "worker");
    title(buffer, area, &format!("{number}, by leases held"));
    let room = usize::from(area.height.saturating_sub(1));
    for (y, worker) in (1..).zip(workers.iter().take(room)) {
        let left = Rect { width: area.width.saturating_sub(RIGHT_WIDTH + 1), ..area };
        put(buffer, left, 2, y, &escape(&worker.name), Style::new());
        let (held, seen) = (show_count(worker.held), worker.seen(now));
        let (right, style) = if in_trouble(worker) {
            let expired = show_count(worker.expired_in_a_row);
            (format!("{expired:>7} expired, {seen}"), color(state, Color::Red))
        } else {
            (format!("{held:>7} held, {seen}"), Style::new())
        };
        put(buffer, area, area.width.saturating_sub(RIGHT_WIDTH), y, &right, style);
    }
    if workers.is_empty() {
        put(buffer, area, 2, 1, "no worker has claimed jobs recently", Style::new());
    }
}
