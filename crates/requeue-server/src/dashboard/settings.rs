//! The settings of a kind: shown, and changed with a form.

use super::Dashboard;
use super::actions::act;
use super::format::text;
use super::tables::kind_link;
use super::url;
use super::view::{Page, PageForm, PageQuery, PageRequest, View};
use axum::extract::State;
use axum::http::Method;
use axum::response::Response;
use maud::{Markup, html};
use requeue_http::times::parse_rate;
use requeue_http::wire::{
    BackoffPatch, DurationText, KeepDoneJson, RateJson, RateSetting, RetentionPatch, SettingsJson,
    SettingsPatch,
};
use requeue_http::{AtField, Problem, ProblemType};
use serde::Deserialize;

#[derive(Debug, Clone, Deserialize)]
pub(super) struct SettingsQuery {
    kind: String,
}

pub(super) async fn show(
    State(dashboard): State<Dashboard>,
    request: PageRequest,
    PageQuery(query): PageQuery<SettingsQuery>,
) -> Response {
    dashboard
        .respond(request, move |view| {
            let kind = query.kind.clone();
            async move {
                let path = url::kind_api(&kind, "/settings");
                let settings: SettingsJson = view.api.get(&path).await?;
                let html = page(&view, &kind, &settings);
                Ok(Page::new("./", format!("Settings of {kind}")).fixed("settings", html))
            }
        })
        .await
}

/// What the form contains: texts, as people write them.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct SettingsForm {
    kind: String,
    lease: String,
    backoff_base: String,
    backoff_max: String,
    jitter: String,
    max_attempts: String,
    concurrency: String,
    rate: String,
    rate_burst: String,
    ageing: String,
    retention_age: String,
    retention_count: String,
    keep_for: String,
    keep_count: String,
}

impl SettingsForm {
    fn of(kind: &str, settings: &SettingsJson) -> Self {
        let number =
            |number: Option<u32>| number.map(|number| number.to_string()).unwrap_or_default();
        let rate = settings.rate.as_ref();
        let keep = settings.keep_done.as_ref();
        SettingsForm {
            kind: kind.to_owned(),
            lease: settings.lease.to_string(),
            backoff_base: settings.backoff.base.to_string(),
            backoff_max: settings.backoff.max.to_string(),
            jitter: settings.backoff.jitter_percent.to_string(),
            max_attempts: settings.max_attempts.to_string(),
            concurrency: number(settings.concurrency),
            rate: rate.map(|rate| format!("{}/{}", rate.jobs, rate.per)).unwrap_or_default(),
            rate_burst: number(rate.and_then(|rate| rate.burst)),
            ageing: settings.ageing.as_deref().unwrap_or_default().to_owned(),
            retention_age: settings.retention.age.to_string(),
            retention_count: settings.retention.count.to_string(),
            keep_for: keep.and_then(|keep| keep.age.as_deref()).unwrap_or_default().to_owned(),
            keep_count: keep
                .and_then(|keep| keep.count)
                .map(|count| count.to_string())
                .unwrap_or_default(),
        }
    }

    /// Returns the change. Fields that are not in the form stay.
    fn patch(&self) -> Result<SettingsPatch, Problem> {
        let rate = given(&self.rate).map(|text| {
            let (jobs, per) = parse_rate(&text.replace(',', "")).at("rate")?;
            let burst = number("rate.burst", &self.rate_burst)?;
            Ok::<_, Problem>(RateJson { jobs, per: per.into(), burst })
        });
        let keep = given(&self.keep_for).map(|age| {
            let count = number("keep_done.count", &self.keep_count)?;
            Ok::<_, Problem>(KeepDoneJson { age: Some(age.into()), count })
        });
        let time = |text| given(text).map(DurationText::from);
        Ok(SettingsPatch {
            lease: time(&self.lease),
            backoff: Some(BackoffPatch {
                base: time(&self.backoff_base),
                max: time(&self.backoff_max),
                jitter_percent: number("backoff.jitter_percent", &self.jitter)?,
            }),
            max_attempts: number("max_attempts", &self.max_attempts)?,
            concurrency: Some(number("concurrency", &self.concurrency)?),
            rate: Some(rate.transpose()?.map(RateSetting::from)),
            ageing: Some(time(&self.ageing)),
            retention: Some(RetentionPatch {
                age: time(&self.retention_age),
                count: number("retention.count", &self.retention_count)?,
            }),
            keep_done: Some(keep.transpose()?),
            ..SettingsPatch::default()
        })
    }
}

fn given(text: &str) -> Option<String> {
    Some(text.trim()).filter(|text| !text.is_empty()).map(str::to_owned)
}

fn number<T: std::str::FromStr>(field: &str, text: &str) -> Result<Option<T>, Problem> {
    let Some(text) = given(text) else { return Ok(None) };
    let invalid = |_| {
        let detail = format!("{text:?} is not a whole number in the allowed range");
        Problem::new(ProblemType::Invalid, detail).at(field)
    };
    text.replace(',', "").parse().map(Some).map_err(invalid)
}

