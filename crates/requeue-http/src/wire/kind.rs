//! Kinds: settings and counts.

use super::monitoring::TroubleJson;
use super::parse::{ParseContext, nullable, nullable_object, optional_object};
use super::push::{PushJson, PushStateJson};
use super::text::{DurationText, TimeText, duration, time};
use crate::problem::{AtField, Problem, ProblemType};
use crate::times::parse_rate;
use requeue_jobs::limits::READY_COUNT_CAP;
use requeue_jobs::{Backoff, Counts, Fence, Generation, Kind, KindView, Rate, Retention, Settings};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::fmt;
use std::time::Duration;

/// The settings of a kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Settings))]
pub struct SettingsJson {
    /// The duration of a lease if a claim does not specify one, such as `30s`.
    pub lease: DurationText,
    /// The delay before a failed job is due again.
    pub backoff: BackoffJson,
    /// The number of failed attempts after which a job is dead.
    #[cfg_attr(feature = "openapi", schema(format = "uint32"))]
    pub max_attempts: u32,
    /// The maximum number of jobs of this kind that are leased at the same time; `null` for no limit.
    #[cfg_attr(feature = "openapi", schema(format = "uint32", minimum = 1))]
    pub concurrency: Option<u32>,
    /// How many jobs of this kind may be claimed per time; `null` for any number.
    #[serde(default)]
    pub rate: Option<RateJson>,
    /// The time after which a ready job gains a level of priority, such as `10m`; `null` for never.
    #[serde(default = "default_ageing")]
    pub ageing: Option<DurationText>,
    /// Whether the kind is paused. No job of a paused kind is claimed.
    pub paused: bool,
    /// How long dead jobs are kept, and how many.
    pub retention: RetentionJson,
    /// How long done jobs are kept, and how many; `null` if they are not kept.
    #[serde(default)]
    pub keep_done: Option<KeepDoneJson>,
    /// Where the jobs of this kind are sent to; `null` if workers claim them.
    #[serde(default)]
    pub push: Option<PushJson>,
}

fn default_ageing() -> Option<DurationText> {
    Settings::default().ageing.map(DurationText::from)
}

/// How long done jobs are kept, and how many.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = KeepDone))]
#[serde(deny_unknown_fields)]
pub struct KeepDoneJson {
    /// How long a done job is kept, such as `7d`. Default: `7d`; with `PATCH`, the present value.
    #[serde(rename = "for")]
    pub age: Option<DurationText>,
    /// The maximum number of done jobs of the kind. Those that were done last are kept. Default:
    /// 100,000; with `PATCH`, the present value.
    pub count: Option<usize>,
}

impl From<Retention> for KeepDoneJson {
    fn from(retention: Retention) -> Self {
        let Retention { age, count } = retention;
        KeepDoneJson { age: Some(age.into()), count: Some(count) }
    }
}

impl KeepDoneJson {
    /// Converts this JSON to a retention. Missing fields are those of `before`.
    fn read(&self, before: Retention) -> Result<Retention, Problem> {
        let age = duration("keep_done.for", &self.age)?.unwrap_or(before.age);
        Ok(Retention { age, count: self.count.unwrap_or(before.count) })
    }
}

/// A rate limit. Each claimed job takes a token from a bucket of `burst` tokens, and `jobs` tokens are
/// added per `per`, evenly spaced.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Rate))]
#[serde(deny_unknown_fields)]
pub struct RateJson {
    /// The number of jobs per `per`, 1 to 1,000,000.
    #[cfg_attr(feature = "openapi", schema(format = "uint32", minimum = 1, maximum = 1_000_000))]
    pub jobs: u32,
    /// The period, such as `1s` or `1m`, from `1ms` to `31d`.
    pub per: DurationText,
    /// How many jobs may be claimed together after a pause, 1 to 1,000,000. Default: as many as the
    /// rate allows in 100 ms, at least 1. So up to 10 jobs per second are spaced evenly.
    #[cfg_attr(feature = "openapi", schema(format = "uint32", minimum = 1, maximum = 1_000_000))]
    pub burst: Option<u32>,
}

/// A rate limit to set: the whole object, or a text for the default burst.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum RateSetting {
    /// Jobs per time, such as `10/s` or `100/1m`.
    Text(String),
    /// The rate limit as an object.
    Limit(RateJson),
}

impl From<RateJson> for RateSetting {
    fn from(rate: RateJson) -> Self {
        RateSetting::Limit(rate)
    }
}

