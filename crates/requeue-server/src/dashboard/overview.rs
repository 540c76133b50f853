//! The overview: totals, what falls due next, and all kinds.

use super::chart::{counts_line, sparkline};
use super::format::{count, excerpt, maybe_time, millis, none, rate, span, text, time};
use super::tables::{card, flags, forecast, horizon, kind_link, trouble_badge};
use super::view::{Page, PageQuery, PageRequest, View};
use super::{Dashboard, url};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use requeue_http::Problem;
use requeue_http::wire::{
    Forecast, KindList, KindStats, RecentJson, SeriesJson, SeriesList, StatsJson, TimeText,
    TroubleJson,
};
use requeue_jobs::SCHEDULE_TIMERS;
use serde::Deserialize;
use std::cmp::Reverse;
use std::collections::HashMap;

/// How many kinds the table shows. The search field finds the others.
const MAX_KINDS: usize = 100;

#[derive(Debug, Clone, Deserialize)]
pub(super) struct OverviewQuery {
    due: Option<String>,
    sort: Option<String>,
    /// Shows only kinds whose name contains this text.
    q: Option<String>,
}

pub(super) async fn show(
    State(dashboard): State<Dashboard>,
    request: PageRequest,
    PageQuery(query): PageQuery<OverviewQuery>,
) -> Response {
    // Programs that ask for the root get a text, people get the page.
    if request.header("accept").is_none_or(|accept| !accept.contains("text/")) {
        let version = env!("CARGO_PKG_VERSION");
        let text = format!(
            "requeue {version}\n\nOpen this address in a browser for the dashboard. The API is described at \
             /v1/openapi.json.\n"
        );
        return text.into_response();
    }
    dashboard.respond(request, move |view| page(view, query.clone())).await
}

async fn page(view: View, query: OverviewQuery) -> Result<Page, Problem> {
    let stats: StatsJson = view.api.get("/v1/stats").await?;
    let mut kinds: KindList = view.api.get("/v1/kinds").await?;
    // The timers of schedules are on the page of schedules.
    kinds.kinds.retain(|kind| kind.kind != SCHEDULE_TIMERS);
    let due: Forecast = view.api.get("/v1/upcoming").await?;
    let sums = Sums::of(&kinds.kinds);
    let rows = Rows::new(kinds.kinds, &query, &stats.trouble);
    let names: Vec<&str> = rows.shown.iter().map(|kind| kind.kind.as_str()).collect();
    let path = url::link("/v1/series", &[("kinds", &names.join(","))]);
    let series: SeriesList = view.api.get(&path).await?;
    let horizon = horizon(query.due.as_deref());
    let link = |due: &str| query.link(due, query.sort.as_deref().unwrap_or_default());
    let due = forecast(&view, &due, horizon, link);
    let page = Page::new("./", "Overview")
        .live("problems", problems(&view, &stats))
        .live("trouble", trouble(&view, &stats.trouble))
        .live("totals", totals(&view, &sums, stats.waiting_claims as u64, &series))
        .live("due", due);
    let page = if view.live { page } else { page.fixed("filter", filter(&query)) };
    Ok(page.live("kinds", table(&view, &rows, series.kinds, &query, &stats.trouble)))
}

impl OverviewQuery {
    fn link(&self, due: &str, sort: &str) -> String {
        let link = url::link(
            "",
            &[("due", due), ("sort", sort), ("q", self.q.as_deref().unwrap_or_default())],
        );
        format!("./{link}")
    }
}

/// The sums over all kinds.
struct Sums {
    waiting: u64,
    ready: u64,
    leased: u64,
    dead: u64,
    oldest_ready: Option<TimeText>,
}

impl Sums {
    fn of(kinds: &[KindStats]) -> Self {
        let sum = |count: fn(&KindStats) -> u64| kinds.iter().map(count).sum();
        Sums {
            waiting: sum(|kind| kind.pending.saturating_sub(kind.ready)),
            ready: sum(|kind| kind.ready),
            leased: sum(|kind| kind.leased),
            dead: sum(|kind| kind.dead),
            oldest_ready: kinds.iter().filter_map(|kind| kind.oldest_ready.clone()).min(),
        }
    }
}

/// The kinds of the table.
struct Rows {
    shown: Vec<KindStats>,
    /// How many match the filter.
    matching: usize,
    all: usize,
}

