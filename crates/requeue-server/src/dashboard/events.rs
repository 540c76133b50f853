//! Live events: what this node does, as it happens.
//!
//! The stream of the page carries rows of a table. Up to [`PER_TICK`] of them are sent per half a second;
//! the rest is counted. So a busy server does not flood the browser.

use super::Dashboard;
use super::format::{at, clock, none, text};
use super::job::maybe_job;
use super::tables::kind_link;
use super::url;
use super::view::{Page, PageQuery, PageRequest, View};
use crate::response::ProblemResponse;
use crate::shares::Slot;
use axum::body::{Body, BodyDataStream};
use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use futures_util::future::{BoxFuture, pending};
use futures_util::stream::unfold;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::json;
use std::convert::Infallible;
use std::time::Duration;
use tokio::time::Instant;

/// How often rows are sent.
const TICK: Duration = Duration::from_millis(500);

/// How many rows are sent per [`TICK`] at the most.
const PER_TICK: usize = 50;

#[derive(Debug, Clone, Deserialize)]
pub(super) struct EventsQuery {
    #[serde(default)]
    kinds: String,
}

pub(super) async fn show(
    State(dashboard): State<Dashboard>,
    request: PageRequest,
    PageQuery(query): PageQuery<EventsQuery>,
) -> Response {
    if request.wants_stream() {
        return match dashboard.view(&request).await {
            Ok(view) => stream(dashboard, &view, &query.kinds).await,
            Err(response) => response,
        };
    }
    dashboard
        .respond(request, move |view| {
            let query = query.clone();
            async move { Ok(page(&view, &query)) }
        })
        .await
}

fn page(_: &View, query: &EventsQuery) -> Page {
    let link = url::link("events", &[("kinds", &query.kinds)]);
    let html = html! {
        div .head {
            h1 #events-heading { "Events" }
            form .filter action="events" {
                label { "Kinds " input type="search" name="kinds" value=(query.kinds) placeholder="all, or mail,report" spellcheck="false"; }
                button type="submit" { "Filter" }
            }
        }
        noscript { p .problem { "Live events need JavaScript. On the command line: " code { "requeue events" } } }
        p .quiet {
            "What this node does from now on. Jobs that become due, and leases that expire, are not events. "
            span #events-missed {}
        }
        div .scroll tabindex="0" role="region" aria-labelledby="events-heading" {
            table {
                thead { tr {
                    th scope="col" { "Time" }
                    th scope="col" { "Event" }
                    th scope="col" { "Job" }
                    th scope="col" { "Worker" }
                    th scope="col" .number { "Attempt" }
                    th scope="col" { "Details" }
                } }
                tbody #events data-events=(link) { tr { td colspan="6" .quiet { "Waiting for the first event …" } } }
            }
        }
    };
    Page::new("events", "Events").fixed("events-page", html)
}

/// An event, as the API sends it.
#[derive(Debug, Deserialize)]
struct EventJson {
    event: String,
    #[serde(default)]
    kind: String,
    id: Option<String>,
    #[serde(default)]
    at: String,
    attempt: Option<u32>,
    worker: Option<String>,
    outcome: Option<String>,
    until: Option<String>,
    paused: Option<bool>,
}

fn row(event: &EventJson) -> Markup {
    let class = match event.event.as_str() {
        "acked" | "requeued" => "good",
        "retried" | "dead" => "bad",
        _ => "",
    };
    html! {
        tr {
            td data-label="Time" { (clock(&event.at)) }
            td data-label="Event" { span class=(class) { (text(&event.event.replace('_', " "))) } }
            td .wide data-label="Job" { (kind_link(&event.kind)) " / " (maybe_job(&event.kind, event.id.as_deref())) }
            td data-label="Worker" { @match &event.worker { Some(worker) => { (text(worker)) } None => { (none()) } } }
            td .number data-label="Attempt" { @match event.attempt { Some(attempt) => { (attempt) } None => { (none()) } } }
            td .quiet.wide data-label="Details" {
                @if let Some(outcome) = &event.outcome { (text(outcome)) " " }
                @if let Some(until) = &event.until { "until " (at(until)) }
                @if let Some(paused) = event.paused { (if paused { "paused" } else { "not paused" }) }
            }
        }
    }
}

