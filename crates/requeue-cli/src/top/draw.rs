//! Draws the screen: a header, the table of kinds, panels, and a line of keys.
//!
//! ```text
//!   header    where, version, uptime, totals, problems
//!   table     kinds
//!   panels    due next, workers, events: as many as fit
//!   footer    keys, a question, or the result of an action
//! ```
//!
//! Drawing is a function of the state. Colours repeat what the text shows, and are left out if `NO_COLOR` is
//! set.

mod due;
mod events;
mod footer;
mod header;
mod help;
mod kinds;
mod workers;

use super::state::{Mode, State};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use requeue_jobs::Timestamp;

/// The smallest table: its title, its heading and three kinds.
const MIN_TABLE: u16 = 5;

/// The narrowest and lowest screen on which something can be shown.
const MIN_SCREEN: (u16, u16) = (20, 5);

/// From this width on, workers and events are side by side.
const SIDE_BY_SIDE: u16 = 100;

/// The parts of the screen.
#[derive(Debug, PartialEq, Eq)]
struct Regions {
    header: Rect,
    table: Rect,
    due: Option<Rect>,
    workers: Option<Rect>,
    events: Option<Rect>,
    footer: Rect,
}

/// The heights that a panel may have.
struct Height {
    min: u16,
    max: u16,
}

/// Draws the whole screen. Scrolls the table so that the selected kind is on it.
pub(crate) fn draw(state: &mut State, now: Timestamp, area: Rect, buffer: &mut Buffer) {
    if area.width < MIN_SCREEN.0 || area.height < MIN_SCREEN.1 {
        put(buffer, area, 0, 0, "too small", Style::new());
        return;
    }
    let regions = regions(state, area);
    state.fit(usize::from(regions.table.height.saturating_sub(kinds::HEADING_ROWS)));
    header::draw(state, now, regions.header, buffer);
    kinds::draw(state, now, regions.table, buffer);
    if let Some(area) = regions.due {
        due::draw(state, area, buffer);
    }
    if let Some(area) = regions.workers {
        workers::draw(state, now, area, buffer);
    }
    if let Some(area) = regions.events {
        events::draw(state, area, buffer);
    }
    let hidden = [
        (state.panels.due, regions.due),
        (state.panels.workers, regions.workers),
        (state.panels.events, regions.events),
    ];
    let hidden = hidden.iter().any(|(wanted, area)| *wanted && area.is_none());
    footer::draw(state, hidden, regions.footer, buffer);
    if state.mode == Mode::Help {
        help::draw(area, buffer);
    }
}

/// Divides the screen. Panels that do not fit are left out, the last ones first.
fn regions(state: &State, area: Rect) -> Regions {
    let header_height = header::height(state).min(area.height.saturating_sub(MIN_TABLE + 1)).max(1);
    let (header, rest) = split(area, header_height);
    let (rest, footer) = split(rest, rest.height.saturating_sub(1));
    let panels = state.panels;
    let side_by_side = panels.workers && panels.events && area.width >= SIDE_BY_SIDE;
    let wanted = [
        (panels.due, Height { min: 4, max: 8 }),
        (panels.workers, Height { min: 3, max: 8 }),
        (panels.events && !side_by_side, Height { min: 3, max: 8 }),
    ];
    // First all get their minimum, then as much more as the table can do without.
    let mut heights = [0; 3];
    let mut spare = rest.height.saturating_sub(MIN_TABLE);
    for (height, (_, wanted)) in heights.iter_mut().zip(&wanted).filter(|(_, (on, _))| *on) {
        if wanted.min > spare {
            break;
        }
        *height = wanted.min;
        spare -= wanted.min;
    }
    let rows = u16::try_from(state.rows().len()).unwrap_or(u16::MAX);
    let table = rows.saturating_add(kinds::HEADING_ROWS).min(rest.height / 2);
    spare = spare.saturating_sub(table.saturating_sub(MIN_TABLE));
    for (height, (_, wanted)) in heights.iter_mut().zip(&wanted).filter(|(height, _)| **height > 0)
    {
        let more = (wanted.max - *height).min(spare);
        *height += more;
        spare -= more;
    }
    let (table, mut rest) = split(rest, rest.height - heights.iter().sum::<u16>());
    let mut next = |height: u16| {
        let (panel, below) = split(rest, height);
        rest = below;
        (height > 0).then_some(panel)
    };
    let (due, workers, events) = (next(heights[0]), next(heights[1]), next(heights[2]));
    match workers {
        Some(both) if side_by_side => {
            let width = both.width * 2 / 5;
            let workers = Rect { width: width - 1, ..both };
            let events = Rect { x: both.x + width, width: both.width - width, ..both };
            Regions { header, table, due, workers: Some(workers), events: Some(events), footer }
        }
        _ => Regions { header, table, due, workers, events, footer },
    }
}

/// The first `height` lines of an area, and the others.
fn split(area: Rect, height: u16) -> (Rect, Rect) {
    let height = height.min(area.height);
    let below = Rect { y: area.y + height, height: area.height - height, ..area };
    (Rect { height, ..area }, below)
}

/// Writes text into an area, as far as it fits. Returns the column after it.
fn put(buffer: &mut Buffer, area: Rect, x: u16, y: u16, text: &str, style: Style) -> u16 {
    if y >= area.height || x >= area.width {
        return x;
    }
    let room = usize::from(area.width - x);
    let (end, _) = buffer.set_stringn(area.x + x, area.y + y, text, room, style);
    end - area.x
}

/// A line with the title of a panel.
fn title(buffer: &mut Buffer, area: Rect, text: &str) {
    let line = "─".repeat(area.width.into());
    put(buffer, area, 0, 0, &line, Style::new().add_modifier(Modifier::DIM));
    put(buffer, area, 2, 0, &format!(" {text} "), bold());
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

/// A colour, unless `NO_COLOR` is set.
fn color(state: &State, color: Color) -> Style {
    if state.colors { Style::new().fg(color) } else { Style::new() }
}

#[cfg(test)]
mod tests;
