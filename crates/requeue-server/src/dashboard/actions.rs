//! What the buttons do. Each is one call of the API, and is logged with who did it.

use super::api::Client;
use super::session::with_notice;
use super::view::{ActionForm, PageRequest, View, see};
use super::{Dashboard, layout, url};
use axum::extract::State;
use axum::http::Method;
use axum::response::Response;
use requeue_http::wire::{
    ChangeBatch, ChangeDone, ChangeEntry, ChangeResult, ChangeVerb, EntryResult, KindDeleted,
    PutDone, PutOutcomeJson, RescheduleRequest, Results,
};
use requeue_http::{Problem, ProblemType};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// How long one request deletes the jobs of a kind.
const DELETE_TIME: Duration = Duration::from_secs(20);

/// Logs an action of a person, and what became of it.
pub(super) fn audit(view: &View, action: &str, what: &str, result: &Result<String, Problem>) {
    let who = match (&view.access.name, view.access.restricted) {
        (Some(name), _) => name.as_str(),
        (None, true) => "a token without a name",
        (None, false) => "anyone (the server requires no token)",
    };
    match result {
        Ok(result) => tracing::info!(who, action, what, result, "dashboard"),
        Err(problem) => {
            tracing::warn!(who, action, what, problem = problem.detail, "dashboard: action failed");
        }
    }
}

