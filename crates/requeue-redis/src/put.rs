//! Puts.

use crate::batch::{Entry, run_batch};
use crate::codec::content;
use crate::deployment::Deployment;
use crate::reply::{Reply, unexpected};
use crate::script::SCRIPTS;
use requeue_jobs::limits::{MAX_COUNTER, MAX_DELAY};
use requeue_jobs::{
    BatchResults, Condition, Due, Generation, Invalid, JobId, Kind, Mode, Placed, Priority, Put,
    PutError, PutOutcome, StoreError, Timestamp, check_batch,
};
use std::time::Duration;

impl Entry for Put {
    fn kind(&self) -> &Kind {
        &self.kind
    }

    fn id(&self) -> &JobId {
        &self.id
    }

    fn bytes(&self) -> usize {
        self.content.len()
    }
}

type Placing = Result<Placed, PutError>;

impl Deployment {
    pub(crate) async fn put(
        &self,
        puts: Vec<Put>,
    ) -> Result<BatchResults<Placed, PutError>, StoreError> {
        check_batch(&puts)?;
        Ok(run_batch(puts, |kind, puts| self.put_call(kind, puts)).await)
    }

    async fn put_call(&self, kind: Kind, mut puts: Vec<Put>) -> Result<Vec<Placing>, StoreError> {
        let checks: Vec<_> = puts.iter().map(|put| put.content.check()).collect();
        puts.retain(|put| put.content.check().is_ok());
        let placed = match puts.is_empty() {
            true => Vec::new(),
            false => self.place(kind, &puts).await?,
        };
        let mut placed = placed.into_iter();
        let missing = || Err(unexpected("the reply to a put is too short").into());
        let result = |check: Result<(), Invalid>| match check {
            Ok(()) => placed.next().unwrap_or_else(missing),
            Err(invalid) => Err(invalid.into()),
        };
        Ok(checks.into_iter().map(result).collect())
    }

    /// Puts different jobs whose contents are not too long.
    async fn place(&self, kind: Kind, puts: &[Put]) -> Result<Vec<Placing>, StoreError> {
        let reply = self.make(&SCRIPTS.put, &kind, |cmd| {
            let like_all = like_all(puts);
            match like_all {
                Some(put) => cmd.arg(due(put.due)).arg(action(put)),
                None => cmd.arg("").arg(""),
            };
            cmd.arg(levels(puts.iter().map(|put| put.priority)));
            for put in puts {
                cmd.arg(put.id.as_str());
                if like_all.is_none() {
                    cmd.arg(due(put.due)).arg(action(put));
                }
                cmd.arg(content(&put.content, put.priority));
            }
        });
        placed(&mut Reply::of(reply.await?)?, puts)
    }
}

/// The priorities other than 0, as digits.
pub(crate) fn levels(priorities: impl Iterator<Item = Priority>) -> String {
    let mut digits: Vec<_> = priorities.map(Priority::get).filter(|digit| *digit > 0).collect();
    digits.sort_unstable();
    digits.dedup();
    digits.iter().map(u8::to_string).collect()
}

/// Returns a put whose due time, mode and condition all others have as well.
fn like_all(puts: &[Put]) -> Option<&Put> {
    let how = |put: &Put| (put.due, put.mode, put.condition);
    puts.first().filter(|first| puts.iter().all(|put| how(put) == how(first)))
}

/// The due time as `put.lua` takes it: a delay is negated.
pub(crate) fn due(due: Due) -> i64 {
    match due {
        Due::Now => 0,
        Due::After(delay) => -millis(delay),
        Due::At(at) => i64::try_from(at.as_millis()).unwrap_or(i64::MAX).min(FAR_AWAY),
    }
}

/// The largest number that Lua represents exactly; later than any allowed time.
const FAR_AWAY: i64 = 1 << 53;

/// Milliseconds, rounded up, at most [`FAR_AWAY`].
pub(crate) fn millis(duration: Duration) -> i64 {
    let millis = Timestamp::default().saturating_add(duration).as_millis();
    i64::try_from(millis).unwrap_or(i64::MAX).min(FAR_AWAY)
}

fn action(put: &Put) -> String {
    let mode = match put.mode {
        Mode::Replace if put.condition.is_none() => return String::new(),
        Mode::Replace => "r".to_owned(),
        Mode::Earliest => "e".to_owned(),
        Mode::Keep => "k".to_owned(),
        Mode::Debounce { max_wait } => format!("d{}", millis(max_wait)),
    };
    match put.condition {
        None => mode,
        Some(Condition::IfAbsent) => mode + "a",
        Some(Condition::IfNew) => mode + "n",
        Some(Condition::IfGeneration(generation)) => format!("{mode}g{generation}"),
    }
}

/// Parses the reply of `put.lua`.
fn placed(reply: &mut Reply, puts: &[Put]) -> Result<Vec<Placing>, StoreError> {
    let mut latest = reply.number()?;
    let letters = reply.bytes()?;
    puts.iter()
        .zip(letters)
        .map(|(put, letter)| {
            Ok(match outcome(letter) {
                Some(outcome) => {
                    latest += 1;
                    Ok(Placed { outcome, generation: Generation(latest) })
                }
                None => other(put, letter, reply.number()?)?,
            })
        })
        .collect()
}

/// The outcome of a put that got a new generation.
pub(crate) fn outcome(letter: u8) -> Option<PutOutcome> {
    Some(match letter {
        b'C' => PutOutcome::Created,
        b'U' => PutOutcome::Updated,
        b'O' => PutOutcome::Coalesced,
        b'R' => PutOutcome::Revived,
        _ => return None,
    })
}

fn other(put: &Put, letter: u8, number: u64) -> Result<Placing, StoreError> {
    let (kind, id, generation) = (put.kind.clone(), put.id.clone(), Generation(number));
    Ok(match (letter, put.condition) {
        (b'K', _) => Ok(Placed { outcome: PutOutcome::Kept, generation }),
        (b'E', _) => Err(PutError::Exists { kind, id, generation }),
        (b'G', Some(Condition::IfGeneration(expected))) => {
            let found = Some(generation).filter(|found| found.0 > 0);
            Err(PutError::Generation { kind, id, expected, found })
        }
        (b'D', _) => Err(too_late(Duration::from_millis(number)).into()),
        (b'N', _) => Err(no_generation_left().into()),
        _ => return Err(unexpected("unknown outcome of a put")),
    })
}

pub(crate) fn no_generation_left() -> Invalid {
    let (field, limit) = ("the kind's generation", MAX_COUNTER);
    Invalid::TooHigh { field, value: limit + 1, limit }
}

pub(crate) fn too_late(value: Duration) -> Invalid {
    let (field, min, max) = ("the delay", Duration::ZERO, MAX_DELAY);
    Invalid::OutOfRange { field, value, min, max }
}
