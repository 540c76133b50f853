//! Settlements that only a worker needs: giving up, and coming back after a success.

use requeue::ManualClock;
use requeue_jobs::{
    Calendar, ClaimedJob, How, JobState, JobView, Jobs, MemoryStore, SettleError, Settled,
    StoreError, Timestamp, limits,
};
use requeue_testkit::block_on;
use std::sync::Arc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

struct World {
    jobs: Jobs,
    store: MemoryStore,
    clock: ManualClock,
}

impl World {
    fn new() -> Self {
        let clock = ManualClock::new();
        let store = MemoryStore::with(Calendar::manual(&clock, Timestamp::from_millis(1_000_000)));
        World { jobs: Jobs::with_clock(Arc::new(store.clone()), &clock), store, clock }
    }

    /// A job that has failed once, claimed again.
    fn claimed(&self) -> ClaimedJob {
        block_on(self.jobs.put("k", "i", "old").into_future())
            .expect("the store in memory does it");
        let first = self.claim().expect("it is due");
        let retry = How::Retry { delay: Some(Duration::ZERO), error: "no".to_owned() };
        block_on(self.jobs.settle(&first.receipt, retry)).expect("the store in memory does it");
        self.claim().expect("it is due again")
    }

    fn claim(&self) -> Option<ClaimedJob> {
        block_on(self.jobs.claim(["k"], "w").into_future())
            .expect("the store in memory does it")
            .jobs
            .pop()
    }

    fn put(&self, body: &str, delay: Duration) {
        block_on(self.jobs.put("k", "i", body).after(delay).into_future())
            .expect("the store in memory does it");
    }

    fn settle(&self, job: &ClaimedJob, how: How) -> Result<Settled, SettleError> {
        let settled = block_on(self.jobs.settle(&job.receipt, how));
        self.store.check();
        settled
    }

    fn view(&self) -> Option<JobView> {
        block_on(self.jobs.get("k", "i")).expect("the store in memory does it")
    }

    fn cancel(&self) {
        block_on(self.jobs.cancel("k", "i")).expect("the store in memory does it");
    }
}

fn bury() -> How {
    How::Bury { error: "hopeless".to_owned() }
}

#[test]
fn a_buried_job_is_dead_whatever_attempts_are_left() {
    let world = World::new();
    let job = world.claimed();
    assert_eq!(world.settle(&job, bury()), Ok(Settled::Dead));
    let dead = world.view().expect("it is kept");
    assert_eq!((dead.state, dead.attempts, dead.deaths), (JobState::Dead, 2, 1));
    assert_eq!(dead.failures[1].error.as_deref(), Some("hopeless"));
    assert!(matches!(world.settle(&job, bury()), Err(SettleError::LeaseLost { .. })));
}

#[test]
fn what_was_put_meanwhile_revives_a_buried_job() {
    let world = World::new();
    let job = world.claimed();
    world.put("new", SECOND);
    assert_eq!(world.settle(&job, bury()), Ok(Settled::Dead));
    let revived = world.view().expect("it waits");
    assert_eq!((revived.state, revived.attempts, revived.deaths), (JobState::Waiting, 0, 1));
    assert_eq!(revived.failures.len(), 2);
    world.clock.advance(SECOND);
    let next = world.claim().expect("it is due");
    assert_eq!((next.body.bytes(), next.attempt), (&b"new"[..], 1));
    assert!(next.generation > job.generation);
}

#[test]
fn a_job_that_is_requeued_comes_back_with_nothing_counted() {
    let world = World::new();
    let job = world.claimed();
    assert_eq!(world.settle(&job, How::RequeueAfter(5 * SECOND)), Ok(Settled::Done));
    let waiting = world.view().expect("it waits");
    assert_eq!((waiting.due.as_millis(), waiting.attempts), (1_005_000, 0));
    assert!(waiting.generation > job.generation, "its effects are to happen again");
    let twice = world.settle(&job, How::RequeueAfter(5 * SECOND));
    assert!(matches!(twice, Err(SettleError::LeaseLost { .. })));
    world.clock.advance(5 * SECOND);
    let again = world.claim().expect("it is due");
    assert_eq!((again.body.bytes(), again.attempt), (&b"old"[..], 1));
}

#[test]
fn what_was_put_meanwhile_comes_instead_of_a_requeued_job_and_not_early() {
    let world = World::new();
    let job = world.claimed();
    world.put("new", 60 * SECOND);
    assert_eq!(world.settle(&job, How::RequeueAfter(SECOND)), Ok(Settled::Done));
    let next = world.view().expect("it waits");
    assert_eq!((next.due.as_millis(), next.body.bytes()), (1_060_000, &b"new"[..]));
}

#[test]
fn a_cancelled_job_comes_back_by_neither() {
    for how in [bury(), How::RequeueAfter(SECOND)] {
        let world = World::new();
        let job = world.claimed();
        world.cancel();
        assert_eq!(world.settle(&job, how), Ok(Settled::Cancelled));
        assert_eq!(world.view(), None);
    }
}

#[test]
fn a_job_is_not_requeued_later_than_a_put_may_be() {
    let world = World::new();
    let job = world.claimed();
    let too_late = How::RequeueAfter(limits::MAX_DELAY + SECOND);
    let refused = world.settle(&job, too_late);
    assert!(matches!(refused, Err(SettleError::Store(StoreError::Invalid(_)))));
    let latest = How::RequeueAfter(limits::MAX_DELAY);
    assert_eq!(world.settle(&job, latest), Ok(Settled::Done));
}
