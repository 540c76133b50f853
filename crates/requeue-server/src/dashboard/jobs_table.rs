//! The jobs of a kind by state, with filters, pages and actions.
//!
//! Without a filter, jobs are listed in the order of time, which costs the same however many there are.
//! With a prefix they are listed by id. The other filters examine jobs, at most 10,000 per page, so such
//! a list is not live.

use super::format::{between, bytes, count, escaped, excerpt, maybe_time, none, time};
use super::tables::{Choice, choices, hidden, job_link, state};
use super::url;
use super::view::{Page, View};
use maud::{Markup, html};
use requeue_http::Problem;
use requeue_http::wire::{JobJson, JobPage, KindStats, StateJson, Word};
use serde::Deserialize;

/// The number of jobs on a page.
const PAGE: &str = "50";

/// Bodies up to this size are shown in the list.
const BODY_LIMIT: &str = "400";

const STATES: [StateJson; 5] =
    [StateJson::Ready, StateJson::Waiting, StateJson::Leased, StateJson::Dead, StateJson::Done];

/// Which jobs of a kind are shown.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct JobsFilter {
    pub(super) kind: String,
    /// `all` for jobs in any state, by id.
    #[serde(default)]
    pub(super) state: String,
    #[serde(default)]
    pub(super) prefix: String,
    #[serde(default)]
    pub(super) error: String,
    #[serde(default)]
    pub(super) error_group: String,
    #[serde(default)]
    pub(super) expired: String,
    #[serde(default)]
    pub(super) priority: String,
    #[serde(default)]
    pub(super) after: String,
}

impl JobsFilter {
    /// Returns the parameters of the page, without its position.
    pub(super) fn parameters(&self) -> Vec<(&'static str, &str)> {
        let mut parameters = vec![("kind", self.kind.as_str())];
        parameters.extend(self.conditions());
        if self.state == ALL {
            parameters.push(("state", ALL));
        }
        parameters
    }

    /// Returns the conditions, as the API names them.
    pub(super) fn conditions(&self) -> Vec<(&'static str, &str)> {
        let state = if self.state == ALL { "" } else { &self.state };
        let conditions = [
            ("state", state),
            ("prefix", &self.prefix),
            ("error", &self.error),
            ("error_group", &self.error_group),
            ("expired", &self.expired),
            ("priority", &self.priority),
        ];
        conditions.into_iter().filter(|(_, value)| !value.is_empty()).collect()
    }

    /// Returns whether jobs must be examined to find those that match.
    fn examines(&self) -> bool {
        [&self.error, &self.error_group, &self.expired, &self.priority]
            .iter()
            .any(|text| !text.is_empty())
    }

    fn is_filtered(&self) -> bool {
        self.examines() || !self.prefix.is_empty()
    }

    /// Returns the state that is shown: the chosen one, or the first that has jobs.
    fn shown_state(&self, kind: &KindStats) -> Option<StateJson> {
        if self.state == ALL {
            return None;
        }
        let chosen = STATES.into_iter().find(|state| state.name() == self.state);
        let with_jobs = || STATES.into_iter().find(|state| number(kind, *state) > 0);
        Some(chosen.or_else(with_jobs).unwrap_or(StateJson::Waiting))
    }

    /// Returns the order in which the API lists these jobs cheaply.
    fn order(&self, state: Option<StateJson>) -> &'static str {
        match state {
            _ if !self.prefix.is_empty() => "id",
            None => "id",
            Some(StateJson::Dead | StateJson::Done) => "newest",
            Some(_) => "time",
        }
    }
}

/// The choice of jobs in any state.
const ALL: &str = "all";

fn number(kind: &KindStats, state: StateJson) -> u64 {
    match state {
        StateJson::Waiting => kind.pending.saturating_sub(kind.ready),
        StateJson::Ready => kind.ready,
        StateJson::Leased => kind.leased,
        StateJson::Dead => kind.dead,
        StateJson::Done => kind.done,
    }
}

/// Adds the list to the page of a kind.
pub(super) async fn add(
    page: Page,
    view: &View,
    kind: &KindStats,
    filter: &JobsFilter,
) -> Result<Page, Problem> {
    let state = filter.shown_state(kind);
    let filter =
        &JobsFilter { state: state.map_or(ALL, StateJson::name).to_owned(), ..filter.clone() };
    let is_live = !filter.is_filtered() && state.is_some() && filter.after.is_empty();
    let page = page.live("states", tabs(kind, filter));
    if view.live && !is_live {
        return Ok(page);
    }
    let mut parameters = filter.conditions();
    parameters.extend([
        ("order", filter.order(state)),
        ("limit", PAGE),
        ("body_limit", BODY_LIMIT),
        ("after", &filter.after),
    ]);
    let path = url::link(&url::kind_api(&kind.kind, "/jobs"), &parameters);
    let jobs: JobPage = view.api.get(&path).await?;
    let list = list(view, filter, state, &jobs);
    let page = if view.live { page } else { page.fixed("filter", search(filter)) };
    Ok(if is_live { page.live("jobs", list) } else { page.fixed("jobs", list) })
}

