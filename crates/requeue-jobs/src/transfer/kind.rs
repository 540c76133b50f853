//! A kind as a line of an export, with its counters and settings, and its schedules.

use super::error::TransferError;
use super::importable;
use super::job::{read_content, write_content};
use super::object::{ObjectReader, ObjectWriter};
use crate::cron::{Missed, Schedule};
use crate::names::{JobId, Kind};
use crate::push::{PushSetting, SecretText};
use crate::receipt::{Fence, Generation};
use crate::settings::{Backoff, Rate, Retention, Settings};

/// The content of a line of type `kind`.
pub(super) struct KindLine {
    pub(super) kind: Kind,
    /// The latest generation that the store assigned in this kind.
    pub(super) generation: Generation,
    /// The latest fence that the store assigned in this kind.
    pub(super) fence: Fence,
    pub(super) settings: Settings,
}

impl KindLine {
    pub(super) fn write(&self) -> ObjectWriter {
        let KindLine { kind, generation, fence, settings } = self;
        let line = ObjectWriter::with_type("kind").with("kind", kind.as_str());
        let line =
            line.with("generation", importable(generation.0)).with("fence", importable(fence.0));
        line.object("settings", write_settings(settings))
    }

    pub(super) fn read(fields: &mut ObjectReader<'_>) -> Result<Self, TransferError> {
        Ok(KindLine {
            kind: fields.parse("kind", Kind::with_reserved)?,
            generation: Generation(fields.take("generation")?),
            fence: Fence(fields.take("fence")?),
            settings: read_settings(fields.object("settings")?)?,
        })
    }
}

/// Durations are written as serde writes them, `{"secs", "nanos"}`, which is exact for every value.
fn write_settings(settings: &Settings) -> ObjectWriter {
    let Settings { lease, backoff, max_attempts, concurrency, rate, .. } = settings;
    let Settings { ageing, paused, retention, keep_done, push, .. } = settings;
    let Backoff { base, max, jitter_percent } = backoff;
    let Retention { age, count } = retention;
    let backoff = ObjectWriter::new().with("base", base).with("max", max);
    let backoff = backoff.with("jitter_percent", jitter_percent);
    let retention = ObjectWriter::new().with("age", age).with("count", count);
    let settings = ObjectWriter::new().with("lease", lease).object("backoff", backoff);
    let settings = settings.with("max_attempts", max_attempts).with("concurrency", concurrency);
    let settings = settings.with("paused", paused).object("retention", retention);
    let mut settings = settings;
    if let Some(Rate { jobs, per, burst }) = rate {
        let rate = ObjectWriter::new().with("jobs", jobs).with("per", per);
        let rate = match burst {
            Some(burst) => rate.with("burst", burst),
            None => rate,
        };
        settings = settings.object("rate", rate);
    }
    if *ageing != Settings::default().ageing {
        settings = settings.with("ageing", ageing);
    }
    if let Some(Retention { age, count }) = keep_done {
        let keep_done = ObjectWriter::new().with("age", age).with("count", count);
        settings = settings.object("keep_done", keep_done);
    }
    if let Some(push) = push {
        // Without the secrets: an export is a file that people copy.
        settings = settings.with("push", &push.config);
    }
    settings
}

fn read_settings(mut fields: ObjectReader<'_>) -> Result<Settings, TransferError> {
    let mut backoff = fields.object("backoff")?;
    let rate = fields.find_object("rate")?.map(read_rate).transpose()?;
    let keep_done = fields.find_object("keep_done")?.map(read_retention).transpose()?;
    let ageing = match fields.has("ageing") {
        true => fields.find("ageing")?,
        false => Settings::default().ageing,
    };
    let retention = read_retention(fields.object("retention")?)?;
    let settings = Settings {
        lease: fields.take("lease")?,
        backoff: Backoff {
            base: backoff.take("base")?,
            max: backoff.take("max")?,
            jitter_percent: backoff.take("jitter_percent")?,
        },
        max_attempts: fields.take("max_attempts")?,
        concurrency: fields.find("concurrency")?,
        rate,
        ageing,
        paused: fields.take("paused")?,
        retention,
        keep_done,
        push: fields
            .find("push")?
            .map(|config| PushSetting { config, secrets: SecretText::default() }),
    };
    for fields in [backoff, fields] {
        fields.finish()?;
    }
    Ok(settings)
}

fn read_retention(mut fields: ObjectReader<'_>) -> Result<Retention, TransferError> {
    let retention = Retention { age: fields.take("age")?, count: fields.take("count")? };
    fields.finish()?;
    Ok(retention)
}

fn read_rate(mut fields: ObjectReader<'_>) -> Result<Rate, TransferError> {
    let rate =
        Rate { jobs: fields.take("jobs")?, per: fields.take("per")?, burst: fields.find("burst")? };
    fields.finish()?;
    Ok(rate)
}

pub(super) fn write_schedule(kind: &Kind, schedule: &Schedule) -> ObjectWriter {
    let Schedule { id, when, time_zone, content, missed, next } = schedule;
    let missed = match missed {
        Missed::One => "one",
        Missed::Skip => "skip",
        Missed::All => "all",
    };
    let line = ObjectWriter::with_type("schedule").with("kind", kind.as_str());
    let line = line.with("id", id.as_str()).with("when", when).with("time_zone", time_zone);
    write_content(line, content).with("missed", missed).time("next_ms", *next)
}

/// Reads the fields of a schedule line, except `type` and `kind`.
pub(super) fn read_schedule(fields: &mut ObjectReader<'_>) -> Result<Schedule, TransferError> {
    let missed: String = fields.take("missed")?;
    let missed = match &*missed {
        "one" => Missed::One,
        "skip" => Missed::Skip,
        "all" => Missed::All,
        _ => return Err(fields.unexpected("missed", &missed, "one, skip or all")),
    };
    Ok(Schedule {
        id: fields.parse("id", JobId::new)?,
        when: fields.take("when")?,
        time_zone: fields.take("time_zone")?,
        content: read_content(fields)?,
        missed,
        next: fields.time("next_ms")?,
    })
}
