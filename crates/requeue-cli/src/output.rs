//! Prints results: aligned text for people, or JSON for programs, one object per line.

use crate::error::{CliError, Exit, Result};
use serde::Serialize;
use std::io::{self, ErrorKind, Write};

/// Prints a line to stderr. Ignores errors: unlike `eprintln`, it does not panic if nobody reads.
pub(crate) fn print_note(line: &str) {
    let _ = io::stderr().lock().write_all(format!("{line}\n").as_bytes());
}

/// Prints results to stdout, as JSON or as text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    pub(crate) json: bool,
}

impl Output {
    /// Prints a result in the selected format.
    pub(crate) fn print<J: Serialize>(
        self,
        json: impl FnOnce() -> J,
        text: impl FnOnce() -> String,
    ) -> Result<()> {
        if self.json { self.print_json(&json()) } else { self.print_line(&text()) }
    }

    /// Prints a JSON object on a line.
    pub(crate) fn print_json(self, value: &impl Serialize) -> Result<()> {
        self.print_line(&to_json(value))
    }

    /// Prints a line. A closed pipe is no error, so that `requeue put --file … | head` still puts
    /// all jobs.
    pub(crate) fn print_line(self, line: &str) -> Result<()> {
        self.print_while_read(line).map(drop)
    }

    /// Prints a line. Returns `false` if the pipe is closed: after `requeue ls … | head` has its
    /// lines, there is no use in listing more.
    pub(crate) fn print_while_read(self, line: &str) -> Result<bool> {
        let mut out = io::stdout().lock();
        match out.write_all(format!("{line}\n").as_bytes()) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(CliError::io("write to", "stdout", &error)),
        }
    }

    /// Prints the error of one of several entries to stderr, and returns its exit code.
    pub(crate) fn print_error(self, error: impl Into<CliError>) -> Exit {
        let error = error.into();
        error.report(self.json);
        error.exit
    }
}

/// A JSON object on one line.
pub(crate) fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain data can be serialized")
}

/// A table with aligned columns.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    /// Which columns contain numbers, which are aligned to the right.
    numbers: Vec<bool>,
    /// Widths of the columns in the rows that were already taken.
    widths: Vec<usize>,
}

impl Table {
    /// A heading that begins with `#` marks a column of numbers. The `#` is not printed.
    pub(crate) fn new(heading: &[&str]) -> Self {
        let numbers = heading.iter().map(|name| name.starts_with('#')).collect();
        let shown = heading.iter().map(|name| name.trim_start_matches('#').to_owned()).collect();
        Table { rows: vec![shown], numbers, widths: Vec::new() }
    }

    pub(crate) fn row(&mut self, row: impl IntoIterator<Item = String>) {
        self.rows.push(row.into_iter().collect());
    }

    /// Returns the rows added so far as text and removes them. Later rows have no heading, and
    /// columns never become narrower.
    pub(crate) fn take(&mut self) -> String {
        let (text, widths) = self.layout();
        (self.rows, self.widths) = (Vec::new(), widths);
        text
    }

    pub(crate) fn to_text(&self) -> String {
        self.layout().0
    }

    /// The text and the widths of the columns.
    fn layout(&self) -> (String, Vec<usize>) {
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

/// Escapes control characters and invisible characters, so that text from a job or a worker stays
/// on one line and cannot send commands to the terminal.
pub(crate) fn escape(text: &str) -> String {
    let shown = |c: char| {
        let hidden = c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if hidden { c.escape_default().to_string() } else { c.to_string() }
    };
    text.chars().map(shown).collect()
}

/// A count with its noun: `1 job`, `2 jobs`.
pub(crate) fn count(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// Truncates a text to `limit` characters, the last of which is then `…`.
pub(crate) fn truncate(text: &str, limit: usize) -> String {
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
        assert_eq!(table.to_text(), shown);
    }

    #[test]
    fn a_table_taken_in_parts_has_one_heading_and_does_not_become_narrower() {
        let mut table = Table::new(&["ID", "NOTE"]);
        table.row(["long-id".to_owned(), "x".to_owned()]);
        assert_eq!(table.take(), "ID       NOTE\nlong-id  x");
        table.row(["b".to_owned(), "y".to_owned()]);
        assert_eq!(table.take(), "b        y");
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(escape("a\u{1b}[2J\nü"), "a\\u{1b}[2J\\nü");
        assert_eq!(escape("\u{202e}x"), "\\u{202e}x");
    }

    #[test]
    fn a_long_text_is_truncated_with_an_ellipsis() {
        assert_eq!(truncate("äöü", 3), "äöü");
        assert_eq!(truncate("äöüß", 3), "äö…");
    }
}
