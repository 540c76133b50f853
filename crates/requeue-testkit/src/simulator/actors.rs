//! The tasks that use the store: producers, workers, an operator, a reaper, tickers, and one that
//! reads pages.

use super::recorder::Recorder;
use super::{Simulation, kinds};
use crate::operations::{ActionKind, ConditionKind, DueKind, ModeKind, Operations, SettlementKind};
use crate::random::Random;
use requeue_jobs::{
    ClaimedJob, Condition, Generation, JobId, Priority, Receipt, Settle, Settlement, Store,
    StoreError, Tick, TickJob, WorkerName,
};
use std::time::Duration;

const IDS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// What producers and workers do.
fn operations() -> Operations {
    use {ActionKind as C, SettlementKind as S};
    Operations {
        kinds: kinds(),
        claimed_together: kinds(),
        ids: IDS.map(|id| JobId::new(id).expect("a valid id")).to_vec(),
        dues: &[(1, DueKind::Now), (1, DueKind::After)],
        delay: |random| millis(random, &[1, 500, 1000, 4000, 10_000]),
        modes: &[
            (1, ModeKind::Earliest),
            (1, ModeKind::Keep),
            (1, ModeKind::Debounce),
            (5, ModeKind::Replace),
        ],
        max_wait: |random| millis(random, &[500, 5000]),
        conditions: &[
            (1, ConditionKind::Absent),
            (1, ConditionKind::New),
            (1, ConditionKind::Generation),
            (6, ConditionKind::Never),
        ],
        old_generations: 0,
        one_kind: &[(80, false), (20, true)],
        max_claimed: &[(1, 1), (1, 2), (1, 3)],
        lease: |random| random.chance(30).then(|| millis(random, &[100, 2000])),
        settlements: &[(5, S::Ack), (3, S::Retry), (1, S::Release), (1, S::Forget)],
        retry_delay: |random| millis(random, &[0, 500, 3000]),
        error: |_| "it did not work".to_owned(),
        changes: &[(2, C::Cancel), (1, C::RunNow), (1, C::Revive), (2, C::Reschedule)],
        ..Operations::default()
    }
}

fn millis(random: &mut Random, from: &[u64]) -> Duration {
    Duration::from_millis(*random.pick(from))
}

/// Puts jobs, and cancels, runs, revives and reschedules some.
pub(super) async fn producer(simulation: &Simulation) {
    let operations = operations();
    while !simulation.is_quiet() {
        simulation.sleep(simulation.random(|random| millis(random, &[1, 50, 200, 1000]))).await;
        if simulation.random(|random| random.chance(75)) {
            let now = simulation.fixture.now();
            let mut put =
                simulation.random(|random| operations.put(random, now, |_, _| Generation(1)));
            if let Some(Condition::IfGeneration(generation)) = &mut put.condition
                && let Ok(Some(job)) = simulation.store.get(put.kind.clone(), put.id.clone()).await
            {
                *generation = job.newest_generation();
            }
            // If the outcome is unknown, the put is repeated.
            for _ in 0..2 {
                match simulation.store.put(vec![put.clone()]).await {
                    Err(StoreError::Unknown { .. }) => {}
                    _ => break,
                }
            }
        } else {
            let now = simulation.fixture.now();
            let change =
                simulation.random(|random| operations.change(random, now, |_, _| Generation(1)));
            let _ = simulation.store.change(vec![change]).await;
        }
    }
}

