//! A client: puts, claims, settles and changes jobs at random.

use super::log::Log;
use crate::fixture::block_on;
use crate::operations::{ActionKind, ConditionKind, DueKind, ModeKind, Operations, SettlementKind};
use crate::random::Random;
use requeue_jobs::{
    Generation, JobId, Kind, Receipt, Settle, SettleError, Settlement, Store, StoreError,
    Timestamp, WorkerName,
};
use std::time::Duration;

/// Few, so that clients interfere with each other.
const IDS: [&str; 4] = ["a", "b", "c", "d"];

pub(super) fn kinds() -> Vec<Kind> {
    ["mail", "order.close"].map(|kind| Kind::new(kind).expect("a valid kind")).into()
}

pub(super) struct Client<'a> {
    store: &'a dyn Store,
    log: &'a Log,
    random: Random,
    operations: Operations,
    /// The receipts of leases that it has not settled.
    held: Vec<Receipt>,
    /// Receipts that it has used. Sometimes it uses one again.
    used: Vec<Receipt>,
}

fn millis(random: &mut Random, from: &[u64]) -> Duration {
    Duration::from_millis(*random.pick(from))
}

fn operations(worker: WorkerName) -> Operations {
    use {ActionKind as C, SettlementKind as S};
    Operations {
        kinds: kinds(),
        claimed_together: kinds(),
        ids: IDS.map(|id| JobId::new(id).expect("a valid id")).to_vec(),
        workers: vec![worker],
        batch: |random| if random.chance(70) { 1 } else { 2 + random.below(4) },
        dues: &[(1, DueKind::Now), (1, DueKind::After)],
        delay: |random| millis(random, &[1, 10, 40]),
        modes: &[
            (3, ModeKind::Replace),
            (1, ModeKind::Earliest),
            (1, ModeKind::Keep),
            (1, ModeKind::Debounce),
        ],
        max_wait: |_| Duration::from_millis(50),
        conditions: &[(10, ConditionKind::Absent), (90, ConditionKind::Never)],
        one_kind: &[(1, true), (1, false)],
        max_claimed: &[(1, 1), (1, 2), (1, 3)],
        lease: |random| random.chance(70).then(|| millis(random, &[10, 30, 100])),
        settlements: &[
            (10, S::Ack),
            (3, S::Retry),
            (2, S::Release),
            (3, S::Extend),
            (2, S::Forget),
        ],
        retry_delay: |random| millis(random, &[0, 5, 30]),
        error: |_| "it did not work".to_owned(),
        extension: |random| Some(millis(random, &[20, 60])),
        changes: &[(2, C::Cancel), (1, C::RunNow), (1, C::Revive), (3, C::Reschedule)],
        ..Operations::default()
    }
}

impl<'a> Client<'a> {
    pub(super) fn new(number: usize, seed: u64, store: &'a dyn Store, log: &'a Log) -> Self {
        let worker = WorkerName::new(format!("client {number}")).expect("a valid name");
        // Each client makes other choices.
        let mut random = Random::new(seed);
        (0..=number).for_each(|_| random = Random::new(random.number()));
        let (operations, held, used) = (operations(worker), Vec::new(), Vec::new());
        Client { store, log, random, operations, held, used }
    }

    pub(super) fn step(&mut self) {
        match self.random.below(100) {
            0..22 => self.put(),
            22..45 => self.claim(),
            45..80 if !self.held.is_empty() => self.settle(),
            80..84 => self.settle_again(),
            84..92 => self.change(),
            92 => drop(block_on(self.store.reap(10))),
            _ => {
                let limit = millis(&mut self.random, &[1, 5, 20]);
                drop(block_on(self.store.wait(kinds(), limit)));
            }
        }
    }

    fn put(&mut self) {
        // No put specifies a generation or a point in time.
        let (now, newest) = (Timestamp::default(), |_: &_, _: &_| Generation(1));
        let count = (self.operations.batch)(&mut self.random);
        let put = |_| self.operations.put(&mut self.random, now, newest);
        self.log.put(self.store, (0..count).map(put).collect());
    }

    fn change(&mut self) {
        let (now, newest) = (Timestamp::default(), |_: &_, _: &_| Generation(1));
        let change = self.operations.change(&mut self.random, now, newest);
        self.log.change(self.store, change);
    }

    fn claim(&mut self) {
        let claimed = self.log.claim(self.store, self.operations.claim(&mut self.random));
        self.held.extend(claimed.into_iter().map(|job| job.receipt));
    }

    /// Settles some of its leases. Sometimes it forgets one.
    fn settle(&mut self) {
        let count = 1 + self.random.below(self.held.len());
        let receipts: Vec<Receipt> = self.held.drain(..count).collect();
        let settlements = receipts.into_iter().filter_map(|receipt| {
            let action = self.operations.settlement(&mut self.random, || false)?;
            if let Settlement::Extend(_) = action {
                self.held.push(receipt.clone());
            }
            self.used.push(receipt.clone());
            Some(Settle { receipt, action })
        });
        let settlements = settlements.collect();
        self.settle_all(settlements);
    }

    /// Settles with a receipt that was used before.
    fn settle_again(&mut self) {
        if !self.used.is_empty() {
            let receipt = self.random.pick(&self.used).clone();
            let action = self
                .random
                .pick(&[Settlement::Ack, Settlement::Release, Settlement::Extend(None)])
                .clone();
            self.settle_all(vec![Settle { receipt, action }]);
        }
    }

    /// Settles, and repeats the settlements whose outcome is unknown, as a worker does.
    fn settle_all(&self, settlements: Vec<Settle>) {
        let results = self.log.settle(self.store, settlements.clone());
        let is_unknown = |result: &Result<_, SettleError>| {
            matches!(result, Err(SettleError::Store(StoreError::Unknown { .. })))
        };
        let unknown = settlements.into_iter().zip(&results).filter(|(_, of)| is_unknown(of));
        let unknown: Vec<Settle> = unknown.map(|(settle, _)| settle).collect();
        if !unknown.is_empty() {
            drop(self.log.settle(self.store, unknown));
        }
    }
}
