//! The histogram of the jobs that become due.

use super::{put, title};
use crate::output::count;
use crate::top::columns::{BARS, UNKNOWN, eighths, grouped, show_count};
use crate::top::horizon::Horizon;
use crate::top::state::State;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

/// Columns of the scale at the left.
const SCALE_WIDTH: u16 = 9;

pub(super) fn draw(state: &State, area: Rect, buffer: &mut Buffer) {
    let horizon = state.horizon;
    let due = state.snapshot.as_ref().and_then(|snapshot| snapshot.due.as_ref());
    let counts = due.and_then(|due| due.horizons.iter().find(|(of, _)| *of == horizon));
    let name = format!("due in the next {}", horizon.name());
    let Some((_, counts)) = counts else {
        title(buffer, area, &name);
        put(buffer, area, 2, 1, UNKNOWN, Style::new());
        return;
    };
    let jobs = count(counts.iter().sum(), "job");
    let later = due.and_then(|due| due.later).filter(|later| *later > 0);
    let later = later.map_or_else(String::new, |later| format!(", {later} after a week"));
    title(buffer, area, &format!("{name}: {jobs}{later}"));
    let room = area.width.saturating_sub(SCALE_WIDTH + 1);
    let groups = grouped(counts, room.into());
    let bar_width = (usize::from(room) / groups.len().max(1)).clamp(1, 2);
    let bars = Rect {
        x: area.x + SCALE_WIDTH,
        y: area.y + 1,
        width: room,
        height: area.height.saturating_sub(2),
    };
    draw_bars(&groups, bar_width, bars, buffer);
    let max = groups.iter().copied().max().unwrap_or(0);
    let scale = |text: String| format!("{text:>width$} ", width = usize::from(SCALE_WIDTH) - 1);
    put(buffer, area, 0, 1, &scale(show_count(max)), Style::new());
    draw_axis(horizon, groups.len() * bar_width, area, buffer);
}

fn draw_bars(groups: &[u64], width: usize, area: Rect, buffer: &mut Buffer) {
    let max = groups.iter().copied().max().unwrap_or(0);
    let rows = usize::from(area.height);
    for row in 0..rows {
        // The part of each bar that is in this row, in eighths.
        let below = 8 * (rows - 1 - row);
        let bar = |count: &u64| BARS[eighths(*count, max, rows).saturating_sub(below).min(8)];
        let line: String = groups.iter().map(|count| bar(count).repeat(width)).collect();
        put(buffer, area, 0, row as u16, &line, Style::new());
    }
}

/// Labels below the bars: now, half of the horizon, and all of it.
fn draw_axis(horizon: Horizon, width: usize, area: Rect, buffer: &mut Buffer) {
    let (middle, end) = match horizon {
        Horizon::Minute => ("+30s", "+1m"),
        Horizon::Hour => ("+30m", "+1h"),
        Horizon::Day => ("+12h", "+1d"),
        Horizon::Week => ("+84h", "+7d"),
    };
    let dim = Style::new().add_modifier(Modifier::DIM);
    let at = |part: usize| SCALE_WIDTH + u16::try_from(part).unwrap_or(u16::MAX);
    let y = area.height.saturating_sub(1);
    put(buffer, area, SCALE_WIDTH, y, "now", dim);
    put(buffer, area, at(width / 2), y, middle, dim);
    put(buffer, area, at(width.saturating_sub(end.len())), y, end, dim);
}
