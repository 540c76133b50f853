//! Those who use the store, each a task: producers, workers, an operator, a reaper, tickers,
//! somebody who looks on.

use super::recorder::Recorder;
use super::{World, kinds};
use crate::random::Random;
use requeue_jobs::{
    Body, Change, ChangeKind, Claim, ClaimedJob, Condition, Due, Generation, JobId, Kind, Mode,
    Put, Receipt, Settle, Settlement, Store, StoreError, Tick, WorkerName,
};
use std::time::Duration;

const IDS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

fn kind(random: &mut Random) -> Kind {
    random.pick(&kinds()).clone()
}

fn id(random: &mut Random) -> JobId {
    JobId::new(*random.pick(&IDS)).expect("a valid id")
}

fn millis(random: &mut Random, from: &[u64]) -> Duration {
    Duration::from_millis(*random.pick(from))
}

/// Puts jobs, and cancels, hurries and revives some.
pub(super) async fn producer(world: &World) {
    while !world.is_quiet() {
        world.sleep(world.random(|random| millis(random, &[1, 50, 200, 1000]))).await;
        if world.random(|random| random.chance(75)) {
            let mut put = world.random(random_put);
            if let Some(Condition::IfGeneration(generation)) = &mut put.condition
                && let Ok(Some(job)) = world.store.get(put.kind.clone(), put.id.clone()).await
            {
                *generation = job.newest_generation();
            }
            // Who does not know whether it was done does it again.
            for _ in 0..2 {
                match world.store.put(vec![put.clone()]).await {
                    Err(StoreError::Unknown { .. }) => {}
                    _ => break,
                }
            }
        } else {
            let change = world.random(|random| {
                let action = *random.pick(&[
                    ChangeKind::Cancel,
                    ChangeKind::Cancel,
                    ChangeKind::RunNow,
                    ChangeKind::Revive,
                ]);
                Change { kind: kind(random), id: id(random), action }
            });
            let _ = world.store.change(vec![change]).await;
        }
    }
}

fn random_put(random: &mut Random) -> Put {
    let body = Body::octets(random.number().to_le_bytes()).expect("a small body");
    let mut put = Put::new(kind(random), id(random), body);
    put.due = match random.below(2) {
        0 => Due::Now,
        _ => Due::After(millis(random, &[1, 500, 1000, 4000, 10_000])),
    };
    put.mode = match random.below(8) {
        0 => Mode::Earliest,
        1 => Mode::Keep,
        2 => Mode::Debounce { max_wait: millis(random, &[500, 5000]) },
        _ => Mode::Replace,
    };
    put.condition = match random.below(8) {
        0 => Some(Condition::IfAbsent),
        1 => Some(Condition::IfGeneration(Generation(1))),
        _ => None,
    };
    put
}

/// Claims jobs and works on them, one after the other.
pub(super) async fn worker(world: &World, name: WorkerName) {
    loop {
        let claim = world.random(|random| Claim {
            kinds: if random.chance(80) { kinds() } else { vec![kind(random)] },
            max: 1 + random.below(3),
            lease: random.chance(30).then(|| millis(random, &[100, 2000])),
            worker: name.clone(),
            nonce: random.number(),
        });
        let claimed = match world.store.claim(claim.clone()).await {
            Ok(claimed) => claimed.jobs,
            Err(_) => {
                world.sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        if claimed.is_empty() {
            let slice = Duration::from_secs(1);
            if world.store.wait(kinds(), slice).await.is_err() {
                world.sleep(Duration::from_millis(100)).await;
            }
        }
        for job in &claimed {
            world.receipts.borrow_mut().push(job.receipt.clone());
        }
        for job in claimed {
            work(world, &job).await;
        }
    }
}

async fn work(world: &World, job: &ClaimedJob) {
    let quiet = world.is_quiet();
    let lengths: &[u64] = if quiet { &[0, 10] } else { &[0, 0, 1, 500, 1500, 6000] };
    world.sleep(world.random(|random| millis(random, lengths))).await;
    if world.random(|random| random.chance(20)) {
        settle(world, &job.receipt, Settlement::Extend(None)).await;
        world.sleep(world.random(|random| millis(random, lengths))).await;
    }
    let action = world.random(|random| match random.below(10) {
        _ if quiet => Some(Settlement::Ack),
        0..=4 => Some(Settlement::Ack),
        5..=7 => {
            let delay = random.chance(50).then(|| millis(random, &[0, 500, 3000]));
            Some(Settlement::Retry { delay, error: "it did not work".to_owned() })
        }
        8 => Some(Settlement::Release),
        // It forgets about the job.
        _ => None,
    });
    if let Some(action) = action {
        settle(world, &job.receipt, action).await;
    }
    if world.random(|random| random.chance(20)) {
        stale(world).await;
    }
}

/// Settles, and does it again while the outcome is not known: twice equals once.
async fn settle(world: &World, receipt: &Receipt, action: Settlement) {
    for _ in 0..3 {
        let settle = Settle { receipt: receipt.clone(), action: action.clone() };
        match world.store.settle(vec![settle]).await {
            Err(StoreError::Unknown { .. } | StoreError::Unavailable { .. }) => {
                world.sleep(Duration::from_millis(50)).await;
            }
            _ => break,
        }
    }
}

/// Somebody wakes up who was believed dead, and goes on with an old receipt.
async fn stale(world: &World) {
    let receipt = world.random(|random| {
        let receipts = world.receipts.borrow();
        (!receipts.is_empty()).then(|| random.pick(&receipts).clone())
    });
    let action = world.random(|random| match random.below(4) {
        0 => Settlement::Ack,
        1 => Settlement::Retry { delay: None, error: "late".to_owned() },
        2 => Settlement::Release,
        _ => Settlement::Extend(None),
    });
    if let Some(receipt) = receipt {
        settle(world, &receipt, action).await;
    }
}

/// Pauses kinds and resumes them.
pub(super) async fn operator(world: &World) {
    while !world.is_quiet() {
        world.sleep(Duration::from_secs(4)).await;
        let (kind, paused) = world.random(|random| (kind(random), random.chance(30)));
        if let Ok(mut settings) = world.store.settings(kind.clone()).await {
            settings.paused = paused;
            let _ = world.store.set(kind, settings).await;
        }
    }
}

/// Ends leases that expired.
pub(super) async fn reaper(world: &World) {
    loop {
        world.sleep(Duration::from_secs(3)).await;
        let _ = world.store.reap(1000).await;
    }
}

/// Looks through all jobs of a kind, slowly. Faults do not concern it.
pub(super) async fn pager(world: &World, recorder: &Recorder) {
    while !world.is_quiet() {
        let kind = world.random(kind);
        recorder.page(&kind, || world.sleep(Duration::from_millis(100))).await;
        world.sleep(Duration::from_millis(500)).await;
    }
}

/// Ticks what is due. There are several, and they get in each other's way.
pub(super) async fn ticker(world: &World) {
    while !world.is_quiet() {
        world.sleep(Duration::from_millis(500)).await;
        for kind in kinds() {
            for schedule in world.store.schedules(kind.clone()).await.unwrap_or_default() {
                if schedule.next > world.fixture.now() {
                    continue;
                }
                let next = schedule.next.saturating_add(Duration::from_secs(10));
                let (id, expected) = (schedule.id, schedule.next);
                let tick = Tick { kind: kind.clone(), id, expected, next, put: true };
                let _ = world.store.tick(tick).await;
            }
        }
    }
}
