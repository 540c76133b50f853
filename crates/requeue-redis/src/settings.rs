//! The settings of a kind: fields of `meta`.

use crate::deployment::Deployment;
use crate::reply::{Reply, unexpected};
use crate::script::SCRIPTS;
use redis::Value;
use requeue_jobs::{Kind, PushSetting, Rate, Retention, Settings, StoreError};
use std::time::Duration;

/// The settings fields in `meta`, in the order in which they are written and read.
const FIELDS: [&str; 17] = [
    "lease",
    "backoff_base",
    "backoff_max",
    "backoff_jitter",
    "max_attempts",
    "concurrency",
    "paused",
    "retention_age",
    "retention_count",
    "rate_jobs",
    "rate_per",
    "rate_burst",
    "ageing",
    "keep_done_age",
    "keep_done_count",
    "push",
    "push_secrets",
];

impl Deployment {
    pub(crate) async fn settings(&self, kind: Kind) -> Result<Settings, StoreError> {
        let keys = self.keys(&kind);
        let mut cmd = redis::cmd("HMGET");
        cmd.arg(keys.meta()).arg(&FIELDS);
        read_settings(Reply::of(self.read(&keys.tag, cmd).await?)?)
    }

    pub(crate) async fn set(&self, kind: Kind, settings: Settings) -> Result<(), StoreError> {
        settings.check()?;
        let values = write_settings(&settings);
        self.make(&SCRIPTS.set, &kind, |cmd| {
            for (field, value) in FIELDS.iter().zip(&values) {
                cmd.arg(field).arg(value);
            }
        })
        .await?;
        Ok(())
    }
}

/// The values of [`FIELDS`]; all empty if the settings are the default.
fn write_settings(settings: &Settings) -> [String; FIELDS.len()] {
    if *settings == Settings::default() {
        return Default::default();
    }
    let Settings { lease, backoff, max_attempts, concurrency, paused, retention, .. } = settings;
    let Settings { rate, ageing, keep_done, push, .. } = settings;
    let of_rate = |part: fn(&Rate) -> String| rate.as_ref().map(part).unwrap_or_default();
    let of_done = |part: fn(&Retention) -> String| keep_done.as_ref().map(part).unwrap_or_default();
    [
        write_millis(*lease),
        write_millis(backoff.base),
        write_millis(backoff.max),
        backoff.jitter_percent.to_string(),
        max_attempts.to_string(),
        concurrency.map(|limit| limit.to_string()).unwrap_or_default(),
        if *paused { "1".to_owned() } else { String::new() },
        write_millis(retention.age),
        retention.count.to_string(),
        of_rate(|rate| rate.jobs.to_string()),
        of_rate(|rate| write_millis(rate.per)),
        // 0: the default.
        of_rate(|rate| rate.burst.unwrap_or_default().to_string()),
        match ageing {
            ageing if *ageing == Settings::default().ageing => String::new(),
            ageing => write_millis(ageing.unwrap_or_default()),
        },
        of_done(|keep| write_millis(keep.age)),
        of_done(|keep| keep.count.to_string()),
        push.as_ref().map(|push| push.config.clone()).unwrap_or_default(),
        push.as_ref().map(|push| push.secrets.expose().to_owned()).unwrap_or_default(),
    ]
}

fn read_settings(mut fields: Reply) -> Result<Settings, StoreError> {
    let mut next = || {
        Ok::<_, StoreError>(match fields.next()? {
            Value::Nil => None,
            other => Some(crate::reply::text(other)?),
        })
    };
    let mut settings = Settings::default();
    let wrong = || unexpected("a setting of the kind is not a number");
    if let Some(lease) = next()? {
        settings.lease = read_millis(&lease).ok_or_else(wrong)?;
    }
    if let Some(base) = next()? {
        settings.backoff.base = read_millis(&base).ok_or_else(wrong)?;
    }
    if let Some(max) = next()? {
        settings.backoff.max = read_millis(&max).ok_or_else(wrong)?;
    }
    if let Some(jitter) = next()? {
        settings.backoff.jitter_percent = jitter.parse().map_err(|_| wrong())?;
    }
    if let Some(attempts) = next()? {
        settings.max_attempts = attempts.parse().map_err(|_| wrong())?;
    }
    if let Some(limit) = next()? {
        settings.concurrency = Some(limit.parse().map_err(|_| wrong())?);
    }
    settings.paused = next()?.is_some();
    if let Some(age) = next()? {
        settings.retention.age = read_millis(&age).ok_or_else(wrong)?;
    }
    if let Some(count) = next()? {
        settings.retention.count = count.parse().map_err(|_| wrong())?;
    }
    if let (Some(jobs), Some(per), Some(burst)) = (next()?, next()?, next()?) {
        let (jobs, burst) =
            (jobs.parse().map_err(|_| wrong())?, burst.parse().map_err(|_| wrong())?);
        let burst = Some(burst).filter(|burst| *burst > 0);
        settings.rate = Some(Rate { jobs, per: read_millis(&per).ok_or_else(wrong)?, burst });
    }
    if let Some(ageing) = next()? {
        settings.ageing =
            Some(read_millis(&ageing).ok_or_else(wrong)?).filter(|ageing| !ageing.is_zero());
    }
    if let (Some(age), Some(count)) = (next()?, next()?) {
        let (age, count) =
            (read_millis(&age).ok_or_else(wrong)?, count.parse().map_err(|_| wrong())?);
        settings.keep_done = Some(Retention { age, count });
    }
    let (push, secrets) = (next()?, next()?.unwrap_or_default());
    settings.push = push.map(|config| PushSetting { config, secrets: secrets.into() });
    settings.check().map_err(|invalid| {
        unexpected(&format!("the settings of the kind are invalid: {invalid}"))
    })?;
    Ok(settings)
}

/// Milliseconds as text, with six decimals if they are not whole.
fn write_millis(duration: Duration) -> String {
    let (millis, nanos) = (duration.as_millis(), duration.subsec_nanos() % 1_000_000);
    match nanos {
        0 => millis.to_string(),
        _ => format!("{millis}.{nanos:06}"),
    }
}

fn read_millis(text: &str) -> Option<Duration> {
    let (millis, nanos) = text.split_once('.').unwrap_or((text, "0"));
    let (millis, nanos): (u128, u32) = (millis.parse().ok()?, nanos.parse().ok()?);
    let whole = u64::try_from(millis / 1000).ok()?;
    let nanos = (millis % 1000) as u32 * 1_000_000 + nanos;
    (nanos < 1_000_000_000).then(|| Duration::new(whole, nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_of_time_is_read_as_it_was_written() {
        for duration in [
            Duration::ZERO,
            Duration::from_nanos(1),
            Duration::from_micros(1500),
            Duration::from_secs(30),
            Duration::MAX,
        ] {
            assert_eq!(read_millis(&write_millis(duration)), Some(duration));
        }
        assert_eq!(write_millis(Duration::from_secs(30)), "30000");
        assert_eq!(write_millis(Duration::from_micros(1500)), "1.500000");
        assert_eq!(read_millis("5 minutes"), None);
    }
}
