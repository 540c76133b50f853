//! Pieces that several pages have in common: numbers with a heading, badges, tabs, the forecast.

use super::chart::{self, Bar};
use super::format::{count, span, text};
use super::url;
use super::view::View;
use maud::{Markup, html};
use requeue_http::times::parse_duration;
use requeue_http::wire::{Forecast, Horizon, KindStats, StateJson, TroubleJson, Word};

/// Returns a number with its name.
pub(super) fn card(name: &str, value: &Markup, below: &Markup) -> Markup {
    html! { div .card { h3 { (name) } p .value { (value) } div .below { (below) } } }
}

/// Returns the word for a state, with its colour.
pub(super) fn state(state: StateJson) -> Markup {
    let name = state.name();
    html! { span .state.(name) { (name) } }
}

/// Returns what is special about a kind at present.
pub(super) fn flags(kind: &KindStats) -> Markup {
    html! {
        @if kind.paused { span .badge.paused { "paused" } }
        @if let Some(until) = &kind.throttled_until {
            span .badge.throttled title={ "The rate limit allows the next claim at " (super::format::exact(until)) } {
                "throttled"
            }
        }
        @if kind.push { span .badge { "webhook" } }
    }
}

/// Returns what is wrong with a kind or a worker, in words.
pub(super) fn trouble_badge(trouble: &TroubleJson) -> Markup {
    let name = match trouble.name.as_str() {
        "not_delivered" => "not delivered",
        "circuit_open" => "target not reachable",
        "leases_expire" => "leases expire",
        "late" => "late",
        other => other,
    };
    html! { span .badge.bad title=(super::format::escaped(&trouble.detail)) { (name) } }
}

/// Returns a link to the page of a kind.
pub(super) fn kind_link(kind: &str) -> Markup {
    html! { a href=(url::kind(kind)) { (text(kind)) } }
}

/// Returns a link to the page of a job.
pub(super) fn job_link(kind: &str, id: &str) -> Markup {
    html! { a .id href=(url::job(kind, id)) { bdi { (text(id)) } } }
}

/// A choice between views of one page: its name, its link, and whether it is shown.
pub(super) type Choice = (String, String, bool);

/// Returns links to other views of a page.
pub(super) fn choices(label: &str, choices: &[Choice]) -> Markup {
    html! {
        nav .choices aria-label=(label) {
            @for (name, link, is_shown) in choices {
                a href=(link) aria-current=[is_shown.then_some("true")] { (name) }
            }
        }
    }
}

/// Returns the histogram of what falls due next. `link` returns the link to another horizon.
pub(super) fn forecast(
    view: &View,
    forecast: &Forecast,
    shown: &str,
    link: impl Fn(&str) -> String,
) -> Markup {
    let horizons = forecast.horizons.iter();
    let tabs: Vec<Choice> =
        horizons.map(|one| (one.name.clone(), link(&one.name), one.name == shown)).collect();
    let Some(horizon) = forecast.horizons.iter().find(|one| one.name == shown) else {
        return html! {};
    };
    let total: u64 = horizon.counts.iter().sum();
    let rows = rows(horizon);
    let bars: Vec<Bar> = rows
        .iter()
        .map(|(when, number)| Bar {
            parts: vec![("due", *number)],
            label: chart::due_label(when, *number),
        })
        .collect();
    let label = format!("Jobs that become due in the next {shown}: {}", count(total));
    html! {
        div .head {
            h2 { "Due next" }
            (choices("Time ahead", &tabs))
        }
        (chart::bars(&bars, &label))
        div .axis aria-hidden="true" {
            @for tick in ticks(horizon) { span { (tick) } }
        }
        p .quiet {
            (count(total)) " in the next " (shown) ", "
            (count(forecast.ready)) " ready now, "
            (count(forecast.later)) " later than in a week. Counted "
            (super::format::time(view, &horizon.counted_at)) "."
        }
        (chart::table(&rows, "Due"))
    }
}

/// Returns when each span of a horizon is, and its number of jobs.
fn rows(horizon: &Horizon) -> Vec<(String, u64)> {
    let length = span_ms(horizon);
    let when = |n: u64| format!("in {} to {}", span(n * length), span((n + 1) * length));
    let counts = horizon.counts.iter().zip(0..);
    counts.map(|(number, n)| (when(n), *number)).collect()
}

fn span_ms(horizon: &Horizon) -> u64 {
    parse_duration(&horizon.span).map_or(1000, |span| span.as_millis() as u64)
}

/// Returns the labels below a chart, at equal distances.
fn ticks(horizon: &Horizon) -> [String; 5] {
    let whole = span_ms(horizon) * horizon.counts.len() as u64;
    [0, 1, 2, 3, 4].map(|n| match n {
        0 => "now".to_owned(),
        n => short(whole * n / 4),
    })
}

/// Returns a duration in its largest unit.
fn short(millis: u64) -> String {
    match millis / 1000 {
        seconds @ 0..120 => format!("{seconds}s"),
        seconds @ 120..7200 => format!("{}m", seconds / 60),
        seconds @ 7200..172_800 => format!("{}h", seconds / 3600),
        seconds => format!("{:.1}d", seconds as f64 / 86_400.0).replace(".0", ""),
    }
}

/// Returns the names of the horizons, and the one that is shown if none was chosen.
pub(super) const HORIZONS: [&str; 4] = ["minute", "hour", "day", "week"];

/// Returns the horizon that was chosen, or `hour`.
pub(super) fn horizon(chosen: Option<&str>) -> &'static str {
    HORIZONS.into_iter().find(|name| Some(*name) == chosen).unwrap_or("hour")
}

/// Returns fields of a form that a person does not see. Values are percent-encoded, because browsers
/// change line breaks in a form, and NUL; [`ActionForm`](super::view::ActionForm) decodes them.
pub(super) fn hidden(fields: &[(&str, &str)]) -> Markup {
    html! {
        @for (name, value) in fields { input type="hidden" name=(name) value=(url::encode(value)); }
    }
}

/// Returns a form with one button that does something to a job or kind.
pub(super) fn button(action: &str, fields: &[(&str, &str)], name: &str, class: &str) -> Markup {
    html! {
        form method="post" action=(action) {
            (hidden(fields))
            button class=(class) type="submit" { (name) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_horizon_is_labelled_with_times_from_now() {
        let horizon = |name: &str, span: &str, count| Horizon {
            name: name.to_owned(),
            span: span.into(),
            counts: vec![0; count],
            counted_at: Default::default(),
        };
        let day = horizon("day", "15m", 96);
        assert_eq!(ticks(&day), ["now", "6h", "12h", "18h", "24h"]);
        let week = horizon("week", "2h", 84);
        assert_eq!(ticks(&week), ["now", "42h", "3.5d", "5.2d", "7d"]);
        assert_eq!(rows(&day)[1].0, "in 15m to 30m");
    }
}