/// Claims jobs and works on them, one after the other.
pub(super) async fn worker(simulation: &Simulation, name: WorkerName) {
    let operations = Operations { workers: vec![name], ..operations() };
    loop {
        let claim = simulation.random(|random| operations.claim(random));
        let claimed = match simulation.store.claim(claim).await {
            Ok(claimed) => claimed.jobs,
            Err(_) => {
                simulation.sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        if claimed.is_empty() {
            let slice = Duration::from_secs(1);
            if simulation.store.wait(kinds(), slice).await.is_err() {
                simulation.sleep(Duration::from_millis(100)).await;
            }
        }
        for job in &claimed {
            simulation.receipts.borrow_mut().push(job.receipt.clone());
        }
        for job in claimed {
            work(simulation, &operations, &job).await;
        }
    }
}

async fn work(simulation: &Simulation, operations: &Operations, job: &ClaimedJob) {
    let quiet = simulation.is_quiet();
    let lengths: &[u64] = if quiet { &[0, 10] } else { &[0, 0, 1, 500, 1500, 6000] };
    simulation.sleep(simulation.random(|random| millis(random, lengths))).await;
    if simulation.random(|random| random.chance(20)) {
        settle(simulation, &job.receipt, Settlement::Extend(None)).await;
        simulation.sleep(simulation.random(|random| millis(random, lengths))).await;
    }
    let quiet_operations =
        Operations { settlements: &[(10, SettlementKind::Ack)], ..operations.clone() };
    let operations = if quiet { &quiet_operations } else { operations };
    let action = simulation.random(|random| operations.settlement(random, || false));
    if let Some(action) = action {
        settle(simulation, &job.receipt, action).await;
    }
    if simulation.random(|random| random.chance(20)) {
        stale(simulation).await;
    }
}

/// Settles, and repeats it while the outcome is unknown. Settling is idempotent.
async fn settle(simulation: &Simulation, receipt: &Receipt, action: Settlement) {
    for _ in 0..3 {
        let settle = Settle { receipt: receipt.clone(), action: action.clone() };
        match simulation.store.settle(vec![settle]).await {
            Err(StoreError::Unknown { .. } | StoreError::Unavailable { .. }) => {
                simulation.sleep(Duration::from_millis(50)).await;
            }
            _ => break,
        }
    }
}

/// Settles with an old receipt, like a worker that was suspended for a long time.
async fn stale(simulation: &Simulation) {
    let receipt = simulation.random(|random| {
        let receipts = simulation.receipts.borrow();
        (!receipts.is_empty()).then(|| random.pick(&receipts).clone())
    });
    let action = simulation.random(|random| match random.below(4) {
        0 => Settlement::Ack,
        1 => Settlement::Retry { delay: None, error: "late".to_owned() },
        2 => Settlement::Release,
        _ => Settlement::Extend(None),
    });
    if let Some(receipt) = receipt {
        settle(simulation, &receipt, action).await;
    }
}

/// Pauses kinds and resumes them.
pub(super) async fn operator(simulation: &Simulation) {
    while !simulation.is_quiet() {
        simulation.sleep(Duration::from_secs(4)).await;
        let (kind, paused) =
            simulation.random(|random| (random.pick(&kinds()).clone(), random.chance(30)));
        if let Ok(mut settings) = simulation.store.settings(kind.clone()).await {
            settings.paused = paused;
            let _ = simulation.store.set(kind, settings).await;
        }
    }
}

/// Ends expired leases.
pub(super) async fn reaper(simulation: &Simulation) {
    loop {
        simulation.sleep(Duration::from_secs(3)).await;
        let _ = simulation.store.reap(1000).await;
    }
}

/// Reads all jobs of a kind slowly, page by page. It has no faults.
pub(super) async fn pager(simulation: &Simulation, recorder: &Recorder) {
    while !simulation.is_quiet() {
        let kind = simulation.random(|random| random.pick(&kinds()).clone());
        recorder.page(&kind, || simulation.sleep(Duration::from_millis(100))).await;
        simulation.sleep(Duration::from_millis(500)).await;
    }
}

/// Ticks the schedules that are due. There are several tickers, which compete.
pub(super) async fn ticker(simulation: &Simulation) {
    while !simulation.is_quiet() {
        simulation.sleep(Duration::from_millis(500)).await;
        for kind in kinds() {
            for schedule in simulation.store.schedules(kind.clone()).await.unwrap_or_default() {
                if schedule.next > simulation.fixture.now() {
                    continue;
                }
                let next = schedule.next.saturating_add(Duration::from_secs(10));
                let (id, expected) = (schedule.id, schedule.next);
                let (content, priority) = (schedule.content, Priority::default());
                let put = Some(TickJob { id: id.clone(), content, priority });
                let tick = Tick { kind: kind.clone(), id, expected, next, put };
                let _ = simulation.store.tick(tick).await;
            }
        }
    }
}
