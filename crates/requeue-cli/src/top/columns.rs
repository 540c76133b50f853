//! The columns of the table of kinds: their text, their order when sorted, and which of them fit.

use super::data::{KindRow, Trouble};
use crate::times;
use requeue_http::wire::RecentJson;
use requeue_jobs::Timestamp;
use requeue_jobs::limits::READY_COUNT_CAP;
use std::cmp::Ordering;
use std::time::Duration;

/// Shown where a value is unknown.
pub(crate) const UNKNOWN: &str = "–";

/// Characters of the sparkline.
const HOUR_WIDTH: usize = 20;

/// The widest name of a kind that is shown in full, and the narrowest column that is still useful.
const KIND_WIDTH: std::ops::RangeInclusive<usize> = 10..=40;

/// The bars of histograms and sparklines, in eighths of a row.
pub(crate) const BARS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];

/// A column, in the order in which they are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Column {
    Kind,
    Pending,
    Ready,
    Leased,
    Dead,
    Done,
    PutRate,
    DoneRate,
    FailedRate,
    LateP50,
    LateP99,
    Oldest,
    LastHour,
    Flags,
}

use Column::*;

impl Column {
    pub(crate) const ALL: [Column; 14] = [
        Kind, Pending, Ready, Leased, Dead, Done, PutRate, DoneRate, FailedRate, LateP50, LateP99,
        Oldest, LastHour, Flags,
    ];

    /// The columns in the order in which they are left out of a narrow terminal, last first.
    const BY_IMPORTANCE: [Column; 14] = [
        Kind, Pending, Ready, Leased, Dead, Flags, DoneRate, FailedRate, Oldest, PutRate, LateP99,
        LastHour, LateP50, Done,
    ];

    pub(crate) fn heading(self) -> &'static str {
        match self {
            Kind => "KIND",
            Pending => "PENDING",
            Ready => "READY",
            Leased => "LEASED",
            Dead => "DEAD",
            Done => "DONE",
            PutRate => "PUT/S",
            DoneRate => "DONE/S",
            FailedRate => "FAILED/S",
            LateP50 => "LATE P50",
            LateP99 => "LATE P99",
            Oldest => "OLDEST",
            LastHour => "DONE, LAST HOUR",
            Flags => "FLAGS",
        }
    }

    /// The width. That of the name of a kind depends on what is left.
    fn width(self) -> usize {
        match self {
            Kind => *KIND_WIDTH.start(),
            LastHour => HOUR_WIDTH,
            Flags => "throttled".len(),
            // With room for the arrow of the sort order.
            other => other.heading().len() + 1,
        }
    }

    pub(crate) fn is_number(self) -> bool {
        !matches!(self, Kind | LastHour | Flags)
    }

    /// The text of a cell.
    pub(crate) fn cell(self, row: &KindRow, now: Timestamp) -> String {
        let (view, counts) = (&row.view, row.view.counts);
        let recent = row.series.as_ref().map(|series| &series.recent);
        let unknown = || UNKNOWN.to_owned();
        let per_second = |count: fn(&RecentJson) -> u64| {
            let rate = recent.and_then(|recent| per_second(recent, count(recent)));
            rate.map_or_else(unknown, show_rate)
        };
        let late = |millis: Option<u64>| millis.map_or_else(unknown, show_lateness);
        match self {
            Kind => view.kind.to_string(),
            Pending => show_count(counts.pending),
            Ready if counts.ready >= READY_COUNT_CAP => format!("{}+", counts.ready),
            Ready => show_count(counts.ready),
            Leased => show_count(counts.leased),
            Dead => show_count(counts.dead),
            Done => show_count(counts.done),
            PutRate => per_second(|recent| recent.put),
            DoneRate => per_second(|recent| recent.acked),
            FailedRate => per_second(|recent| recent.failed),
            LateP50 => late(recent.and_then(|recent| recent.lateness_p50_ms)),
            LateP99 => late(recent.and_then(|recent| recent.lateness_p99_ms)),
            Oldest => {
                view.oldest_ready.map_or_else(String::new, |at| age(now.saturating_since(at)))
            }
            LastHour => row
                .series
                .as_ref()
                .map_or_else(unknown, |series| sparkline(&series.acked, HOUR_WIDTH)),
            Flags => flags(row).join(","),
        }
    }

    /// Compares two rows. Unknown values are last, whatever the direction.
    pub(crate) fn compare(self, a: &KindRow, b: &KindRow, descending: bool) -> Ordering {
        let directed = |order: Ordering| if descending { order.reverse() } else { order };
        let order = match self {
            Kind => directed(a.view.kind.cmp(&b.view.kind)),
            // Trouble is above everything else.
            Flags => directed(a.trouble.cmp(&b.trouble).then_with(|| flags(a).cmp(&flags(b)))),
            _ => match (self.value(a), self.value(b)) {
                (Some(a), Some(b)) => directed(a.total_cmp(&b)),
                (a, b) => b.is_some().cmp(&a.is_some()),
            },
        };
        order.then_with(|| a.view.kind.cmp(&b.view.kind))
    }

    /// The value that a column is sorted by, or `None` if it is unknown.
    fn value(self, row: &KindRow) -> Option<f64> {
        let counts = row.view.counts;
        let recent = row.series.as_ref().map(|series| &series.recent);
        let per_second = |count: fn(&RecentJson) -> u64| {
            recent.and_then(|recent| per_second(recent, count(recent)))
        };
        match self {
            Kind | Flags => None,
            Pending => Some(counts.pending as f64),
            Ready => Some(counts.ready as f64),
            Leased => Some(counts.leased as f64),
            Dead => Some(counts.dead as f64),
            Done => Some(counts.done as f64),
            PutRate => per_second(|recent| recent.put),
            DoneRate => per_second(|recent| recent.acked),
            FailedRate => per_second(|recent| recent.failed),
            LateP50 => recent?.lateness_p50_ms.map(|millis| millis as f64),
            LateP99 => recent?.lateness_p99_ms.map(|millis| millis as f64),
            // The oldest has the highest age, and the lowest time.
            Oldest => row.view.oldest_ready.map(|at| -(at.as_millis() as f64)),
            LastHour => Some(row.series.as_ref()?.acked.iter().sum::<u64>() as f64),
        }
    }
}

