//! The page of a job.

use super::body;
use super::format::{at, between, count, none, parse, text, time};
use super::tables::{button, hidden, job_link, kind_link, state};
use super::view::{Page, PageQuery, PageRequest, View};
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

pub(super) async fn show(
    State(dashboard): State<Dashboard>,
    request: PageRequest,
    PageQuery(query): PageQuery<JobQuery>,
) -> Response {
    dashboard.respond(request, move |view| page(view, query.clone())).await
}

async fn page(view: View, query: JobQuery) -> Result<Page, Problem> {
    let path = url::job_api(&query.kind, &query.id);
    let job: JobJson = view.api.get(&url::link(&path, &[("envelope", "true")])).await?;
    let title = format!("{}/{}", query.kind, super::format::escaped(&query.id));
    let page = Page::new("./", title)
        .live("job", html! { (head(&view, &job)) (facts(&view, &job)) })
        .live("timeline", timeline(&view, &job));
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
    let bodies = html! {
        @if job.state != StateJson::Done { h2 { "Body" } (body::show(job.body_fields(), form, full, link)) }
        @if let Some(result) = job.done.as_ref().and_then(|done| done.result.as_ref()) {
            h2 { "Result" } (body::show(result.body_fields(), form, full, link))
        }
        @if let Some(next) = &job.next {
            h2 { "Successor" }
            p { "Put again while it was leased: generation " (next.generation) ", due " (time(&view, &next.due)) "." }
            (body::show(next.body_fields(), form, full, link))
        }
    };
    Ok(page.fixed("body", bodies))
}

fn head(view: &View, job: &JobJson) -> Markup {
    let fields = [("kind", job.kind.as_str()), ("id", job.id.as_str())];
    let can_run = job.state == StateJson::Waiting || job.next.is_some();
    html! {
        div .head {
            h1 { (kind_link(&job.kind)) " / " bdi { (text(&job.id)) } " " (state(job.state)) }
            @if view.may_change(&job.kind) {
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
        @if view.may_change(&job.kind) && let Some(name) = reschedule_name(job) {
            form .inline method="post" action="reschedule" {
                (hidden(&fields))
                input type="hidden" name="generation" value=(newest_generation(job));
                label { "Due " input name="due" required maxlength="100" placeholder="in 1h, or 2026-12-01 09:00 UTC"; }
                button type="submit" { (name) }
            }
        }
    }
}

/// Returns what a new due time does, as the name of a button. `None` if the job cannot be rescheduled.
fn reschedule_name(job: &JobJson) -> Option<&'static str> {
    match job.state {
        StateJson::Waiting | StateJson::Ready => Some("Change due time"),
        StateJson::Leased if job.lease.as_ref().is_some_and(|lease| lease.cancelled) => None,
        StateJson::Leased if job.next.is_some() => Some("Change due time of the successor"),
        StateJson::Leased => Some("Run again then"),
        StateJson::Dead => Some("Revive then"),
        StateJson::Done => None,
    }
}

fn newest_generation(job: &JobJson) -> u64 {
    job.next.as_ref().map_or(job.generation, |next| next.generation)
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
                (fact("Worker", text(&done.worker)))
                (fact("Took", html! { (between(&done.started_at, &done.done_at)) }))
            }
            (fact("Failures", html! { (count(job.attempts.into())) }))
            @if job.deaths > 0 { (fact("Deaths", html! { (count(job.deaths.into())) })) }
            (fact("Priority", html! { (job.priority) }))
            (fact("Generation", html! { (job.generation) }))
            @for (name, value) in job.head_entries() { (fact(name, text(&value))) }
            @if let Some(next) = &job.next { (fact("Successor", html! { "generation " (next.generation) })) }
        }
    }
}

fn leased(view: &View, lease: &LeaseJson) -> Markup {
    html! {
        div { dt { "Held by" } dd { (text(&lease.worker)) } }
        div { dt { "Lease ends" } dd { (time(view, &lease.ends_at)) } }
        div { dt { "Fence" } dd { (lease.fence) } }
        @if lease.cancelled { div { dt { "Cancelled" } dd { "It is removed when the lease ends." } } }
    }
}

/// An entry of the timeline.
struct Step<'a> {
    /// `None` for what happened between two others at times that are not known.
    when: Option<&'a str>,
    /// `bad`, `good`, `next` for what is still to come, or nothing.
    class: &'static str,
    what: Markup,
}

