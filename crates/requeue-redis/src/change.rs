//! Changes jobs by kind and id: cancel, run now, revive, reschedule.

use crate::batch::{Entry, run_batch};
use crate::codec::{self, NO_RECORD};
use crate::deployment::Deployment;
use crate::put::{due, levels, no_generation_left, outcome, too_late};
use crate::reply::{Reply, bytes, unexpected};
use crate::script::SCRIPTS;
use requeue_jobs::{
    BatchResults, Change, ChangeError, ChangeKind, Changed, Generation, JobId, Kind, Placed,
    Reschedule, StoreError, check_changes,
};
use std::time::Duration;

impl Entry for Change {
    fn kind(&self) -> &Kind {
        &self.kind
    }

    fn id(&self) -> &JobId {
        &self.id
    }

    fn bytes(&self) -> usize {
        self.action.body_len()
    }
}

type Changing = Result<Changed, ChangeError>;

impl Deployment {
    pub(crate) async fn change(
        &self,
        changes: Vec<Change>,
    ) -> Result<BatchResults<Changed, ChangeError>, StoreError> {
        check_changes(&changes)?;
        Ok(run_batch(changes, |kind, changes| self.change_call(kind, changes)).await)
    }

    /// Performs changes of different jobs. Reschedules have a script of their own, which a server whose
    /// memory is full rejects.
    async fn change_call(
        &self,
        kind: Kind,
        changes: Vec<Change>,
    ) -> Result<Vec<Changing>, StoreError> {
        let (mut letters, mut moves) = (Vec::new(), Vec::new());
        for Change { id, action, .. } in &changes {
            match action {
                ChangeKind::Cancel => letters.push((id, "c")),
                ChangeKind::RunNow => letters.push((id, "n")),
                ChangeKind::Revive => letters.push((id, "v")),
                ChangeKind::Reschedule(set) => moves.push((id, set)),
            }
        }
        let changed = match letters.is_empty() {
            true => Ok(Vec::new()),
            false => self.other_changes(&kind, &letters).await,
        };
        let moved = match moves.is_empty() {
            true => Ok(Vec::new()),
            false => self.reschedules(&kind, &moves).await,
        };
        let each = |results: Result<Vec<Changing>, StoreError>, count| match results {
            Ok(results) => results,
            Err(error) => vec![Err(error.into()); count],
        };
        let mut changed = each(changed, letters.len()).into_iter();
        let mut moved = each(moved, moves.len()).into_iter();
        let result = |change: &Change| match change.action {
            ChangeKind::Reschedule(_) => moved.next(),
            _ => changed.next(),
        };
        let short = || unexpected("the reply to a change is too short");
        changes.iter().map(result).map(|result| result.ok_or_else(short)).collect()
    }

    async fn other_changes(
        &self,
        kind: &Kind,
        changes: &[(&JobId, &str)],
    ) -> Result<Vec<Changing>, StoreError> {
        let reply = self.run(&SCRIPTS.change, kind, |cmd| {
            for (id, action) in changes {
                cmd.arg(id.as_str()).arg(action);
            }
        });
        let letters = bytes(reply.await?)?;
        let changed = |(&(id, _), letter): (&(&JobId, &str), u8)| {
            Ok(match letter {
                b'R' => Ok(Changed::Removed),
                b'E' => Ok(Changed::Ending),
                b'Y' => Ok(Changed::Ready),
                b'V' => Ok(Changed::Revived),
                _ => Err(self.not_changed(kind, id, letter)?),
            })
        };
        changes.iter().zip(letters).map(changed).collect()
    }

    async fn reschedules(
        &self,
        kind: &Kind,
        changes: &[(&JobId, &Reschedule)],
    ) -> Result<Vec<Changing>, StoreError> {
        let reply = self.run(&SCRIPTS.reschedule, kind, |cmd| {
            cmd.arg(levels(changes.iter().filter_map(|(_, set)| set.priority)));
            for (id, set) in changes {
                let Reschedule { due: asked, priority, body, if_generation } = set;
                let text = |number: Option<u64>| number.map_or(String::new(), |n| n.to_string());
                cmd.arg(id.as_str());
                cmd.arg(asked.map_or(String::new(), |asked| due(asked).to_string()));
                cmd.arg(text(priority.map(|priority| priority.get().into())));
                cmd.arg(body.as_ref().map(codec::body).unwrap_or_default());
                cmd.arg(text(if_generation.map(|Generation(number)| number)));
            }
        });
        let mut reply = Reply::of(reply.await?)?;
        let mut latest = reply.number()?;
        let letters = reply.bytes()?;
        let changed = |(&(id, set), letter): (&(&JobId, &Reschedule), u8)| {
            if let Some(outcome) = outcome(letter) {
                latest += 1;
                let generation = Generation(latest);
                return Ok(Ok(Changed::Rescheduled(Placed { outcome, generation })));
            }
            Ok(Err(match (letter, set.if_generation) {
                (b'G', Some(expected)) => {
                    let (kind, id) = (kind.clone(), id.clone());
                    let found = Generation(reply.number()?);
                    ChangeError::Generation { kind, id, expected, found }
                }
                (b'D', _) => too_late(Duration::from_millis(reply.number()?)).into(),
                (b'N', _) => {
                    reply.number()?;
                    no_generation_left().into()
                }
                _ => self.not_changed(kind, id, letter)?,
            }))
        };
        changes.iter().zip(letters).map(changed).collect()
    }

    /// Returns the error of a job that a script has not changed.
    fn not_changed(&self, kind: &Kind, id: &JobId, letter: u8) -> Result<ChangeError, StoreError> {
        let (kind, id) = (kind.clone(), id.clone());
        Ok(match letter {
            b'a' => ChangeError::Absent { kind, id },
            b'l' => ChangeError::Leased { kind, id },
            b'd' => ChangeError::NotDead { kind, id },
            b'o' => ChangeError::Done { kind, id },
            b'b' => NO_RECORD.of(self.keys(&kind).job(), id.as_str()).into(),
            _ => return Err(unexpected("unknown letter in the reply to a change")),
        })
    }
}
