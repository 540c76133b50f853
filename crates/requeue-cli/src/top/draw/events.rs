//! The latest events of the server.

use super::{put, title};
use crate::top::state::State;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

/// Draws as many events as fit, the latest at the bottom.
pub(super) fn draw(state: &State, area: Rect, buffer: &mut Buffer) {
    title(buffer, area, "events");
    let room = usize::from(area.height.saturating_sub(1));
    let first = state.events.len().saturating_sub(room);
    for (y, line) in (1..).zip(state.events.iter().skip(first)) {
        put(buffer, area, 2, y, line, Style::new());
    }
    if state.events.is_empty() {
        let text =
            if state.has_server { "no event yet" } else { "only a server has a stream of events" };
        put(buffer, area, 2, 1, text, Style::new());
    }
}
