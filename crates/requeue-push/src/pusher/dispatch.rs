//! The task of a kind: claims jobs and starts their deliveries.

use super::attempt::{self, Slot};
use super::budget::Usage;
use super::state::{Admission, Grant};
use super::{LEASE_MARGIN, Shared};
use crate::waiting::first;
use requeue::Moment;
use requeue_jobs::{Claimed, ClaimedJob, Kind, Settlement};
use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// How long the task pauses after an error of the store.
const PAUSE: Duration = Duration::from_secs(1);

/// How long one call of `Store::wait` may take. It returns as soon as there may be a job.
const WAIT: Duration = Duration::from_secs(60);

/// Claims and delivers the jobs of a kind until it is no longer delivered. Dropping the future stops its
/// deliveries.
pub(super) async fn run(shared: Arc<Shared>, kind: Kind, changed: Arc<Notify>) {
    // Deliveries set timers. The clock's thread ends with the last timer, and would be started again for
    // every delivery: it lives as long as this one.
    let mut timer = pin!(shared.clock().sleep(Duration::MAX));
    poll_fn(|cx| Poll::Ready(timer.as_mut().poll(cx).is_ready())).await;
    let mut deliveries = JoinSet::new();
    loop {
        let admission = shared.lock().admit(shared.clock().now(), &kind);
        match admission {
            Admission::Claim(grant) => {
                let pause = claim(&shared, &kind, grant, &mut deliveries).await;
                let reap = reap(&mut deliveries);
                match pause {
                    // If the store's futures are always ready, other tasks would starve.
                    Pause::None => tokio::task::yield_now().await,
                    Pause::UntilJob => {
                        first(wait(&shared, &kind), first(changed.notified(), reap)).await;
                    }
                    Pause::AfterError => {
                        let pause = shared.clock().sleep(PAUSE);
                        first(pause, first(stopped(&shared, &changed), reap)).await;
                    }
                }
            }
            Admission::Wait(until) => {
                let reap = reap(&mut deliveries);
                first(sleep(&shared, until), first(changed.notified(), reap)).await;
            }
            Admission::End => {
                while deliveries.join_next().await.is_some() {}
                if shared.lock().remove(&kind) {
                    shared.ended.notify_waiters();
                    return;
                }
            }
        }
    }
}

/// Frees the memory of deliveries that have ended, as long as it is polled.
async fn reap(deliveries: &mut JoinSet<()>) {
    while deliveries.join_next().await.is_some() {}
    pending().await
}

/// What the task does after a claim.
enum Pause {
    /// There may be more jobs.
    None,
    /// There are no more jobs now.
    UntilJob,
    /// The store failed.
    AfterError,
}

/// Claims jobs and starts their deliveries.
async fn claim(
    shared: &Arc<Shared>,
    kind: &Kind,
    grant: Grant,
    deliveries: &mut JoinSet<()>,
) -> Pause {
    let lease = grant.push.timeout.saturating_add(LEASE_MARGIN);
    // Measured from before the claim is sent, so that it does not end later than that of the store.
    let lease_ends_at = shared.clock().now().saturating_add(lease);
    let wanted = grant.room.in_flight;
    let claim = shared.jobs.claim([kind.as_str()], shared.worker.as_str()).max(wanted).lease(lease);
    let (jobs, error) = match claim.await {
        Ok(Claimed { jobs, errors, .. }) => {
            (jobs, errors.into_iter().next().map(|(_, error)| error))
        }
        Err(error) => (Vec::new(), Some(error)),
    };
    let bytes = jobs.iter().map(|job| job.body().len()).sum();
    let usage = Usage { in_flight: jobs.len(), bytes };
    let notify = shared.lock().claimed(shared.clock().now(), kind, &grant, usage);
    notify.iter().for_each(|changed| changed.notify_one());
    let found = jobs.len();
    for job in jobs {
        let slot = Slot::new(shared, &grant, &job);
        start(shared, &grant, slot, job, lease_ends_at, deliveries).await;
    }
    match error {
        Some(error) => {
            shared.report(kind, &error);
            Pause::AfterError
        }
        None if found < wanted => Pause::UntilJob,
        None => Pause::None,
    }
}

/// Starts a delivery. If the target keeps the order, it has begun when this returns.
async fn start(
    shared: &Arc<Shared>,
    grant: &Grant,
    slot: Slot,
    job: ClaimedJob,
    lease_ends_at: Moment,
    deliveries: &mut JoinSet<()>,
) {
    let (shared, push) = (Arc::clone(shared), grant.push.clone());
    let keeps_order = push.target.keeps_order();
    let mut delivery = Box::pin(async move {
        // If the runtime was busy for so long that the lease could end during the delivery, or if the
        // pusher was shut down, the job is not started.
        let left = lease_ends_at.saturating_since(shared.clock().now());
        let is_late = left < push.timeout.saturating_add(LEASE_MARGIN / 2);
        if is_late || shared.lock().is_stopped() {
            attempt::settle(&shared, &job, Settlement::Release, lease_ends_at).await;
            return drop(slot);
        }
        attempt::deliver(&shared, &push, slot, job, lease_ends_at).await;
    });
    // Spawned tasks begin in any order. Unconstrained, because the budget of a task is smaller than a claim, and
    // a future that has used it up does nothing when it is polled.
    let begin = poll_fn(|cx| Poll::Ready(delivery.as_mut().poll(cx).is_ready()));
    let has_ended = keeps_order && tokio::task::unconstrained(begin).await;
    if !has_ended {
        deliveries.spawn(delivery);
    }
}

/// Waits until there may be a job.
async fn wait(shared: &Shared, kind: &Kind) {
    if let Err(error) = shared.jobs.store().wait(vec![kind.clone()], WAIT).await {
        shared.report(kind, &error);
        shared.clock().sleep(PAUSE).await;
    }
}

async fn sleep(shared: &Shared, until: Option<Moment>) {
    match until {
        None => pending().await,
        Some(until) => shared.clock().sleep(until.saturating_since(shared.clock().now())).await,
    }
}

/// Waits until the pusher is shut down.
async fn stopped(shared: &Shared, changed: &Notify) {
    while !shared.lock().is_stopped() {
        changed.notified().await;
    }
}
