//! The page of a kind: its numbers, what it did, what falls due next, and its jobs.

use super::chart::{self, Bar};
use super::format::{at, count, maybe_time, rate, text, time};
use super::jobs_table::{self, JobsFilter};
use super::overview::lateness;
use super::tables::{Choice, button, card, choices, flags, forecast, horizon, trouble_badge};
use super::view::{Page, PageQuery, PageRequest, View};
use super::{Dashboard, url};
use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use requeue_http::Problem;
use requeue_http::times::parse_duration;
use requeue_http::wire::{Forecast, KindStats, RateJson, SeriesJson, SeriesList};
use requeue_jobs::Rate;
use serde::Deserialize;

#[derive(Debug, Clone, Deserialize)]
pub(super) struct KindQuery {
    #[serde(flatten)]
    pub(super) filter: JobsFilter,
    due: Option<String>,
    last: Option<String>,
}

pub(super) async fn show(
    State(dashboard): State<Dashboard>,
    request: PageRequest,
    PageQuery(query): PageQuery<KindQuery>,
) -> Response {
    dashboard.respond(request, move |view| page(view, query.clone())).await
}

async fn page(view: View, query: KindQuery) -> Result<Page, Problem> {
    let name = query.filter.kind.as_str();
    let kind: KindStats = view.api.get(&url::kind_api(name, "")).await?;
    let last = if query.last.as_deref() == Some("1d") { "1d" } else { "1h" };
    let path = url::link("/v1/series", &[("last", last), ("kinds", name)]);
    let mut series: SeriesList = view.api.get(&path).await?;
    let activity = series.kinds.pop().unwrap_or_default();
    let due: Forecast = view.api.get(&url::link("/v1/upcoming", &[("kind", name)])).await?;
    let due = forecast(&view, &due, horizon(query.due.as_deref()), |due| query.link("due", due));
    let charts = html! {
        div .columns {
            div { (history(&series, &activity, last, &query)) }
            div { (due) }
        }
    };
    let page = Page::new("./", name)
        .live("head", head(&view, &kind))
        .live("numbers", numbers(&view, &kind, &activity))
        .live("charts", charts);
    jobs_table::add(page, &view, &kind, &query.filter).await
}

impl KindQuery {
    /// Returns the link to this page with another value of one of its choices.
    fn link(&self, name: &str, value: &str) -> String {
        let keep = |of: &str, now: &Option<String>| match of == name {
            true => value.to_owned(),
            false => now.clone().unwrap_or_default(),
        };
        let (due, last) = (keep("due", &self.due), keep("last", &self.last));
        let mut parameters = self.filter.parameters();
        parameters.extend([("due", due.as_str()), ("last", last.as_str())]);
        url::link("kind", &parameters)
    }
}

fn head(view: &View, kind: &KindStats) -> Markup {
    let name = kind.kind.as_str();
    let fields = [("kind", name)];
    html! {
        div .head {
            h1 { (text(name)) " " (flags(kind)) }
            @if view.may_change(name) {
                div .actions {
                    @if kind.paused {
                        (button("resume", &fields, "Resume", "primary"))
                    } @else {
                        (button("pause", &fields, "Pause", ""))
                    }
                    a .button href=(url::link("put", &fields)) { "Put a job" }
                    a .button href=(url::link("settings", &fields)) { "Settings" }
                }
            } @else {
                a .button href=(url::link("settings", &fields)) { "Settings" }
            }
        }
        @if let Some(trouble) = &kind.trouble {
            p .problem role="alert" {
                strong { (trouble_badge(trouble)) } " " (text(&trouble.detail))
                @if let Some(due) = &trouble.oldest_ready { " (oldest ready job due " (time(view, due)) ")" }
            }
        }
    }
}

