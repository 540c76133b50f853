//! Actions on the selected jobs of a kind, or on all that match a filter.
//!
//! A call of the API changes up to 10,000 jobs. A request makes such calls for some seconds. If jobs are
//! left, it responds with a page that says how far it came and sends the next request: so a person sees
//! the progress of a change of millions, and can stop it.

use super::actions::audit;
use super::format::{count, jobs, text};
use super::jobs_table::JobsFilter;
use super::session::with_notice;
use super::tables::hidden;
use super::view::{FormBytes, Page, PageRequest, View, decoded_fields, see};
use super::{Dashboard, layout, url};
use crate::extract::off_runtime;
use axum::extract::State;
use axum::http::Method;
use axum::response::Response;
use maud::{Markup, html};
use requeue_http::wire::{
    BulkChangeResult, BulkVerb, ChangeDone, ChangeIds, EntryResult, JobFilter, KindList, KindStats,
    Results, Word,
};
use requeue_http::{Problem, ProblemType};
use requeue_jobs::SCHEDULE_TIMERS;
use requeue_jobs::limits::MAX_BATCH;
use serde::Deserialize;
use std::time::{Duration, Instant};

/// How long one request changes jobs.
const SLICE: Duration = Duration::from_secs(3);

/// How many ids the log names.
const MAX_LOGGED: usize = 20;

/// The scope of the dead jobs of all kinds. The kind of the form is then the one that has been reached.
pub(super) const EVERY_KIND: &str = "every-kind";

pub(super) fn title(action: BulkVerb) -> &'static str {
    match action {
        BulkVerb::RunNow => "Run now",
        BulkVerb::Revive => "Revive",
        BulkVerb::Cancel => "Cancel",
    }
}

pub(super) fn explanation(action: BulkVerb) -> &'static str {
    match action {
        BulkVerb::RunNow => "They become due now, whatever their due time and backoff.",
        BulkVerb::Revive => "They become due now, with no attempts counted.",
        BulkVerb::Cancel => {
            "They are removed; those that a worker holds, when their lease ends. It cannot be undone."
        }
    }
}

/// An action, and the jobs to which it applies.
#[derive(Debug, Clone)]
pub(super) struct BulkForm {
    pub(super) action: BulkVerb,
    pub(super) filter: JobsFilter,
    scope: String,
    pub(super) ids: Vec<String>,
    /// How many jobs were changed, and not changed, by the requests before.
    changed: u64,
    failed: u64,
}

#[derive(Debug, Deserialize)]
struct FormFields {
    #[serde(flatten)]
    filter: JobsFilter,
    action: String,
    #[serde(default)]
    scope: String,
    #[serde(default)]
    changed: String,
    #[serde(default)]
    failed: String,
}

impl BulkForm {
    /// Reads a form. The field `id` may occur many times.
    pub(super) fn read(body: &[u8]) -> Result<Self, Problem> {
        let malformed = |error: &dyn std::fmt::Display| {
            Problem::new(ProblemType::Malformed, format!("invalid form: {error}"))
        };
        let fields = decoded_fields(body)?;
        let (ids, mut fields): (Vec<_>, Vec<_>) =
            fields.into_iter().partition(|(name, _)| name == "id");
        if !fields.iter().any(|(name, _)| name == "kind")
            && fields.iter().any(|(name, value)| name == "scope" && value == EVERY_KIND)
        {
            fields.push(("kind".to_owned(), String::new()));
        }
        if ids.len() > MAX_BATCH {
            let detail = format!("{} jobs are selected; the limit is {MAX_BATCH}", ids.len());
            return Err(Problem::new(ProblemType::Invalid, detail).at("id"));
        }
        let fields = serde_urlencoded::to_string(fields).map_err(|error| malformed(&error))?;
        let fields: FormFields =
            serde_urlencoded::from_str(&fields).map_err(|error| malformed(&error))?;
        let number = |text: &str| text.parse().unwrap_or(0);
        let form = BulkForm {
            action: BulkVerb::by_name(&fields.action).ok_or_else(|| {
                let detail =
                    format!("{:?} is not an action: run-now, revive or cancel", fields.action);
                Problem::new(ProblemType::Invalid, detail).at("action")
            })?,
            filter: fields.filter,
            scope: fields.scope,
            ids: ids.into_iter().map(|(_, id)| id).collect(),
            changed: number(&fields.changed),
            failed: number(&fields.failed),
        };
        if form.is_every_kind() && form.action != BulkVerb::Revive {
            let detail = "only revive is possible for all kinds";
            return Err(Problem::new(ProblemType::Invalid, detail).at("action"));
        }
        Ok(form)
    }

