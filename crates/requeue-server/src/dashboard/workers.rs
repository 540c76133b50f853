//! Workers: who holds what, since when, and until when.

use super::format::{count, excerpt, none, text, time};
use super::tables::{job_link, kind_link};
use super::view::{Page, PageRequest, View};
use super::{Dashboard, url};
use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use requeue_http::Problem;
use requeue_http::wire::{EXPIRED_IN_A_ROW, JobJson, JobPage, KindList, WorkerJson, WorkerList};
use std::cmp::Reverse;

/// How many workers are shown.
const MAX_WORKERS: usize = 200;

/// How many leases are shown, and of how many kinds.
const MAX_LEASES: usize = 100;
const MAX_KINDS: usize = 20;

pub(super) async fn show(State(dashboard): State<Dashboard>, request: PageRequest) -> Response {
    dashboard.respond(request, page).await
}

async fn page(view: View) -> Result<Page, Problem> {
    let WorkerList { mut workers } = view.api.get("/v1/workers").await?;
    // The others stay in the order of their names.
    workers.sort_by_key(|worker| {
        Reverse(worker.expired_in_a_row.saturating_sub(EXPIRED_IN_A_ROW - 1))
    });
    let leases = leases(&view).await?;
    Ok(Page::new("workers", "Workers")
        .live("workers", table(&view, &workers))
        .live("leases", leased(&view, &leases)))
}

/// Returns leased jobs, those whose leases end first.
async fn leases(view: &View) -> Result<Vec<JobJson>, Problem> {
    let kinds: KindList = view.api.get("/v1/kinds").await?;
    let limit = (MAX_LEASES + 1).to_string();
    let parameters =
        [("state", "leased"), ("order", "time"), ("limit", &limit), ("body_limit", "0")];
    let mut leases = Vec::new();
    for kind in kinds.kinds.iter().filter(|kind| kind.leased > 0).take(MAX_KINDS) {
        let path = url::link(&url::kind_api(&kind.kind, "/jobs"), &parameters);
        leases.extend(view.api.get::<JobPage>(&path).await?.jobs);
    }
    let ends_at = |job: &JobJson| job.lease.as_ref().map(|lease| lease.ends_at.clone());
    leases.sort_by_cached_key(ends_at);
    Ok(leases)
}

fn table(view: &View, workers: &[WorkerJson]) -> Markup {
    html! {
        h1 #workers-heading { "Workers" }
        @if workers.is_empty() {
            p .empty { "No worker has claimed jobs from this node in the last ten minutes." }
        } @else {
            div .scroll tabindex="0" role="region" aria-labelledby="workers-heading" {
                table {
                    thead { tr {
                        th scope="col" { "Name" }
                        th scope="col" { "Kinds" }
                        th scope="col" .number { "Holds" }
                        th scope="col" .number { "Waiting" }
                        th scope="col" .number { "Claimed" }
                        th scope="col" .number { "Done" }
                        th scope="col" .number { "Failed" }
                        th scope="col" .number { "Expired" }
                        th scope="col" { "Last seen" }
                    } }
                    tbody { @for worker in workers.iter().take(MAX_WORKERS) { (row(view, worker)) } }
                }
            }
            @if workers.len() > MAX_WORKERS {
                p .quiet { "The first " (MAX_WORKERS) " of " (count(workers.len() as u64)) " workers." }
            }
            p .quiet {
                "Those that claimed through this node. With several nodes, each shows its own. Expired: leases that "
                "ended before the worker settled them, because it died, hangs, or takes longer than its lease."
            }
        }
    }
}

fn row(view: &View, worker: &WorkerJson) -> Markup {
    html! {
        tr {
            th scope="row" {
                (text(&worker.name))
                @if worker.expired_in_a_row >= EXPIRED_IN_A_ROW {
                    " " span .badge.bad title={ (count(worker.expired_in_a_row)) " leases have expired since it last settled one" } {
                        "leases expire"
                    }
                }
            }
            td .wrap data-label="Kinds" {
                @for (n, kind) in worker.kinds.iter().enumerate() { @if n > 0 { ", " } (kind_link(kind)) }
            }
            td .number data-label="Holds" { (count(worker.held)) }
            td .number data-label="Waiting" { (count(worker.waiting.into())) }
            td .number data-label="Claimed" { (count(worker.claimed)) }
            td .number data-label="Done" { (count(worker.acked)) }
            td .number data-label="Failed" { @if worker.failed > 0 { span .bad { (count(worker.failed)) } } @else { "0" } }
            td .number data-label="Expired" { @if worker.expired > 0 { span .bad { (count(worker.expired)) } } @else { "0" } }
            td data-label="Last seen" { (time(view, &worker.last_seen)) }
        }
    }
}

fn leased(view: &View, leases: &[JobJson]) -> Markup {
    html! {
        h2 #leases-heading { "Held jobs" }
        @if leases.is_empty() { p .empty { "No worker holds a job." } } @else {
            div .scroll tabindex="0" role="region" aria-labelledby="leases-heading" {
                table {
                    thead { tr {
                        th scope="col" { "Worker" }
                        th scope="col" { "Job" }
                        th scope="col" { "Since" }
                        th scope="col" { "Lease ends" }
                        th scope="col" .number { "Attempt" }
                    } }
                    tbody {
                        @for job in leases.iter().take(MAX_LEASES) {
                            @let lease = job.lease.as_ref();
                            tr data-key={ (job.kind) "/" (super::format::escaped(&job.id)) } {
                                td data-label="Worker" { @match lease { Some(lease) => { (excerpt(&lease.worker, 60)) } None => { (none()) } } }
                                td .wide data-label="Job" { (kind_link(&job.kind)) " / " (job_link(&job.kind, &job.id)) }
                                td data-label="Since" { @if let Some(lease) = lease { (time(view, &lease.claimed_at)) } }
                                td data-label="Lease ends" { @if let Some(lease) = lease { (time(view, &lease.ends_at)) } }
                                td .number data-label="Attempt" { (job.attempts + 1) }
                            }
                        }
                    }
                }
            }
            @if leases.len() > MAX_LEASES { p .quiet { "The " (MAX_LEASES) " whose leases end first." } }
        }
    }
}
