//! Schedules, with their next times.

use super::format::{maybe_time, parse, text, to_the_minute};
use super::tables::{button, job_link, kind_link};
use super::view::{Page, PageQuery, PageRequest, View};
use super::{Dashboard, url};
use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use requeue_http::Problem;
use requeue_http::times::Zone;
use requeue_http::wire::{OverlapJson, ScheduleJson, SchedulePage};
use serde::Deserialize;

/// How many pages of the API are read to find schedules: most kinds have none.
const MAX_CALLS: usize = 50;

#[derive(Debug, Clone, Deserialize)]
pub(super) struct SchedulesQuery {
    #[serde(default)]
    after: String,
}

pub(super) async fn show(
    State(dashboard): State<Dashboard>,
    request: PageRequest,
    PageQuery(query): PageQuery<SchedulesQuery>,
) -> Response {
    dashboard.respond(request, move |view| page(view, query.after.clone())).await
}

async fn page(view: View, mut after: String) -> Result<Page, Problem> {
    let (mut schedules, mut cursor) = (Vec::new(), None);
    for _ in 0..MAX_CALLS {
        let path = url::link("/v1/schedules", &[("after", &after)]);
        let page: SchedulePage = view.api.get(&path).await?;
        schedules = page.schedules;
        cursor = page.cursor;
        match &cursor {
            Some(next) if schedules.is_empty() => after.clone_from(next),
            _ => break,
        }
    }
    let html = table(&view, &schedules, cursor.as_deref());
    Ok(Page::new("schedules", "Schedules").live("schedules", html))
}

fn table(view: &View, schedules: &[ScheduleJson], cursor: Option<&str>) -> Markup {
    html! {
        h1 #schedules-heading { "Schedules" }
        @if schedules.is_empty() {
            div .empty {
                p { "There are no schedules. A schedule puts a job at the times of a cron expression, or once per period:" }
                pre { "requeue schedule set report daily --cron '0 6 * * *' --time-zone Europe/Berlin" }
            }
        } @else {
            div .scroll tabindex="0" role="region" aria-labelledby="schedules-heading" {
                table {
                    thead { tr {
                        th scope="col" { "Schedule" }
                        th scope="col" { "Times" }
                        th scope="col" { "Next run" }
                        th scope="col" { "Then" }
                        @if view.can_act() { th scope="col" { span .hidden { "Actions" } } }
                    } }
                    tbody { @for schedule in schedules { (row(view, schedule)) } }
                }
            }
        }
        @if let Some(cursor) = cursor {
            nav .pages aria-label="Pages of schedules" {
                a .button rel="next" href=(url::link("schedules", &[("after", cursor)])) { "Next page" }
            }
        }
    }
}

fn row(view: &View, schedule: &ScheduleJson) -> Markup {
    let (kind, id) = (schedule.kind.as_str(), schedule.id.as_str());
    let fields = [("kind", kind), ("id", id)];
    // With overlapping runs, each run has an id of its own.
    let has_job = schedule.overlap == OverlapJson::None;
    let later = schedule.next_times.iter().skip(usize::from(schedule.next.is_some()));
    let zone = schedule.time_zone.as_deref().filter(|zone| *zone != "UTC");
    html! {
        tr data-key={ (kind) "/" (super::format::escaped(id)) } {
            th scope="row" {
                (kind_link(kind)) " / "
                @if has_job { (job_link(kind, id)) } @else { bdi { (text(id)) } }
                @if schedule.paused { " " span .badge.paused { "paused" } }
            }
            td data-label="Times" {
                @match (&schedule.cron, &schedule.every) {
                    (Some(cron), _) => { code { (text(cron)) } br; span .quiet { (text(schedule.time_zone.as_deref().unwrap_or("UTC"))) } }
                    (None, Some(every)) => { "every " (every) }
                    (None, None) => {}
                }
            }
            td .wide.runs data-label="Next run" {
                (maybe_time(view, schedule.next.as_deref()))
                @if let Some(next) = &schedule.next { p .quiet { (run(next, zone)) } }
                @if let Some(problem) = &schedule.problem { p .bad { (text(problem)) } }
            }
            td .quiet.wide.runs data-label="Then" { ol .times { @for at in later { li { (run(at, zone)) } } } }
            @if view.can_act() {
                td { div .actions {
                    (button("run-schedule", &fields, "Run now", ""))
                    @if schedule.paused {
                        (button("resume-schedule", &fields, "Resume", ""))
                    } @else {
                        (button("pause-schedule", &fields, "Pause", ""))
                    }
                } }
            }
        }
    }
}

/// Returns when a run is: in the zone of the browser, and in that of its schedule.
fn run(time: &str, zone: Option<&str>) -> Markup {
    let shown = |zone: &str| parse(time).and_then(|at| zone.parse::<Zone>().ok()?.show(at));
    html! {
        (to_the_minute(time))
        // The script hides what would be the same time again.
        @if let Some(zone) = zone && let Some(shown) = shown(zone) {
            span data-zone=(zone) { " · " (shown) " " (text(zone)) }
        }
    }
}
