//! The search: for a kind by a part of its name, and for a job by its id.
//!
//! No store has an index of ids over all kinds, so a job without its kind is looked for in one kind after
//! the other. That is one read by key for each, of at most [`MAX_KINDS`] kinds and for at most [`LIMIT`]
//! per request. The page says how far the search came, and continues it.

use super::format::count;
use super::layout::removed_jobs;
use super::tables::{job_link, kind_link, state};
use super::view::{Page, PageQuery, PageRequest, View, see};
use super::{Dashboard, layout, url};
use axum::extract::State;
use axum::response::Response;
use futures_util::StreamExt;
use futures_util::stream::iter;
use maud::{Markup, html};
use requeue_http::wire::{JobJson, KindList, KindStats};
use requeue_http::{Problem, ProblemType};
use requeue_jobs::SCHEDULE_TIMERS;
use requeue_jobs::limits::MAX_ID_LEN;
use serde::Deserialize;
use std::time::{Duration, Instant};

/// In how many kinds one request looks for a job.
const MAX_KINDS: usize = 500;

/// How long one request looks for a job.
const LIMIT: Duration = Duration::from_secs(3);

/// How many kinds are read at the same time.
const CONCURRENT: usize = 8;

/// How many kinds with a matching name are listed.
const MAX_NAMES: usize = 20;

#[derive(Debug, Clone, Deserialize)]
pub(super) struct SearchQuery {
    #[serde(default)]
    q: String,
    /// Looks only in the kinds after this one.
    #[serde(default)]
    after: String,
}

/// What was found.
struct Found {
    /// Kinds whose names contain the text.
    kinds: Vec<KindStats>,
    jobs: Vec<JobJson>,
    /// In how many kinds the search has looked for the job, and how many there are.
    examined: usize,
    all: usize,
    /// The last kind, if there are more.
    cursor: Option<String>,
}

pub(super) async fn go(
    State(dashboard): State<Dashboard>,
    request: PageRequest,
    PageQuery(query): PageQuery<SearchQuery>,
) -> Response {
    let view = match dashboard.view(&request).await {
        Ok(view) => view,
        Err(response) => return response,
    };
    // It reads hundreds of kinds.
    let slot = match dashboard.app.scan_slot(view.api.caller()).await {
        Ok(slot) => slot,
        Err(problem) => return layout::problem(&view, &request, &problem),
    };
    let found = search(&view, &query).await;
    drop(slot);
    match found {
        Ok(Outcome::Open(page)) => see(&page),
        Ok(Outcome::Show(found)) => layout::page(&view, &request, &page(&query, &found)),
        Err(problem) => layout::problem(&view, &request, &problem),
    }
}

enum Outcome {
    /// There is one answer: this page.
    Open(String),
    Show(Found),
}

async fn search(view: &View, query: &SearchQuery) -> Result<Outcome, Problem> {
    let wanted = query.q.trim();
    if wanted.is_empty() {
        return Ok(Outcome::Open("./".to_owned()));
    }
    if let Some((kind, id)) = wanted.split_once('/')
        && find(view, kind.trim(), id.trim()).await?.is_some()
    {
        return Ok(Outcome::Open(url::job(kind.trim(), id.trim())));
    }
    let name = wanted.trim_end_matches('/').to_lowercase();
    let found = look(view, wanted, &name, &query.after).await?;
    Ok(match (&found.kinds[..], &found.jobs[..]) {
        ([], [job]) if found.cursor.is_none() => Outcome::Open(url::job(&job.kind, &job.id)),
        ([_, ..], []) if found.cursor.is_none() => {
            Outcome::Open(format!("./{}", url::link("", &[("q", &name)])))
        }
        _ => Outcome::Show(found),
    })
}

/// Returns the job, unless there is none or this cannot be the name of one.
async fn find(view: &View, kind: &str, id: &str) -> Result<Option<JobJson>, Problem> {
    if kind.is_empty() || id.is_empty() {
        return Ok(None);
    }
    match view.api.get::<JobJson>(&url::job_api(kind, id)).await {
        Ok(job) => Ok(Some(job)),
        Err(problem) => match problem.problem_type() {
            ProblemType::Absent | ProblemType::Invalid => Ok(None),
            _ => Err(problem),
        },
    }
}

async fn look(view: &View, id: &str, name: &str, after: &str) -> Result<Found, Problem> {
    let KindList { mut kinds } = view.api.get("/v1/kinds").await?;
    kinds.retain(|kind| kind.kind != SCHEDULE_TIMERS);
    let all = kinds.len();
    let named = |kind: &&KindStats| after.is_empty() && kind.kind.to_lowercase().contains(name);
    let named: Vec<KindStats> = kinds.iter().filter(named).cloned().collect();
    let skipped = kinds.iter().filter(|kind| kind.kind.as_str() <= after).count();
    let mut found = Found { kinds: named, jobs: Vec::new(), examined: skipped, all, cursor: None };
    if id.len() > MAX_ID_LEN {
        found.examined = all;
        return Ok(found);
    }
    let names: Vec<String> = kinds.into_iter().skip(skipped).map(|kind| kind.kind).collect();
    let reads = names.clone().into_iter().take(MAX_KINDS).map(|kind| {
        let (view, id) = (view.clone(), id.to_owned());
        async move { find(&view, &kind, &id).await }
    });
    let mut reads = iter(reads).buffered(CONCURRENT);
    let began = Instant::now();
    while began.elapsed() < LIMIT
        && let Some(job) = reads.next().await
    {
        found.jobs.extend(job?);
        found.examined += 1;
    }
    drop(reads);
    if found.examined < all {
        found.cursor = names.get(found.examined - skipped - 1).cloned();
    }
    Ok(found)
}

fn page(query: &SearchQuery, found: &Found) -> Page {
    let wanted = query.q.trim();
    let html = html! {
        h1 { "Search: " bdi { (super::format::text(wanted)) } }
        @if !found.jobs.is_empty() {
            h2 { "Jobs with this id" }
            ul .found {
                @for job in &found.jobs {
                    li { (kind_link(&job.kind)) " / " (job_link(&job.kind, &job.id)) " " (state(job.state)) }
                }
            }
        }
        @if !found.kinds.is_empty() {
            h2 { "Kinds whose name contains it" }
            ul .found {
                @for kind in found.kinds.iter().take(MAX_NAMES) { li { (kind_link(&kind.kind)) } }
                @if found.kinds.len() > MAX_NAMES {
                    li { a href={ "./" (url::link("", &[("q", wanted)])) } { "all " (count(found.kinds.len() as u64)) } }
                }
            }
        }
        @if found.jobs.is_empty() {
            p { "No job has exactly this id, in the kinds that were examined." }
            (removed_jobs())
        }
        (examined(query, found))
    };
    Page::new("./", "Search").fixed("search-page", html)
}

/// Says how far the search came.
fn examined(query: &SearchQuery, found: &Found) -> Markup {
    html! {
        p .quiet {
            "Looked for the job in " (count(found.examined as u64)) " of " (count(found.all as u64))
            (if found.all == 1 { " kind." } else { " kinds." })
        }
        @if let Some(cursor) = &found.cursor {
            p { a .button href=(url::link("go", &[("q", &query.q), ("after", cursor)])) { "Search on" } }
        }
    }
}
