//! Kinds: their counts, and reaping.

use crate::database::{Failure, Params};
use crate::marks::Purpose;
use crate::rows::{number, stored_number, stored_time, time};
use crate::rules_call::Load;
use crate::settings;
use crate::store::{KindRef, Shared, lock};
use requeue_jobs::limits::{MAX_BATCH, MAX_KINDS, MAX_RESULT_BYTES, MAX_SPANS};
use requeue_jobs::{
    Counts, Fence, Generation, Invalid, Kind, KindView, Reaped, Spans, StoreError, Timestamp,
};
use tokio_postgres::Row;

/// How many kinds one call reaps.
const REAPED_AT_ONCE: usize = 100;

/// Reads a row of the statement `views`: the kind, and whether it is listed.
fn view(row: &Row) -> Result<(KindView, bool), StoreError> {
    let name = Kind::with_reserved(row.get::<_, &str>(0))
        .map_err(|error| crate::rows::damaged(&error.to_string()))?;
    let stored: Option<&str> = row.get(1);
    let settings = settings::read(stored)?;
    let count = |n: usize| number(row.get::<_, i64>(n));
    let counts = Counts {
        pending: count(2),
        leased: count(3),
        dead: count(4),
        done: count(5),
        ready: count(6),
    };
    let mut view = KindView::new(name);
    view.counts = counts;
    view.oldest_ready = row.get::<_, Option<i64>>(7).map(time);
    view.generation = Generation(number(row.get(8)));
    view.fence = Fence(number(row.get(9)));
    view.throttled_until = row.get::<_, Option<i64>>(10).map(time);
    (view.paused, view.push) = (settings.paused, settings.push.is_some());
    let has_jobs = counts.pending + counts.leased + counts.dead + counts.done > 0;
    Ok((view, has_jobs || stored.is_some() || row.get::<_, bool>(11)))
}

impl Shared {
    async fn views(&self, kind: Option<&str>) -> Result<Vec<Row>, StoreError> {
        let test = self.test_time();
        self.database
            .query(&self.statements.views, &[&test, &kind])
            .await
            .map_err(Failure::for_read)
    }

    pub(crate) async fn views_of_kinds(&self) -> Result<Vec<KindView>, StoreError> {
        let views = self.views(None).await?.iter().map(view).collect::<Result<Vec<_>, _>>()?;
        Ok(views.into_iter().filter(|(_, is_listed)| *is_listed).map(|(view, _)| view).collect())
    }

    pub(crate) async fn view_of_kind(&self, kind: Kind) -> Result<KindView, StoreError> {
        let rows = self.views(Some(kind.as_str())).await?;
        rows.first().map_or(Ok(KindView::new(kind)), |row| Ok(view(row)?.0))
    }

    pub(crate) async fn count_upcoming(
        &self,
        kind: Kind,
        spans: Spans,
    ) -> Result<Vec<u64>, StoreError> {
        let Spans { from, length, count } = spans;
        if count > MAX_SPANS {
            return Err(Invalid::TooMany { what: "spans", count, limit: MAX_SPANS }.into());
        }
        let mut counts = vec![0; count];
        let Some(kind) = self.kind(&kind).await? else { return Ok(counts) };
        let length = i64::try_from(length.as_millis()).unwrap_or(i64::MAX).max(1);
        let from = stored_time(from);
        let end = length.saturating_mul(stored_number(count as u64)).saturating_add(from);
        let sql = &self.statements.upcoming;
        let params: &Params<'_> = &[&kind.number, &from, &length, &end];
        let rows = self.database.query_of(kind.number, sql, params).await;
        for row in rows.map_err(Failure::for_read)? {
            let span = usize::try_from(row.get::<_, i64>(0)).ok();
            if let Some(span) = span.and_then(|span| counts.get_mut(span)) {
                *span = number(row.get(1));
            }
        }
        Ok(counts)
    }

