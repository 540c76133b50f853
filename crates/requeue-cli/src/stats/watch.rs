//! `stats --watch`: shows the table again every interval.
//!
//! On a terminal, each table replaces the one before it, as far as it fits. Elsewhere, tables follow each
//! other, each after a line with its time.

use super::text;
use crate::error::{CliError, Result};
use crate::events::is_temporary;
use crate::output::{Output, count, escape, print_json_note, print_note, truncate};
use crate::signals::Signals;
use crate::text::{Text, has_colors};
use crate::times;
use ratatui::crossterm::terminal;
use requeue_http::wire::KindStats;
use requeue_jobs::{Counts, Kind, KindView, Store, Timestamp};
use serde::Serialize;
use std::collections::HashMap;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::time::{Duration, Instant};

/// The JSON output: a kind at a point in time.
#[derive(Serialize)]
struct KindAt<'a> {
    at: &'a str,
    #[serde(flatten)]
    kind: KindStats,
}

/// Shows all kinds until interrupted, or until nobody reads stdout. Fails if the first look fails; later
/// errors are shown and the next look is tried.
pub(super) async fn watch(store: &dyn Store, interval: Duration, out: Output) -> Result<()> {
    let mut signals = Signals::with_hangup()?;
    let on_terminal = !out.json && io::stdout().is_terminal();
    let mut before: Option<Look> = None;
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = signals.next() => return Ok(()),
        }
        let kinds = tokio::select! {
            kinds = store.kinds() => kinds,
            () = signals.next() => return Ok(()),
        };
        let is_read = match kinds.map_err(CliError::from) {
            Ok(kinds) => {
                let look = Look { kinds, at: Instant::now() };
                let is_read = show(&look, before.as_ref(), on_terminal, out)?;
                before = Some(look);
                is_read
            }
            Err(error) if before.is_none() || !is_temporary(&error) => return Err(error),
            Err(error) => show_error(&error, on_terminal, out)?,
        };
        if !is_read {
            return Ok(());
        }
    }
}

/// The kinds at a point in time.
struct Look {
    kinds: Vec<KindView>,
    at: Instant,
}

/// Returns `false` if nobody reads.
fn show(look: &Look, before: Option<&Look>, on_terminal: bool, out: Output) -> Result<bool> {
    let now = times::now();
    if out.json {
        let at = times::show_time(now);
        for kind in &look.kinds {
            if !out.print_json_while_read(&KindAt { at: &at, kind: KindStats::from(kind) })? {
                return Ok(false);
            }
        }
        return Ok(true);
    }
    let changes = before.map(|before| Changes::between(before, look));
    let table = text(&look.kinds, now, |kind| {
        changes.as_ref().map_or_else(String::new, |changes| changes.of(kind))
    });
    let shown = Text::from(heading(now)).then(table);
    if on_terminal { draw(shown) } else { out.print_while_read(shown.then("")) }
}

fn show_error(error: &CliError, on_terminal: bool, out: Output) -> Result<bool> {
    let text = format!("error: {}; trying again", escape(error.text()));
    if on_terminal {
        return draw(Text::from(heading(times::now())).then(text));
    }
    if out.json {
        print_json_note(&serde_json::json!({ "error": error.text(), "trying_again": true }));
    } else {
        print_note(&text);
    }
    Ok(true)
}

fn heading(now: Timestamp) -> String {
    let time = times::in_local_zone(now, "%Y-%m-%d %H:%M:%S %Z");
    time.unwrap_or_else(|| times::show_time(now))
}

/// Replaces what the terminal shows. Returns `false` if it is closed.
fn draw(text: Text) -> Result<bool> {
    // Without a size, as in some emulators, 24 × 80 fits everywhere.
    let (width, height) = terminal::size().unwrap_or((80, 24));
    let screen = screen(text, width.into(), height.into(), has_colors(true));
    let mut stdout = io::stdout().lock();
    match stdout.write_all(screen.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(CliError::io("write to", "stdout", &error)),
    }
}

