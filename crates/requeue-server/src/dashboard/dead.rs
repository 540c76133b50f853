//! Dead jobs of all kinds, grouped by their error.

use super::bulk::EVERY_KIND;
use super::format::{count, excerpt, jobs, text, time};
use super::tables::{button, job_link, kind_link};
use super::view::{Page, PageQuery, PageRequest, View};
use super::{Dashboard, url};
use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use requeue_http::Problem;
use requeue_http::wire::{ErrorGroup, ErrorGroups, KindList, KindStats};
use serde::Deserialize;

/// How many kinds are grouped on one page: up to 10,000 jobs of each are read.
const MAX_KINDS: usize = 10;

#[derive(Debug, Clone, Deserialize)]
pub(super) struct DeadQuery {
    /// Shows only the dead jobs of this kind.
    kind: Option<String>,
}

pub(super) async fn show(
    State(dashboard): State<Dashboard>,
    request: PageRequest,
    PageQuery(query): PageQuery<DeadQuery>,
) -> Response {
    dashboard.respond(request, move |view| page(view, query.clone())).await
}

async fn page(view: View, query: DeadQuery) -> Result<Page, Problem> {
    let kinds: KindList = view.api.get("/v1/kinds").await?;
    let mut dead: Vec<KindStats> = kinds.kinds.into_iter().filter(|kind| kind.dead > 0).collect();
    dead.sort_by_key(|kind| std::cmp::Reverse(kind.dead));
    let page = Page::new("dead", "Dead").live("numbers", numbers(&view, &dead, &query));
    // Grouping reads jobs: once per page, and not while it is open.
    if view.live {
        return Ok(page);
    }
    let chosen = |kind: &&KindStats| query.kind.as_ref().is_none_or(|chosen| *chosen == kind.kind);
    let shown: Vec<&KindStats> = dead.iter().filter(chosen).collect();
    let mut groups = Vec::new();
    for kind in shown.iter().take(MAX_KINDS) {
        let path = url::kind_api(&kind.kind, "/errors");
        let found: ErrorGroups = view.api.get(&path).await?;
        groups.push(of_kind(&view, kind, &found));
    }
    let html = html! {
        @for group in &groups { (group) }
        @if shown.is_empty() && query.kind.is_some() { p .empty { "This kind has no dead jobs." } }
        @if shown.len() > MAX_KINDS {
            p .quiet { "The " (MAX_KINDS) " kinds with the most dead jobs. Choose a kind to see others:" }
            ul .ids {
                @for kind in shown.iter().skip(MAX_KINDS) {
                    li { a href=(url::link("dead", &[("kind", &kind.kind)])) { (text(&kind.kind)) } ", " (count(kind.dead)) }
                }
            }
        }
    };
    Ok(page.fixed("groups", html))
}

fn numbers(view: &View, dead: &[KindStats], query: &DeadQuery) -> Markup {
    let total: u64 = dead.iter().map(|kind| kind.dead).sum();
    html! {
        div .head {
            h1 { "Dead jobs" }
            @if query.kind.is_some() {
                a .button href="dead" { "All kinds" }
            } @else if dead.iter().filter(|kind| view.may_change(&kind.kind)).count() > 1 {
                (button("confirm", &[("scope", EVERY_KIND), ("state", "dead"), ("action", "revive")], "Revive all kinds…", ""))
            }
        }
        @match total {
            0 => { p .empty { "No job is dead. Jobs whose attempts are used up appear here, grouped by their last error." } }
            total => { p { (jobs(total)) " of " (count(dead.len() as u64)) (if dead.len() == 1 { " kind." } else { " kinds." }) } }
        }
    }
}

fn of_kind(view: &View, kind: &KindStats, found: &ErrorGroups) -> Markup {
    let heading = format!("dead-{}", kind.kind);
    html! {
        div .head {
            h2 id=(heading) { (kind_link(&kind.kind)) " " span .quiet { (jobs(kind.dead)) } }
            @if view.may_change(&kind.kind) {
                (button("confirm", &[("kind", kind.kind.as_str()), ("state", "dead"), ("scope", "all"), ("action", "revive")], "Revive all…", ""))
            }
        }
        div .scroll tabindex="0" role="region" aria-labelledby=(heading) {
            table .groups {
                thead { tr {
                    th scope="col" { "Last error" }
                    th scope="col" .number { "Jobs" }
                    th scope="col" { "Last died" }
                    th scope="col" { "Example" }
                    @if view.may_change(&kind.kind) { th scope="col" { span .hidden { "Actions" } } }
                } }
                tbody { @for group in &found.groups { (row(view, &kind.kind, group)) } }
            }
        }
        @if found.cursor.is_some() {
            p .quiet { "Of the first " (count(found.scanned)) " dead jobs that were examined." }
        }
        @if found.other > 0 { p .quiet { (jobs(found.other)) " in further groups." } }
    }
}

fn row(view: &View, kind: &str, group: &ErrorGroup) -> Markup {
    let error = match &group.error_group {
        Some(error) => excerpt(error, 200),
        None => html! { em { "The lease expired" } },
    };
    let condition = match &group.error_group {
        Some(error) => ("error_group", error.as_str()),
        None => ("expired", "true"),
    };
    let list = url::link("kind", &[("kind", kind), ("state", "dead"), condition]);
    let fields = |action| {
        [("kind", kind), ("state", "dead"), condition, ("scope", "all"), ("action", action)]
    };
    html! {
        tr {
            td .error data-label="Last error" { a href=(list) { (error) } }
            td .number data-label="Jobs" { (count(group.count)) }
            td data-label="Last died" { (time(view, &group.last_died_at)) }
            td .wide data-label="Example" { (job_link(kind, &group.example.id)) }
            @if view.may_change(kind) {
                td { div .actions {
                    (button("confirm", &fields("revive"), "Revive…", ""))
                    (button("confirm", &fields("cancel"), "Drop…", "danger"))
                } }
            }
        }
    }
}