impl Rows {
    fn new(kinds: Vec<KindStats>, query: &OverviewQuery, trouble: &[TroubleJson]) -> Self {
        let all = kinds.len();
        let wanted = query.q.as_deref().unwrap_or_default().to_lowercase();
        let matches = |kind: &KindStats| kind.kind.to_lowercase().contains(&wanted);
        let mut shown: Vec<KindStats> = kinds.into_iter().filter(matches).collect();
        let by = |key: fn(&KindStats) -> u64| {
            move |kind: &KindStats| (Reverse(key(kind)), kind.kind.clone())
        };
        match query.sort.as_deref() {
            Some("trouble") => {
                let place = |kind: &KindStats| {
                    let found =
                        trouble.iter().position(|one| one.kind.as_ref() == Some(&kind.kind));
                    (found.unwrap_or(usize::MAX), kind.kind.clone())
                };
                shown.sort_by_cached_key(place);
            }
            Some("pending") => shown.sort_by_cached_key(by(|kind| kind.pending)),
            Some("ready") => shown.sort_by_cached_key(by(|kind| kind.ready)),
            Some("leased") => shown.sort_by_cached_key(by(|kind| kind.leased)),
            Some("dead") => shown.sort_by_cached_key(by(|kind| kind.dead)),
            Some("done") => shown.sort_by_cached_key(by(|kind| kind.done)),
            Some("oldest") => {
                let key =
                    |kind: &KindStats| (kind.oldest_ready.is_none(), kind.oldest_ready.clone());
                shown.sort_by_cached_key(key);
            }
            // The API sorts by name.
            _ => {}
        }
        let matching = shown.len();
        shown.truncate(MAX_KINDS);
        Rows { shown, matching, all }
    }
}

fn problems(view: &View, stats: &StatsJson) -> Markup {
    html! {
        @for problem in &stats.problems {
            p .problem role="alert" {
                strong { (problem.name) } " since " (time(view, &problem.since)) ": "
                (text(problem.detail.as_deref().unwrap_or_default()))
            }
        }
    }
}

/// How much trouble is listed. The table of kinds, sorted by trouble, shows more.
const MAX_TROUBLE: usize = 10;

fn trouble(view: &View, trouble: &[TroubleJson]) -> Markup {
    if trouble.is_empty() {
        return html! {};
    }
    html! {
        div .trouble role="region" aria-labelledby="trouble-heading" {
            div .head {
                h2 #trouble-heading { "Needs attention" }
                @if trouble.iter().filter(|one| one.kind.is_some()).count() > 1 {
                    a href="./?sort=trouble" { "Sort these kinds first" }
                }
            }
            ul {
                @for one in trouble.iter().take(MAX_TROUBLE) {
                    li {
                        @if let Some(kind) = &one.kind { (kind_link(kind)) " " }
                        @if let Some(worker) = &one.worker { a href="workers" { "worker " (excerpt(worker, 60)) } " " }
                        (trouble_badge(one)) " " (text(&one.detail))
                        @if let Some(due) = &one.oldest_ready { " (oldest ready job due " (time(view, due)) ")" }
                    }
                }
                @if trouble.len() > MAX_TROUBLE {
                    li .quiet { "and " (trouble.len() - MAX_TROUBLE) " more" }
                }
            }
        }
    }
}

fn totals(view: &View, sums: &Sums, waiting_claims: u64, series: &SeriesList) -> Markup {
    let total = &series.total;
    let RecentJson { seconds, acked, failed, .. } = total.recent;
    let number = |number: u64| html! { (count(number)) };
    html! {
        h1 .hidden { "Overview" }
        div .cards {
            (card("Waiting", &number(sums.waiting), &sparkline(&total.pending, "Pending jobs in the last hour")))
            (card("Ready", &number(sums.ready), &html! {
                @match &sums.oldest_ready {
                    Some(at) => { span .quiet { "oldest due " (time(view, at)) } }
                    None => { span .quiet { "nothing is overdue" } }
                }
            }))
            (card("Leased", &number(sums.leased), &html! {
                span .quiet { (count(waiting_claims)) " waiting " (if waiting_claims == 1 { "claim" } else { "claims" }) }
            }))
            (card("Dead", &html! {
                @if sums.dead > 0 { a .bad href="dead" { (count(sums.dead)) } } @else { "0" }
            }, &counts_line(&total.dead, "Jobs that became dead in the last hour")))
            (card("Done", &html! { (rate(acked, seconds)) }, &counts_line(&total.acked, "Acked jobs in the last hour")))
            (card("Failed attempts", &html! { (rate(failed, seconds)) }, &counts_line(&total.failed, "Failed attempts in the last hour")))
            (card("Lateness", &lateness(&total.recent), &html! {
                span .quiet { "p50 / p99, last minute" }
            }))
        }
    }
}

/// Returns the median and the 99th percentile.
pub(super) fn lateness(recent: &RecentJson) -> Markup {
    match (recent.lateness_p50_ms, recent.lateness_p99_ms) {
        (Some(p50), Some(p99)) => {
            html! { span .pair { (millis(p50)) " " span .slash { "/" } " " (millis(p99)) } }
        }
        _ => none(),
    }
}

