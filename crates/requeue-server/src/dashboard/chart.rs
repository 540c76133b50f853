//! Charts as SVG, drawn by the server. Each has a text that says what it shows.

use super::format::{count, jobs};
use maud::{Markup, html};

/// The height of a chart in units of its view box. Its width is stretched.
const HEIGHT: u64 = 100;

/// The width of a bar, and of a bar with the gap after it.
const BAR: usize = 8;
const BAR_AND_GAP: usize = 10;

/// Returns a line that shows how a number changed. `None` is a gap.
pub(super) fn sparkline(values: &[Option<u64>], label: &str) -> Markup {
    let max = values.iter().flatten().copied().max().unwrap_or(0).max(1);
    let last = values.len().saturating_sub(1);
    let y = |value: u64| HEIGHT - scaled(value, max, HEIGHT - 4) - 2;
    let (mut line, mut area) = (String::new(), String::new());
    for part in known_parts(values) {
        let points: Vec<String> =
            part.iter().map(|(x, value)| format!("{x} {}", y(*value))).collect();
        let points = points.join("L");
        let [(first, _), .., (last, _)] = part[..] else { continue };
        line += &format!("M{points}");
        area += &format!("M{first} {HEIGHT}L{points}L{last} {HEIGHT}Z");
    }
    html! {
        svg .spark viewBox={ "0 0 " (last.max(1)) " " (HEIGHT) } preserveAspectRatio="none" role="img" {
            title { (label) }
            @if !line.is_empty() {
                path .area d=(area) {}
                path .line d=(line) vector-effect="non-scaling-stroke" {}
            }
        }
    }
}

/// Returns the runs of at least two consecutive values that are known, with their positions.
fn known_parts(values: &[Option<u64>]) -> Vec<Vec<(usize, u64)>> {
    let points: Vec<Option<(usize, u64)>> =
        values.iter().enumerate().map(|(x, value)| value.map(|value| (x, value))).collect();
    let parts = points.split(Option::is_none).filter(|part| part.len() > 1);
    parts.map(|part| part.iter().flatten().copied().collect()).collect()
}

/// Returns a line for numbers that are always known.
pub(super) fn counts_line(values: &[u64], label: &str) -> Markup {
    let values: Vec<Option<u64>> = values.iter().copied().map(Some).collect();
    sparkline(&values, label)
}

/// A bar of a chart: its parts from the bottom up, and what it stands for.
pub(super) struct Bar {
    pub(super) parts: Vec<(&'static str, u64)>,
    pub(super) label: String,
}

/// Returns a bar chart. The parts of a bar have the class that is given with them.
pub(super) fn bars(bars: &[Bar], label: &str) -> Markup {
    let sum = |bar: &Bar| bar.parts.iter().map(|(_, value)| value).sum::<u64>();
    let max = bars.iter().map(sum).max().unwrap_or(0);
    html! {
        div .chart {
            span .max aria-hidden="true" { (count(max)) }
            svg .bars viewBox={ "0 0 " (bars.len() * BAR_AND_GAP) " " (HEIGHT) } preserveAspectRatio="none"
                role="img" aria-label=(label) {
                @for (n, bar) in bars.iter().enumerate() {
                    @let x = n * BAR_AND_GAP;
                    g {
                        title { (bar.label) }
                        // So that the title is shown also above a low bar.
                        rect .hit x=(x) y="0" width=(BAR_AND_GAP) height=(HEIGHT) {}
                        @for (class, y, height) in stacked(&bar.parts, max) {
                            rect class=(class) x=(x + 1) y=(y) width=(BAR) height=(height) {}
                        }
                    }
                }
            }
        }
    }
}

/// Returns the class, the top and the height of each part of a bar.
fn stacked(parts: &[(&'static str, u64)], max: u64) -> Vec<(&'static str, u64, u64)> {
    let mut top = HEIGHT;
    let mut rects = Vec::new();
    for (class, value) in parts.iter().filter(|(_, value)| *value > 0) {
        // What exists can be seen.
        let height = scaled(*value, max.max(1), HEIGHT).max(2).min(top);
        top -= height;
        rects.push((*class, top, height));
    }
    rects
}

/// Returns the part of `height` that `value` is of `max`.
fn scaled(value: u64, max: u64, height: u64) -> u64 {
    (u128::from(value) * u128::from(height) / u128::from(max)) as u64
}

/// Returns the numbers behind a chart as a table, closed at first. Bars without jobs are left out.
pub(super) fn table(rows: &[(String, u64)], heading: &str) -> Markup {
    let rows: Vec<_> = rows.iter().filter(|(_, value)| *value > 0).collect();
    html! {
        details .behind {
            summary { "Show as a table" }
            @if rows.is_empty() { p .quiet { "No jobs." } } @else {
                table .plain {
                    thead { tr { th scope="col" { (heading) } th .number scope="col" { "Jobs" } } }
                    tbody {
                        @for (label, value) in rows {
                            tr { td { (label) } td .number { (count(*value)) } }
                        }
                    }
                }
            }
        }
    }
}

/// Returns what a bar of a histogram of due jobs says.
pub(super) fn due_label(when: &str, number: u64) -> String {
    format!("{when}: {}", jobs(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_fit_into_the_chart_and_small_values_can_be_seen() {
        let rects = stacked(&[("a", 1), ("b", 0), ("c", 1_000_000)], 1_000_001);
        assert_eq!(rects, [("a", 98, 2), ("c", 0, 98)]);
        assert!(stacked(&[("a", 0)], 0).is_empty());
        assert_eq!(stacked(&[("a", u64::MAX)], u64::MAX), [("a", 0, 100)]);
    }

    #[test]
    fn a_sparkline_has_gaps_where_nothing_is_known() {
        let svg = sparkline(&[Some(0), None, Some(4), Some(2)], "x").into_string();
        assert!(svg.contains(r#"d="M2 2L3 50""#), "{svg}");
        assert!(svg.contains(r#"d="M2 100L2 2L3 50L3 100Z""#), "{svg}");
        assert!(!sparkline(&[None, None], "x").into_string().contains("<path"));
    }
}
