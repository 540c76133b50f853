//! The help, above everything else.

use super::{bold, put};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::widgets::{Clear, Widget};

const LINES: [&str; 15] = [
    "up down PgUp PgDn Home End   select a kind",
    "s  S                         sort by another column",
    "r                            reverse the order",
    "t                            kinds that need attention first",
    "/                            filter kinds by name",
    "Esc                          clear the filter",
    "p                            pause or resume the kind",
    "h                            horizon of what is due next",
    "d  w  e                      panels: due, workers, events",
    "q  Ctrl-C                    quit",
    "",
    "LATE: how long after its due time a job was claimed.",
    "–: unknown. OLDEST: how long a job has been ready.",
    "late: its oldest job has been ready for 5 minutes.",
    "unreachable, undelivered: of its webhook.",
];

pub(super) fn draw(area: Rect, buffer: &mut Buffer) {
    let widest = LINES.iter().map(|line| line.chars().count()).max().unwrap_or(0) as u16;
    let (width, height) = ((widest + 4).min(area.width), (LINES.len() as u16 + 2).min(area.height));
    let box_area = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    Clear.render(box_area, buffer);
    super::title(buffer, box_area, "help: any key closes it");
    for (y, line) in (1..).zip(LINES) {
        put(buffer, box_area, 2, y, line, Style::new());
    }
    let bottom = "─".repeat(width.into());
    put(buffer, box_area, 0, height - 1, &bottom, bold());
}
