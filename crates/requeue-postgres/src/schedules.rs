//! Schedules: recurring jobs.

use crate::database::Failure;
use crate::head::{StoredHead, stored_head};
use crate::rows::{content, damaged, id, stored_time, stored_type, time};
use crate::rules_call::Load;
use crate::store::Shared;
use crate::text::{escape, unescape};
use requeue_jobs::limits::{MAX_SCHEDULES, MAX_SCHEDULES_BYTES};
use requeue_jobs::{
    Content, Invalid, JobId, Kind, Missed, Schedule, ScheduleCondition, StoreError, Tick, Ticked,
};
use tokio_postgres::Row;

/// Reads a schedule.
pub(crate) fn read(row: &Row) -> Result<Schedule, StoreError> {
    let head: Option<StoredHead> = row.get(7);
    Ok(Schedule {
        id: id(row.get(0))?,
        when: unescape(row.get(1)).into_owned(),
        time_zone: unescape(row.get(2)).into_owned(),
        content: content(row.get(4), row.get(3), head.as_ref(), row.get(0))?,
        missed: match row.get::<_, i16>(5) {
            0 => Missed::One,
            1 => Missed::Skip,
            2 => Missed::All,
            _ => return Err(damaged("what to do with missed runs")),
        },
        next: time(row.get(6)),
    })
}

impl Shared {
    pub(crate) async fn schedules_of(&self, kind: Kind) -> Result<Vec<Schedule>, StoreError> {
        let rows = self.database.query(&self.statements.schedules, &[&kind.as_str()]).await;
        rows.map_err(Failure::for_read)?.iter().map(read).collect()
    }

    pub(crate) async fn schedule_of(
        &self,
        kind: Kind,
        id: JobId,
    ) -> Result<Option<Schedule>, StoreError> {
        let id = escape(id.as_str());
        let rows = self.database.query(&self.statements.schedule, &[&kind.as_str(), &id]).await;
        rows.map_err(Failure::for_read)?.first().map(read).transpose()
    }

    pub(crate) async fn drop_schedule(&self, kind: Kind, id: JobId) -> Result<bool, StoreError> {
        let id = escape(id.as_str());
        let rows =
            self.database.query(&self.statements.remove_schedule, &[&kind.as_str(), &id]).await;
        Ok(!rows.map_err(Failure::for_write)?.is_empty())
    }

    pub(crate) async fn keep_schedule(
        &self,
        kind: Kind,
        schedule: Schedule,
        condition: ScheduleCondition,
    ) -> Result<bool, StoreError> {
        schedule.check()?;
        if !condition.holds(None) && self.kind(&kind).await?.is_none() {
            return Ok(false);
        }
        let kind = self.made(&kind).await?;
        let (stored_id, sql) = (escape(schedule.id.as_str()), &self.statements);
        let mut session = self.database.session_of(kind.number).await.map_err(Failure::for_read)?;
        let stored = async {
            session.begin().await?;
            session.query(&sql.lock_kind, &[&kind.number]).await?;
            let present = session.query(&sql.lock_schedule, &[&kind.number, &stored_id]).await?;
            let present = present.first().map(|row| time(row.get(6)));
            if !condition.holds(present) {
                return Ok(Ok(false));
            }
            let others = session.query(&sql.sum_schedules, &[&kind.number, &stored_id]).await?;
            let count = usize::try_from(others[0].get::<_, i64>(0)).unwrap_or(0) + 1;
            let len =
                usize::try_from(others[0].get::<_, i64>(1)).unwrap_or(0) + schedule.content.len();
            if count > MAX_SCHEDULES {
                let (what, limit) = ("schedules of a kind", MAX_SCHEDULES);
                return Ok(Err(Invalid::TooMany { what, count, limit }));
            }
            if len > MAX_SCHEDULES_BYTES {
                let (field, limit) = ("the bodies of the kind's schedules", MAX_SCHEDULES_BYTES);
                return Ok(Err(Invalid::TooLong { field, len, limit }));
            }
            let missed: i16 = match schedule.missed {
                Missed::One => 0,
                Missed::Skip => 1,
                Missed::All => 2,
            };
            let (when, time_zone) = (escape(&schedule.when), escape(&schedule.time_zone));
            let Content { body, head } = &schedule.content;
            let (content_type, bytes, head) = (stored_type(body), body.bytes(), stored_head(head));
            let next = stored_time(schedule.next);
            session
                .query(
                    &sql.set_schedule,
                    &[
                        &kind.number,
                        &stored_id,
                        &when,
                        &time_zone,
                        &content_type,
                        &bytes,
                        &missed,
                        &next,
                        &head,
                    ],
                )
                .await?;
            Ok(Ok(true))
        }
        .await;
        match stored {
            Ok(Ok(true)) => {
                session.commit().await.map_err(Failure::for_write)?;
                Ok(true)
            }
            Ok(Ok(false)) => {
                session.roll_back().await;
                Ok(false)
            }
            Ok(Err(invalid)) => {
                session.roll_back().await;
                Err(invalid.into())
            }
            Err(failure) => {
                session.roll_back().await;
                Err(Failure::for_read(failure))
            }
        }
    }

    pub(crate) async fn tick_schedule(&self, tick: Tick) -> Result<Ticked, StoreError> {
        let Some(kind) = self.kind(&tick.kind).await? else { return Ok(Ticked::Absent) };
        let load = Load {
            ids: tick.put.iter().map(|put| put.id.clone()).collect(),
            schedule: Some(tick.id.clone()),
            ..Load::default()
        };
        self.with_rules(&kind, &load, |state, now| state.tick(tick.clone(), now)).await?
    }
}
