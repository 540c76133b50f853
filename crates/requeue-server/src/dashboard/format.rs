//! How numbers, times and texts look.

use super::view::View;
use maud::{Markup, PreEscaped, Render, html};
use requeue_http::times::parse_time;
use requeue_jobs::Timestamp;
use std::fmt::Write;

/// Returns a number with separators: `12,345`.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns `1 job`, `2 jobs`.
pub(super) fn jobs(number: u64) -> String {
    let noun = if number == 1 { "job" } else { "jobs" };
    format!("{} {noun}", count(number))
}

/// Returns how often something happened per second, or per minute if that is rare.
pub(super) fn rate(number: u64, seconds: u64) -> String {
    let per_second = number as f64 / seconds.max(1) as f64;
    match per_second {
        0.0 => "0/s".to_owned(),
        rate if rate < 0.1 => format!("{:.0}/min", rate * 60.0),
        rate if rate < 10.0 => format!("{rate:.1}/s"),
        rate => format!("{}/s", count(rate.round() as u64)),
    }
}

/// Returns a short duration: `85 ms`, `1.2 s`, `5m 12s`.
pub(super) fn millis(millis: u64) -> String {
    match millis {
        0..1_000 => format!("{millis} ms"),
        1_000..10_000 => format!("{:.1} s", millis as f64 / 1000.0),
        _ => span(millis),
    }
}

/// Returns a number of bytes: `512 B`, `1.5 KiB`.
pub(super) fn bytes(number: usize) -> String {
    match number {
        0..1024 => format!("{number} B"),
        1024..1_048_576 => format!("{:.1} KiB", number as f64 / 1024.0),
        _ => format!("{:.1} MiB", number as f64 / 1_048_576.0),
    }
}

/// Returns a duration with its two largest units: `12s`, `5m 12s`, `3h 5m`, `2d 3h`. The script does the
/// same.
pub(super) fn span(millis: u64) -> String {
    let seconds = millis / 1000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..600 => format!("{minutes}m {}s", seconds % 60),
        600..3600 => format!("{minutes}m"),
        3600..86_400 => format!("{hours}h {}m", minutes % 60),
        86_400..1_209_600 => format!("{days}d {}h", hours % 24),
        _ => format!("{days}d"),
    }
}

/// Returns a time relative to now: `in 5m 12s`, `3h 5m ago`.
fn relative(time: Timestamp, now: Timestamp) -> String {
    let (time, now) = (time.as_millis(), now.as_millis());
    match time.abs_diff(now) {
        0..1000 => "now".to_owned(),
        apart if time > now => format!("in {}", span(apart)),
        apart => format!("{} ago", span(apart)),
    }
}

/// Reads a time of the API.
pub(super) fn parse(time: &str) -> Option<Timestamp> {
    parse_time(time, Timestamp::default(), None).ok()
}

/// Returns a time of the API relative to now, with the exact time as its title.
///
/// In the live stream the text is the exact time, so that it does not change by itself. The script makes
/// it relative, and keeps it so.
pub(super) fn time(view: &View, time: &str) -> Markup {
    let exact = exact(time);
    let shown = match parse(time) {
        Some(at) if !view.live => relative(at, view.now),
        _ => exact.clone(),
    };
    html! { time datetime=(time) title=(exact) { (shown) } }
}

/// Does the same, if there is a time.
pub(super) fn maybe_time(view: &View, at: Option<&str>) -> Markup {
    match at {
        Some(at) => time(view, at),
        None => none(),
    }
}

/// Returns a time that is shown as a point in time. The script shows it in the zone of the browser.
pub(super) fn at(time: &str) -> Markup {
    let exact = exact(time);
    html! { time datetime=(time) title=(exact) data-exact { (exact) } }
}

/// Returns a point in time without its seconds, if they are 0.
pub(super) fn to_the_minute(time: &str) -> Markup {
    if time.get(16..19) != Some(":00") {
        return at(time);
    }
    let (exact, minute) = (exact(time), time.get(..16).unwrap_or(time).replace('T', " "));
    html! { time datetime=(time) title=(exact) data-exact="minute" { (minute) " UTC" } }
}

/// Returns the time of day. The script shows it in the zone of the browser.
pub(super) fn clock(time: &str) -> Markup {
    let exact = exact(time);
    html! { time datetime=(time) title=(exact) data-exact="clock" { (exact.get(11..19).unwrap_or_default()) } }
}

