//! Text in pieces that have a colour on a terminal.
//!
//! Colours only repeat what the text says. The pieces are escaped when they are printed, so that only the
//! colours of this module reach a terminal, and never those of a job or a server.

use crate::output::printable;
use clap::builder::styling::{AnsiColor, Style};

/// What a piece of text is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Tone {
    #[default]
    Plain,
    Heading,
    Good,
    Busy,
    Warning,
    Bad,
}

impl Tone {
    fn style(self) -> Style {
        let color = |color: AnsiColor| color.on_default();
        match self {
            Tone::Plain => Style::new(),
            Tone::Heading => Style::new().bold(),
            Tone::Good => color(AnsiColor::Green),
            Tone::Busy => color(AnsiColor::Cyan),
            Tone::Warning => color(AnsiColor::Yellow),
            Tone::Bad => color(AnsiColor::Red),
        }
    }
}

/// Whether to print colours: on a terminal that has them, unless `NO_COLOR` is set.
pub(crate) fn has_colors(is_terminal: bool) -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    is_terminal && !is_set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// A part of a line.
pub(crate) type Piece = (Tone, String);

/// One or more lines.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Text(pub(crate) Vec<Vec<Piece>>);

impl From<String> for Text {
    fn from(text: String) -> Self {
        Text(text.split('\n').map(|line| vec![(Tone::Plain, line.to_owned())]).collect())
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Text::from(text.to_owned())
    }
}

impl Text {
    /// A line of these pieces.
    pub(crate) fn line(pieces: impl IntoIterator<Item = Piece>) -> Self {
        Text(vec![pieces.into_iter().collect()])
    }

    /// These lines, and then those of another text.
    pub(crate) fn then(mut self, other: impl Into<Text>) -> Self {
        self.0.extend(other.into().0);
        self
    }

    /// The lines as they are printed.
    pub(crate) fn lines(&self, colors: bool) -> Vec<String> {
        let piece = |(tone, text): &Piece| paint(*tone, &printable(text), colors);
        self.0.iter().map(|line| line.iter().map(piece).collect()).collect()
    }

    /// The text as it is printed.
    pub(crate) fn render(&self, colors: bool) -> String {
        self.lines(colors).join("\n")
    }

    /// Truncates each line to `width` characters as they are printed, the last of which is then `…`.
    pub(crate) fn truncated(self, width: usize) -> Self {
        Text(self.0.into_iter().map(|line| truncated(line, width)).collect())
    }
}

fn paint(tone: Tone, text: &str, colors: bool) -> String {
    if !colors || tone == Tone::Plain || text.is_empty() {
        return text.to_owned();
    }
    let style = tone.style();
    format!("{style}{text}{style:#}")
}

fn truncated(line: Vec<Piece>, width: usize) -> Vec<Piece> {
    let line: Vec<Piece> = line.into_iter().map(|(tone, text)| (tone, printable(&text))).collect();
    let len: usize = line.iter().map(|(_, text)| text.chars().count()).sum();
    if len <= width {
        return line;
    }
    let mut left = width.saturating_sub(1);
    let mut cut = |(tone, text): Piece| {
        let text: String = text.chars().take(left).collect();
        left -= text.chars().count();
        (tone, text)
    };
    let mut line: Vec<Piece> = line.into_iter().map(&mut cut).collect();
    line.push((Tone::Plain, "…".to_owned()));
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_colours_are_printed_and_only_if_there_are_any() {
        let text =
            Text::line([(Tone::Bad, "a\u{1b}[2J".to_owned()), (Tone::Plain, "b".to_owned())]);
        assert_eq!(text.render(false), "a\\u{1b}[2Jb");
        assert_eq!(text.render(true), "\u{1b}[31ma\\u{1b}[2J\u{1b}[0mb");
        assert_eq!(Text::from("a\nb").then("c").render(true), "a\nb\nc");
    }

    #[test]
    fn a_line_is_truncated_to_the_width_that_it_has_when_printed() {
        let piece = |tone, text: &str| (tone, text.to_owned());
        let text = Text::line([piece(Tone::Bad, "äö"), piece(Tone::Plain, "üß\u{7}")]);
        assert_eq!(text.clone().truncated(5).render(false), "äöüß…");
        assert_eq!(text.clone().truncated(2).render(true), "\u{1b}[31mä\u{1b}[0m…");
        assert_eq!(text.truncated(100).render(false), "äöüß\\u{7}");
    }
}