    pub(crate) async fn reap_kinds(&self, max: usize) -> Result<Reaped, StoreError> {
        let rows = self.database.query(&self.statements.kind_names, &[]).await;
        let rows = rows.map_err(Failure::for_read)?;
        let mut kinds: Vec<(&str, i32)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        // Continue after the last kind of the previous call, and wrap around.
        let last = lock(&self.reaped).clone();
        let from = kinds.partition_point(|(name, _)| Some(*name) <= last.as_deref());
        kinds.rotate_left(from);
        let forgets = kinds.len() > MAX_KINDS / 2;
        kinds.truncate(REAPED_AT_ONCE);
        let (mut reaped, mut expired) = (Vec::new(), 0);
        for (name, number) in kinds {
            let Ok(kind) = Kind::with_reserved(name) else { continue };
            let missing = self.database.missing_kinds();
            let of_kind = self.reap_kind(&KindRef { name: kind, number }, max.min(MAX_BATCH)).await;
            if of_kind.is_err() && missing != self.database.missing_kinds() {
                // Another process has removed it.
                continue;
            }
            expired += of_kind.as_ref().map_or(0, |reaped| reaped.expired.len());
            reaped.push(of_kind);
            *lock(&self.reaped) = Some(name.to_owned());
            if expired >= MAX_BATCH {
                break;
            }
        }
        if forgets && let Err(failure) = self.forget_idle_kinds().await {
            reaped.push(Err(failure.for_read()));
        }
        // All of these kinds are reaped, even if one fails.
        Reaped::sum(reaped)
    }

    /// Removes kinds that have no jobs, settings and schedules. Continues after those of the previous call: open transactions
    /// may put jobs of them, and they then stay.
    async fn forget_idle_kinds(&self) -> Result<(), Failure> {
        let (sql, most) = (&self.statements, REAPED_AT_ONCE as i32);
        let mut gone = false;
        let after = *lock(&self.idle_looked_at);
        let idle = self.database.query(&sql.idle_kinds, &[&after, &most]).await?;
        let is_last = idle.len() < REAPED_AT_ONCE;
        *lock(&self.idle_looked_at) = match idle.last() {
            Some(last) if !is_last => last.get(0),
            _ => 0,
        };
        for row in idle {
            let number: i32 = row.get(0);
            let rows = self.database.query_of(number, &sql.forget, &[&number]).await?;
            gone |= rows[0].get::<_, bool>(0);
        }
        if gone {
            self.database.kind_is_missing();
        }
        Ok(())
    }

    async fn reap_kind(&self, kind: &KindRef, max: usize) -> Result<Reaped, StoreError> {
        let (test, most) = (self.test_time(), i32::try_from(max).unwrap_or(i32::MAX));
        let mut reaped = Reaped::default();
        let look_at = self.marks.look(kind.number, Purpose::Reap);
        let mark = look_at.mark.lease;
        let look = self
            .database
            .query_of(kind.number, &self.statements.reap, &[&test, &kind.number, &most, &mark])
            .await;
        let look = look.map_err(Failure::for_write)?;
        self.marks.looked(&look_at, None, None, None);
        let (mut dropped, has_expired): (i64, bool) = (look[0].get(0), look[0].get(1));
        if has_expired && max > 0 {
            let load = Load { claimable: Some((0, max)), ..Load::default() };
            reaped = self
                .with_rules(kind, &load, |state, now: Timestamp| {
                    state.reap(max, &mut { MAX_RESULT_BYTES }, now)
                })
                .await??;
            let rest = i32::try_from(max).unwrap_or(i32::MAX).saturating_sub(dropped as i32);
            let look = self
                .database
                .query_of(kind.number, &self.statements.reap, &[&test, &kind.number, &rest, &mark])
                .await;
            dropped += look.map_err(Failure::for_write)?[0].get::<_, i64>(0);
        }
        reaped.count += usize::try_from(dropped).unwrap_or(0);
        Ok(reaped)
    }
}