/// The text with the commands that let it replace the one before it, without flickering: the cursor moves to
/// the top, and the rest of each line and of the screen is cleared. Lines that do not fit are left out.
fn screen(text: Text, width: usize, height: usize, colors: bool) -> String {
    let lines = text.truncated(width.max(1)).lines(colors);
    let room = height.saturating_sub(1).max(1);
    let fitting = if lines.len() > room { room - 1 } else { lines.len() };
    let mut screen = "\u{1b}[H".to_owned();
    let mut add = |line: &str| {
        screen += line;
        screen += "\u{1b}[K\r\n";
    };
    lines[..fitting].iter().for_each(|line| add(line));
    if fitting < lines.len() {
        let more = format!("… {}", count((lines.len() - fitting) as u64, "more line"));
        add(&truncate(&more, width.max(1)));
    }
    screen + "\u{1b}[J"
}

/// How the counts of each kind changed between two looks.
struct Changes {
    before: HashMap<Kind, Counts>,
    seconds: f64,
}

impl Changes {
    fn between(before: &Look, after: &Look) -> Self {
        let counts = before.kinds.iter().map(|kind| (kind.kind.clone(), kind.counts)).collect();
        let seconds = after.at.saturating_duration_since(before.at).as_secs_f64();
        Changes { before: counts, seconds }
    }

    /// The counts that changed, such as `pending -12, dead +0.5`. Ready and leased jobs are left out: the first
    /// are counted up to a limit, and both change with time alone.
    fn of(&self, kind: &KindView) -> String {
        let Some(before) = self.before.get(&kind.kind).filter(|_| self.seconds > 0.0) else {
            return String::new();
        };
        let after = kind.counts;
        let changes = [
            ("pending", before.pending, after.pending),
            ("dead", before.dead, after.dead),
            ("done", before.done, after.done),
        ];
        let changes = changes.into_iter().filter(|(_, before, after)| before != after);
        let changes = changes.map(|(name, before, after)| {
            let per_second = (after as f64 - before as f64) / self.seconds;
            let digits = usize::from(per_second.abs() < 10.0);
            format!("{name} {per_second:+.digits$}")
        });
        changes.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(name: &str, pending: u64, done: u64) -> KindView {
        let mut view = KindView::new(Kind::new(name).expect("a kind"));
        (view.counts.pending, view.counts.done) = (pending, done);
        view
    }

    #[test]
    fn only_counts_that_changed_have_a_change_per_second() {
        let start = Instant::now();
        let before = Look { kinds: vec![kind("mail", 100, 5)], at: start };
        let at = start + Duration::from_secs(2);
        let after = Look { kinds: vec![kind("mail", 40, 6), kind("new", 1, 0)], at };
        let changes = Changes::between(&before, &after);
        assert_eq!(changes.of(&after.kinds[0]), "pending -30, done +0.5");
        assert_eq!(changes.of(&after.kinds[1]), "", "a new kind has no change yet");
        assert_eq!(Changes::between(&before, &before).of(&before.kinds[0]), "");
    }

    #[test]
    fn a_screen_never_scrolls_nor_wraps() {
        let text = (0..50).map(|n| format!("{n} {}\n", "x".repeat(100))).collect::<String>();
        let shown = screen(text.trim_end().into(), 20, 10, true);
        let lines: Vec<&str> = shown.split("\r\n").collect();
        assert_eq!(lines.len(), 10, "{shown:?}");
        assert_eq!(lines[0], format!("\u{1b}[H0 {}…\u{1b}[K", "x".repeat(17)));
        assert_eq!((lines[8], lines[9]), ("… 42 more lines\u{1b}[K", "\u{1b}[J"));
        assert_eq!(screen("a".into(), 20, 10, true), "\u{1b}[Ha\u{1b}[K\r\n\u{1b}[J");
    }
}