fn tabs(kind: &KindStats, filter: &JobsFilter) -> Markup {
    let link = |state: &str| {
        let other = JobsFilter { state: state.to_owned(), after: String::new(), ..filter.clone() };
        // An error is a condition for dead jobs and retries, and would hide all others.
        url::link("kind", &other.parameters())
    };
    let mut tabs: Vec<Choice> = STATES
        .iter()
        .filter(|state| **state != StateJson::Done || kind.done > 0 || filter.state == "done")
        .map(|state| {
            let name = state.name();
            let capped = if *state == StateJson::Ready && kind.ready_capped { "+" } else { "" };
            let title = format!("{name} {}{capped}", count(number(kind, *state)));
            (title, link(name), filter.state == name)
        })
        .collect();
    tabs.push(("all, by id".to_owned(), link(ALL), filter.state == ALL));
    html! {
        div .head { h2 #jobs-heading { "Jobs" } (choices("State", &tabs)) }
    }
}

fn search(filter: &JobsFilter) -> Markup {
    html! {
        form .filter action="kind" {
            input type="hidden" name="kind" value=(filter.kind);
            input type="hidden" name="state" value=(filter.state);
            label { "Id starts with " input type="search" name="prefix" value=(filter.prefix) maxlength="512"; }
            label { "Error contains " input type="search" name="error" value=(filter.error) maxlength="2048"; }
            label {
                "Priority "
                select name="priority" {
                    option value="" { "any" }
                    @for level in 0..=9 {
                        @let level = level.to_string();
                        option value=(level) selected[filter.priority == level] { (level) }
                    }
                }
            }
            @if !filter.error_group.is_empty() {
                label { "Error like " input type="search" name="error_group" value=(filter.error_group); }
            }
            @if !filter.expired.is_empty() { input type="hidden" name="expired" value=(filter.expired); }
            button type="submit" { "Filter" }
            @if filter.is_filtered() {
                a href=(url::link("kind", &[("kind", &filter.kind), ("state", &filter.state)])) { "Clear" }
            }
        }
    }
}

/// The actions that make sense in a state: path of the API, name.
fn actions(state: Option<StateJson>) -> &'static [(&'static str, &'static str)] {
    match state {
        Some(StateJson::Waiting) => &[("run-now", "Run now"), ("cancel", "Cancel")],
        Some(StateJson::Ready | StateJson::Leased) => &[("cancel", "Cancel")],
        Some(StateJson::Dead) => &[("revive", "Revive"), ("cancel", "Cancel")],
        Some(StateJson::Done) => &[("cancel", "Remove")],
        None => &[("run-now", "Run now"), ("revive", "Revive"), ("cancel", "Cancel")],
    }
}

fn list(view: &View, filter: &JobsFilter, state: Option<StateJson>, page: &JobPage) -> Markup {
    if page.jobs.is_empty() && page.cursor.is_none() && filter.after.is_empty() {
        return html! {
            p .empty {
                @if filter.is_filtered() { "No jobs match." } @else { "No jobs in this state." }
            }
        };
    }
    let table = html! {
        div .scroll tabindex="0" role="region" aria-labelledby="jobs-heading" {
            table {
                thead { tr {
                    @if view.may_change(&filter.kind) {
                        th scope="col" .check { input type="checkbox" data-select-all aria-label="Select all jobs on this page" hidden; }
                    }
                    th scope="col" { "Id" }
                    @for (title, is_number) in columns(state) { th scope="col" .number[*is_number] { (title) } }
                } }
                tbody {
                    @for job in &page.jobs { (row(view, state, job)) }
                }
            }
        }
    };
    html! {
        @if view.may_change(&filter.kind) {
            form .jobs method="post" action="confirm" {
                (hidden(&filter.parameters()))
                (bar(state))
                (table)
            }
        } @else {
            (table)
        }
        (pages(filter, page))
    }
}

fn bar(state: Option<StateJson>) -> Markup {
    html! {
        fieldset .bar {
            legend .hidden { "Actions" }
            label { input type="radio" name="scope" value="selected" checked; " selected " span data-selected {} }
            label { input type="radio" name="scope" value="all"; " all that match" }
            @for (action, name) in actions(state) {
                button type="submit" name="action" value=(action) .danger[*action == "cancel"] { (name) "…" }
            }
        }
    }
}

/// The columns after the id: title, whether it is a number.
fn columns(state: Option<StateJson>) -> &'static [(&'static str, bool)] {
    match state {
        Some(StateJson::Waiting | StateJson::Ready) => &[
            ("Due", false),
            ("Priority", true),
            ("Failures", true),
            ("Last error", false),
            ("Body", false),
        ],
        Some(StateJson::Leased) => &[
            ("Worker", false),
            ("Since", false),
            ("Lease ends", false),
            ("Attempt", true),
            ("Body", false),
        ],
        Some(StateJson::Dead) => {
            &[("Died", false), ("Failures", true), ("Last error", false), ("Body", false)]
        }
        Some(StateJson::Done) => &[
            ("Done", false),
            ("Worker", false),
            ("Took", true),
            ("Failures", true),
            ("Result", false),
        ],
        None => &[
            ("State", false),
            ("Due", false),
            ("Failures", true),
            ("Last error", false),
            ("Body", false),
        ],
    }
}

