//! Kinds: settings and counts.

use super::reading::{Reading, maybe_object};
use crate::problem::{Problem, Sort};
use crate::times::{show_duration, show_time};
use requeue_jobs::limits::READY_COUNT_CAP;
use requeue_jobs::{
    Backoff, Counts, Fence, Generation, Invalid, Kind, KindView, Retention, Settings,
};
use serde::{Deserialize, Serialize};

/// What is set for a kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SettingsText {
    /// How long a lease is, where a claim does not say.
    pub lease: String,
    /// How long until a failed job may come back.
    pub backoff: BackoffText,
    /// A job that fails so often is dead.
    #[cfg_attr(feature = "openapi", schema(format = "uint32"))]
    pub max_attempts: u32,
    /// At most so many are leased at once. `null`: any number.
    #[cfg_attr(feature = "openapi", schema(format = "uint32"))]
    pub concurrency: Option<u32>,
    /// None is claimed.
    pub paused: bool,
    /// How long, and how many, dead jobs are kept.
    pub retention: RetentionText,
}

/// Exponential, less a random part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BackoffText {
    /// After the first failure. Doubled after each further one.
    pub base: String,
    /// No longer than this.
    pub max: String,
    /// Up to this percentage of the delay is taken away, at random.
    pub jitter_percent: u8,
}

/// How long, and how many, dead jobs are kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RetentionText {
    /// So long after they died.
    pub age: String,
    /// So many, those that died last.
    pub count: usize,
}

impl From<&Settings> for SettingsText {
    fn from(settings: &Settings) -> Self {
        SettingsText {
            lease: show_duration(settings.lease),
            backoff: settings.backoff.into(),
            max_attempts: settings.max_attempts,
            concurrency: settings.concurrency,
            paused: settings.paused,
            retention: settings.retention.into(),
        }
    }
}

impl From<Backoff> for BackoffText {
    fn from(backoff: Backoff) -> Self {
        let (base, max) = (show_duration(backoff.base), show_duration(backoff.max));
        BackoffText { base, max, jitter_percent: backoff.jitter_percent }
    }
}

impl From<Retention> for RetentionText {
    fn from(retention: Retention) -> Self {
        RetentionText { age: show_duration(retention.age), count: retention.count }
    }
}

impl From<SettingsText> for SettingsPatch {
    /// All of them.
    fn from(text: SettingsText) -> Self {
        SettingsPatch {
            lease: Some(text.lease),
            backoff: Some(BackoffPatch {
                base: Some(text.backoff.base),
                max: Some(text.backoff.max),
                jitter_percent: Some(text.backoff.jitter_percent),
            }),
            max_attempts: Some(text.max_attempts),
            concurrency: Some(text.concurrency),
            paused: Some(text.paused),
            retention: Some(RetentionPatch {
                age: Some(text.retention.age),
                count: Some(text.retention.count),
            }),
        }
    }
}

/// Some of the settings of a kind.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SettingsPatch {
    /// How long a lease is, where a claim does not say: `10ms` to `1d`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// How long until a failed job may come back.
    #[serde(default, deserialize_with = "maybe_object", skip_serializing_if = "Option::is_none")]
    pub backoff: Option<BackoffPatch>,
    /// A job that fails so often is dead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(format = "uint32", maximum = 4294967295_i64))]
    pub max_attempts: Option<u32>,
    /// At most so many are leased at once. `null`: any number.
    #[serde(default, deserialize_with = "said", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "openapi",
        schema(value_type = Option<u32>, format = "uint32", maximum = 4294967295_i64)
    )]
    pub concurrency: Option<Option<u32>>,
    /// None is claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// How long, and how many, dead jobs are kept.
    #[serde(default, deserialize_with = "maybe_object", skip_serializing_if = "Option::is_none")]
    pub retention: Option<RetentionPatch>,
}

/// Some of the settings of a backoff.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct BackoffPatch {
    /// After the first failure. Doubled after each further one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// No longer than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<String>,
    /// Up to this percentage of the delay is taken away, at random. More than 100 counts as 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 255))]
    pub jitter_percent: Option<u8>,
}

/// Some of the settings of retention.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RetentionPatch {
    /// So long after they died.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age: Option<String>,
    /// So many, those that died last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<usize>,
}

/// A field that is there: `null` says something, too.
fn said<'de, D: serde::Deserializer<'de>>(input: D) -> Result<Option<Option<u32>>, D::Error> {
    Option::deserialize(input).map(Some)
}