/// Returns a time as `2026-12-01 08:00:00 UTC`.
pub(super) fn exact(time: &str) -> String {
    let seconds = time.get(..19).unwrap_or(time).replace('T', " ");
    format!("{seconds} UTC")
}

/// Returns how long it was between two times of the API.
pub(super) fn between(from: &str, to: &str) -> String {
    match (parse(from), parse(to)) {
        (Some(from), Some(to)) => millis(to.saturating_since(from).as_millis() as u64),
        _ => String::new(),
    }
}

/// Stands for a value that does not exist.
pub(super) fn none() -> Markup {
    html! { span .none { "–" } }
}

/// Returns a text in which control characters, and characters that are invisible or change the direction
/// of text, are shown as escapes. So a text looks like no other, and cannot reorder what is around it.
pub(super) fn text(text: &str) -> Markup {
    let mut html = String::with_capacity(text.len() + text.len() / 8);
    let mut plain = 0;
    for (at, c) in text.char_indices() {
        if is_hidden(c) {
            text[plain..at].render_to(&mut html);
            write!(html, "<span class=\"esc\">\\u{{{:x}}}</span>", u32::from(c))
                .expect("a text can be written to");
            plain = at + c.len_utf8();
        }
    }
    text[plain..].render_to(&mut html);
    PreEscaped(html)
}

/// Returns the first bytes of a text, at most `limit`, that are whole characters.
pub(super) fn start(text: &str, limit: usize) -> &str {
    let mut end = limit.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Returns the beginning of a text on one line, and all of it as the title.
pub(super) fn excerpt(whole: &str, limit: usize) -> Markup {
    let line = whole.lines().next().unwrap_or_default();
    let line_start = start(line, limit);
    let is_cut = line_start.len() < whole.len();
    let title = start(whole, 600);
    html! {
        span title=[is_cut.then(|| escaped(title))] { (text(line_start)) @if is_cut { "…" } }
    }
}

/// Returns a text for an attribute, where escapes cannot be marked up.
pub(super) fn escaped(text: &str) -> String {
    let escape = |c: char| match c {
        c if is_hidden(c) && c != '\n' => format!("\\u{{{:x}}}", u32::from(c)),
        c => c.to_string(),
    };
    text.chars().map(escape).collect()
}

fn is_hidden(c: char) -> bool {
    let is_control = c.is_control() && !matches!(c, '\n' | '\t');
    is_control
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_readable() {
        let counts = [0, 999, 1000, 1_234_567].map(count);
        assert_eq!(counts, ["0", "999", "1,000", "1,234,567"]);
        let rates = [(0, 60), (3, 60), (30, 60), (6000, 60), (600_000, 60)];
        let rates = rates.map(|(number, seconds)| rate(number, seconds));
        assert_eq!(rates, ["0/s", "3/min", "0.5/s", "100/s", "10,000/s"]);
        let spans = [500, 59_000, 61_000, 700_000, 3_700_000, 90_000_000, 1_300_000_000].map(span);
        assert_eq!(spans, ["0s", "59s", "1m 1s", "11m", "1h 1m", "1d 1h", "15d"]);
        assert_eq!([12, 1200, 65_000].map(millis), ["12 ms", "1.2 s", "1m 5s"]);
        assert_eq!([12, 1536, 1 << 20].map(bytes), ["12 B", "1.5 KiB", "1.0 MiB"]);
    }

    #[test]
    fn texts_are_never_markup_and_hide_nothing() {
        let shown = text("<script>alert(1)</script>&\u{202e}x\0\u{200b}").into_string();
        assert!(shown.starts_with("&lt;script&gt;alert(1)&lt;/script&gt;&amp;"), "{shown}");
        for hidden in ["\\u{202e}", "\\u{0}", "\\u{200b}"] {
            assert!(shown.contains(hidden), "{hidden} in {shown}");
        }
        assert!(!shown.contains('\u{202e}'));
        let cut = excerpt("äöü\nsecond line", 3).into_string();
        assert!(cut.contains(">ä…<"), "{cut}");
        assert!(!excerpt("\u{202e}\"><b>", 100).into_string().contains("<b>"));
    }
}
