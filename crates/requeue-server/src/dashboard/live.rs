//! The live stream of a page: server-sent events with the parts that have changed.
//!
//! The page is rendered every [`INTERVAL`], with fresh data of the API. A part is sent if its HTML differs
//! from what was sent before. So the cost of an open page does not depend on how much happens, and a page
//! on which nothing changes costs no bytes. Browsers close the stream while the page is hidden.

use super::Dashboard;
use super::view::{Page, View};
use crate::response::ProblemResponse;
use crate::shares::Slot;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;
use requeue_http::{Problem, ProblemType};
use serde_json::json;
use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::time::Duration;

/// How often a page is rendered.
const INTERVAL: Duration = Duration::from_secs(2);

/// After this long without an event a comment is sent, because proxies close idle connections.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Returns the stream of a page. It ends when the client disconnects, when the server stops, and when the
/// token is no longer valid.
pub(super) fn stream<F, R>(dashboard: Dashboard, view: View, render: R) -> Response
where
    R: Fn(View) -> F + Send + Sync + 'static,
    F: Future<Output = Result<Page, Problem>> + Send + 'static,
{
    let slot = match dashboard.streams.take(view.api.caller(), 1) {
        Ok(slot) => slot,
        Err(busy) => return ProblemResponse(busy).into_response(),
    };
    let state = LiveState {
        dashboard,
        view: View { live: true, notice: None, ..view },
        render,
        sent: HashMap::new(),
        ready: VecDeque::new(),
        is_first: true,
        is_over: false,
        _slot: slot,
    };
    let events = unfold(state, |mut state| async move {
        let event = state.next().await?;
        Some((Ok::<_, Infallible>(event), state))
    });
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE).text("still here");
    // Without this, nginx would buffer events.
    ([("x-accel-buffering", "no")], Sse::new(events).keep_alive(keep_alive)).into_response()
}

/// Returns a stream that tells the page to ask for a token: the one it had is no longer valid.
pub(super) fn login_required() -> Response {
    let event = Event::default().event("login").data("{}");
    Sse::new(futures_util::stream::iter([Ok::<_, Infallible>(event)])).into_response()
}

/// The problem that ends the stream of a page when the session ends.
pub(super) fn session_over() -> Problem {
    Problem::new(ProblemType::Unauthorized, "the session is over: log in again")
}

/// A page that somebody looks at.
struct LiveState<R> {
    dashboard: Dashboard,
    view: View,
    render: R,
    /// The HTML of each part, as it was sent last.
    sent: HashMap<&'static str, String>,
    ready: VecDeque<Event>,
    is_first: bool,
    is_over: bool,
    _slot: Slot,
}

impl<F, R> LiveState<R>
where
    R: Fn(View) -> F + Send + Sync,
    F: Future<Output = Result<Page, Problem>> + Send,
{
    /// Waits for the next event. `None` ends the stream.
    async fn next(&mut self) -> Option<Event> {
        let stop = self.dashboard.app.shutdown().clone();
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.is_over {
                return None;
            }
            if !std::mem::take(&mut self.is_first) {
                let pause = self.dashboard.app.clock().sleep(INTERVAL);
                tokio::select! {
                    biased;
                    () = stop.requested() => return None,
                    problem = self.view.api.caller().revoked() => {
                        self.add_problem(&problem);
                        continue;
                    }
                    () = pause => {}
                }
            }
            self.view.now = self.dashboard.app.reading().now;
            if self.view.ends_at.is_some_and(|at| at <= self.view.now) {
                self.add_problem(&session_over());
                continue;
            }
            match (self.render)(self.view.clone()).await {
                Ok(page) => self.add_changes(page),
                Err(problem) => self.add_problem(&problem),
            }
        }
    }

    fn add_changes(&mut self, page: Page) {
        for part in page.parts.into_iter().filter(|part| part.live) {
            let html = part.html.into_string();
            if self.sent.get(part.id) != Some(&html) {
                let data = json!({"id": part.id, "html": html}).to_string();
                self.ready.push_back(Event::default().event("part").data(data));
                self.sent.insert(part.id, html);
            }
        }
    }

    fn add_problem(&mut self, problem: &Problem) {
        let name = match problem.problem_type() {
            ProblemType::Unauthorized => {
                self.is_over = true;
                "login"
            }
            _ => "problem",
        };
        let data = json!({"detail": problem.detail}).to_string();
        self.ready.push_back(Event::default().event(name).data(data));
    }
}