/// What is special about a kind.
pub(crate) fn flags(row: &KindRow) -> Vec<&'static str> {
    let view = &row.view;
    let trouble = row.trouble.map_or("", Trouble::flag);
    let flags = [
        (row.trouble.is_some(), trouble),
        (view.paused, "paused"),
        (view.throttled_until.is_some(), "throttled"),
        (view.push, "push"),
    ];
    flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, name)| name).collect()
}

/// The columns that fit into `width`, with their widths. One column separates them.
pub(crate) fn layout(rows: &[&KindRow], width: usize) -> Vec<(Column, usize)> {
    let widest = |column: Column, text: &dyn Fn(&KindRow) -> usize| {
        rows.iter().map(|row| text(row)).max().unwrap_or(0).max(column.heading().len() + 1)
    };
    let flags_width = widest(Flags, &|row| flags(row).join(",").len());
    let kind_width = widest(Kind, &|row| row.view.kind.as_str().len());
    let needed = |column: Column| if column == Flags { flags_width } else { column.width() };
    let (mut columns, mut left) = (Vec::new(), width + 1);
    for column in Column::BY_IMPORTANCE {
        let Some(rest) = left.checked_sub(needed(column) + 1) else { break };
        columns.push((column, needed(column)));
        left = rest;
    }
    // Names get what is left.
    if let Some((_, width)) = columns.first_mut() {
        *width += left.min(kind_width.min(*KIND_WIDTH.end()).saturating_sub(*width));
    }
    columns.sort_by_key(|(column, _)| Column::ALL.iter().position(|of_all| of_all == column));
    columns
}

fn per_second(recent: &RecentJson, count: u64) -> Option<f64> {
    (recent.seconds > 0).then(|| count as f64 / recent.seconds as f64)
}

/// A count with at most seven characters.
pub(crate) fn show_count(count: u64) -> String {
    let units = [(1_000_000_000_000, "T"), (1_000_000_000, "G"), (1_000_000, "M")];
    // Up to ten million, exactly.
    match units.into_iter().find(|(unit, _)| count >= 10_000_000 && count >= *unit) {
        None => count.to_string(),
        Some((unit, name)) => format!("{:.1}{name}", count as f64 / unit as f64),
    }
}

fn show_rate(rate: f64) -> String {
    match rate {
        0.0 => "0".to_owned(),
        ..0.1 => "<0.1".to_owned(),
        ..10.0 => format!("{rate:.1}"),
        _ => show_count(rate.round() as u64),
    }
}

fn show_lateness(millis: u64) -> String {
    age(Duration::from_millis(millis))
}

/// A duration in its largest unit, with at most six characters.
pub(crate) fn age(duration: Duration) -> String {
    let text = times::rough(duration);
    text.split(' ').next().unwrap_or_default().to_owned()
}