    /// Returns whether the dead jobs of all kinds are meant.
    pub(super) fn is_every_kind(&self) -> bool {
        self.scope == EVERY_KIND
    }

    /// Returns whether all jobs that match are meant, and not the selected ones.
    pub(super) fn is_all(&self) -> bool {
        self.scope == "all"
    }

    /// Returns the fields of the form that sends this again.
    pub(super) fn hidden_fields(&self) -> Markup {
        let fields = self.fields();
        let fields: Vec<(&str, &str)> =
            fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        hidden(&fields)
    }

    fn fields(&self) -> Vec<(&'static str, String)> {
        let filter = self.filter.parameters().into_iter();
        let mut fields: Vec<_> = filter.map(|(name, value)| (name, value.to_owned())).collect();
        fields.extend([
            ("action", self.action.name().to_owned()),
            ("scope", self.scope.clone()),
            ("after", self.filter.after.clone()),
            ("changed", self.changed.to_string()),
            ("failed", self.failed.to_string()),
        ]);
        if !self.is_all() && !self.is_every_kind() {
            fields.extend(self.ids.iter().map(|id| ("id", id.clone())));
        }
        fields.retain(|(_, value)| !value.is_empty());
        fields
    }

    fn job_filter(&self) -> Result<JobFilter, Problem> {
        let conditions = self.filter.conditions();
        let query = url::link("", &conditions);
        let read = serde_urlencoded::from_str(query.trim_start_matches('?'));
        read.map_err(|error| Problem::new(ProblemType::Invalid, format!("invalid filter: {error}")))
    }

    /// Returns the page to which a person wants to return.
    fn page(&self) -> String {
        if self.is_every_kind() {
            return url::link("dead", &[]);
        }
        url::link("kind", &[("kind", &self.filter.kind), ("state", &self.filter.state)])
    }

    fn what(&self) -> String {
        if self.is_every_kind() {
            return "all dead jobs of all kinds".to_owned();
        }
        match self.is_all() {
            true => format!("all that match {}", url::link("kind", &self.filter.parameters())),
            false => {
                let ids = self.ids.iter().take(MAX_LOGGED).map(String::as_str);
                let more = self.ids.len().saturating_sub(MAX_LOGGED);
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                format!("{}/{{{}}}{more}", self.filter.kind, ids.collect::<Vec<_>>().join(", "))
            }
        }
    }
}

pub(super) async fn run(
    State(dashboard): State<Dashboard>,
    request: PageRequest,
    FormBytes(body): FormBytes,
) -> Response {
    let view = match dashboard.view(&request).await {
        Ok(view) => view,
        Err(response) => return response,
    };
    let mut form = match off_runtime(body.len(), move || BulkForm::read(&body)).await {
        Ok(form) => form,
        Err(problem) => return layout::problem(&view, &request, &problem),
    };
    let began = Instant::now();
    let done = match form.is_all() {
        _ if form.is_every_kind() => revive_every_kind(&view, &mut form, began).await,
        true => change_all(&view, &mut form, began).await,
        false => change_selected(&view, &mut form).await.map(|()| true),
    };
    let result = done.clone().map(|_| format!("{} changed, {} not", form.changed, form.failed));
    audit(&view, form.action.name(), &form.what(), &result);
    match done {
        Err(problem) => layout::problem(&view, &request, &problem),
        Ok(true) => with_notice(see(&form.page()), &notice(&form)),
        Ok(false) => layout::page(&view, &request, &progress(&form)),
    }
}

fn notice(form: &BulkForm) -> String {
    let done = match (form.action, form.changed) {
        (BulkVerb::RunNow, 1) => "is due now",
        (BulkVerb::RunNow, _) => "are due now",
        (BulkVerb::Revive, 1) => "was revived",
        (BulkVerb::Revive, _) => "were revived",
        (BulkVerb::Cancel, 1) => "was cancelled",
        (BulkVerb::Cancel, _) => "were cancelled",
    };
    let failed = match form.failed {
        0 => String::new(),
        failed => format!(
            " {} could not be changed, because they had changed in the meantime.",
            jobs(failed)
        ),
    };
    format!("{} {done}.{failed}", jobs(form.changed))
}

async fn change_selected(view: &View, form: &mut BulkForm) -> Result<(), Problem> {
    let path = url::kind_api(&form.filter.kind, &format!("/{}", form.action.name()));
    let body = ChangeIds { ids: Some(form.ids.clone()), ..ChangeIds::default() };
    let results: Results<ChangeDone> = view.api.send_json(Method::POST, &path, &body).await?;
    for result in results.results {
        match result {
            EntryResult::Done(_) => form.changed += 1,
            EntryResult::Error { .. } => form.failed += 1,
        }
    }
    Ok(())
}