async fn stream(dashboard: Dashboard, view: &View, kinds: &str) -> Response {
    let slot = match dashboard.streams.take(view.api.caller(), 1) {
        Ok(slot) => slot,
        Err(busy) => return ProblemResponse(busy).into_response(),
    };
    let body = match view.api.stream(&url::link("/v1/events", &[("kinds", kinds)])).await {
        Ok(body) => body,
        Err(problem) => return ProblemResponse(problem).into_response(),
    };
    let over: BoxFuture<'static, ()> = match view.ends_at {
        Some(at) => Box::pin(dashboard.app.clock().sleep(at.saturating_since(view.now))),
        None => Box::pin(pending()),
    };
    let rows = EventRows { frames: Body::into_data_stream(body), over, ended: false, _slot: slot };
    let events = unfold(rows, |mut rows| async move {
        let event = rows.next().await?;
        Some((Ok::<_, Infallible>(event), rows))
    });
    let keep_alive = KeepAlive::new().interval(Duration::from_secs(15)).text("still here");
    ([("x-accel-buffering", "no")], Sse::new(events).keep_alive(keep_alive)).into_response()
}

/// The events of the API, which arrive one per frame, as rows.
struct EventRows {
    frames: BodyDataStream,
    /// The end of the session.
    over: BoxFuture<'static, ()>,
    ended: bool,
    _slot: Slot,
}

impl EventRows {
    /// Waits for events, collects those of one tick, and returns them. `None` at the end of the stream.
    async fn next(&mut self) -> Option<Event> {
        if self.ended {
            return None;
        }
        let mut tick = Tick::default();
        let first = loop {
            let frame = tokio::select! {
                frame = self.frames.next() => frame?.ok()?,
                () = &mut self.over => {
                    self.ended = true;
                    return Some(Event::default().event("login").data("{}"));
                }
            };
            // The token was revoked.
            if frame.starts_with(b"event: problem") {
                self.ended = true;
                return Some(Event::default().event("login").data("{}"));
            }
            if tick.add(&frame) {
                break Instant::now();
            }
        };
        let end = first + TICK;
        while let Ok(frame) = tokio::time::timeout_at(end, self.frames.next()).await {
            match frame {
                Some(Ok(frame)) => drop(tick.add(&frame)),
                // What was collected is sent first.
                _ => break,
            }
        }
        Some(Event::default().event("rows").data(tick.data()))
    }
}

/// The events of one tick.
#[derive(Default)]
struct Tick {
    rows: Vec<String>,
    left_out: u64,
}

impl Tick {
    /// Adds a frame. Returns whether it was an event.
    fn add(&mut self, frame: &[u8]) -> bool {
        let text = String::from_utf8_lossy(frame);
        let Some(data) = text.lines().find_map(|line| line.strip_prefix("data: ")) else {
            return false;
        };
        #[derive(Deserialize)]
        struct Missed {
            count: u64,
        }
        if text.starts_with("event: missed") {
            self.left_out += serde_json::from_str::<Missed>(data).map_or(0, |missed| missed.count);
        } else if self.rows.len() >= PER_TICK {
            self.left_out += 1;
        } else if let Ok(event) = serde_json::from_str::<EventJson>(data) {
            self.rows.push(row(&event).into_string());
        }
        true
    }

    fn data(&self) -> String {
        json!({"rows": self.rows.concat(), "left_out": self.left_out}).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_become_rows_up_to_a_limit_and_the_rest_is_counted() {
        let frame = br#"event: put
data: {"event":"put","kind":"mail","id":"<b>","at":"2026-12-01T08:00:00.000Z","generation":1,"outcome":"created"}

"#;
        let mut tick = Tick::default();
        assert!(!tick.add(b": still here\n\n"));
        for _ in 0..PER_TICK + 3 {
            assert!(tick.add(frame));
        }
        assert!(tick.add(b"event: missed\ndata: {\"count\":7}\n\n"));
        assert_eq!((tick.rows.len(), tick.left_out), (PER_TICK, 10));
        assert!(tick.rows[0].contains("08:00:00") && tick.rows[0].contains("&lt;b&gt;"));
    }
}