/// Written by hand, because the error of an untagged enum does not say what is wrong.
impl<'de> Deserialize<'de> for RateSetting {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct RateVisitor;

        impl<'de> Visitor<'de> for RateVisitor {
            type Value = RateSetting;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text such as \"10/s\", or an object")
            }

            fn visit_str<E>(self, text: &str) -> Result<RateSetting, E> {
                Ok(RateSetting::Text(text.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RateSetting, A::Error> {
                RateJson::deserialize(MapAccessDeserializer::new(map)).map(RateSetting::Limit)
            }
        }

        input.deserialize_any(RateVisitor)
    }
}

impl RateSetting {
    fn read(&self) -> Result<Rate, Problem> {
        match self {
            RateSetting::Limit(RateJson { jobs, per, burst }) => {
                Ok(Rate { jobs: *jobs, per: per.read("rate.per")?, burst: *burst })
            }
            RateSetting::Text(text) => {
                let (jobs, per) = parse_rate(text).at("rate")?;
                Ok(Rate::new(jobs, per))
            }
        }
    }
}

/// Exponential backoff with jitter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Backoff))]
pub struct BackoffJson {
    /// The delay after the first failure, such as `1s`. It doubles with each further failure.
    pub base: DurationText,
    /// The longest delay, such as `1h`.
    pub max: DurationText,
    /// The delay is reduced by a random part of up to this percentage, 0 to 100.
    #[cfg_attr(feature = "openapi", schema(maximum = 100))]
    pub jitter_percent: u8,
}

/// How long dead jobs are kept, and how many.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Retention))]
pub struct RetentionJson {
    /// How long a dead job is kept after it died, such as `7d`.
    pub age: DurationText,
    /// The maximum number of dead jobs of the kind. Those that died last are kept.
    pub count: usize,
}

impl From<&Settings> for SettingsJson {
    fn from(settings: &Settings) -> Self {
        SettingsJson {
            lease: settings.lease.into(),
            backoff: settings.backoff.into(),
            max_attempts: settings.max_attempts,
            concurrency: settings.concurrency,
            rate: settings.rate.map(RateJson::from),
            ageing: settings.ageing.map(DurationText::from),
            paused: settings.paused,
            retention: settings.retention.into(),
            keep_done: settings.keep_done.map(KeepDoneJson::from),
            push: settings.push.as_ref().and_then(PushJson::from_config),
        }
    }
}

impl From<Backoff> for BackoffJson {
    fn from(Backoff { base, max, jitter_percent }: Backoff) -> Self {
        BackoffJson { base: base.into(), max: max.into(), jitter_percent }
    }
}

impl From<Rate> for RateJson {
    fn from(Rate { jobs, per, burst }: Rate) -> Self {
        RateJson { jobs, per: per.into(), burst }
    }
}

impl From<Retention> for RetentionJson {
    fn from(Retention { age, count }: Retention) -> Self {
        RetentionJson { age: age.into(), count }
    }
}

impl From<SettingsJson> for SettingsPatch {
    /// Returns a patch that sets every setting.
    fn from(settings: SettingsJson) -> Self {
        let SettingsJson {
            lease,
            backoff: BackoffJson { base, max, jitter_percent },
            max_attempts,
            concurrency,
            rate,
            ageing,
            paused,
            retention: RetentionJson { age, count },
            keep_done,
            push,
        } = settings;
        let jitter_percent = Some(jitter_percent);
        SettingsPatch {
            lease: Some(lease),
            backoff: Some(BackoffPatch { base: Some(base), max: Some(max), jitter_percent }),
            max_attempts: Some(max_attempts),
            concurrency: Some(concurrency),
            rate: Some(rate.map(RateSetting::from)),
            ageing: Some(ageing),
            keep_done: Some(keep_done),
            push: Some(push),
            paused: Some(paused),
            retention: Some(RetentionPatch { age: Some(age), count: Some(count) }),
        }
    }
}