/// Returns what happened to the job and what happens next, as far as the job has it.
fn timeline(view: &View, job: &JobJson) -> Markup {
    html! {
        h2 { "Timeline" }
        ol .timeline {
            @for step in steps(job) {
                li .(step.class) {
                    p .when {
                        @if let Some(when) = step.when { (at(when)) " " span .quiet { (time(view, when)) } }
                    }
                    div .what { (step.what) }
                }
            }
        }
    }
}

/// Returns the entries of the timeline, the earliest first.
fn steps(job: &JobJson) -> Vec<Step<'_>> {
    let step = |when, class, what| Step { when: Some(when), class, what };
    let mut past = vec![step(&job.created_at, "", html! { "Put" })];
    let known = job.failures.len() as u64;
    let earlier = u64::from(job.attempts).saturating_sub(known);
    if earlier > 0 {
        let what = html! {
            (count(earlier)) " earlier failed " (if earlier == 1 { "attempt" } else { "attempts" })
            ", of which only the number is kept"
        };
        past.push(Step { when: None, class: "bad", what });
    }
    // After a revive, the attempts are counted anew.
    let are_counted = u64::from(job.attempts) >= known;
    for (n, failure) in (earlier + 1..).zip(&job.failures) {
        past.push(step(&failure.ended_at, "bad", failed(are_counted.then_some(n), failure)));
    }
    if let Some(died_at) = &job.died_at {
        let what = html! { strong { "Dead" } ": it is not tried again unless it is revived" };
        past.push(step(died_at, "bad", what));
    }
    let last = past.iter().filter_map(|step| parse(step.when?)).max();
    let is_pending = matches!(job.state, StateJson::Waiting | StateJson::Ready);
    if is_pending && parse(&job.updated_at) > last {
        let what = html! {
            @if job.generation > 1 { "Last change: generation " (job.generation) } @else { "Last change" }
        };
        past.push(step(&job.updated_at, "", what));
    }
    let mut next = Vec::new();
    match job.state {
        StateJson::Waiting | StateJson::Ready if job.failures.is_empty() || job.attempts == 0 => {
            let what = if job.state == StateJson::Ready {
                "Due: the next claim returns it"
            } else {
                "Due"
            };
            next.push(step(&job.due, "next", html! { (what) }));
        }
        StateJson::Waiting | StateJson::Ready => {
            let what = html! { "Next attempt: number " (u64::from(job.attempts) + 1) };
            next.push(step(&job.due, "next", what));
        }
        StateJson::Leased | StateJson::Done => past.push(step(&job.due, "", html! { "Due" })),
        StateJson::Dead => {}
    }
    if let Some(lease) = &job.lease {
        let number = u64::from(job.attempts) + 1;
        let what = html! { "Claimed by " (text(&lease.worker)) ": attempt " (number) };
        past.push(step(&lease.claimed_at, "", what));
        let what = if lease.cancelled {
            "The lease ends, and the cancelled job is removed"
        } else {
            "The lease ends, unless the worker extends it or settles the job before"
        };
        next.push(step(&lease.ends_at, "next", html! { (what) }));
    }
    if let Some(successor) = &job.next {
        let what = html! { "The successor is due, but not before the lease ends" };
        next.push(step(&successor.due, "next", what));
    }
    if let Some(done) = &job.done {
        let what = html! { "Claimed by " (text(&done.worker)) };
        past.push(step(&done.started_at, "", what));
        let what = html! { strong { "Done" } " after " (between(&done.started_at, &done.done_at)) };
        past.push(step(&done.done_at, "good", what));
    }
    // What has no time stays after what was put in before it.
    let mut before = None;
    let mut timed: Vec<_> = past
        .into_iter()
        .map(|step| {
            before = step.when.and_then(parse).or(before);
            (before, step)
        })
        .collect();
    timed.sort_by_key(|(at, _)| *at);
    timed.into_iter().map(|(_, step)| step).chain(next).collect()
}

fn failed(number: Option<u64>, failure: &FailureJson) -> Markup {
    html! {
        p {
            strong { @match number { Some(number) => { "Attempt " (number) " failed" } None => { "An attempt failed" } } }
            " after " (between(&failure.started_at, &failure.ended_at)) ", claimed by " (text(&failure.worker))
        }
        @match &failure.error {
            Some(error) => { pre .error tabindex="0" { (text(error)) } }
            None => { p { "The lease expired: the worker died, or took longer than its lease." } }
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
