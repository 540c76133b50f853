//! Printing: aligned text for people, or JSON for programs, one object per line.

use crate::failure::{Exit, Failure, Result};
use serde::Serialize;
use std::io::{self, ErrorKind, Write};

/// Tells people something beside the answer. That nobody reads it is no reason to end, as
/// `eprintln` would.
pub(crate) fn note(line: &str) {
    let _ = io::stderr().lock().write_all(format!("{line}\n").as_bytes());
}

/// Where answers go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Out {
    pub(crate) json: bool,
}

impl Out {
    /// Says something in one of both ways.
    pub(crate) fn say<J: Serialize>(
        self,
        json: impl FnOnce() -> J,
        text: impl FnOnce() -> String,
    ) -> Result<()> {
        if self.json { self.json(&json()) } else { self.line(&text()) }
    }

    /// An object on a line.
    pub(crate) fn json(self, json: &impl Serialize) -> Result<()> {
        self.line(&self::json(json))
    }

    /// Writes a line. That nobody reads it is no error of ours, and what is to be done is done:
    /// `requeue put --file … | head`.
    pub(crate) fn line(self, line: &str) -> Result<()> {
        self.listed(line).map(drop)
    }

    /// Writes a line, and answers whether anybody reads: `requeue ls … | head` has no use for more.
    pub(crate) fn listed(self, line: &str) -> Result<bool> {
        let mut out = io::stdout().lock();
        match out.write_all(format!("{line}\n").as_bytes()) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(Failure::file("write to", "stdout", &error)),
        }
    }

    /// Tells why one of several entries failed.
    pub(crate) fn fail(self, failure: impl Into<Failure>) -> Exit {
        failure.into().tell(self.json)
    }
}

/// An object, on one line.
pub(crate) fn json(json: &impl Serialize) -> String {
    serde_json::to_string(json).expect("it is plain data")
}

/// Rows under a heading, in columns.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    /// Columns of numbers are aligned to the right.
    numbers: Vec<bool>,
    /// Of the columns that were taken.
    widths: Vec<usize>,
}

impl Table {
    /// A heading that begins with `#` is one of numbers, and is shown without it.
    pub(crate) fn new(heading: &[&str]) -> Self {
        let numbers = heading.iter().map(|name| name.starts_with('#')).collect();
        let shown = heading.iter().map(|name| name.trim_start_matches('#').to_owned()).collect();
        Table { rows: vec![shown], numbers, widths: Vec::new() }
    }

    pub(crate) fn row(&mut self, row: impl IntoIterator<Item = String>) {
        self.rows.push(row.into_iter().collect());
    }

    /// What there is, which is then forgotten, and further rows come without a heading. Columns
    /// never become narrower.
    pub(crate) fn take(&mut self) -> String {
        let (shown, widths) = self.laid_out();
        (self.rows, self.widths) = (Vec::new(), widths);
        shown
    }

    pub(crate) fn shown(&self) -> String {
        self.laid_out().0
    }

    fn laid_out(&self) -> (String, Vec<usize>) {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            let taken = self.widths.get(column).copied().unwrap_or(0);
            cells.map(|cell| cell.chars().count()).fold(taken, usize::max)
        };
        let widths: Vec<usize> = (0..self.numbers.len()).map(width).collect();
        let line = |row: &Vec<String>| {
            let cells = row.iter().zip(&widths).zip(&self.numbers);
            let cells = cells.map(|((cell, &width), &number)| {
                if number { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
            });
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        (self.rows.iter().map(line).collect::<Vec<_>>().join("\n"), widths)
    }
}

/// Text of others, on one line, with nothing in it that a terminal obeys.
pub(crate) fn plain(text: &str) -> String {
    let shown = |c: char| {
        let hidden = c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if hidden { c.escape_default().to_string() } else { c.to_string() }
    };
    text.chars().map(shown).collect()
}

/// The beginning of it.
pub(crate) fn cut(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        Some(_) => text.chars().take(limit - 1).chain(['…']).collect(),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_numbers_to_the_right() {
        let mut table = Table::new(&["KIND", "#READY", "NOTE"]);
        table.row(["mail".to_owned(), "7".to_owned(), String::new()]);
        table.row(["order.close".to_owned(), "12345678".to_owned(), "paused".to_owned()]);
        let shown =
            "KIND            READY  NOTE\nmail                7\norder.close  12345678  paused";
        assert_eq!(table.shown(), shown);
    }

    #[test]
    fn a_table_that_is_taken_in_parts_has_one_heading_and_does_not_become_narrower() {
        let mut table = Table::new(&["ID", "NOTE"]);
        table.row(["long-id".to_owned(), "x".to_owned()]);
        assert_eq!(table.take(), "ID       NOTE\nlong-id  x");
        table.row(["b".to_owned(), "y".to_owned()]);
        assert_eq!(table.take(), "b        y");
    }

    #[test]
    fn what_a_terminal_would_obey_is_escaped() {
        assert_eq!(plain("a\u{1b}[2J\nü"), "a\\u{1b}[2J\\nü");
        assert_eq!(plain("\u{202e}x"), "\\u{202e}x");
    }

    #[test]
    fn a_long_text_is_cut_and_says_so() {
        assert_eq!(cut("äöü", 3), "äöü");
        assert_eq!(cut("äöüß", 3), "äö…");
    }
}
