//! Prints results: aligned text for people, or JSON for programs, one object per line.
//!
//! Everything that the program prints passes through [`print_note`], [`print_json_note`] or
//! [`Output`], which escape what a terminal would interpret. So no job, server, file or argument
//! can send commands to the terminal, wherever its text appears.

use crate::error::{CliError, Exit, Result};
use crate::text::{Piece, Text, Tone, has_colors};
use serde::Serialize;
use std::io::{self, ErrorKind, IsTerminal, Write};

/// Prints text to stderr. Ignores errors: unlike `eprintln`, it does not panic if nobody reads.
pub(crate) fn print_note(text: &str) {
    write_note(&printable(text));
}

/// Prints a line to stderr that begins with what it is, such as `warning`. The text stays on one line.
pub(crate) fn print_labelled(label: &str, text: &str) {
    let tone = match label {
        "error" => Tone::Bad,
        "warning" => Tone::Warning,
        _ => Tone::Heading,
    };
    let line =
        Text::line([(tone, format!("{label}:")), (Tone::Plain, format!(" {}", escape(text)))]);
    write_note(&line.render(has_colors(io::stderr().is_terminal())));
}

/// Prints a question to stderr. The answer follows on the same line.
pub(crate) fn print_prompt(text: &str) {
    let _ = io::stderr().lock().write_all(printable(text).as_bytes());
}

/// Prints a JSON object to stderr, on a line.
pub(crate) fn print_json_note(value: &impl Serialize) {
    write_note(&to_json(value));
}

fn write_note(line: &str) {
    let _ = io::stderr().lock().write_all(format!("{line}\n").as_bytes());
}

/// Prints results to stdout, as JSON or as text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    pub(crate) json: bool,
}

impl Output {
    /// Prints a result in the selected format.
    pub(crate) fn print<J: Serialize, T: Into<Text>>(
        self,
        json: impl FnOnce() -> J,
        text: impl FnOnce() -> T,
    ) -> Result<()> {
        if self.json { self.print_json(&json()) } else { self.print_line(text()) }
    }

    /// Prints a JSON object on a line.
    pub(crate) fn print_json(self, value: &impl Serialize) -> Result<()> {
        write_line(&to_json(value)).map(drop)
    }

    /// Prints text. A closed pipe is no error, so that `requeue put --file … | head` still puts all
    /// jobs.
    pub(crate) fn print_line(self, text: impl Into<Text>) -> Result<()> {
        self.print_while_read(text).map(drop)
    }

    /// Prints text. Returns `false` if the pipe is closed: after `requeue ls … | head` has its
    /// lines, there is no use in listing more.
    pub(crate) fn print_while_read(self, text: impl Into<Text>) -> Result<bool> {
        write_line(&text.into().render(has_colors(io::stdout().is_terminal())))
    }

    /// Prints a JSON object on a line. Returns `false` if the pipe is closed.
    pub(crate) fn print_json_while_read(self, value: &impl Serialize) -> Result<bool> {
        write_line(&to_json(value))
    }

    /// Prints the error of one of several entries to stderr, and returns its exit code.
    pub(crate) fn print_error(self, error: impl Into<CliError>) -> Exit {
        let error = error.into();
        error.report(self.json);
        error.exit
    }
}

/// Writes a line to stdout. Returns `false` if the pipe is closed.
fn write_line(line: &str) -> Result<bool> {
    let mut out = io::stdout().lock();
    match out.write_all(format!("{line}\n").as_bytes()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(CliError::io("write to", "stdout", &error)),
    }
}

/// A JSON object on one line. What a terminal would interpret is escaped as JSON allows: a program
/// reads the same value.
fn to_json(value: &impl Serialize) -> String {
    let json = serde_json::to_string(value).expect("plain data can be serialized");
    json_printable(&json)
}

/// Replaces hidden characters in JSON, which can only be part of a text, by `\uXXXX`.
pub(crate) fn json_printable(json: &str) -> String {
    let mut units = [0; 2];
    let mut shown = String::with_capacity(json.len());
    for c in json.chars() {
        if c != '\n' && is_hidden(c) {
            for unit in c.encode_utf16(&mut units) {
                shown += &format!("\\u{unit:04x}");
            }
        } else {
            shown.push(c);
        }
    }
    shown
}

/// A table with aligned columns.
pub(crate) struct Table {
    rows: Vec<Vec<Cell>>,
    /// Which columns contain numbers, which are aligned to the right.
    numbers: Vec<bool>,
    /// Widths of the columns in the rows that were already taken.
    widths: Vec<usize>,
}

/// A cell of a table.
#[derive(Debug, Clone)]
pub(crate) struct Cell(Tone, String);

