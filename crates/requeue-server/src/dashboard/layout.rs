//! The frame of all pages: navigation, search, messages, and pages about errors and the login.

use super::format::text;
use super::session::without_notice;
use super::view::{Page, PageRequest, View, status};
use super::{Dashboard, SCRIPT, STYLE, url};
use axum::extract::State;
use axum::response::{Html, IntoResponse, Response};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use requeue_http::{Problem, ProblemType};
use std::sync::LazyLock;

/// The pages in the navigation: path, name.
const TABS: [(&str, &str); 6] = [
    ("./", "Overview"),
    ("dead", "Dead"),
    ("workers", "Workers"),
    ("schedules", "Schedules"),
    ("push", "Webhooks"),
    ("events", "Events"),
];

/// The script, with a name that changes with its content, because browsers keep it.
static SCRIPT_URL: LazyLock<String> = LazyLock::new(|| {
    let digest = ring::digest::digest(&ring::digest::SHA256, SCRIPT.as_bytes());
    let hex: String = digest.as_ref()[..6].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("app.js?v={hex}")
});

/// Returns a page.
pub(super) fn page(view: &View, request: &PageRequest, page: &Page) -> Response {
    let here = request.here();
    let is_live = page.parts.iter().any(|part| part.live);
    let main = html! {
        main #main tabindex="-1" data-stream=[is_live.then_some(if here.is_empty() { "./" } else { &here })] {
            @if let Some(notice) = &view.notice {
                p .notice role="status" { (text(notice)) }
            }
            @for part in &page.parts {
                section id=(part.id) data-live[part.live] { (part.html) }
            }
        }
    };
    let response = Html(frame(view, page.tab, &page.title, &main).into_string()).into_response();
    if view.notice.is_some() { without_notice(response) } else { response }
}

/// Returns a page about a problem that a request of a person had.
pub(super) fn problem(view: &View, request: &PageRequest, problem: &Problem) -> Response {
    let body = html! {
        main #main tabindex="-1" {
            h1 { (sentence(&problem.title)) }
            p .problem role="alert" { (text(&sentence(&problem.detail))) }
            @if problem.problem_type() == ProblemType::Absent { (removed_jobs()) (search_elsewhere(request)) }
            p { a href=(request.back()) { "Back" } " or to the " a href="./" { "overview" } "." }
        }
    };
    (status(problem), Html(frame(view, "", &problem.title, &body).into_string())).into_response()
}

/// Explains why a job may not exist anymore.
pub(super) fn removed_jobs() -> Markup {
    html! {
        p {
            "A job is removed when a worker acks it, unless its kind keeps done jobs (setting "
            em { "Keep done jobs for" }
            "); when it is cancelled; and when it has been dead for longer than its kind keeps dead jobs. "
            "So a job that is missing has probably been done."
        }
    }
}

/// Returns a link that looks for the job of a page in all kinds.
fn search_elsewhere(request: &PageRequest) -> Markup {
    let query = request.uri.query().unwrap_or_default();
    let fields = serde_urlencoded::from_str::<Vec<(String, String)>>(query).unwrap_or_default();
    html! {
        @if let Some((_, id)) = fields.iter().find(|(name, _)| name == "id") {
            p { a href=(url::link("go", &[("q", id)])) { "Look for this id in all kinds" } }
        }
    }
}

/// Returns a page about a problem that occurred before it was known who asks.
pub(super) fn failed(problem: &Problem) -> Response {
    let body = html! {
        main #main .narrow {
            h1 { (sentence(&problem.title)) }
            p .problem role="alert" { (text(&sentence(&problem.detail))) }
            p { a href="./" { "Try again" } }
        }
    };
    (status(problem), Html(document(&problem.title, &body).into_string())).into_response()
}

/// Returns a page that loads another page of the dashboard.
pub(super) fn reload(page: &str) -> Markup {
    let page = if page.is_empty() { "./" } else { page };
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="refresh" content={ "0;url=" (page) };
                link rel="icon" type="image/svg+xml" href="icon.svg";
                title { "requeue" }
            }
            body { p { a href=(page) { "Continue" } } }
        }
    }
}