fn page(view: &View, kind: &str, settings: &SettingsJson) -> Markup {
    let form = SettingsForm::of(kind, settings);
    let may_change = view.may_change(kind);
    html! {
        div .head {
            h1 { "Settings of " (kind_link(kind)) }
            @if may_change {
                a .button.danger href=(url::link("delete-kind", &[("kind", kind)])) { "Delete kind…" }
            }
        }
        @let fields = html! {
            fieldset disabled[!may_change] {
                input type="hidden" name="kind" value=(kind);
                (field("lease", "Lease", &form.lease, "How long a worker holds a job, unless its claim says otherwise."))
                (field("max_attempts", "Attempts", &form.max_attempts, "A job that fails this often is dead."))
                (field("backoff_base", "First backoff", &form.backoff_base, "The delay after the first failure. It doubles with each further one."))
                (field("backoff_max", "Longest backoff", &form.backoff_max, ""))
                (field("jitter", "Jitter in percent", &form.jitter, "Delays are shorter by a random part of up to this much."))
                (field("concurrency", "Concurrency", &form.concurrency, "How many jobs are leased at the same time, over all workers. Empty: no limit."))
                (field("rate", "Rate", &form.rate, "How many jobs are claimed per time, over all workers, such as 10/s or 100/1m. Empty: no limit."))
                (field("rate_burst", "Rate: burst", &form.rate_burst, "How many may be claimed together after a pause. Empty: what 100 ms allow, at least 1."))
                (field("ageing", "Ageing", &form.ageing, "A ready job gains a level of priority per this time. Empty: never."))
                (field("retention_age", "Keep dead jobs for", &form.retention_age, ""))
                (field("retention_count", "Keep dead jobs, at most", &form.retention_count, ""))
                (field("keep_for", "Keep done jobs for", &form.keep_for, "Such as 7d. Empty: an acked job is removed."))
                (field("keep_count", "Keep done jobs, at most", &form.keep_count, ""))
                @if let Some(url) = settings.push.as_ref().and_then(|push| push.url.as_deref()) {
                    span { "Webhook" }
                    p { code { (text(url)) } " " span .quiet { "Change it with the API or " code { "requeue kind " (kind) " --push" } "." } }
                }
                @if may_change { span {} button .primary type="submit" { "Save" } }
            }
        };
        @if may_change {
            form .fields method="post" action="settings" { (fields) }
        } @else {
            div .fields { (fields) }
        }
    }
}

fn field(name: &str, title: &str, value: &str, help: &str) -> Markup {
    let help_id = format!("{name}-help");
    html! {
        label for=(name) { (title) }
        div {
            input id=(name) name=(name) value=(value) maxlength="100" aria-describedby=[(!help.is_empty()).then_some(&help_id)];
            @if !help.is_empty() { p .quiet id=(help_id) { (help) } }
        }
    }
}

pub(super) async fn save(
    State(dashboard): State<Dashboard>,
    request: PageRequest,
    PageForm(form): PageForm<SettingsForm>,
) -> Response {
    let kind = form.kind.clone();
    let path = url::kind_api(&kind, "");
    act(&dashboard, &request, ("change settings", &kind), &url::kind(&kind), async |api| {
        api.send_json::<SettingsJson>(Method::PATCH, &path, &form.patch()?).await?;
        Ok(format!("Saved the settings of {kind}. They apply from the next claim on."))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use requeue_jobs::{Rate, Retention, Settings};
    use std::time::Duration;

    #[test]
    fn a_form_that_is_sent_back_unchanged_changes_nothing() {
        let mut full = Settings::default();
        full.concurrency = Some(7);
        full.rate = Some(Rate::new(100, Duration::from_secs(60)));
        full.ageing = None;
        full.keep_done = Some(Retention { age: Duration::from_secs(3600), count: 5 });
        for settings in [Settings::default(), full] {
            let form = SettingsForm::of("mail", &SettingsJson::from(&settings));
            let patch = form.patch().unwrap();
            // Onto other settings, so that a field that is left out is noticed.
            let mut other = Settings::default();
            (other.max_attempts, other.lease) = (3, Duration::from_secs(1));
            assert_eq!(patch.apply(other).unwrap(), settings);
        }
    }

    #[test]
    fn a_rate_is_written_as_everywhere_else() {
        for (text, jobs, per) in [("10/s", 10, "1s"), (" 1,000 / 1h30m", 1000, "1h30m")] {
            let form = SettingsForm {
                rate: text.into(),
                rate_burst: "3".into(),
                ..SettingsForm::default()
            };
            let rate = RateJson { jobs, per: per.into(), burst: Some(3) };
            assert_eq!(form.patch().unwrap().rate, Some(Some(rate.into())), "{text}");
        }
    }

    #[test]
    fn half_a_rate_limit_and_texts_that_are_no_numbers_are_rejected() {
        let form = SettingsForm { rate: "5".into(), ..SettingsForm::default() };
        assert_eq!(form.patch().unwrap_err().field.as_deref(), Some("rate"));
        let form = SettingsForm { max_attempts: "many".into(), ..SettingsForm::default() };
        assert_eq!(form.patch().unwrap_err().field.as_deref(), Some("max_attempts"));
        let form = SettingsForm { max_attempts: "1,000".into(), ..SettingsForm::default() };
        assert_eq!(form.patch().unwrap().max_attempts, Some(1000));
    }
}
