//! The last line: keys, a question, the filter that is typed, or the result of an action.

use super::{bold, color, put};
use crate::output::escape;
use crate::top::state::{Mode, State};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

const KEYS: &str =
    "? help  q quit  / filter  s sort  t trouble  r reverse  p pause  h horizon  d w e panels";

/// `panel_hidden` is whether a panel that is switched on has no room.
pub(super) fn draw(state: &State, panel_hidden: bool, area: Rect, buffer: &mut Buffer) {
    let (text, style) = match &state.mode {
        Mode::Confirm { kind, paused: true } => {
            (format!("pause {kind}, so that its jobs are not handed out? y/n"), bold())
        }
        Mode::Confirm { kind, paused: false } => (format!("resume {kind}? y/n"), bold()),
        Mode::Filter => (
            format!("filter: {}_  (Enter applies it, Esc clears it)", escape(&state.filter)),
            bold(),
        ),
        Mode::Table | Mode::Help => match &state.message {
            Some(message) => (escape(message), color(state, Color::Yellow)),
            None if panel_hidden => (
                format!("(a panel needs more room)  {KEYS}"),
                Style::new().add_modifier(Modifier::DIM),
            ),
            None => (KEYS.to_owned(), Style::new().add_modifier(Modifier::DIM)),
        },
    };
    put(buffer, area, 0, 0, &text, style);
}
