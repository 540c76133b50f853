//! A client: puts, claims, settles and changes jobs, as it happens.

use super::log::Log;
use crate::fixture::block_on;
use crate::random::Random;
use requeue_jobs::{
    Body, Change, ChangeKind, Claim, Condition, Due, JobId, Kind, Mode, Put, Receipt, Settle,
    SettleError, Settlement, Store, StoreError, WorkerName,
};
use std::time::Duration;

/// Few, so that clients meet.
const IDS: [&str; 4] = ["a", "b", "c", "d"];

pub(super) fn kinds() -> Vec<Kind> {
    ["mail", "order.close"].map(|kind| Kind::new(kind).expect("a valid kind")).into()
}

pub(super) struct Client<'a> {
    worker: WorkerName,
    store: &'a dyn Store,
    log: &'a Log,
    random: Random,
    /// What it has claimed and not settled.
    held: Vec<Receipt>,
    /// What it had: it forgets that it may not use them.
    stale: Vec<Receipt>,
}

fn millis(random: &mut Random, from: &[u64]) -> Duration {
    Duration::from_millis(*random.pick(from))
}

impl<'a> Client<'a> {
    pub(super) fn new(number: usize, seed: u64, store: &'a dyn Store, log: &'a Log) -> Self {
        let worker = WorkerName::new(format!("client {number}")).expect("a valid name");
        // Clients do not choose alike.
        let mut random = Random::new(seed);
        (0..=number).for_each(|_| random = Random::new(random.number()));
        Client { worker, store, log, random, held: Vec::new(), stale: Vec::new() }
    }

    fn kind(&mut self) -> Kind {
        self.random.pick(&kinds()).clone()
    }

    fn id(&mut self) -> JobId {
        JobId::new(*self.random.pick(&IDS)).expect("a valid id")
    }

    pub(super) fn step(&mut self) {
        match self.random.below(100) {
            0..22 => self.put(),
            22..45 => self.claim(),
            45..80 if !self.held.is_empty() => self.settle(),
            80..84 => self.settle_anew(),
            84..92 => self.change(),
            92 => drop(block_on(self.store.reap(10))),
            _ => {
                let limit = millis(&mut self.random, &[1, 5, 20]);
                drop(block_on(self.store.wait(kinds(), limit)));
            }
        }
    }

    /// One or a few.
    fn put(&mut self) {
        let count = if self.random.chance(70) { 1 } else { 2 + self.random.below(4) };
        let puts = (0..count).map(|_| self.random_put()).collect();
        self.log.put(self.store, puts);
    }

    fn random_put(&mut self) -> Put {
        let body = Body::octets(self.random.number().to_le_bytes()).expect("a small body");
        let mut put = Put::new(self.kind(), self.id(), body);
        if self.random.chance(50) {
            put.due = Due::After(millis(&mut self.random, &[1, 10, 40]));
        }
        put.mode = *self.random.pick(&[
            Mode::Replace,
            Mode::Replace,
            Mode::Replace,
            Mode::Earliest,
            Mode::Keep,
            Mode::Debounce { max_wait: Duration::from_millis(50) },
        ]);
        put.condition = self.random.chance(10).then_some(Condition::IfAbsent);
        put
    }

    fn claim(&mut self) {
        let kinds = if self.random.chance(50) { kinds() } else { vec![self.kind()] };
        let lease = self.random.chance(70).then(|| millis(&mut self.random, &[10, 30, 100]));
        let (max, nonce) = (1 + self.random.below(3), self.random.number());
        let claim = Claim { kinds, max, lease, worker: self.worker.clone(), nonce };
        let claimed = self.log.claim(self.store, claim);
        self.held.extend(claimed.into_iter().map(|job| job.receipt));
    }

    /// Some of what it has; now and then it forgets about one.
    fn settle(&mut self) {
        let count = 1 + self.random.below(self.held.len());
        let receipts: Vec<Receipt> = self.held.drain(..count).collect();
        let settlements = receipts.into_iter().filter_map(|receipt| {
            let action = self.random_end()?;
            if let Settlement::Extend(_) = action {
                self.held.push(receipt.clone());
            }
            self.stale.push(receipt.clone());
            Some(Settle { receipt, action })
        });
        let settlements = settlements.collect();
        self.insist(settlements);
    }

    fn random_end(&mut self) -> Option<Settlement> {
        Some(match self.random.below(20) {
            0..10 => Settlement::Ack,
            10..13 => {
                let delay = self.random.chance(50).then(|| millis(&mut self.random, &[0, 5, 30]));
                Settlement::Retry { delay, error: "it did not work".to_owned() }
            }
            13..15 => Settlement::Release,
            15..18 => Settlement::Extend(Some(millis(&mut self.random, &[20, 60]))),
            _ => return None,
        })
    }

    /// With a receipt that was used before.
    fn settle_anew(&mut self) {
        if !self.stale.is_empty() {
            let receipt = self.random.pick(&self.stale).clone();
            let action = self
                .random
                .pick(&[Settlement::Ack, Settlement::Release, Settlement::Extend(None)])
                .clone();
            self.insist(vec![Settle { receipt, action }]);
        }
    }

    /// Does again what may not have been done, as a worker does.
    fn insist(&self, settlements: Vec<Settle>) {
        let answers = self.log.settle(self.store, settlements.clone());
        let is_unknown = |answer: &Result<_, SettleError>| {
            matches!(answer, Err(SettleError::Store(StoreError::Unknown { .. })))
        };
        let unknown = settlements.into_iter().zip(&answers).filter(|(_, a)| is_unknown(a));
        let unknown: Vec<Settle> = unknown.map(|(settle, _)| settle).collect();
        if !unknown.is_empty() {
            drop(self.log.settle(self.store, unknown));
        }
    }

    fn change(&mut self) {
        let action = *self.random.pick(&[
            ChangeKind::Cancel,
            ChangeKind::Cancel,
            ChangeKind::RunNow,
            ChangeKind::Revive,
        ]);
        let change = Change { kind: self.kind(), id: self.id(), action };
        self.log.change(self.store, change);
    }
}