fn filter(query: &OverviewQuery) -> Markup {
    html! {
        div .head {
            h2 #kinds-heading { "Kinds" }
            form .filter action="./" {
                @for (name, value) in [("due", &query.due), ("sort", &query.sort)] {
                    @if let Some(value) = value { input type="hidden" name=(name) value=(value); }
                }
                label .hidden for="q" { "Name contains" }
                input #q type="search" name="q" value=(query.q.as_deref().unwrap_or_default()) placeholder="Name contains" maxlength="128";
                button type="submit" { "Filter" }
            }
        }
    }
}

/// The columns: title, the value of `sort`, whether it is a number. Because there are many cells, the style
/// sheet has their alignment, and on narrow screens their titles.
const COLUMNS: [(&str, &str, bool); 11] = [
    ("Kind", "name", false),
    ("Pending", "pending", true),
    ("Ready", "ready", true),
    ("Leased", "leased", true),
    ("Dead", "dead", true),
    ("Done kept", "done", true),
    ("Done", "", true),
    ("Failed", "", true),
    ("Lateness p50 / p99", "", true),
    ("Oldest ready", "oldest", true),
    ("Last hour", "", false),
];

fn table(
    view: &View,
    rows: &Rows,
    series: Vec<SeriesJson>,
    query: &OverviewQuery,
    trouble: &[TroubleJson],
) -> Markup {
    if rows.all == 0 {
        return empty();
    }
    let series: HashMap<String, SeriesJson> =
        series.into_iter().filter_map(|one| Some((one.kind.clone()?, one))).collect();
    let sorted_by = query.sort.as_deref().unwrap_or("name");
    let due = query.due.as_deref().unwrap_or_default();
    html! {
        div .scroll tabindex="0" role="region" aria-labelledby="kinds-heading" {
            table .kinds {
                thead {
                    tr {
                        @for (title, sort, is_number) in COLUMNS {
                            th scope="col" .number[is_number] aria-sort=[(sort == sorted_by).then_some(if sort == "name" { "ascending" } else { "descending" })] {
                                @if sort.is_empty() { (title) } @else { a href=(query.link(due, sort)) { (title) } }
                            }
                        }
                    }
                }
                tbody {
                    @for kind in &rows.shown {
                        @let wrong = trouble.iter().find(|one| one.kind.as_ref() == Some(&kind.kind));
                        (row(view, kind, series.get(&kind.kind), wrong))
                    }
                }
            }
        }
        @if rows.matching == 0 { p .empty { "No kind has a name that contains this text." } }
        @if rows.matching > rows.shown.len() {
            p .quiet { "The first " (rows.shown.len()) " of " (count(rows.matching as u64)) " kinds. Filter by name to see others." }
        }
    }
}

fn row(
    view: &View,
    kind: &KindStats,
    series: Option<&SeriesJson>,
    trouble: Option<&TroubleJson>,
) -> Markup {
    let more = if kind.ready_capped { "+" } else { "" };
    let number =
        |number: u64| html! { @if number == 0 { span .none { "0" } } @else { (count(number)) } };
    let recent = series.map(|series| &series.recent);
    let dead = url::link("kind", &[("kind", &kind.kind), ("state", "dead")]);
    html! {
        tr id={ "kind-" (kind.kind) } {
            th scope="row" {
                (kind_link(&kind.kind)) " "
                @if let Some(trouble) = trouble { (trouble_badge(trouble)) " " }
                (flags(kind))
            }
            td { (number(kind.pending)) }
            td { (number(kind.ready)) (more) }
            td { (number(kind.leased)) }
            td { @if kind.dead > 0 { a .bad href=(dead) { (count(kind.dead)) } } @else { (number(0)) } }
            td { (number(kind.done)) }
            td { @match recent { Some(recent) => { (rate(recent.acked, recent.seconds)) } None => { (none()) } } }
            td { @match recent { Some(recent) if recent.failed > 0 => { span .bad { (rate(recent.failed, recent.seconds)) } } _ => { (none()) } } }
            td { @match recent { Some(recent) => { (lateness(recent)) } None => { (none()) } } }
            td { (maybe_time(view, kind.oldest_ready.as_deref())) }
            td { @match series { Some(series) => { (counts_line(&series.acked, &format!("Acked jobs of {} in the last hour", kind.kind))) } None => { (none()) } } }
        }
    }
}

/// Shown when there is nothing yet: what to do next.
fn empty() -> Markup {
    html! {
        div .empty {
            p { strong { "There are no jobs yet." } }
            p { "Put one, due in " (span(30_000)) ":" }
            pre { "curl -X PUT http://localhost:7654/v1/kinds/mail/jobs/order-42 \\\n  -H 'Content-Type: application/json' -d '{\"body\": {\"to\": \"ann\"}, \"delay\": \"30s\"}'" }
            p { "or fill in the form to " a href="put" { "put a job" } "." }
        }
    }
}
