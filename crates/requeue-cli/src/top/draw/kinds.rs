//! The table of kinds.

use super::{bold, color, put};
use crate::output::{escape, truncate};
use crate::top::columns::{Column, layout};
use crate::top::data::KindRow;
use crate::top::state::State;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use requeue_jobs::Timestamp;

/// The title and the heading.
pub(super) const HEADING_ROWS: u16 = 2;

/// Columns before the name, for the mark of the selected row.
const MARK_WIDTH: u16 = 2;

pub(super) fn draw(state: &State, now: Timestamp, area: Rect, buffer: &mut Buffer) {
    let rows = state.rows();
    super::title(buffer, area, &title(state, rows.len()));
    let columns = layout(&rows, usize::from(area.width.saturating_sub(MARK_WIDTH)));
    let line = |y: u16| Rect { y: area.y + y, height: 1, ..area };
    let arrow = if state.descending { "▼" } else { "▲" };
    draw_line(&columns, line(1), buffer, |column| {
        let arrow = if column == state.sort { arrow } else { "" };
        (format!("{}{arrow}", column.heading()), bold())
    });
    if rows.is_empty() {
        put(buffer, area, MARK_WIDTH, HEADING_ROWS, &empty(state), Style::new());
    }
    let room = usize::from(area.height.saturating_sub(HEADING_ROWS));
    let selected = state.selected();
    let shown = rows.iter().enumerate().skip(state.first).take(room);
    for (y, (index, row)) in (HEADING_ROWS..).zip(shown) {
        draw_line(&columns, line(y), buffer, |column| {
            (column.cell(row, now), style(state, column, row))
        });
        if index == selected {
            put(buffer, line(y), 0, 0, ">", bold());
            buffer.set_style(line(y), Style::new().add_modifier(Modifier::REVERSED));
        }
    }
}

/// Draws a cell in each column, numbers to the right.
fn draw_line(
    columns: &[(Column, usize)],
    line: Rect,
    buffer: &mut Buffer,
    cell: impl Fn(Column) -> (String, Style),
) {
    let mut x = MARK_WIDTH;
    for (column, width) in columns {
        let (text, style) = cell(*column);
        let text = truncate(&text, *width);
        let text = if column.is_number() { format!("{text:>width$}") } else { text };
        put(buffer, line, x, 0, &text, style);
        x += *width as u16 + 1;
    }
}

/// Red and yellow for what may need attention.
fn style(state: &State, column: Column, row: &KindRow) -> Style {
    match column {
        Column::Flags | Column::Oldest if row.trouble.is_some() => color(state, Color::Red),
        Column::Dead if row.view.counts.dead > 0 => color(state, Color::Red),
        Column::Flags if row.view.paused || row.view.throttled_until.is_some() => {
            color(state, Color::Yellow)
        }
        _ => Style::new(),
    }
}

/// How many kinds there are, and how they are sorted and filtered.
fn title(state: &State, matching: usize) -> String {
    let all = state.snapshot.as_ref().map_or(0, |snapshot| snapshot.kinds.len());
    let order = if state.descending { "descending" } else { "ascending" };
    let mut title =
        if matching == all { format!("{all} kinds") } else { format!("{matching} of {all} kinds") };
    title += &format!(", sorted by {}, {order}", state.sort.heading());
    if !state.filter.is_empty() {
        title += &format!(", filter: {}", escape(&state.filter));
    }
    title
}

fn empty(state: &State) -> String {
    match &state.snapshot {
        None => String::new(),
        Some(snapshot) if snapshot.kinds.is_empty() => {
            "there are no kinds yet; to put a job: requeue put KIND ID BODY".to_owned()
        }
        Some(_) => format!("no kind matches {:?}; Esc clears the filter", escape(&state.filter)),
    }
}