impl SettingsPatch {
    /// These settings, with what is said here changed.
    pub fn apply(&self, mut settings: Settings, reading: &Reading) -> Result<Settings, Problem> {
        let change = |field: &str, text: &Option<String>, value: &mut _| {
            if let Some(duration) = reading.maybe(field, text.as_deref())? {
                *value = duration;
            }
            Ok::<(), Problem>(())
        };
        change("lease", &self.lease, &mut settings.lease)?;
        if let Some(backoff) = &self.backoff {
            change("backoff.base", &backoff.base, &mut settings.backoff.base)?;
            change("backoff.max", &backoff.max, &mut settings.backoff.max)?;
            settings.backoff.jitter_percent =
                backoff.jitter_percent.unwrap_or(settings.backoff.jitter_percent);
        }
        settings.max_attempts = self.max_attempts.unwrap_or(settings.max_attempts);
        settings.concurrency = self.concurrency.unwrap_or(settings.concurrency);
        settings.paused = self.paused.unwrap_or(settings.paused);
        if let Some(retention) = &self.retention {
            change("retention.age", &retention.age, &mut settings.retention.age)?;
            settings.retention.count = retention.count.unwrap_or(settings.retention.count);
        }
        settings.check().map_err(|invalid| {
            let field = match invalid {
                Invalid::OutOfRange { field: "the backoff's first delay", .. } => "backoff.base",
                Invalid::OutOfRange { field: "the backoff's longest delay", .. } => "backoff.max",
                _ => "lease",
            };
            Problem::from(invalid).at(field)
        })?;
        Ok(settings)
    }
}

impl SettingsText {
    /// The settings that this tells of.
    pub fn read(self, reading: &Reading) -> Result<Settings, Problem> {
        SettingsPatch::from(self).apply(Settings::default(), reading)
    }
}

/// How many jobs a kind has, and what is set for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct KindStats {
    /// Which.
    pub kind: String,
    /// Waiting or ready.
    pub pending: u64,
    /// Of the pending, those that are due; counted up to 10,000.
    pub ready: u64,
    /// Whether there may be more ready ones than were counted.
    pub ready_capped: bool,
    /// Leased, expired leases included.
    pub leased: u64,
    /// Dead.
    pub dead: u64,
    /// When the oldest ready job fell due.
    pub oldest_ready: Option<String>,
    /// Whether none is claimed.
    pub paused: bool,
    /// The latest generation that was given out; 0 if none was.
    pub generation: u64,
    /// The latest fence that was given out; 0 if none was.
    pub fence: u64,
    /// What is set, where one kind is asked about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<SettingsText>,
}

impl From<&KindView> for KindStats {
    fn from(view: &KindView) -> Self {
        let Counts { pending, leased, dead, ready } = view.counts;
        KindStats {
            kind: view.kind.as_str().to_owned(),
            pending,
            ready,
            ready_capped: ready >= READY_COUNT_CAP,
            leased,
            dead,
            oldest_ready: view.oldest_ready.map(show_time),
            paused: view.paused,
            generation: view.generation.0,
            fence: view.fence.0,
            settings: None,
        }
    }
}

impl KindStats {
    /// The kind that this tells of.
    pub fn read(self, reading: &Reading) -> Result<KindView, Problem> {
        let kind = Kind::new(self.kind.as_str());
        let oldest_ready = self.oldest_ready.map(|text| reading.time("oldest_ready", &text));
        let (pending, leased, dead, ready) = (self.pending, self.leased, self.dead, self.ready);
        Ok(KindView {
            kind: kind.map_err(|invalid| Problem::new(Sort::Bug, invalid.to_string()))?,
            counts: Counts { pending, leased, dead, ready },
            oldest_ready: oldest_ready.transpose()?,
            paused: self.paused,
            generation: Generation(self.generation),
            fence: Fence(self.fence),
        })
    }
}

/// All kinds that have jobs, settings or schedules, by name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Kinds {
    /// The kinds.
    pub kinds: Vec<KindStats>,
}

/// How far the deletion of a kind is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct KindDeleted {
    /// Jobs that this call removed.
    pub removed: u64,
    /// Jobs that are leased, and end with their leases.
    pub ending: u64,
    /// Where the next call goes on: send it as `after`. `null`: the kind is deleted.
    pub cursor: Option<String>,
}
