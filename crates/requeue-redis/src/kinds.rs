//! Kinds: their counts and settings, and reaping.

use crate::claim::expired_leases;
use crate::deployment::{Deployment, lock};
use crate::keys;
use crate::reply::{Reply, unexpected};
use crate::script::{SCRIPTS, Script};
use futures_util::future::join_all;
use redis::{Cmd, Value};
use requeue_jobs::limits::{MAX_BATCH, MAX_KINDS, MAX_SPANS, READY_COUNT_CAP};
use requeue_jobs::{
    Counts, Fence, Generation, Invalid, Kind, KindView, PushSetting, Rate, Reaped, Retention,
    Settings, Spans, StoreError, Timestamp,
};
use std::time::Duration;

/// How many kinds are queried concurrently.
pub(crate) const AT_ONCE: usize = 100;

/// How many kinds are reaped concurrently. Each reports up to [`MAX_BATCH`] leases with their ids.
const REAPED_AT_ONCE: usize = 10;

/// How often a kind is registered, if others create it concurrently.
const MAKE_TRIES: usize = 20;

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

/// A kind as `facts.lua` returns it.
pub(crate) struct FoundKind {
    pub(crate) view: KindView,
    /// Whether it has jobs, settings or schedules.
    is_shown: bool,
}

impl Deployment {
    /// Returns the names of all kinds in the deployment's set, sorted.
    pub(crate) async fn names(&self) -> Result<Vec<Kind>, StoreError> {
        let prefix = &self.prefix;
        let mut cmd = redis::cmd("SMEMBERS");
        cmd.arg(keys::kinds(prefix));
        let mut names = Reply::of(self.read(prefix, cmd).await?)?;
        let mut kinds = Vec::new();
        while !names.is_empty() {
            kinds.push(
                Kind::with_reserved(names.text()?)
                    .map_err(|error| unexpected(&error.to_string()))?,
            );
        }
        kinds.sort_unstable();
        Ok(kinds)
    }

    pub(crate) async fn kinds(&self) -> Result<Vec<KindView>, StoreError> {
        let names = self.names().await?;
        let mut views = Vec::new();
        for names in names.chunks(AT_ONCE) {
            for found in join_all(names.iter().map(|kind| self.facts(kind))).await {
                let FoundKind { view, is_shown } = found?;
                views.extend(is_shown.then_some(view));
            }
        }
        Ok(views)
    }

    pub(crate) async fn facts(&self, kind: &Kind) -> Result<FoundKind, StoreError> {
        let mut facts = Reply::of(self.run(&SCRIPTS.facts, kind, |_| {}).await?)?;
        let (pending, leased) = (facts.number()?, facts.number()?);
        let (dead, done) = (facts.number()?, facts.number()?);
        let ready = facts.number()?.min(READY_COUNT_CAP);
        let oldest = facts.signed()?;
        let (generation, fence) = (Generation(facts.number()?), Fence(facts.number()?));
        let (paused, throttled) = (facts.number()? == 1, facts.signed()?);
        let push = facts.number()? == 1;
        let is_shown = pending + leased + dead + done > 0 || facts.number()? == 1;
        let counts = Counts { pending, leased, dead, done, ready };
        let time = |millis| u64::try_from(millis).ok().map(Timestamp::from_millis);
        let (oldest_ready, throttled_until) = (time(oldest), time(throttled));
        let kind = kind.clone();
        let mut view = KindView::new(kind);
        (view.counts, view.oldest_ready, view.throttled_until) =
            (counts, oldest_ready, throttled_until);
        (view.paused, view.push, view.generation, view.fence) = (paused, push, generation, fence);
        Ok(FoundKind { view, is_shown })
    }

    pub(crate) async fn reap(&self, max: usize) -> Result<Reaped, StoreError> {
        let mut names = self.names().await?;
        let forgets = names.len() > MAX_KINDS / 2;
        // Continue after the last kind of the previous call, and wrap around.
        let last = lock(&self.reaped).clone();
        let from = names.partition_point(|kind| Some(kind.as_str()) <= last.as_deref());
        names.rotate_left(from);
        names.truncate(AT_ONCE);
        let (mut reaped, mut expired) = (Vec::new(), 0);
        for names in names.chunks(REAPED_AT_ONCE) {
            let of_these = join_all(names.iter().map(|kind| self.reap_kind(kind, max))).await;
            expired += of_these.iter().flatten().map(|reaped| reaped.expired.len()).sum::<usize>();
            reaped.extend(of_these);
            *lock(&self.reaped) = names.last().map(|kind| kind.as_str().to_owned());
            if forgets && let Err(error) = self.forget(names).await {
                reaped.push(Err(error));
            }
            if expired >= MAX_BATCH {
                break;
            }
        }
        // All of these kinds are reaped, even if one fails.
        Reaped::sum(reaped)
    }

