//! The form to put a job, also as a copy of another.

use super::Dashboard;
use super::actions::act;
use super::format::escaped;
use super::url;
use super::view::{Page, PageForm, PageQuery, PageRequest, View};
use axum::extract::State;
use axum::http::Method;
use axum::response::Response;
use maud::{Markup, html};
use requeue_http::Problem;
use requeue_http::ProblemType;
use requeue_http::wire::{JobJson, PutDone, PutOutcomeJson, PutRequest, TimeText};
use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Debug, Clone, Deserialize)]
pub(super) struct PutQuery {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    id: String,
}

/// What the form contains.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct PutForm {
    kind: String,
    id: String,
    #[serde(default)]
    form: String,
    #[serde(default)]
    body: String,
    #[serde(default)]
    content_type: String,
    #[serde(default)]
    due: String,
    #[serde(default)]
    priority: u8,
    if_absent: Option<String>,
}

/// The forms in which a body can be written: value, name.
const FORMS: [(&str, &str); 3] =
    [("json", "JSON"), ("text", "text"), ("base64", "bytes in base64")];

pub(super) async fn show(
    State(dashboard): State<Dashboard>,
    request: PageRequest,
    PageQuery(query): PageQuery<PutQuery>,
) -> Response {
    dashboard
        .respond(request, move |view| {
            let PutQuery { kind, id } = query.clone();
            let empty =
                PutForm { kind, id, form: "json".into(), body: "{}".into(), ..PutForm::default() };
            async move { Ok(page(&view, "Put a job", &empty)) }
        })
        .await
}

pub(super) async fn copy(
    State(dashboard): State<Dashboard>,
    request: PageRequest,
    PageQuery(query): PageQuery<PutQuery>,
) -> Response {
    dashboard
        .respond(request, move |view| {
            let PutQuery { kind, id } = query.clone();
            async move {
                let job: JobJson = view.api.get(&url::job_api(&kind, &id)).await?;
                Ok(page(&view, "Put a copy", &PutForm::copy_of(job)))
            }
        })
        .await
}

impl PutForm {
    fn copy_of(job: JobJson) -> Self {
        let (form, body) = match (job.body, job.body_text, job.body_base64) {
            (Some(body), ..) => ("json", body.get().to_owned()),
            (_, Some(body), _) => ("text", body),
            (.., Some(body)) => ("base64", body),
            _ => ("text", String::new()),
        };
        PutForm {
            kind: job.kind,
            id: format!("{}-copy", job.id),
            form: form.to_owned(),
            body,
            content_type: job.content_type,
            due: String::new(),
            priority: job.priority,
            if_absent: Some("on".to_owned()),
        }
    }

    fn request(self) -> Result<PutRequest, Problem> {
        let given = |text: &str| (!text.trim().is_empty()).then(|| text.trim().to_owned());
        let mut put = PutRequest {
            content_type: given(&self.content_type),
            due: given(&self.due).map(TimeText::from),
            priority: Some(self.priority),
            if_absent: self.if_absent.is_some(),
            ..PutRequest::default()
        };
        // Browsers send line breaks of a form as CR LF.
        let body = self.body.replace("\r\n", "\n");
        match self.form.as_str() {
            "json" => {
                let json = RawValue::from_string(body.trim().to_owned());
                let invalid = |error| {
                    let detail = format!("the body is not valid JSON: {error}");
                    Problem::new(ProblemType::Invalid, detail).at("body")
                };
                put.body = Some(json.map_err(invalid)?);
            }
            "base64" => put.body_base64 = Some(body.trim().to_owned()),
            _ => put.body_text = Some(body),
        }
        Ok(put)
    }
}

fn page(view: &View, title: &str, form: &PutForm) -> Page {
    let html = html! {
        h1 { (title) }
        @if view.can_act() { (fields(form)) } @else { p .problem { "This token permits no changes." } }
    };
    Page::new("./", title).fixed("put", html)
}

fn fields(form: &PutForm) -> Markup {
    html! {
        form .fields method="post" action="put" {
            label for="kind" { "Kind" }
            input #kind name="kind" value=(form.kind) required maxlength="128" pattern="[A-Za-z0-9._\\-]+" spellcheck="false";
            label for="id" { "Id" }
            input #id name="id" value=(escaped(&form.id)) required maxlength="512" spellcheck="false";
            label for="put-due" { "Due" }
            div {
                input #put-due name="due" value=(form.due) maxlength="100" placeholder="now" aria-describedby="due-help";
                p #due-help .quiet { "For example: in 5m, tomorrow 09:00 Europe/Berlin, 2026-12-01T09:00:00Z. Empty: now." }
            }
            label for="priority" { "Priority" }
            input #priority type="number" name="priority" value=(form.priority) min="0" max="9";
            label for="form" { "Body is" }
            select #form name="form" {
                @for (value, name) in FORMS { option value=(value) selected[value == form.form] { (name) } }
            }
            label for="body" { "Body" }
            // The first line break after the tag is not part of the value.
            textarea #body name="body" rows="12" spellcheck="false" { "\n" (form.body) }
            label for="content-type" { "Content type" }
            input #content-type name="content_type" value=(form.content_type) maxlength="128" placeholder="depends on the body";
            span {}
            label { input type="checkbox" name="if_absent" checked[form.if_absent.is_some()]; " Only if there is no job with this id" }
            span {}
            button .primary type="submit" { "Put" }
        }
    }
}

pub(super) async fn save(
    State(dashboard): State<Dashboard>,
    request: PageRequest,
    PageForm(form): PageForm<PutForm>,
) -> Response {
    let (kind, id) = (form.kind.trim().to_owned(), form.id.clone());
    let what = format!("{kind}/{id}");
    act(&dashboard, &request, ("put", &what), &url::job(&kind, &id), async |api| {
        let put = form.request()?;
        let done: PutDone = api.send_json(Method::PUT, &url::job_api(&kind, &id), &put).await?;
        Ok(match done.outcome {
            PutOutcomeJson::Created => format!("Created {what}."),
            PutOutcomeJson::Updated => format!("Updated {what}."),
            PutOutcomeJson::Coalesced => {
                format!("{what} is leased. This put runs when its lease ends.")
            }
            PutOutcomeJson::Revived => format!("Revived {what}."),
            _ => format!("Put {what}."),
        })
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(form: &str, body: &str) -> PutForm {
        PutForm { form: form.into(), body: body.into(), ..PutForm::default() }
    }

    #[test]
    fn a_body_is_sent_in_the_form_that_was_chosen() {
        let json = form("json", "{\"a\":\r\n1}").request().unwrap();
        assert_eq!(json.body.unwrap().get(), "{\"a\":\n1}");
        let text = form("text", " a\r\nb ").request().unwrap();
        assert_eq!(text.body_text.as_deref(), Some(" a\nb "));
        assert_eq!(
            form("base64", "AP8=\n").request().unwrap().body_base64.as_deref(),
            Some("AP8=")
        );
        let problem = form("json", "{").request().unwrap_err();
        assert_eq!(problem.field.as_deref(), Some("body"));
    }
}
