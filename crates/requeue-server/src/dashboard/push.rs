//! Webhooks: kinds whose jobs are sent to a URL, and the state of their targets.

use super::format::{at, count, excerpt, none, text, time};
use super::tables::kind_link;
use super::view::{Page, PageQuery, PageRequest, View};
use super::{Dashboard, url};
use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use requeue_http::Problem;
use requeue_http::wire::{PushList, PushedKindJson};
use serde::Deserialize;

#[derive(Debug, Clone, Deserialize)]
pub(super) struct PushQuery {
    #[serde(default)]
    after: String,
}

pub(super) async fn show(
    State(dashboard): State<Dashboard>,
    request: PageRequest,
    PageQuery(query): PageQuery<PushQuery>,
) -> Response {
    dashboard.respond(request, move |view| page(view, query.clone())).await
}

async fn page(view: View, query: PushQuery) -> Result<Page, Problem> {
    let path = url::link("/v1/push", &[("after", &query.after)]);
    let list: PushList = view.api.get(&path).await?;
    Ok(Page::new("push", "Webhooks").live("push", table(&view, &list)))
}

fn table(view: &View, list: &PushList) -> Markup {
    html! {
        h1 #push-heading { "Webhooks" }
        @if list.kinds.is_empty() {
            div .empty {
                p { "No kind is delivered by webhook. To send the jobs of a kind to a URL:" }
                pre { "requeue kind order.paid --push https://example.com/hook" }
            }
        } @else {
            div .scroll tabindex="0" role="region" aria-labelledby="push-heading" {
                table {
                    thead { tr {
                        th scope="col" { "Kind" }
                        th scope="col" { "Target" }
                        th scope="col" { "State" }
                        th scope="col" .number { "In flight" }
                        th scope="col" .number { "Ready" }
                        th scope="col" .number { "Pending" }
                        th scope="col" .number { "Dead" }
                        th scope="col" { "Last failure" }
                    } }
                    tbody { @for kind in &list.kinds { (row(view, kind)) } }
                }
            }
        }
        @if let Some(cursor) = &list.cursor {
            nav .pages aria-label="Pages of kinds" {
                a .button rel="next" href=(url::link("push", &[("after", cursor)])) { "Next page" }
            }
        }
    }
}

/// Returns what the state of a target means: class, text.
fn circuit(kind: &PushedKindJson) -> (&'static str, String) {
    let state = &kind.state;
    if let Some(problem) = &state.problem {
        return ("bad", problem.clone());
    }
    match (kind.paused, state.circuit.as_deref()) {
        (true, _) => ("quiet", "the kind is paused".to_owned()),
        (_, Some("closed")) => ("good", "delivering".to_owned()),
        (_, Some("slowed")) => ("warn", "slowed down".to_owned()),
        (_, Some("half_open")) => ("warn", "trying again".to_owned()),
        (_, Some("open")) => ("bad", "not reachable".to_owned()),
        (_, Some(other)) => ("quiet", other.to_owned()),
        (_, None) => ("quiet", "starting".to_owned()),
    }
}

fn row(view: &View, kind: &PushedKindJson) -> Markup {
    let state = &kind.state;
    let (class, meaning) = circuit(kind);
    let url = kind.push.as_ref().and_then(|push| push.url.as_deref());
    html! {
        tr {
            th scope="row" { (kind_link(&kind.kind)) }
            td .wrap data-label="Target" { @match url { Some(url) => { code { (text(url)) } } None => { (none()) } } }
            td .wide data-label="State" {
                span class={ (class) @if class != "good" { " badge" } } { (text(&meaning)) }
                @if let Some(until) = &state.until { br; span .quiet { "until " (at(until)) } }
            }
            td .number data-label="In flight" { (count(state.in_flight)) @if let Some(limit) = state.limit.filter(|limit| *limit > 0) { " of " (limit) } }
            td .number data-label="Ready" { (count(kind.ready)) }
            td .number data-label="Pending" { (count(kind.pending)) }
            td .number data-label="Dead" { @if kind.dead > 0 { a .bad href=(url::link("dead", &[("kind", &kind.kind)])) { (count(kind.dead)) } } @else { "0" } }
            td .error data-label="Last failure" {
                @match &state.last_error {
                    Some(last) => { (excerpt(&last.error, 120)) br; span .quiet { (time(view, &last.at)) } }
                    None => { (none()) }
                }
            }
        }
    }
}