    /// Removes those of these kinds that have no jobs, settings and schedules. New kinds begin with higher numbers than
    /// theirs.
    async fn forget(&self, kinds: &[Kind]) -> Result<(), StoreError> {
        let prefix = &self.prefix;
        let mut cmd = redis::cmd("HMGET");
        cmd.arg(keys::registered(prefix));
        for kind in kinds {
            cmd.arg(kind.as_str());
        }
        let mut registrations = Reply::of(self.read(prefix, cmd).await?)?;
        let found = join_all(kinds.iter().map(|kind| self.facts(kind))).await;
        let mut idle = Vec::new();
        for (kind, found) in kinds.iter().zip(found) {
            let registration = match registrations.next()? {
                Value::Nil => String::new(),
                number => crate::reply::text(number)?,
            };
            let FoundKind { view, is_shown } = found?;
            idle.extend((!is_shown).then_some((kind, registration, view)));
        }
        let highest = |of: fn(&KindView) -> u64| idle.iter().map(|(.., view)| of(view)).max();
        let (Some(generation), Some(fence)) =
            (highest(|view| view.generation.0), highest(|view| view.fence.0))
        else {
            return Ok(());
        };
        self.of_deployment(&SCRIPTS.raise, &[keys::removed(prefix)], |cmd| {
            cmd.arg(generation).arg(fence);
        })
        .await?;
        let forget = |kind| {
            self.run(&SCRIPTS.forget, kind, |cmd| {
                cmd.arg(generation).arg(fence);
            })
        };
        let replies = join_all(idle.iter().map(|(kind, ..)| forget(kind))).await;
        let mut removed = Vec::new();
        for ((kind, registration, _), reply) in idle.into_iter().zip(replies) {
            removed.extend((reply? == Value::Int(1)).then_some((kind, registration)));
        }
        let keys = [keys::kinds(prefix), keys::registered(prefix)];
        self.of_deployment(&SCRIPTS.unregister, &keys, |cmd| {
            for (kind, registration) in removed {
                cmd.arg(kind.as_str()).arg(registration);
            }
        })
        .await?;
        Ok(())
    }

    async fn reap_kind(&self, kind: &Kind, max: usize) -> Result<Reaped, StoreError> {
        let reply = self.run(&SCRIPTS.reap, kind, |cmd| {
            cmd.arg(max.min(MAX_BATCH));
        });
        let mut reply = Reply::of(reply.await?)?;
        let count = usize::try_from(reply.number()?).unwrap_or(usize::MAX);
        Ok(Reaped { count, expired: expired_leases(kind, reply.array()?)? })
    }

    pub(crate) async fn upcoming(&self, kind: Kind, spans: Spans) -> Result<Vec<u64>, StoreError> {
        let Spans { from, length, count } = spans;
        if count > MAX_SPANS {
            return Err(Invalid::TooMany { what: "spans", count, limit: MAX_SPANS }.into());
        }
        let length = u64::try_from(length.as_millis()).unwrap_or(u64::MAX).max(1);
        let reply = self.run(&SCRIPTS.upcoming, &kind, |cmd| {
            for span in 0..=count as u64 {
                cmd.arg(from.as_millis().saturating_add(length.saturating_mul(span)));
            }
        });
        let mut reply = Reply::of(reply.await?)?;
        (0..count).map(|_| reply.number()).collect()
    }

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

    /// Calls a script that creates the kind, with what it needs to do so as its first argument if the kind is
    /// registered. If it returns 0, the kind is not: registers it and calls again.
    pub(crate) async fn make(
        &self,
        script: &'static Script,
        kind: &Kind,
        add: impl Fn(&mut Cmd),
    ) -> Result<Value, StoreError> {
        let mut registered = String::new();
        for _ in 0..MAKE_TRIES {
            let reply = self.run(script, kind, |cmd| {
                cmd.arg(&registered);
                add(cmd);
            });
            let reply = reply.await?;
            if reply != Value::Int(0) {
                return Ok(reply);
            }
            // Again, if others create the kind concurrently.
            registered = self.register(kind).await?;
        }
        let reason = format!("kind {kind} is created by too many others");
        Err(StoreError::Unavailable { reason })
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
    Ok(settings.clamped())
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