fn numbers(view: &View, kind: &KindStats, activity: &SeriesJson) -> Markup {
    let recent = &activity.recent;
    let capped = if kind.ready_capped { "+" } else { "" };
    let number = |number: u64| html! { (count(number)) };
    let settings = kind.settings.as_ref();
    let concurrency = settings.and_then(|settings| settings.concurrency);
    html! {
        div .cards {
            (card("Waiting", &number(kind.pending.saturating_sub(kind.ready)), &html! {}))
            (card("Ready", &html! { (count(kind.ready)) (capped) }, &html! {
                @if kind.oldest_ready.is_some() {
                    span .quiet { "oldest due " (maybe_time(view, kind.oldest_ready.as_deref())) }
                }
            }))
            (card("Leased", &number(kind.leased), &html! {
                @if let Some(limit) = concurrency { span .quiet { "of at most " (count(limit.into())) } }
            }))
            (card("Dead", &html! {
                @if kind.dead > 0 { a .bad href=(url::link("dead", &[("kind", &kind.kind)])) { (count(kind.dead)) } } @else { "0" }
            }, &html! {}))
            @if kind.done > 0 || settings.is_some_and(|settings| settings.keep_done.is_some()) {
                (card("Done kept", &number(kind.done), &html! {}))
            }
            (card("Done", &html! { (rate(recent.acked, recent.seconds)) }, &html! {
                span .quiet { (rate(recent.failed, recent.seconds)) " failed" }
            }))
            (card("Lateness", &lateness(recent), &html! { span .quiet { "p50 / p99, last minute" } }))
            @if let Some(limit) = settings.and_then(|settings| settings.rate.as_ref()) {
                (rate_limit(kind, limit, recent.claimed, recent.seconds))
            }
        }
    }
}

/// Shows a rate limit, and how much of it was used in the last minute.
fn rate_limit(kind: &KindStats, limit: &RateJson, claimed: u64, seconds: u64) -> Markup {
    let per = parse_duration(&limit.per).map_or(1.0, |per| per.as_secs_f64());
    let allowed = f64::from(limit.jobs) / per * seconds as f64;
    let used = (claimed as f64 / allowed.max(f64::MIN_POSITIVE) * 100.0).clamp(0.0, 100.0).round();
    let value = html! {
        (used) " %"
        svg .meter viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true" {
            rect .track x="0" y="0" width="100" height="4" {}
            rect .used x="0" y="0" width=(used) height="4" {}
        }
    };
    card(
        "Rate limit used",
        &value,
        &html! {
            span .quiet {
                (count(limit.jobs.into())) " per " (limit.per) ", " (spacing(limit))
                @if let Some(until) = &kind.throttled_until { ", next at " (at(until)) }
            }
        },
    )
}

/// Says how many jobs a rate limit allows at the same time, also if that is the default.
fn spacing(limit: &RateJson) -> String {
    let per = parse_duration(&limit.per).unwrap_or_default();
    match (Rate { jobs: limit.jobs, per, burst: limit.burst }).bucket() {
        1 => "evenly spaced".to_owned(),
        burst => format!("in bursts of up to {}", count(burst.into())),
    }
}

/// Shows what was done in each step of the last hour or day.
fn history(series: &SeriesList, activity: &SeriesJson, last: &str, query: &KindQuery) -> Markup {
    let spans: [Choice; 2] = [("hour", "1h"), ("day", "1d")]
        .map(|(name, value)| (name.to_owned(), query.link("last", value), value == last));
    let steps = activity.acked.iter().zip(&activity.failed);
    let (step_name, ago) =
        if last == "1d" { ("15 minutes", "24h ago") } else { ("minute", "60m ago") };
    let bar = |(acked, failed): (&u64, &u64)| Bar {
        parts: vec![("acked", *acked), ("failed", *failed)],
        label: format!("{} done, {} failed per {step_name}", count(*acked), count(*failed)),
    };
    let bars: Vec<Bar> = match activity.acked.is_empty() {
        // The node has not counted anything of this kind.
        true => series.total.acked.iter().map(|_| bar((&0, &0))).collect(),
        false => steps.map(bar).collect(),
    };
    let sums = [&activity.acked, &activity.failed].map(|counts| counts.iter().sum::<u64>());
    let label = format!("{} done and {} failed attempts", count(sums[0]), count(sums[1]));
    html! {
        div .head {
            h2 { "Worked on" }
            (choices("Time back", &spans))
        }
        (chart::bars(&bars, &label))
        div .axis aria-hidden="true" { span { (ago) } span { "now" } }
        p .quiet .legend {
            span .key.acked {} (count(sums[0])) " done "
            span .key.failed {} (count(sums[1])) " failed attempts, by this node."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_burst_of_a_rate_is_shown_also_if_it_is_the_default() {
        let spacing = |jobs, burst| spacing(&RateJson { jobs, per: "1s".into(), burst });
        assert_eq!(spacing(10, None), "evenly spaced");
        assert_eq!(spacing(100_000, None), "in bursts of up to 10,000");
        assert_eq!(spacing(10, Some(50)), "in bursts of up to 50");
    }
}
