//! The question before many jobs are changed, or something is removed: how many, and which.

use super::Dashboard;
use super::bulk::{BulkForm, dead_kinds, explanation, title};
use super::format::{count, jobs, text};
use super::layout;
use super::tables::kind_link;
use super::url;
use super::view::{FormBytes, Page, PageQuery, PageRequest, View};
use crate::extract::off_runtime;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use requeue_http::wire::{BulkVerb, JobCount, KindStats};
use requeue_http::{Problem, ProblemType};
use serde::Deserialize;

/// How many calls of the API count the jobs that match. Each examines up to 10,000.
const MAX_CALLS: usize = 10;

/// How many ids the question lists.
const MAX_LISTED: usize = 20;

pub(super) async fn show(
    State(dashboard): State<Dashboard>,
    request: PageRequest,
    FormBytes(body): FormBytes,
) -> Response {
    let view = match dashboard.view(&request).await {
        Ok(view) => view,
        Err(response) => return response,
    };
    match page(&view, &request, body).await {
        Ok(page) => layout::page(&view, &request, &page),
        Err(problem) => layout::problem(&view, &request, &problem),
    }
}

async fn page(view: &View, request: &PageRequest, body: Bytes) -> Result<Page, Problem> {
    let form = off_runtime(body.len(), move || BulkForm::read(&body)).await?;
    if form.is_every_kind() {
        return every_kind(view, request, &form).await;
    }
    let (number, is_all) = match form.is_all() {
        true => matching(view, &form).await?,
        false => (form.ids.len() as u64, true),
    };
    if number == 0 && is_all {
        let detail = match form.is_all() {
            true => "no job matches",
            false => "no job is selected",
        };
        return Err(Problem::new(ProblemType::Invalid, detail));
    }
    let at_least = if is_all { "" } else { "at least " };
    let question = format!("{} {at_least}{}?", title(form.action), jobs(number));
    let html = html! {
        h1 { (question) }
        p { "Of kind " (kind_link(&form.filter.kind)) "." }
        @if form.is_all() { (conditions(&form)) } @else { (ids(&form)) }
        p { (explanation(form.action)) }
        form method="post" action="bulk" {
            (form.hidden_fields())
            div .actions {
                button .primary type="submit" .danger[form.action == BulkVerb::Cancel] {
                    (title(form.action)) " " (at_least) (jobs(number))
                }
                a .button href=(request.back()) { "Back" }
            }
        }
    };
    Ok(Page::new("./", question).fixed("confirm", html))
}

/// Asks whether to revive the dead jobs of all kinds.
async fn every_kind(view: &View, request: &PageRequest, form: &BulkForm) -> Result<Page, Problem> {
    let kinds = dead_kinds(view).await?;
    let number: u64 = kinds.iter().map(|kind| kind.dead).sum();
    if number == 0 {
        return Err(Problem::new(ProblemType::Invalid, "no job is dead"));
    }
    let question = format!("{} {}?", title(form.action), jobs(number));
    let html = html! {
        h1 { (question) }
        p { "All jobs that are dead at the time of the change, whatever their errors:" }
        ul .ids {
            @for kind in kinds.iter().take(MAX_LISTED) {
                li { (kind_link(&kind.kind)) ", " (count(kind.dead)) }
            }
            @if kinds.len() > MAX_LISTED {
                li .quiet { "and " (count((kinds.len() - MAX_LISTED) as u64)) " more kinds" }
            }
        }
        p { (explanation(form.action)) }
        form method="post" action="bulk" {
            (form.hidden_fields())
            div .actions {
                button .primary type="submit" { (title(form.action)) " " (jobs(number)) }
                a .button href=(request.back()) { "Back" }
            }
        }
    };
    Ok(Page::new("dead", question).fixed("confirm", html))
}

/// Fails if the token permits no actions: then there is nothing to confirm.
fn check_full(view: &View) -> Result<(), Problem> {
    let detail = "this token permits no changes; log in with a full token";
    if view.can_act() { Ok(()) } else { Err(Problem::new(ProblemType::Forbidden, detail)) }
}

/// Returns how many jobs match, and whether all were counted.
async fn matching(view: &View, form: &BulkForm) -> Result<(u64, bool), Problem> {
    let path = url::kind_api(&form.filter.kind, "/count");
    let (mut number, mut after) = (0, String::new());
    for _ in 0..MAX_CALLS {
        let mut parameters = form.filter.conditions();
        parameters.push(("after", &after));
        let counted: JobCount = view.api.get(&url::link(&path, &parameters)).await?;
        number += counted.matched;
        match counted.cursor {
            Some(cursor) => after = cursor,
            None => return Ok((number, true)),
        }
    }
    Ok((number, false))
}

fn conditions(form: &BulkForm) -> Markup {
    let conditions = form.filter.conditions();
    html! {
        @if conditions.is_empty() { p { "All jobs of the kind, in any state." } } @else {
            p { "All jobs that match at the time of the change:" }
            dl .facts {
                @for (name, value) in conditions {
                    div { dt { (name.replace('_', " ")) } dd { (text(value)) } }
                }
            }
        }
    }
}

fn ids(form: &BulkForm) -> Markup {
    html! {
        ul .ids {
            @for id in form.ids.iter().take(MAX_LISTED) { li { bdi { (text(id)) } } }
            @if form.ids.len() > MAX_LISTED { li .quiet { "and " (count((form.ids.len() - MAX_LISTED) as u64)) " more" } }
        }
    }
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct DeleteQuery {
    kind: String,
}

pub(super) async fn delete_kind(
    State(dashboard): State<Dashboard>,
    request: PageRequest,
    PageQuery(query): PageQuery<DeleteQuery>,
) -> Response {
    dashboard
        .respond(request, move |view| {
            let kind = query.kind.clone();
            async move {
                check_full(&view)?;
                let stats: KindStats = view.api.get(&url::kind_api(&kind, "")).await?;
                let number = stats.pending + stats.leased + stats.dead + stats.done;
                let title = format!("Delete {kind} and {}?", jobs(number));
                let html = html! {
                    h1 { (title) }
                    p { "This removes the kind " (kind_link(&kind)) " with its jobs, its schedules and its settings. It cannot be undone." }
                    form method="post" action="delete-kind" {
                        input type="hidden" name="kind" value=(kind);
                        div .actions {
                            button .primary.danger type="submit" { "Delete " (jobs(number)) }
                            a .button href=(url::kind(&kind)) { "Back" }
                        }
                    }
                };
                Ok(Page::new("./", title).fixed("confirm", html))
            }
        })
        .await
}
