//! Schedules.

use crate::codec::{Damage, content, kept_time, read_schedule, write_schedule};
use crate::deployment::Deployment;
use crate::keys::Keys;
use crate::put::{levels, no_generation_left, outcome, too_late};
use crate::reply::{Reply, bytes, number, signed, unexpected};
use crate::script::SCRIPTS;
use redis::Value;
use requeue_jobs::limits::{MAX_BATCH, MAX_SCHEDULES, MAX_SCHEDULES_BYTES};
use requeue_jobs::{
    Generation, Invalid, JobId, Kind, Placed, Schedule, ScheduleCondition, StoreError, Tick,
    TickJob, Ticked, Timestamp,
};
use std::time::Duration;

/// Max. bytes of schedules per script call.
const MAX_BYTES: usize = 4 << 20;

impl Deployment {
    pub(crate) async fn set_schedule(
        &self,
        kind: Kind,
        schedule: Schedule,
        condition: ScheduleCondition,
    ) -> Result<bool, StoreError> {
        schedule.check()?;
        let value = write_schedule(&schedule);
        let kept = self.make(&SCRIPTS.schedule, &kind, |cmd| {
            cmd.arg(schedule.id.as_str()).arg(&value).arg(MAX_SCHEDULES);
            match condition {
                ScheduleCondition::Always => cmd.arg(""),
                ScheduleCondition::Absent => cmd.arg("absent"),
                ScheduleCondition::Next(next) => cmd.arg(kept_time(next)),
            };
            cmd.arg(MAX_SCHEDULES_BYTES);
        });
        match signed(&kept.await?)? {
            1 => Ok(true),
            2 => Ok(false),
            -1 => {
                let (what, limit) = ("schedules of a kind", MAX_SCHEDULES);
                Err(Invalid::TooMany { what, count: limit + 1, limit }.into())
            }
            size => {
                let (field, limit) = ("the bodies of the kind's schedules", MAX_SCHEDULES_BYTES);
                let len = usize::try_from(-1 - size).unwrap_or(usize::MAX);
                Err(Invalid::TooLong { field, len, limit }.into())
            }
        }
    }

    pub(crate) async fn schedule(
        &self,
        kind: Kind,
        id: JobId,
    ) -> Result<Option<Schedule>, StoreError> {
        let reply = self.run(&SCRIPTS.schedules, &kind, |cmd| {
            cmd.arg(MAX_BYTES).arg(id.as_str());
        });
        let value = Reply::of(reply.await?)?.next()?;
        read_one(&self.keys(&kind), id, value)
    }

    pub(crate) async fn remove_schedule(&self, kind: Kind, id: JobId) -> Result<bool, StoreError> {
        let keys = self.keys(&kind);
        let mut cmd = redis::cmd("HDEL");
        cmd.arg(keys.schedules()).arg(id.as_str());
        Ok(number(&self.write(&keys.tag, cmd).await?)? == 1)
    }

    pub(crate) async fn schedules(&self, kind: Kind) -> Result<Vec<Schedule>, StoreError> {
        let keys = self.keys(&kind);
        let mut cmd = redis::cmd("HKEYS");
        cmd.arg(keys.schedules());
        let mut names = Reply::of(self.read(&keys.tag, cmd).await?)?;
        let mut ids = Vec::new();
        while !names.is_empty() {
            ids.push(JobId::new(names.text()?).map_err(|error| unexpected(&error.to_string()))?);
        }
        ids.sort_unstable();
        let mut schedules = Vec::new();
        let mut left = &ids[..];
        while !left.is_empty() {
            let reply = self.run(&SCRIPTS.schedules, &kind, |cmd| {
                cmd.arg(MAX_BYTES);
                for id in left.iter().take(MAX_BATCH) {
                    cmd.arg(id.as_str());
                }
            });
            let mut values = Reply::of(reply.await?)?;
            if values.is_empty() {
                return Err(unexpected("it contains no schedule"));
            }
            while let ([id, rest @ ..], false) = (left, values.is_empty()) {
                left = rest;
                // One that is missing was removed meanwhile.
                schedules.extend(read_one(&keys, id.clone(), values.next()?)?);
            }
        }
        Ok(schedules)
    }

    pub(crate) async fn tick(&self, tick: Tick) -> Result<Ticked, StoreError> {
        if let Some(job) = &tick.put {
            job.content.check()?;
        }
        let reply = self.run(&SCRIPTS.tick, &tick.kind, |cmd| {
            cmd.arg(tick.id.as_str()).arg(kept_time(tick.expected)).arg(kept_time(tick.next));
            if let Some(TickJob { id, content: of_job, priority }) = &tick.put {
                cmd.arg(id.as_str()).arg(content(of_job, *priority));
                cmd.arg(levels([*priority].into_iter()));
            }
        });
        let mut reply = Reply::of(reply.await?)?;
        Ok(match bytes(reply.next()?)?.as_slice() {
            b"a" => Ticked::Absent,
            b"S" => Ticked::Skipped,
            b"M" => Ticked::Moved(Timestamp::from_millis(reply.number()?)),
            b"N" => return Err(no_generation_left().into()),
            b"D" => return Err(too_late(Duration::from_millis(reply.number()?)).into()),
            [letter] => {
                let outcome =
                    outcome(*letter).ok_or_else(|| unexpected("unknown outcome of a tick"))?;
                let generation = Generation(reply.number()? + 1);
                Ticked::Put(Placed { outcome, generation })
            }
            _ => return Err(unexpected("unknown outcome of a tick")),
        })
    }
}

/// Reads the reply of `schedules.lua` for one id.
fn read_one(keys: &Keys, id: JobId, value: Value) -> Result<Option<Schedule>, StoreError> {
    let value = match value {
        Value::Int(length) => {
            return Err(Damage::too_long(keys.schedules(), id.as_str(), length));
        }
        value => bytes(value)?,
    };
    if value.is_empty() {
        return Ok(None);
    }
    let read = read_schedule(id.clone(), &value);
    Ok(Some(read.map_err(|damage| damage.of(keys.schedules(), id.as_str()))?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RedisStore;
    use requeue_jobs::{Body, Missed, Store};
    use requeue_testkit::servers::RedisServer;
    use requeue_testkit::{Direction, Proxy, block_on};

    #[test]
    fn a_schedule_whose_removal_nobody_confirmed_may_be_gone() {
        let server = RedisServer::start();
        let proxy = Proxy::to(server.address().parse().unwrap()).unwrap();
        let url = format!("redis://{}", proxy.address());
        let store = block_on(RedisStore::connect(&url)).unwrap();
        let (kind, id) = (Kind::new("mail").unwrap(), JobId::new("daily").unwrap());
        let (when, time_zone, body) = (String::new(), String::new(), Body::default());
        let (missed, next) = (Missed::One, Timestamp::default());
        let schedule =
            Schedule { id: id.clone(), when, time_zone, content: body.into(), missed, next };
        let always = ScheduleCondition::Always;
        assert_eq!(block_on(store.set_schedule(kind.clone(), schedule, always)), Ok(true));
        proxy.cut_after(Direction::ToClient, 0);
        let removed = block_on(store.remove_schedule(kind.clone(), id));
        assert!(matches!(removed, Err(StoreError::Unknown { .. })), "{removed:?}");
        assert_eq!(block_on(store.schedules(kind)), Ok(Vec::new()));
    }
}