/// The settings of a kind to change. Fields that are missing stay as they are with `PATCH`, and get
/// their default with `PUT`.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct SettingsPatch {
    /// The duration of a lease if a claim does not specify one, from `10ms` to `1d`. Default: `30s`.
    pub lease: Option<DurationText>,
    /// The delay before a failed job is due again.
    #[serde(deserialize_with = "optional_object")]
    pub backoff: Option<BackoffPatch>,
    /// The number of failed attempts after which a job is dead. Default: 20.
    #[cfg_attr(feature = "openapi", schema(format = "uint32", maximum = 4294967295_i64))]
    pub max_attempts: Option<u32>,
    /// The maximum number of jobs of this kind that are leased at the same time, at least 1; `null`
    /// for no limit. Default: `null`. To lease none, set `paused`.
    #[serde(deserialize_with = "nullable")]
    #[cfg_attr(
        feature = "openapi",
        schema(
            value_type = Option<u32>,
            format = "uint32",
            minimum = 1,
            maximum = 4294967295_i64
        )
    )]
    pub concurrency: Option<Option<u32>>,
    /// How many jobs of this kind may be claimed per time; `null` for any number. Default: `null`.
    #[serde(deserialize_with = "nullable")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<RateSetting>))]
    pub rate: Option<Option<RateSetting>>,
    /// The time after which a ready job gains a level of priority, from `1ms`; `null` for never.
    /// Default: `10m`.
    #[serde(deserialize_with = "nullable")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<DurationText>))]
    pub ageing: Option<Option<DurationText>>,
    /// How long done jobs are kept, and how many; `null` keeps none. Default: `null`.
    #[serde(deserialize_with = "nullable_object")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<KeepDoneJson>))]
    pub keep_done: Option<Option<KeepDoneJson>>,
    /// Where the jobs of this kind are sent to, instead of being claimed by workers; `null` for nowhere.
    /// Default: `null`.
    #[serde(deserialize_with = "nullable_object")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<PushJson>))]
    pub push: Option<Option<PushJson>>,
    /// Whether the kind is paused. No job of a paused kind is claimed. Default: `false`.
    pub paused: Option<bool>,
    /// How long dead jobs are kept, and how many.
    #[serde(deserialize_with = "optional_object")]
    pub retention: Option<RetentionPatch>,
}

/// The backoff settings to change.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct BackoffPatch {
    /// The delay after the first failure, at most `max`. It doubles with each further failure.
    /// Default: `1s`.
    pub base: Option<DurationText>,
    /// The longest delay, at most 10 years. Default: `1h`.
    pub max: Option<DurationText>,
    /// The delay is reduced by a random part of up to this percentage, 0 to 100. Default: 20.
    #[cfg_attr(feature = "openapi", schema(maximum = 100))]
    pub jitter_percent: Option<u8>,
}

/// The retention settings to change.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct RetentionPatch {
    /// How long a dead job is kept after it died. Default: `7d`.
    pub age: Option<DurationText>,
    /// The maximum number of dead jobs of the kind. Those that died last are kept.
    /// Default: 100,000.
    pub count: Option<usize>,
}

impl SettingsPatch {
    /// Returns `settings` with the changes of this patch. Fails with a problem that names the field.
    ///
    /// It does not apply `push`: the caller checks and stores that, as `requeue-push` does.
    pub fn apply(&self, settings: Settings) -> Result<Settings, Problem> {
        let settings = self.apply_unchecked(settings)?;
        settings.check().map_err(|invalid| Problem::from(invalid).at_its_field())?;
        Ok(settings)
    }

    fn apply_unchecked(&self, mut settings: Settings) -> Result<Settings, Problem> {
        let SettingsPatch {
            lease,
            backoff,
            max_attempts,
            concurrency,
            rate,
            ageing,
            keep_done,
            push: _,
            paused,
            retention,
        } = self;
        let change = |field: &str, text: &Option<DurationText>, value: &mut Duration| {
            *value = duration(field, text)?.unwrap_or(*value);
            Ok::<(), Problem>(())
        };
        change("lease", lease, &mut settings.lease)?;
        if let Some(BackoffPatch { base, max, jitter_percent }) = backoff {
            change("backoff.base", base, &mut settings.backoff.base)?;
            change("backoff.max", max, &mut settings.backoff.max)?;
            settings.backoff.jitter_percent =
                jitter_percent.unwrap_or(settings.backoff.jitter_percent);
        }
        settings.max_attempts = max_attempts.unwrap_or(settings.max_attempts);
        settings.concurrency = concurrency.unwrap_or(settings.concurrency);
        if let Some(rate) = rate {
            settings.rate = rate.as_ref().map(RateSetting::read).transpose()?;
        }
        if let Some(ageing) = ageing {
            settings.ageing = duration("ageing", ageing)?;
        }
        if let Some(keep_done) = keep_done {
            let before = settings.keep_done.unwrap_or_default();
            let keep = keep_done.as_ref().map(|keep| keep.read(before));
            settings.keep_done = keep.transpose()?;
        }
        settings.paused = paused.unwrap_or(settings.paused);
        if let Some(RetentionPatch { age, count }) = retention {
            change("retention.age", age, &mut settings.retention.age)?;
            settings.retention.count = count.unwrap_or(settings.retention.count);
        }
        Ok(settings)
    }
}