impl Cell {
    pub(crate) fn new(tone: Tone, text: impl Into<String>) -> Self {
        Cell(tone, text.into())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Cell(Tone::Plain, text)
    }
}

impl Table {
    /// A heading that begins with `#` marks a column of numbers. The `#` is not printed.
    pub(crate) fn new(heading: &[&str]) -> Self {
        let numbers = heading.iter().map(|name| name.starts_with('#')).collect();
        let shown = |name: &&str| Cell::new(Tone::Heading, name.trim_start_matches('#'));
        let rows = vec![heading.iter().map(shown).collect()];
        Table { rows, numbers, widths: Vec::new() }
    }

    pub(crate) fn row(&mut self, row: impl IntoIterator<Item = impl Into<Cell>>) {
        self.rows.push(row.into_iter().map(Into::into).collect());
    }

    /// Returns the rows added so far as text and removes them. Later rows have no heading, and
    /// columns never become narrower.
    pub(crate) fn take(&mut self) -> Text {
        let (text, widths) = self.layout();
        (self.rows, self.widths) = (Vec::new(), widths);
        text
    }

    pub(crate) fn to_text(&self) -> Text {
        self.layout().0
    }

    /// The text and the widths of the columns.
    fn layout(&self) -> (Text, Vec<usize>) {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            let taken = self.widths.get(column).copied().unwrap_or(0);
            cells.map(|Cell(_, text)| text.chars().count()).fold(taken, usize::max)
        };
        let widths: Vec<usize> = (0..self.numbers.len()).map(width).collect();
        let line = |row: &Vec<Cell>| {
            // No spaces at the end of a line.
            let shown = row.iter().rposition(|Cell(_, text)| !text.trim_end().is_empty());
            let last = shown.unwrap_or(0);
            let cells = row.iter().take(last + 1).zip(&widths).zip(&self.numbers).enumerate();
            let pieces = cells.flat_map(|(column, ((Cell(tone, text), &width), &number))| {
                let text = if column == last { text.trim_end() } else { text };
                let space = " ".repeat(width.saturating_sub(text.chars().count()));
                let (before, after) =
                    if number { (space, String::new()) } else { (String::new(), space) };
                let after = if column == last { String::new() } else { after + "  " };
                [(Tone::Plain, before), (*tone, text.to_owned()), (Tone::Plain, after)]
            });
            pieces.filter(|(_, text)| !text.is_empty()).collect::<Vec<Piece>>()
        };
        (Text(self.rows.iter().map(line).collect()), widths)
    }
}

/// Whether a terminal would interpret the character instead of showing it: control characters (C0,
/// DEL, C1), and characters that are invisible or change the direction of the text.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}')
}

fn escaped(text: &str, hidden: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if hidden(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown
}

/// Escapes hidden characters and line breaks, for a text from outside that is part of a line.
pub(crate) fn escape(text: &str) -> String {
    escaped(text, is_hidden)
}

/// Escapes hidden characters, but not line breaks: what is printed can have several lines.
pub(crate) fn printable(text: &str) -> String {
    printable_except(text, '\n')
}

/// Whether [`escape`] changes the text.
pub(crate) fn is_escaped(text: &str) -> bool {
    text.chars().any(is_hidden)
}

/// Like [`printable`], and does not escape this character either.
pub(crate) fn printable_except(text: &str, allowed: char) -> String {
    escaped(text, |c| c != '\n' && c != allowed && is_hidden(c))
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
        assert_eq!(table.to_text().render(false), shown);
    }

    #[test]
    fn a_table_taken_in_parts_has_one_heading_and_does_not_become_narrower() {
        let mut table = Table::new(&["ID", "NOTE"]);
        table.row(["long-id".to_owned(), "x".to_owned()]);
        assert_eq!(table.take().render(false), "ID       NOTE\nlong-id  x");
        table.row(["b".to_owned(), "y".to_owned()]);
        assert_eq!(table.take().render(false), "b        y");
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(escape("a\u{1b}[2J\nü"), "a\\u{1b}[2J\\nü");
        assert_eq!(escape("\u{202e}x"), "\\u{202e}x");
        assert_eq!(printable("a\n\r\u{9b}\u{7f}"), "a\n\\r\\u{9b}\\u{7f}");
    }

    #[test]
    fn escaped_json_has_the_same_value() {
        let text = "a\u{1b}\u{7f}\u{9b}\u{202e}\u{e0001}\"\\ü😀\n";
        let json = to_json(&text);
        assert!(!json.chars().any(is_hidden), "{json}");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }

    #[test]
    fn a_long_text_is_truncated_with_an_ellipsis() {
        assert_eq!(truncate("äöü", 3), "äöü");
        assert_eq!(truncate("äöüß", 3), "äö…");
    }
}
