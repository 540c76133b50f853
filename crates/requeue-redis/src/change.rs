//! Changes jobs by kind and id: cancel, run now, revive.

use crate::batch::{Entry, run_batch};
use crate::codec::NO_RECORD;
use crate::reply::{bytes, unexpected};
use crate::script::SCRIPTS;
use crate::store::RedisStore;
use requeue_jobs::rules::check_count;
use requeue_jobs::{
    BatchResults, Change, ChangeError, ChangeKind, Changed, JobId, Kind, StoreError,
};

impl Entry for Change {
    fn kind(&self) -> &Kind {
        &self.kind
    }

    fn id(&self) -> &JobId {
        &self.id
    }

    fn bytes(&self) -> usize {
        0
    }
}

impl RedisStore {
    pub(crate) async fn change_all(
        &self,
        changes: Vec<Change>,
    ) -> Result<BatchResults<Changed, ChangeError>, StoreError> {
        check_count("entries in a batch", changes.len())?;
        Ok(run_batch(changes, |kind, changes| self.change_call(kind, changes)).await)
    }

    async fn change_call(
        &self,
        kind: Kind,
        changes: Vec<Change>,
    ) -> Result<Vec<Result<Changed, ChangeError>>, StoreError> {
        let reply = self.run(&SCRIPTS.change, &kind, |cmd| {
            for change in &changes {
                cmd.arg(change.id.as_str()).arg(match change.action {
                    ChangeKind::Cancel => "c",
                    ChangeKind::RunNow => "n",
                    ChangeKind::Revive => "v",
                });
            }
        });
        let letters = bytes(reply.await?)?;
        let changed = |(change, letter): (Change, u8)| {
            let Change { kind, id, .. } = change;
            Ok(match letter {
                b'R' => Ok(Changed::Removed),
                b'E' => Ok(Changed::Ending),
                b'Y' => Ok(Changed::Ready),
                b'V' => Ok(Changed::Revived),
                b'a' => Err(ChangeError::Absent { kind, id }),
                b'l' => Err(ChangeError::Leased { kind, id }),
                b'd' => Err(ChangeError::NotDead { kind, id }),
                b'o' => Err(ChangeError::Done { kind, id }),
                b'b' => Err(NO_RECORD.of(self.keys(&kind).job(), id.as_str()).into()),
                _ => return Err(unexpected("unknown letter in the reply to a change")),
            })
        };
        changes.into_iter().zip(letters).map(changed).collect()
    }
}
