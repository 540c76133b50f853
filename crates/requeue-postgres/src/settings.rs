//! The settings of kinds.

use crate::database::Failure;
use crate::rows::damaged;
use crate::store::Shared;
use requeue_jobs::{Backoff, Kind, PushSetting, Rate, Retention, Settings, StoreError};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Settings as they are stored.
#[derive(Serialize, Deserialize)]
struct Stored {
    lease: Duration,
    backoff_base: Duration,
    backoff_max: Duration,
    backoff_jitter: u8,
    max_attempts: u32,
    concurrency: Option<u32>,
    rate: Option<(u32, Duration, Option<u32>)>,
    ageing: Option<Duration>,
    paused: bool,
    retention: (Duration, u64),
    keep_done: Option<(Duration, u64)>,
    push: Option<(String, String)>,
}

/// Reads settings. `None`: the default ones.
pub(crate) fn read(stored: Option<&str>) -> Result<Settings, StoreError> {
    let mut settings = Settings::default();
    let Some(text) = stored else { return Ok(settings) };
    let stored: Stored =
        serde_json::from_str(text).map_err(|error| damaged(&format!("settings: {error}")))?;
    let retention =
        |(age, count)| Retention { age, count: usize::try_from(count).unwrap_or(usize::MAX) };
    settings.lease = stored.lease;
    settings.backoff = Backoff {
        base: stored.backoff_base,
        max: stored.backoff_max,
        jitter_percent: stored.backoff_jitter,
    };
    settings.max_attempts = stored.max_attempts;
    settings.concurrency = stored.concurrency;
    settings.rate = stored.rate.map(|(jobs, per, burst)| Rate { jobs, per, burst });
    settings.ageing = stored.ageing;
    settings.paused = stored.paused;
    settings.retention = retention(stored.retention);
    settings.keep_done = stored.keep_done.map(retention);
    settings.push =
        stored.push.map(|(config, secrets)| PushSetting { config, secrets: secrets.into() });
    Ok(settings)
}

fn text(settings: &Settings) -> String {
    let retention = |kept: &Retention| (kept.age, kept.count as u64);
    let stored = Stored {
        lease: settings.lease,
        backoff_base: settings.backoff.base,
        backoff_max: settings.backoff.max,
        backoff_jitter: settings.backoff.jitter_percent,
        max_attempts: settings.max_attempts,
        concurrency: settings.concurrency,
        rate: settings.rate.map(|rate| (rate.jobs, rate.per, rate.burst)),
        ageing: settings.ageing,
        paused: settings.paused,
        retention: retention(&settings.retention),
        keep_done: settings.keep_done.as_ref().map(retention),
        push: settings
            .push
            .as_ref()
            .map(|push| (push.config.clone(), push.secrets.expose().to_owned())),
    };
    serde_json::to_string(&stored).expect("texts and numbers are JSON")
}

/// Milliseconds, rounded down, as ages are compared.
fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX / 4)
}

impl Shared {
    pub(crate) async fn settings_of(&self, kind: Kind) -> Result<Settings, StoreError> {
        let rows = self.database.query(&self.statements.settings, &[&kind.as_str()]).await;
        let rows = rows.map_err(Failure::for_read)?;
        rows.first().map_or(Ok(Settings::default()), |row| read(row.get(0)))
    }

    pub(crate) async fn set_of(&self, kind: Kind, settings: Settings) -> Result<(), StoreError> {
        settings.check()?;
        let is_default = settings == Settings::default();
        if is_default && self.kind(&kind).await?.is_none() {
            return Ok(());
        }
        let kind = self.made(&kind).await?;
        let stored = (!is_default).then(|| text(&settings));
        let lease = crate::rows::stored_time(
            requeue_jobs::Timestamp::default().saturating_add(settings.lease),
        );
        let concurrency = settings.concurrency.map(i64::from);
        let rate = settings.rate;
        let (rate_jobs, rate_burst) =
            (rate.map(|rate| i64::from(rate.jobs)), rate.map(|rate| i64::from(rate.bucket())));
        let rate_per = rate.map(|rate| millis(rate.per).max(1));
        let count = |kept: &Retention| i64::try_from(kept.count).unwrap_or(i64::MAX / 4);
        let (max_dead, dead_age) = (count(&settings.retention), millis(settings.retention.age));
        let (max_done, done_age) =
            settings.keep_done.as_ref().map_or((0, 0), |kept| (count(kept), millis(kept.age)));
        let keeps_done = settings.keep_done.is_some();
        let nanos = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX / 4);
        let Backoff { base, max, jitter_percent } = settings.backoff;
        let (base, max, jitter) = (nanos(base), nanos(max), i32::from(jitter_percent));
        let max_attempts = i64::from(settings.max_attempts);
        // One transaction: a new rate begins with a full bucket.
        let mut session = self.database.session_of(kind.number).await.map_err(Failure::for_read)?;
        let sql = &self.statements;
        let changed = async {
            session.begin().await?;
            // Claims of a limited kind take the same lock.
            let before = session.query(&sql.lock_kind, &[&kind.number]).await?;
            let old_rate =
                before.first().and_then(|row| read(row.get(0)).ok()).and_then(|old| old.rate);
            if old_rate != rate {
                session.query(&sql.reset_rate, &[&kind.number]).await?;
            }
            session
                .query(
                    &sql.set,
                    &[
                        &kind.number,
                        &stored,
                        &settings.paused,
                        &lease,
                        &concurrency,
                        &rate_jobs,
                        &rate_per,
                        &rate_burst,
                        &keeps_done,
                        &max_dead,
                        &dead_age,
                        &max_done,
                        &done_age,
                        &max_attempts,
                        &base,
                        &max,
                        &jitter,
                    ],
                )
                .await
        }
        .await;
        if let Err(failure) = changed {
            session.roll_back().await;
            return Err(failure.for_read());
        }
        session.commit().await.map_err(Failure::for_write)?;
        self.watch.forget(&kind);
        Ok(())
    }
}