/// Changes jobs for some seconds. Returns whether no more are left.
async fn change_all(view: &View, form: &mut BulkForm, began: Instant) -> Result<bool, Problem> {
    let path = url::kind_api(&form.filter.kind, &format!("/{}", form.action.name()));
    let filter = form.job_filter()?;
    loop {
        let after = Some(form.filter.after.clone()).filter(|after| !after.is_empty());
        let body = ChangeIds { all: Some(filter.clone()), after, ..ChangeIds::default() };
        let result: BulkChangeResult = view.api.send_json(Method::POST, &path, &body).await?;
        form.changed += result.changed;
        form.failed += result.failed;
        match result.cursor {
            None => return Ok(true),
            Some(cursor) => form.filter.after = cursor,
        }
        if began.elapsed() > SLICE {
            return Ok(false);
        }
    }
}

/// Returns the kinds with dead jobs, by name. The timers of schedules cannot be changed.
pub(super) async fn dead_kinds(view: &View) -> Result<Vec<KindStats>, Problem> {
    let kinds: KindList = view.api.get("/v1/kinds").await?;
    let is_meant = |kind: &KindStats| kind.dead > 0 && kind.kind != SCHEDULE_TIMERS;
    Ok(kinds.kinds.into_iter().filter(is_meant).collect())
}

/// Revives dead jobs of one kind after the other for some seconds. Returns whether no more are left.
async fn revive_every_kind(
    view: &View,
    form: &mut BulkForm,
    began: Instant,
) -> Result<bool, Problem> {
    form.filter = JobsFilter {
        state: "dead".to_owned(),
        kind: form.filter.kind.clone(),
        after: form.filter.after.clone(),
        ..JobsFilter::default()
    };
    for kind in dead_kinds(view).await? {
        // Those before were finished by earlier requests.
        if kind.kind < form.filter.kind {
            continue;
        }
        if kind.kind != form.filter.kind {
            (form.filter.kind, form.filter.after) = (kind.kind, String::new());
        }
        if began.elapsed() > SLICE || !change_all(view, form, began).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn progress(form: &BulkForm) -> Page {
    let html = html! {
        h1 { (title(form.action)) ": " (jobs(form.changed)) " so far" }
        @if form.failed > 0 { p { (count(form.failed)) " could not be changed." } }
        p .quiet {
            "Continues with the kind " (text(&form.filter.kind))
            @if !form.filter.after.is_empty() { " after the job " bdi { (text(&form.filter.after)) } } "."
        }
        form method="post" action="bulk" data-submit {
            (form.hidden_fields())
            div .actions {
                button .primary type="submit" { "Continue" }
                a .button href=(form.page()) { "Stop here" }
            }
        }
    };
    Page::new("./", "In progress").fixed("progress", html)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_survives_being_sent_again() {
        let body = b"kind=mail&state=dead&error_group=order+*+not+found&action=revive&scope=all";
        let form = BulkForm::read(body).unwrap();
        assert!(form.is_all());
        let fields = form.fields().into_iter().map(|(name, value)| (name, url::encode(&value)));
        let again = serde_urlencoded::to_string(fields.collect::<Vec<_>>()).unwrap();
        let again = BulkForm::read(again.as_bytes()).unwrap();
        assert_eq!(again.filter.error_group, "order * not found");
        assert_eq!(again.action, BulkVerb::Revive);
        let filter = again.job_filter().unwrap();
        assert_eq!(filter.error_group.as_deref(), Some("order * not found"));
    }

    #[test]
    fn the_log_names_some_of_many_jobs() {
        let body = format!("kind=mail&action=cancel{}", "&id=a".repeat(500));
        let what = BulkForm::read(body.as_bytes()).unwrap().what();
        assert!(what.ends_with("a, a} and 480 more") && what.len() < 100, "{what}");
    }

    #[test]
    fn ids_may_be_anything_and_are_limited() {
        let ids = ["a&b", "<script>", "100 %", "line\nbreak\r\n\0"];
        let fields = ids.map(|id| ("id", url::encode(id)));
        let fields =
            [("kind", "mail".into()), ("action", "cancel".into())].into_iter().chain(fields);
        let body = serde_urlencoded::to_string(fields.collect::<Vec<_>>()).unwrap();
        assert_eq!(BulkForm::read(body.as_bytes()).unwrap().ids, ids);
        let many = format!("kind=mail&action=cancel{}", "&id=a".repeat(MAX_BATCH + 1));
        assert_eq!(BulkForm::read(many.as_bytes()).unwrap_err().field.as_deref(), Some("id"));
        let wrong = BulkForm::read(b"kind=mail&action=explode").unwrap_err();
        assert_eq!(wrong.field.as_deref(), Some("action"));
    }
}