impl SettingsJson {
    /// Converts this JSON to settings.
    pub fn read(self) -> Result<Settings, Problem> {
        let push = self.push.as_ref().map(PushJson::to_setting);
        let mut read = SettingsPatch::from(self).apply_unchecked(Settings::default())?;
        read.push = push;
        SettingsPatch::default().apply(read)
    }
}

/// The job counts of a kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct KindStats {
    /// The name of the kind.
    pub kind: String,
    /// The number of pending jobs: waiting or ready.
    pub pending: u64,
    /// The number of ready jobs, which are part of `pending`. It is counted up to 10,000.
    pub ready: u64,
    /// Whether the count of `ready` stopped at its limit, so that there may be more ready jobs.
    pub ready_capped: bool,
    /// The number of leased jobs, including those whose lease has expired but was not yet cleaned up.
    pub leased: u64,
    /// The number of dead jobs.
    pub dead: u64,
    /// The number of done jobs that are kept.
    #[serde(default)]
    pub done: u64,
    /// The due time of the oldest ready job, in RFC 3339; `null` if no job is ready.
    pub oldest_ready: Option<TimeText>,
    /// Whether the kind is paused.
    pub paused: bool,
    /// Whether the server sends the jobs of the kind to a URL, so that they cannot be claimed.
    #[serde(default)]
    pub push: bool,
    /// Until when the rate limit allows no job to be claimed, in RFC 3339; `null` if it allows one now.
    #[serde(default)]
    pub throttled_until: Option<TimeText>,
    /// The latest generation that was assigned in this kind; 0 if there was none.
    pub generation: u64,
    /// The latest fencing token that was assigned in this kind; 0 if there was none.
    pub fence: u64,
    /// The settings, in the response about a single kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settings: Option<SettingsJson>,
    /// The state of deliveries, in the response about a single kind whose jobs are sent to a URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub push_state: Option<PushStateJson>,
    /// Why the kind needs attention, in the response about a single kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<TroubleJson>,
}

impl From<&KindView> for KindStats {
    fn from(view: &KindView) -> Self {
        let Counts { pending, leased, dead, done, ready } = view.counts;
        KindStats {
            kind: view.kind.as_str().to_owned(),
            pending,
            ready,
            ready_capped: ready >= READY_COUNT_CAP,
            leased,
            dead,
            done,
            oldest_ready: view.oldest_ready.map(TimeText::from),
            paused: view.paused,
            push: view.push,
            throttled_until: view.throttled_until.map(TimeText::from),
            generation: view.generation.0,
            fence: view.fence.0,
            settings: None,
            push_state: None,
            trouble: None,
        }
    }
}

impl KindStats {
    /// Converts this JSON to the view of a kind.
    pub fn read(self, context: &ParseContext) -> Result<KindView, Problem> {
        let KindStats { pending, ready, leased, dead, done, .. } = self;
        let kind = Kind::with_reserved(self.kind.as_str());
        Ok(KindView {
            kind: kind.map_err(|invalid| Problem::new(ProblemType::Bug, invalid.to_string()))?,
            counts: Counts { pending, leased, dead, done, ready },
            oldest_ready: time("oldest_ready", &self.oldest_ready, context)?,
            paused: self.paused,
            push: self.push,
            throttled_until: time("throttled_until", &self.throttled_until, context)?,
            generation: Generation(self.generation),
            fence: Fence(self.fence),
        })
    }
}

/// All kinds that have jobs, settings or schedules, in the order of their names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Kinds))]
pub struct KindList {
    /// The kinds.
    pub kinds: Vec<KindStats>,
}

/// The progress of deleting a kind.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct KindDeleted {
    /// The number of jobs that this call removed.
    pub removed: u64,
    /// The number of leased jobs, which are removed when their leases end.
    pub ending: u64,
    /// The value to send as `after` in the next call; `null` if the kind is deleted.
    pub cursor: Option<String>,
}
