//! Reading jobs.

use crate::codec::{Damage, StoredJob};
use crate::deployment::Deployment;
use crate::keys::Keys;
use crate::reply::{Reply, bytes, unexpected};
use crate::script::SCRIPTS;
use redis::Value;
use requeue_jobs::{JobId, JobState, JobView, Kind, StoreError};

/// Max. bytes of records per script call.
pub(crate) const MAX_BYTES: usize = 4 << 20;

impl Deployment {
    pub(crate) async fn get(&self, kind: Kind, id: JobId) -> Result<Option<JobView>, StoreError> {
        let keys = self.keys(&kind);
        let (_, jobs) = self.views(&kind, &keys, None, 1, &[id]).await?;
        Ok(jobs.into_iter().next())
    }

    /// Returns up to `max` of the jobs with these ids that are in this state, in the order of the
    /// ids. Also returns how many of the ids were examined: fewer than all if `max` jobs or
    /// [`MAX_BYTES`] were reached.
    pub(crate) async fn views(
        &self,
        kind: &Kind,
        keys: &Keys,
        state: Option<JobState>,
        max: usize,
        ids: &[JobId],
    ) -> Result<(usize, Vec<JobView>), StoreError> {
        let reply = self.run(&SCRIPTS.view, kind, |cmd| {
            cmd.arg(state.map_or("", letter)).arg(max).arg(MAX_BYTES);
            ids.iter().for_each(|id| {
                cmd.arg(id.as_str());
            });
        });
        let mut reply = Reply::of(reply.await?)?;
        reply.number()?;
        let seen = usize::try_from(reply.number()?).unwrap_or(usize::MAX);
        let (mut fields, mut jobs) = (reply.array()?, Vec::new());
        while !fields.is_empty() {
            jobs.push(read(&mut fields, keys)?.view(kind, keys)?);
        }
        Ok((seen, jobs))
    }
}

/// Returns the letter of a state in scripts.
pub(crate) fn letter(state: JobState) -> &'static str {
    match state {
        JobState::Waiting => "w",
        JobState::Ready => "r",
        JobState::Leased => "l",
        JobState::Dead => "d",
        JobState::Done => "o",
    }
}

/// Reads the next job of a reply.
pub(crate) fn read(fields: &mut Reply, keys: &Keys) -> Result<StoredJob, StoreError> {
    let id = JobId::new(fields.text()?).map_err(|error| unexpected(&error.to_string()))?;
    let state = match fields.bytes()?.as_slice() {
        b"w" => JobState::Waiting,
        b"r" => JobState::Ready,
        b"l" => JobState::Leased,
        b"d" => JobState::Dead,
        b"o" => JobState::Done,
        _ => return Err(unexpected("unknown state of a job")),
    };
    let at = requeue_jobs::Timestamp::from_millis(fields.number()?);
    let mut value = |key| match fields.next()? {
        Value::Int(length) => Err(Damage::too_long(key, id.as_str(), length)),
        value => bytes(value),
    };
    let (record, lease) = (value(keys.job())?, value(keys.lease())?);
    let (next, past) = (value(keys.next())?, value(keys.past())?);
    Ok(StoredJob { id, state, at, record, lease, next, past })
}
