//! Encodes settings, and how much of a rate limit is used.

use super::time;
use crate::bytes::{Bytes, Malformed, put_bytes, put_number};
use requeue_jobs::rules::RateUse;
use requeue_jobs::{Backoff, PushSetting, Rate, Retention, Settings};
use std::time::Duration;

// The flags of settings, from the lowest bit.
const HAS_CONCURRENCY: u64 = 1;
const PAUSED: u64 = 1 << 1;
const HAS_RATE: u64 = 1 << 2;
const HAS_AGEING: u64 = 1 << 3;
const NO_AGEING: u64 = 1 << 4;
const KEEPS_DONE: u64 = 1 << 5;
const HAS_PUSH: u64 = 1 << 6;
/// All other bits are invalid.
const KNOWN_SETTINGS: u64 = (1 << 7) - 1;
/// The ageing without a flag. It belongs to the format, also if the default of settings changes.
const USUAL_AGEING: Option<Duration> = Some(Duration::from_secs(600));

pub(crate) fn put_settings(out: &mut Vec<u8>, settings: &Settings) {
    let mut flags = 0;
    flags |= if settings.concurrency.is_some() { HAS_CONCURRENCY } else { 0 };
    flags |= if settings.paused { PAUSED } else { 0 };
    flags |= if settings.rate.is_some() { HAS_RATE } else { 0 };
    flags |= match settings.ageing {
        ageing if ageing == USUAL_AGEING => 0,
        Some(_) => HAS_AGEING,
        None => NO_AGEING,
    };
    flags |= if settings.keep_done.is_some() { KEEPS_DONE } else { 0 };
    flags |= if settings.push.is_some() { HAS_PUSH } else { 0 };
    put_number(out, flags);
    put_duration(out, settings.lease);
    put_duration(out, settings.backoff.base);
    put_duration(out, settings.backoff.max);
    out.push(settings.backoff.jitter_percent);
    put_number(out, settings.max_attempts.into());
    put_retention(out, settings.retention);
    if let Some(limit) = settings.concurrency {
        put_number(out, limit.into());
    }
    if let Some(rate) = settings.rate {
        put_number(out, rate.jobs.into());
        put_duration(out, rate.per);
        put_number(out, rate.burst.unwrap_or_default().into());
    }
    if let Some(ageing) = settings.ageing.filter(|_| flags & HAS_AGEING != 0) {
        put_duration(out, ageing);
    }
    if let Some(keep) = settings.keep_done {
        put_retention(out, keep);
    }
    if let Some(push) = &settings.push {
        put_bytes(out, push.config.as_bytes());
        put_bytes(out, push.secrets.expose().as_bytes());
    }
}

pub(crate) fn settings(bytes: &mut Bytes<'_>) -> Result<Settings, Malformed> {
    let flags = bytes.number()?;
    let has = |flag| flags & flag != 0;
    if has(!KNOWN_SETTINGS) || has(HAS_AGEING) && has(NO_AGEING) {
        return Err(Malformed("settings have unknown flags"));
    }
    let mut settings = Settings::default();
    settings.lease = duration(bytes)?;
    let (base, max) = (duration(bytes)?, duration(bytes)?);
    settings.backoff = Backoff { base, max, jitter_percent: bytes.byte()? };
    settings.max_attempts = bytes.number32()?;
    settings.retention = retention(bytes)?;
    settings.paused = has(PAUSED);
    settings.concurrency = if has(HAS_CONCURRENCY) { Some(bytes.number32()?) } else { None };
    if has(HAS_RATE) {
        let jobs = bytes.number32()?;
        let (per, burst) = (duration(bytes)?, bytes.number32()?);
        settings.rate = Some(Rate { jobs, per, burst: Some(burst).filter(|burst| *burst > 0) });
    }
    settings.ageing = match flags & (HAS_AGEING | NO_AGEING) {
        0 => USUAL_AGEING,
        HAS_AGEING => Some(duration(bytes)?),
        _ => None,
    };
    settings.keep_done = if has(KEEPS_DONE) { Some(retention(bytes)?) } else { None };
    if has(HAS_PUSH) {
        let config = bytes.text()?.to_owned();
        settings.push = Some(PushSetting { config, secrets: bytes.text()?.to_owned().into() });
    }
    settings.check().map_err(|_| Malformed("settings are out of range"))?;
    Ok(settings)
}

fn put_retention(out: &mut Vec<u8>, retention: Retention) {
    put_duration(out, retention.age);
    put_number(out, retention.count as u64);
}

fn retention(bytes: &mut Bytes<'_>) -> Result<Retention, Malformed> {
    let (age, count) = (duration(bytes)?, usize::try_from(bytes.number()?));
    Ok(Retention { age, count: count.map_err(|_| Malformed("a number is too large"))? })
}

/// Writes how much of a rate limit is used.
pub(crate) fn put_rate_use(out: &mut Vec<u8>, rate_use: &RateUse) {
    put_number(out, rate_use.parts);
    put_number(out, rate_use.at.as_millis());
}

/// Reads how much of a rate limit is used.
pub(crate) fn rate_use(bytes: &mut Bytes<'_>) -> Result<RateUse, Malformed> {
    Ok(RateUse { parts: bytes.number()?, at: time(bytes.number()?) })
}

fn put_duration(out: &mut Vec<u8>, duration: Duration) {
    put_number(out, duration.as_secs());
    put_number(out, duration.subsec_nanos().into());
}

fn duration(bytes: &mut Bytes<'_>) -> Result<Duration, Malformed> {
    let (secs, nanos) = (bytes.number()?, bytes.number32()?);
    if nanos >= 1_000_000_000 {
        return Err(Malformed("a duration has more than 999999999 nanoseconds"));
    }
    Ok(Duration::new(secs, nanos))
}
