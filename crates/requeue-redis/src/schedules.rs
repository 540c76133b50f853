//! Schedules.

use crate::codec::{Damage, kept_time, read_schedule, write_schedule};
use crate::put::{no_generation_left, outcome, too_late};
use crate::reply::{Reply, bytes, number, signed, unexpected};
use crate::script::SCRIPTS;
use crate::store::RedisStore;
use redis::Value;
use requeue_jobs::limits::{MAX_BATCH, MAX_SCHEDULES};
use requeue_jobs::{
    Generation, Invalid, JobId, Kind, Placed, Schedule, StoreError, Tick, Ticked, Timestamp,
};
use std::time::Duration;

/// Max. bytes of schedules per script call.
const MAX_BYTES: usize = 4 << 20;

impl RedisStore {
    pub(crate) async fn keep_schedule(
        &self,
        kind: Kind,
        schedule: Schedule,
    ) -> Result<(), StoreError> {
        schedule.check()?;
        let value = write_schedule(&schedule);
        let kept = self.make(&SCRIPTS.schedule, &kind, |cmd| {
            cmd.arg(schedule.id.as_str()).arg(&value).arg(MAX_SCHEDULES);
        });
        if signed(&kept.await?)? < 0 {
            let (what, limit) = ("schedules of a kind", MAX_SCHEDULES);
            return Err(Invalid::TooMany { what, count: limit + 1, limit }.into());
        }
        Ok(())
    }

    pub(crate) async fn drop_schedule(&self, kind: Kind, id: JobId) -> Result<bool, StoreError> {
        let keys = self.keys(&kind);
        let mut cmd = redis::cmd("HDEL");
        cmd.arg(keys.schedules()).arg(id.as_str());
        Ok(number(&self.write(&keys.tag, cmd).await?)? == 1)
    }

    pub(crate) async fn schedules_of(&self, kind: Kind) -> Result<Vec<Schedule>, StoreError> {
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
                let value = match values.next()? {
                    Value::Int(length) => {
                        return Err(Damage::too_long(keys.schedules(), id.as_str(), length));
                    }
                    value => bytes(value)?,
                };
                // An empty one was removed meanwhile.
                if !value.is_empty() {
                    let read = read_schedule(id.clone(), &value);
                    schedules.push(read.map_err(|it| it.of(keys.schedules(), id.as_str()))?);
                }
            }
        }
        Ok(schedules)
    }

    pub(crate) async fn tick_schedule(&self, tick: Tick) -> Result<Ticked, StoreError> {
        let reply = self.run(&SCRIPTS.tick, &tick.kind, |cmd| {
            cmd.arg(tick.id.as_str()).arg(kept_time(tick.expected)).arg(kept_time(tick.next));
            cmd.arg(if tick.put { "1" } else { "" });
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

#[cfg(test)]
mod tests {
    use super::*;
    use requeue_jobs::{Body, Missed};
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
        let schedule = Schedule { id: id.clone(), when, time_zone, body, missed, next };
        block_on(store.keep_schedule(kind.clone(), schedule)).unwrap();
        proxy.cut_after(Direction::ToClient, 0);
        let removed = block_on(store.drop_schedule(kind.clone(), id));
        assert!(matches!(removed, Err(StoreError::Unknown { .. })), "{removed:?}");
        assert_eq!(block_on(store.schedules_of(kind)), Ok(Vec::new()));
    }
}
