//! Settlements.

use crate::batch::{Entry, run_batch};
use crate::codec::{NO_RECORD, body, proof};
use crate::deployment::Deployment;
use crate::put::{millis, no_generation_left, too_late};
use crate::reply::{Reply, bytes, unexpected};
use crate::script::SCRIPTS;
use redis::Cmd;
use requeue_jobs::limits::MAX_DELAY;
use requeue_jobs::rules::{check_result, check_settlements};
use requeue_jobs::{
    Backoff, BatchResults, Invalid, JobId, Kind, Receipt, Settle, SettleError, Settled, Settlement,
    StoreError, Timestamp, check_lease, kept_error,
};

impl Entry for Settle {
    fn kind(&self) -> &Kind {
        self.receipt.kind()
    }

    fn id(&self) -> &JobId {
        self.receipt.id()
    }

    fn bytes(&self) -> usize {
        match &self.action {
            Settlement::Retry { error, .. } | Settlement::Bury { error } => error.len(),
            Settlement::AckWith(result) => result.len(),
            Settlement::Ack
            | Settlement::RequeueAfter(_)
            | Settlement::Release
            | Settlement::Extend(_) => 0,
        }
    }
}

type Settling = Result<Settled, SettleError>;

impl Deployment {
    pub(crate) async fn settle(
        &self,
        settlements: Vec<Settle>,
    ) -> Result<BatchResults<Settled, SettleError>, StoreError> {
        check_settlements(&settlements)?;
        Ok(run_batch(settlements, |kind, settlements| self.settle_call(kind, settlements)).await)
    }

    /// Runs the acks first, with a script that does nothing else, and then the rest. The order does
    /// not matter because all entries of a call are for different jobs.
    async fn settle_call(
        &self,
        kind: Kind,
        settlements: Vec<Settle>,
    ) -> Result<Vec<Settling>, StoreError> {
        let check =
            |settle: &Settle| check(&settle.action).err().map(|refusal| Err(refusal.into()));
        let mut results: Vec<Option<Settling>> = settlements.iter().map(check).collect();
        let keeps_done = self.keeps_done(&kind);
        let acks: Vec<usize> = (0..settlements.len())
            .filter(|&number| !keeps_done && settlements[number].action == Settlement::Ack)
            .collect();
        self.ack(&kind, &settlements, &acks, &mut results).await;
        let others: Vec<usize> =
            (0..settlements.len()).filter(|&number| results[number].is_none()).collect();
        self.settle_others(&kind, &settlements, &others, &mut results).await;
        let missing = || Err(unexpected("an entry has no result").into());
        Ok(results.into_iter().map(|result| result.unwrap_or_else(missing)).collect())
    }

    /// Acks jobs. Entries that must go through [`settle`](Self::settle) keep no result.
    async fn ack(
        &self,
        kind: &Kind,
        settlements: &[Settle],
        acks: &[usize],
        results: &mut [Option<Settling>],
    ) {
        if acks.is_empty() {
            return;
        }
        let reply = self.run(&SCRIPTS.ack, kind, |cmd| {
            for &number in acks {
                let receipt = &settlements[number].receipt;
                cmd.arg(receipt.id().as_str()).arg(proof(receipt));
            }
        });
        match reply.await.and_then(bytes) {
            Ok(letters) => {
                for (&number, letter) in acks.iter().zip(letters) {
                    let receipt = || settlements[number].receipt.clone();
                    results[number] = match letter {
                        b'A' => Some(Ok(Settled::Done)),
                        b'L' => Some(Err(SettleError::LeaseLost { receipt: receipt() })),
                        b'S' => None,
                        b'K' => {
                            self.learn_keeps_done(kind);
                            None
                        }
                        _ => Some(Err(unexpected("unknown outcome of an ack").into())),
                    };
                }
            }
            Err(error) => acks.iter().for_each(|&n| results[n] = Some(Err(error.clone().into()))),
        }
    }

    async fn settle_others(
        &self,
        kind: &Kind,
        settlements: &[Settle],
        these: &[usize],
        results: &mut [Option<Settling>],
    ) {
        if these.is_empty() {
            return;
        }
        let reply = self.run(&SCRIPTS.settle, kind, |cmd| {
            these.iter().for_each(|&number| push(cmd, &settlements[number]));
        });
        let settled = reply.await.and_then(|reply| {
            let receipts = these.iter().map(|&number| &settlements[number].receipt);
            read(Reply::of(reply)?, receipts, |receipt| {
                NO_RECORD.of(self.keys(kind).job(), receipt.id().as_str())
            })
        });
        match settled {
            Ok(settled) => {
                these.iter().zip(settled).for_each(|(&n, settled)| results[n] = Some(settled));
            }
            Err(error) => these.iter().for_each(|&n| results[n] = Some(Err(error.clone().into()))),
        }
    }
}

/// Adds the arguments of `settle.lua` for one settlement.
fn push(cmd: &mut Cmd, Settle { receipt, action }: &Settle) {
    let text = |error: &str| kept_error(error).as_bytes().to_vec();
    let (letter, length, more) = match action {
        Settlement::Ack => ("a", None, Vec::new()),
        Settlement::AckWith(result) => ("w", None, body(result)),
        Settlement::Retry { delay, error } => ("r", *delay, text(error)),
        Settlement::Bury { error } => ("b", None, text(error)),
        Settlement::RequeueAfter(delay) => ("q", Some(*delay), Vec::new()),
        Settlement::Release => ("l", None, Vec::new()),
        Settlement::Extend(length) => ("e", *length, Vec::new()),
    };
    cmd.arg(receipt.id().as_str()).arg(proof(receipt)).arg(letter);
    match length {
        Some(length) => cmd.arg(millis(length)),
        None => cmd.arg(""),
    };
    cmd.arg(more);
    cmd.arg(Backoff::part(receipt.fence().0 ^ receipt.nonce()));
}

/// Parses the reply of `settle.lua`.
fn read<'a>(
    mut reply: Reply,
    receipts: impl Iterator<Item = &'a Receipt>,
    damaged: impl Fn(&Receipt) -> StoreError,
) -> Result<Vec<Settling>, StoreError> {
    let letters = reply.bytes()?;
    let settled = |(receipt, letter): (&Receipt, u8)| {
        Ok(match letter {
            b'A' => Ok(Settled::Done),
            b'R' => Ok(Settled::RetryAt(Timestamp::from_millis(reply.number()?))),
            b'D' => Ok(Settled::Dead),
            b'F' => Ok(Settled::Released),
            b'E' => Ok(Settled::Extended(Timestamp::from_millis(reply.number()?))),
            b'X' => Ok(Settled::Cancelled),
            b'L' => Err(SettleError::LeaseLost { receipt: receipt.clone() }),
            b'N' => Err(no_generation_left().into()),
            b'B' => Err(damaged(receipt).into()),
            _ => return Err(unexpected("unknown outcome of a settlement")),
        })
    };
    receipts.zip(letters).map(settled).collect()
}

/// Fails if a delay or lease is out of range, or a result is too long.
fn check(action: &Settlement) -> Result<(), Invalid> {
    match action {
        Settlement::AckWith(result) => check_result(result),
        Settlement::Extend(Some(lease)) => check_lease(*lease),
        Settlement::Retry { delay: Some(delay), .. } | Settlement::RequeueAfter(delay) => {
            // Compare after rounding up to milliseconds.
            let rounded = Timestamp::default().saturating_add(*delay);
            let rounded = rounded.saturating_since(Timestamp::default());
            if rounded > MAX_DELAY { Err(too_late(rounded)) } else { Ok(()) }
        }
        _ => Ok(()),
    }
}