fn row(view: &View, listed: Option<StateJson>, job: &JobJson) -> Markup {
    let last_error = || match job.failures.last() {
        Some(failure) => match &failure.error {
            Some(error) => excerpt(error, 120),
            None => html! { "lease expired" },
        },
        None => none(),
    };
    let body = || preview(job);
    let cells = match listed {
        Some(StateJson::Waiting | StateJson::Ready) => html! {
            td data-label="Due" { (time(view, &job.due)) }
            td .number data-label="Priority" { (priority(job.priority)) }
            td .number data-label="Failures" { (failures(job.attempts)) }
            td .error data-label="Last error" { (last_error()) }
            td .body data-label="Body" { (body()) }
        },
        Some(StateJson::Leased) => {
            let lease = job.lease.as_ref();
            html! {
                td data-label="Worker" { @match lease { Some(lease) => { (excerpt(&lease.worker, 40)) } None => { (none()) } } }
                td data-label="Since" { (maybe_time(view, lease.map(|lease| &*lease.claimed_at))) }
                td data-label="Lease ends" { (maybe_time(view, lease.map(|lease| &*lease.ends_at))) }
                td .number data-label="Attempt" { (job.attempts + 1) }
                td .body data-label="Body" { (body()) }
            }
        }
        Some(StateJson::Dead) => html! {
            td data-label="Died" { (maybe_time(view, job.died_at.as_deref())) }
            td .number data-label="Failures" { (failures(job.attempts)) }
            td .error data-label="Last error" { (last_error()) }
            td .body data-label="Body" { (body()) }
        },
        Some(StateJson::Done) => html! {
            @if let Some(done) = &job.done {
                td data-label="Done" { (time(view, &done.done_at)) }
                td data-label="Worker" { (excerpt(&done.worker, 40)) }
                td .number data-label="Took" { (between(&done.started_at, &done.done_at)) }
                td .number data-label="Failures" { (failures(job.attempts)) }
                td .body data-label="Result" { (result_preview(job)) }
            }
        },
        None => html! {
            td data-label="State" { (state(job.state)) }
            td data-label="Due" { (time(view, &job.due)) }
            td .number data-label="Failures" { (failures(job.attempts)) }
            td .error data-label="Last error" { (last_error()) }
            td .body data-label="Body" { (body()) }
        },
    };
    html! {
        // The key by which the script recognizes the row.
        tr data-key=(escaped(&job.id)) {
            @if view.may_change(&job.kind) {
                td .check { input type="checkbox" name="id" value=(url::encode(&job.id)) aria-label={ "Select " (escaped(&job.id)) }; }
            }
            th scope="row" { (job_link(&job.kind, &job.id)) }
            (cells)
        }
    }
}

fn priority(level: u8) -> Markup {
    if level == 0 {
        html! { span .none { "0" } }
    } else {
        html! { (level) }
    }
}

fn failures(attempts: u32) -> Markup {
    if attempts == 0 {
        html! { span .none { "0" } }
    } else {
        html! { (count(attempts.into())) }
    }
}

/// Returns the beginning of the body, or its size if it is long.
fn preview(job: &JobJson) -> Markup {
    if let Some(body) = &job.body {
        return html! { code { (excerpt(body.get(), 100)) } };
    }
    match (&job.body_text, &job.body_base64, job.body_bytes) {
        (Some(body), ..) if !body.is_empty() => html! { code { (excerpt(body, 100)) } },
        (_, Some(body), _) => html! { span .quiet { "binary, " (bytes(body.len() / 4 * 3)) } },
        (.., Some(length)) => html! { span .quiet { (bytes(length)) } },
        _ => none(),
    }
}

fn result_preview(job: &JobJson) -> Markup {
    let result = job.done.as_ref().and_then(|done| done.result.as_ref());
    match result.map(|result| (&result.body, &result.body_text)) {
        Some((Some(body), _)) => html! { code { (excerpt(body.get(), 100)) } },
        Some((_, Some(text))) => html! { code { (excerpt(text, 100)) } },
        _ => none(),
    }
}

fn pages(filter: &JobsFilter, page: &JobPage) -> Markup {
    let link = |after: &str| {
        let mut parameters = filter.parameters();
        parameters.push(("after", after));
        url::link("kind", &parameters)
    };
    html! {
        nav .pages aria-label="Pages of jobs" {
            @if !filter.after.is_empty() { a .button href=(link("")) { "First page" } }
            @if let Some(cursor) = &page.cursor {
                a .button rel="next" href=(link(cursor)) {
                    @if page.jobs.is_empty() { "Search on" } @else { "Next page" }
                }
            }
            @if page.jobs.is_empty() {
                span .quiet {
                    @if page.cursor.is_some() { "None of the jobs that were examined match." } @else { "No more jobs match." }
                }
            }
        }
    }
}
