//! Kinds: their counts, and reaping.

use crate::claim::expired_leases;
use crate::deployment::{Deployment, lock};
use crate::keys;
use crate::reply::{Reply, unexpected};
use crate::script::SCRIPTS;
use futures_util::future::join_all;
use requeue_jobs::limits::{MAX_BATCH, MAX_KINDS, MAX_SPANS, READY_COUNT_CAP};
use requeue_jobs::{
    Counts, Fence, Generation, Invalid, Kind, KindView, Reaped, Spans, StoreError, Timestamp,
};

/// How many kinds are queried concurrently.
pub(crate) const AT_ONCE: usize = 100;

/// How many kinds are reaped concurrently. Each reports up to [`MAX_BATCH`] leases with their ids.
const REAPED_AT_ONCE: usize = 10;

/// A kind as `facts.lua` returns it.
pub(crate) struct FoundKind {
    pub(crate) view: KindView,
    /// Whether it has jobs, settings or schedules.
    pub(crate) is_shown: bool,
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
}