/// Runs an action, logs it, and responds with the page `next` and a message.
pub(super) async fn act(
    dashboard: &Dashboard,
    request: &PageRequest,
    (action, what): (&str, &str),
    next: &str,
    work: impl AsyncFnOnce(&Client) -> Result<String, Problem>,
) -> Response {
    let view = match dashboard.view(request).await {
        Ok(view) => view,
        Err(response) => return response,
    };
    let result = work(&view.api).await;
    audit(&view, action, what, &result);
    match result {
        Ok(notice) => with_notice(see(next), &notice),
        Err(problem) => layout::problem(&view, request, &problem),
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct KindForm {
    kind: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct JobForm {
    kind: String,
    id: String,
}

pub(super) async fn pause(
    State(dashboard): State<Dashboard>,
    request: PageRequest,
    ActionForm(form): ActionForm<KindForm>,
) -> Response {
    let path = url::kind_api(&form.kind, "/pause");
    act(&dashboard, &request, ("pause", &form.kind), &url::kind(&form.kind), async |api| {
        api.send::<()>(Method::POST, &path).await?;
        Ok(format!("Paused {}. Its jobs are not handed out.", form.kind))
    })
    .await
}

pub(super) async fn resume(
    State(dashboard): State<Dashboard>,
    request: PageRequest,
    ActionForm(form): ActionForm<KindForm>,
) -> Response {
    let path = url::kind_api(&form.kind, "/resume");
    act(&dashboard, &request, ("resume", &form.kind), &url::kind(&form.kind), async |api| {
        api.send::<()>(Method::POST, &path).await?;
        Ok(format!("Resumed {}.", form.kind))
    })
    .await
}

pub(super) async fn delete_kind(
    State(dashboard): State<Dashboard>,
    request: PageRequest,
    ActionForm(form): ActionForm<KindForm>,
) -> Response {
    let path = url::kind_api(&form.kind, "");
    act(&dashboard, &request, ("delete kind", &form.kind), "", async |api| {
        let mut removed = 0;
        let mut next = path.clone();
        let began = Instant::now();
        loop {
            let deleted: KindDeleted = api.send(Method::DELETE, &next).await?;
            removed += deleted.removed + deleted.ending;
            let so_far = super::format::jobs(removed);
            match deleted.cursor {
                None => return Ok(format!("Deleted {} with {so_far}.", form.kind)),
                Some(_) if began.elapsed() > DELETE_TIME => {
                    return Ok(format!(
                        "Deleted {so_far} of {}. More are left: delete it again.",
                        form.kind
                    ));
                }
                Some(cursor) => next = url::link(&path, &[("after", &cursor)]),
            }
        }
    })
    .await
}

pub(super) async fn run_now(
    State(dashboard): State<Dashboard>,
    request: PageRequest,
    ActionForm(form): ActionForm<JobForm>,
) -> Response {
    change(&dashboard, &request, &form, ChangeVerb::RunNow).await
}

pub(super) async fn revive(
    State(dashboard): State<Dashboard>,
    request: PageRequest,
    ActionForm(form): ActionForm<JobForm>,
) -> Response {
    change(&dashboard, &request, &form, ChangeVerb::Revive).await
}

pub(super) async fn cancel(
    State(dashboard): State<Dashboard>,
    request: PageRequest,
    ActionForm(form): ActionForm<JobForm>,
) -> Response {
    change(&dashboard, &request, &form, ChangeVerb::Cancel).await
}

async fn change(
    dashboard: &Dashboard,
    request: &PageRequest,
    form: &JobForm,
    verb: ChangeVerb,
) -> Response {
    let JobForm { kind, id } = form;
    let (action, next) = match verb {
        ChangeVerb::Cancel => ("cancel", url::kind(kind)),
        ChangeVerb::RunNow => ("run now", url::job(kind, id)),
        ChangeVerb::Revive => ("revive", url::job(kind, id)),
        ChangeVerb::Reschedule => ("reschedule", url::job(kind, id)),
    };
    let entry = ChangeEntry { kind: kind.clone(), id: id.clone(), what: verb, set: None };
    act(dashboard, request, (action, &format!("{kind}/{id}")), &next, async |api| {
        let batch = ChangeBatch { jobs: vec![entry] };
        let results: Results<ChangeDone> =
            api.send_json(Method::POST, "/v1/change", &batch).await?;
        match results.results.into_iter().next() {
            Some(EntryResult::Error { error }) => Err(*error),
            Some(EntryResult::Done(done)) => Ok(match done.result {
                ChangeResult::Removed => format!("Removed {id}."),
                ChangeResult::Ending => {
                    format!("{id} is leased. It is removed when its lease ends.")
                }
                ChangeResult::Ready => format!("{id} is due now."),
                ChangeResult::Revived => format!("Revived {id}. It is due now."),
                _ => format!("Changed {id}."),
            }),
            None => Err(Problem::new(ProblemType::Bug, "the API returned no result")),
        }
    })
    .await
}

#[derive(Debug, Deserialize)]
pub(super) struct RescheduleForm {
    kind: String,
    id: String,
    due: String,
    generation: u64,
}

/// Changes the due time of a job, unless the job has changed since the page was loaded.
pub(super) async fn reschedule(
    State(dashboard): State<Dashboard>,
    request: PageRequest,
    ActionForm(form): ActionForm<RescheduleForm>,
) -> Response {
    let RescheduleForm { kind, id, due, generation } = form;
    let path = url::job_api(&kind, &id);
    let what = format!("{kind}/{id} to {due}");
    act(&dashboard, &request, ("reschedule", &what), &url::job(&kind, &id), async |api| {
        let change = RescheduleRequest {
            due: Some(due.trim().into()),
            if_generation: Some(generation),
            ..RescheduleRequest::default()
        };
        let done: PutDone = api.send_json(Method::PATCH, &path, &change).await?;
        Ok(match done.outcome {
            PutOutcomeJson::Coalesced => format!("{id} is leased. It runs again at that time."),
            PutOutcomeJson::Revived => format!("Revived {id}. It is due at that time."),
            _ => format!("Changed the due time of {id}."),
        })
    })
    .await
}

pub(super) async fn run_schedule(
    State(dashboard): State<Dashboard>,
    request: PageRequest,
    ActionForm(form): ActionForm<JobForm>,
) -> Response {
    let JobForm { kind, id } = &form;
    let path = format!("{}/run", schedule_api(kind, id));
    act(&dashboard, &request, ("run schedule", &format!("{kind}/{id}")), "schedules", async |api| {
        api.send::<PutDone>(Method::POST, &path).await?;
        Ok(format!("Started a run of {kind}/{id}."))
    })
    .await
}

pub(super) async fn pause_schedule(
    State(dashboard): State<Dashboard>,
    request: PageRequest,
    ActionForm(form): ActionForm<JobForm>,
) -> Response {
    set_schedule_paused(&dashboard, &request, &form, true).await
}

pub(super) async fn resume_schedule(
    State(dashboard): State<Dashboard>,
    request: PageRequest,
    ActionForm(form): ActionForm<JobForm>,
) -> Response {
    set_schedule_paused(&dashboard, &request, &form, false).await
}

async fn set_schedule_paused(
    dashboard: &Dashboard,
    request: &PageRequest,
    form: &JobForm,
    paused: bool,
) -> Response {
    let JobForm { kind, id } = form;
    let (action, done) =
        if paused { ("pause schedule", "Paused") } else { ("resume schedule", "Resumed") };
    let path = schedule_api(kind, id);
    act(dashboard, request, (action, &format!("{kind}/{id}")), "schedules", async |api| {
        api.send_json::<Value>(Method::PATCH, &path, &json!({"paused": paused})).await?;
        Ok(format!("{done} the schedule {kind}/{id}."))
    })
    .await
}

fn schedule_api(kind: &str, id: &str) -> String {
    format!("{}/{}", url::kind_api(kind, "/schedules"), url::encode(id))
}