/// Returns the form to enter a token.
pub(super) fn login(next: &str, problem: Option<&Problem>) -> Markup {
    let body = html! {
        main #main .narrow {
            form .login method="post" action="login" {
                p .brand { img src="icon.svg" alt="" width="28" height="28"; "requeue" }
                h1 { "Log in" }
                @if let Some(problem) = problem {
                    p .problem #login-error role="alert" { (text(&sentence(&problem.detail))) }
                }
                input type="hidden" name="next" value=(next);
                label for="token" { "Access token" }
                input #token type="password" name="token" required autofocus autocomplete="current-password"
                    aria-describedby="token-help" spellcheck="false";
                p #token-help .quiet {
                    "A token of this server: REQUEUE_TOKEN or a line of its token file. "
                    "With a read token, the dashboard shows everything and changes nothing."
                }
                button .primary type="submit" { "Log in" }
            }
        }
    };
    document("Log in", &body)
}

/// Shows the keys that the dashboard knows.
pub(super) async fn help(State(dashboard): State<Dashboard>, request: PageRequest) -> Response {
    dashboard
        .respond(request, |_| async {
            Ok(Page::new("", "Help").fixed("help", html! { h1 { "Help" } (keys()) (words()) }))
        })
        .await
}

fn keys() -> Markup {
    let keys = [
        ("/", "Find a kind, or a job by its id"),
        ("?", "Show this page"),
        ("g o", "Overview"),
        ("g d", "Dead jobs"),
        ("g w", "Workers"),
        ("g s", "Schedules"),
        ("g p", "Webhooks"),
        ("g e", "Events"),
    ];
    html! {
        h2 { "Keys" }
        table .plain {
            tbody {
                @for (key, meaning) in keys {
                    tr { th scope="row" { kbd { (key) } } td { (meaning) } }
                }
            }
        }
    }
}

fn words() -> Markup {
    let words = [
        ("Kind", "A type of jobs, with its own settings: a queue or topic elsewhere."),
        ("Waiting", "The job is not due yet."),
        ("Ready", "The job is due. The next claim returns it."),
        ("Leased", "A worker has claimed the job, and holds it until its lease ends (in flight)."),
        (
            "Dead",
            "The job failed as often as its kind allows, or was buried: the dead-letter queue.",
        ),
        ("Done", "The job was acked, and its kind keeps done jobs."),
        ("Lateness", "The time between the due time of a job and its claim."),
        ("Successor", "A put that arrived while the job was leased. It runs when the lease ends."),
    ];
    html! {
        h2 { "Words" }
        dl .words {
            @for (word, meaning) in words { dt { (word) } dd { (meaning) } }
        }
    }
}

fn frame(view: &View, tab: &str, title: &str, main: &Markup) -> Markup {
    let body = html! {
        a .skip href="#main" { "Skip to content" }
        header .top {
            a .brand href="./" { img src="icon.svg" alt="" width="22" height="22"; "requeue" }
            nav aria-label="Pages" {
                @for (path, name) in TABS {
                    a href=(path) aria-current=[(path == tab).then_some("page")] { (name) }
                }
            }
            form .search role="search" action="go" {
                label .hidden for="search" { "Find a kind, or a job by its id or as kind/id" }
                input #search type="search" name="q" placeholder="kind, id or kind/id" maxlength="700"
                    autocomplete="off" spellcheck="false";
                kbd aria-hidden="true" { "/" }
            }
            div .who {
                @if !view.can_act() { span .badge title="This token permits no actions" { "read-only" } }
                @if view.access.restricted {
                    form method="post" action="logout" {
                        @if let Some(name) = &view.access.name { span .quiet { (text(name)) } }
                        button .link type="submit" { "Log out" }
                    }
                }
            }
        }
        (main)
        footer .bottom {
            span #live-status role="status" {}
            span #zone { "Times in UTC" }
            span { "requeue " (env!("CARGO_PKG_VERSION")) }
            a href="help" { "Keys and words" }
            a href="v1/openapi.json" { "API" }
        }
    };
    document(title, &body)
}

fn document(title: &str, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · requeue" }
                link rel="icon" type="image/svg+xml" href="icon.svg";
                style { (PreEscaped(STYLE)) }
                script src=(*SCRIPT_URL) defer {}
            }
            body { (body) }
        }
    }
}

/// Returns a message as a sentence: with a capital letter.
pub(super) fn sentence(message: &str) -> String {
    let mut chars = message.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().chain(chars).collect(),
        None => String::new(),
    }
}