/// The counts as bars, summed up so that they fit.
fn sparkline(counts: &[u64], width: usize) -> String {
    let groups = grouped(counts, width);
    let max = groups.iter().copied().max().unwrap_or(0);
    groups.iter().map(|count| BARS[eighths(*count, max, 1)]).collect()
}

/// Sums of neighbours, at most `width` of them.
pub(crate) fn grouped(counts: &[u64], width: usize) -> Vec<u64> {
    let size = counts.len().div_ceil(width.max(1)).max(1);
    counts.chunks(size).map(|group| group.iter().sum()).collect()
}

/// The height of a bar in eighths of a row. A count that is not 0 is visible.
pub(crate) fn eighths(count: u64, max: u64, rows: usize) -> usize {
    if count == 0 || max == 0 {
        return 0;
    }
    let full = 8 * rows;
    ((count as f64 / max as f64 * full as f64).round() as usize).clamp(1, full)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use requeue_http::wire::SeriesJson;
    use requeue_jobs::KindView;

    /// A kind with a series, if `acked` is given.
    pub(crate) fn row(name: &str, ready: u64, acked: Option<u64>) -> KindRow {
        let mut view = KindView::new(requeue_jobs::Kind::new(name).expect("a kind"));
        view.counts.ready = ready;
        view.counts.pending = ready + 1;
        let recent = |acked| RecentJson { seconds: 60, acked, ..RecentJson::default() };
        let series =
            acked.map(|acked| SeriesJson { recent: recent(acked), ..SeriesJson::default() });
        KindRow { view, series, trouble: None }
    }

    #[test]
    fn unknown_values_are_sorted_last_in_both_directions() {
        let rows = [row("a", 1, None), row("b", 1, Some(60)), row("c", 1, Some(6))];
        let sorted = |descending| {
            let mut rows: Vec<&KindRow> = rows.iter().collect();
            rows.sort_by(|a, b| DoneRate.compare(a, b, descending));
            rows.iter().map(|row| row.view.kind.to_string()).collect::<String>()
        };
        assert_eq!((sorted(true).as_str(), sorted(false).as_str()), ("bca", "cba"));
    }

    #[test]
    fn trouble_is_first_when_sorted_by_flags() {
        let mut rows = ["a", "b", "c", "d"].map(|name| row(name, 1, None));
        rows[0].view.paused = true;
        rows[2].trouble = Some(Trouble::Late);
        rows[3].trouble = Some(Trouble::CircuitOpen);
        rows.sort_by(|a, b| Flags.compare(a, b, true));
        let names: String = rows.iter().map(|row| row.view.kind.to_string()).collect();
        assert_eq!(names, "dcab");
        assert_eq!(flags(&rows[0]), ["unreachable"]);
    }

    #[test]
    fn the_less_important_columns_are_left_out_of_a_narrow_terminal() {
        let row = row("mail", 1, None);
        let names = |width| {
            let columns = layout(&[&row], width);
            let used: usize = columns.iter().map(|(_, width)| width + 1).sum();
            assert!(used <= width + 1, "{columns:?}");
            columns.iter().map(|(column, _)| column.heading()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(58), "KIND PENDING READY LEASED DEAD DONE/S FLAGS");
        assert_eq!(names(20), "KIND PENDING");
        assert_eq!(names(200).split(' ').count(), 18);
        assert_eq!(layout(&[&row], 3), []);
    }

    #[test]
    fn a_long_name_gets_the_room_that_is_left() {
        let row = row(&"k".repeat(60), 1, None);
        let (column, width) = layout(&[&row], 200)[0];
        assert_eq!((column, width), (Kind, 40));
        assert_eq!(layout(&[&row], 40)[0], (Kind, 10));
    }

    #[test]
    fn numbers_are_short() {
        let counts = [0, 9_999_999, 12_345_678, u64::MAX];
        let shown = counts.map(show_count);
        assert_eq!(shown, ["0", "9999999", "12.3M", "18446744.1T"]);
        assert_eq!([0.0, 0.01, 2.345, 123.4].map(show_rate), ["0", "<0.1", "2.3", "123"]);
        assert_eq!(age(Duration::from_secs(3700)), "1h");
    }

    #[test]
    fn a_sparkline_is_as_wide_as_it_may_be_and_shows_small_values() {
        assert_eq!(sparkline(&[0, 1, 100], 3), " ▁█");
        let hour: Vec<u64> = (0..60).collect();
        assert_eq!(sparkline(&hour, 20).chars().count(), 20);
        assert_eq!(sparkline(&[], 20), "");
    }
}
