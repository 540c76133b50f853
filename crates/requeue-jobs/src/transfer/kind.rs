//! A kind as a line: what was given out last, and settings. And its schedules.

use super::error::TransferError;
use super::job::{read_body, with_body};
use super::object::{Fields, Object};
use crate::cron::{Missed, Schedule};
use crate::names::{JobId, Kind};
use crate::receipt::{Fence, Generation};
use crate::settings::{Backoff, Retention, Settings};

pub(super) struct KindLine {
    pub(super) kind: Kind,
    pub(super) generation: Generation,
    pub(super) fence: Fence,
    pub(super) settings: Settings,
}

impl KindLine {
    pub(super) fn written(&self) -> Object {
        let KindLine { kind, generation, fence, settings } = self;
        let line = Object::of_type("kind").with("kind", kind.as_str());
        let line = line.with("generation", generation.0).with("fence", fence.0);
        line.object("settings", settings_written(settings))
    }

    pub(super) fn read(fields: &mut Fields<'_>) -> Result<Self, TransferError> {
        Ok(KindLine {
            kind: fields.made("kind", Kind::new)?,
            generation: Generation(fields.take("generation")?),
            fence: Fence(fields.take("fence")?),
            settings: settings_read(fields.object("settings")?)?,
        })
    }
}

/// Durations as serde writes them: exact, however long.
fn settings_written(settings: &Settings) -> Object {
    let Settings { lease, backoff, max_attempts, concurrency, paused, retention } = settings;
    let Backoff { base, max, jitter_percent } = backoff;
    let Retention { age, count } = retention;
    let backoff = Object::new().with("base", base).with("max", max);
    let backoff = backoff.with("jitter_percent", jitter_percent);
    let retention = Object::new().with("age", age).with("count", count);
    let settings = Object::new().with("lease", lease).object("backoff", backoff);
    let settings = settings.with("max_attempts", max_attempts).with("concurrency", concurrency);
    settings.with("paused", paused).object("retention", retention)
}

fn settings_read(mut fields: Fields<'_>) -> Result<Settings, TransferError> {
    let (mut backoff, mut retention) = (fields.object("backoff")?, fields.object("retention")?);
    let settings = Settings {
        lease: fields.take("lease")?,
        backoff: Backoff {
            base: backoff.take("base")?,
            max: backoff.take("max")?,
            jitter_percent: backoff.take("jitter_percent")?,
        },
        max_attempts: fields.take("max_attempts")?,
        concurrency: fields.find("concurrency")?,
        paused: fields.take("paused")?,
        retention: Retention { age: retention.take("age")?, count: retention.take("count")? },
    };
    for fields in [backoff, retention, fields] {
        fields.finish()?;
    }
    Ok(settings)
}

pub(super) fn schedule_written(kind: &Kind, schedule: &Schedule) -> Object {
    let Schedule { id, when, time_zone, body, missed, next } = schedule;
    let missed = match missed {
        Missed::One => "one",
        Missed::Skip => "skip",
    };
    let line = Object::of_type("schedule").with("kind", kind.as_str()).with("id", id.as_str());
    let line = line.with("when", when).with("time_zone", time_zone);
    with_body(line, body).with("missed", missed).at("next_ms", *next)
}

/// The rest of a line of a kind that is known.
pub(super) fn schedule_read(fields: &mut Fields<'_>) -> Result<Schedule, TransferError> {
    let missed: String = fields.take("missed")?;
    let missed = match &*missed {
        "one" => Missed::One,
        "skip" => Missed::Skip,
        _ => return Err(fields.wrong("missed", &missed, "one or skip")),
    };
    Ok(Schedule {
        id: fields.made("id", JobId::new)?,
        when: fields.take("when")?,
        time_zone: fields.take("time_zone")?,
        body: read_body(fields)?,
        missed,
        next: fields.at("next_ms")?,
    })
}
