//! The page of a job, and the search for one.

use super::body::BodyView;
use super::format::{between, count, maybe_time, none, text, time};
use super::tables::{button, hidden, job_link, kind_link, state};
use super::view::{Page, PageQuery, PageRequest, View, see};
use super::{Dashboard, url};
use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use requeue_http::Problem;
use requeue_http::wire::{FailureJson, JobJson, LeaseJson, StateJson};
use serde::Deserialize;

#[derive(Debug, Clone, Deserialize)]
pub(super) struct JobQuery {
    kind: String,
    id: String,
    view: Option<String>,
    full: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct SearchQuery {
    #[serde(default)]
    q: String,
}

/// Finds what was searched for: `kind/id` is a job, anything else is a kind, or a part of its name.
pub(super) async fn go(PageQuery(query): PageQuery<SearchQuery>) -> Response {
    let wanted = query.q.trim();
    match wanted.split_once('/') {
        Some((kind, id)) if !kind.is_empty() && !id.is_empty() => {
            see(&url::job(kind.trim(), id.trim()))
        }
        _ => see(&format!("./{}", url::link("", &[("q", wanted.trim_end_matches('/'))]))),
    }
}

pub(super) async fn show(
    State(dashboard): State<Dashboard>,
    request: PageRequest,
    PageQuery(query): PageQuery<JobQuery>,
) -> Response {
    dashboard.respond(request, move |view| page(view, query.clone())).await
}

async fn page(view: View, query: JobQuery) -> Result<Page, Problem> {
    let job: JobJson = view.api.get(&url::job_api(&query.kind, &query.id)).await?;
    let title = format!("{}/{}", query.kind, super::format::escaped(&query.id));
    let page = Page::new("./", title)
        .live("job", html! { (head(&view, &job)) (facts(&view, &job)) })
        .live("attempts", attempts(&view, &job));
    if view.live {
        return Ok(page);
    }
    let link = |form: &str, full: bool| {
        let full = if full { "1" } else { "" };
        url::link(
            "job",
            &[("kind", &query.kind), ("id", &query.id), ("view", form), ("full", full)],
        )
    };
    let (form, full) = (query.view.as_deref(), query.full.is_some());
    let body = html! {
        @if job.state != StateJson::Done { h2 { "Body" } (BodyView::from(&job).show(form, full, link)) }
        @if let Some(result) = job.done.as_ref().and_then(|done| done.result.as_ref()) {
            h2 { "Result" } (BodyView::from(result).show(form, full, link))
        }
        @if let Some(next) = &job.next {
            h2 { "Successor" }
            p { "Put again while it was leased: generation " (next.generation) ", due " (time(&view, &next.due)) "." }
            (BodyView::from(next).show(form, full, link))
        }
    };
    Ok(page.fixed("body", body))
}

fn head(view: &View, job: &JobJson) -> Markup {
    let fields = [("kind", job.kind.as_str()), ("id", job.id.as_str())];
    let is_pending = matches!(job.state, StateJson::Waiting | StateJson::Ready);
    let can_run = job.state == StateJson::Waiting || job.next.is_some();
    html! {
        div .head {
            h1 { (kind_link(&job.kind)) " / " bdi { (text(&job.id)) } " " (state(job.state)) }
            @if view.can_act() {
                div .actions {
                    @if can_run { (button("run-now", &fields, "Run now", "primary")) }
                    @if job.state == StateJson::Dead { (button("revive", &fields, "Revive", "primary")) }
                    @if job.state != StateJson::Done {
                        a .button href=(url::link("copy", &fields)) { "Put a copy" }
                    }
                    (cancel_button(job))
                }
            }
        }
        @if view.can_act() && is_pending {
            form .inline method="post" action="reschedule" {
                (hidden(&fields))
                input type="hidden" name="generation" value=(job.generation);
                label { "Due " input name="due" required maxlength="100" placeholder="in 1h, or 2026-12-01 09:00 UTC"; }
                button type="submit" { "Change due time" }
            }
        }
    }
}

/// A job that is cancelled is gone: the button leads to a confirmation.
fn cancel_button(job: &JobJson) -> Markup {
    let name = if job.state == StateJson::Done { "Remove record…" } else { "Cancel…" };
    let fields = [
        ("kind", job.kind.as_str()),
        ("id", job.id.as_str()),
        ("scope", "selected"),
        ("action", "cancel"),
    ];
    button("confirm", &fields, name, "danger")
}

fn facts(view: &View, job: &JobJson) -> Markup {
    let fact = |name: &str, value: Markup| html! { div { dt { (name) } dd { (value) } } };
    html! {
        dl .facts {
            @if job.state != StateJson::Dead { (fact("Due", time(view, &job.due))) }
            @if let Some(lease) = &job.lease { (leased(view, lease)) }
            @if let Some(done) = &job.done {
                (fact("Done", time(view, &done.done_at)))
                (fact("Worker", text(&done.worker)))
                (fact("Took", html! { (between(&done.started_at, &done.done_at)) }))
            }
            @if job.died_at.is_some() { (fact("Died", maybe_time(view, job.died_at.as_deref()))) }
            (fact("Failures", html! { (count(job.attempts.into())) }))
            @if job.deaths > 0 { (fact("Deaths", html! { (count(job.deaths.into())) })) }
            (fact("Priority", html! { (job.priority) }))
            (fact("Generation", html! { (job.generation) }))
            @if let Some(next) = &job.next { (fact("Successor", html! { "generation " (next.generation) })) }
            (fact("Created", time(view, &job.created_at)))
            (fact("Last change", time(view, &job.updated_at)))
        }
    }
}

fn leased(view: &View, lease: &LeaseJson) -> Markup {
    html! {
        div { dt { "Held by" } dd { (text(&lease.worker)) } }
        div { dt { "Since" } dd { (time(view, &lease.claimed_at)) } }
        div { dt { "Lease ends" } dd { (time(view, &lease.ends_at)) } }
        div { dt { "Fence" } dd { (lease.fence) } }
        @if lease.cancelled { div { dt { "Cancelled" } dd { "It is removed when the lease ends." } } }
    }
}

fn attempts(view: &View, job: &JobJson) -> Markup {
    if job.failures.is_empty() {
        return html! {};
    }
    html! {
        h2 { "Failed attempts" }
        @if u64::from(job.attempts) > job.failures.len() as u64 {
            p .quiet { "The last " (job.failures.len()) " of " (count(job.attempts.into())) "." }
        }
        ol .attempts reversed {
            @for failure in job.failures.iter().rev() { (attempt(view, failure)) }
        }
    }
}

fn attempt(view: &View, failure: &FailureJson) -> Markup {
    html! {
        li {
            p .quiet {
                (time(view, &failure.ended_at)) ", by " (text(&failure.worker)) ", after "
                (between(&failure.started_at, &failure.ended_at))
            }
            @match &failure.error {
                Some(error) => { pre .error tabindex="0" { (text(error)) } }
                None => { p { "The lease expired: the worker died, or took longer than its lease." } }
            }
        }
    }
}

/// Returns the job with a link, or a dash.
pub(super) fn maybe_job(kind: &str, id: Option<&str>) -> Markup {
    match id {
        Some(id) => job_link(kind, id),
        None => none(),
    }
}
