//! A pusher on a store: what is claimed, sent and settled, on a clock that the test moves.

use super::receiver::{Action, Receiver, ok};
use super::{BEGAN_AT, client, config, until};
use requeue_jobs::{
    JobState, JobView, Jobs, Kind, ManualClock, MemoryStore, Retention, Store, WallClock,
};
use requeue_push::{
    CircuitState, Delivery, DeliveryCounts, DeliveryFuture, PushClient, PushKindStatus, PushTarget,
    PushTargetStatus, Pusher, PusherOptions, Target,
};
use requeue_testkit::{Fault, Faulty};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Mutex;

pub(super) const KIND: &str = "order.close";

pub(super) fn kind() -> Kind {
    Kind::new(KIND).unwrap()
}

/// A store, a clock and a pusher.
pub(super) struct Node {
    pub(super) clock: ManualClock,
    pub(super) jobs: Jobs,
    pub(super) client: PushClient,
    pub(super) pusher: Pusher,
}

impl Node {
    fn new() -> Self {
        let clock = ManualClock::new();
        let store = MemoryStore::with(WallClock::manual(&clock, BEGAN_AT));
        Node::on(Arc::new(store), &clock, "node-1")
    }

    pub(super) fn on(store: Arc<dyn Store>, clock: &ManualClock, name: &str) -> Self {
        let jobs = Jobs::with_clock(store, clock);
        let mut options = PusherOptions::default();
        options.clock = WallClock::manual(clock, BEGAN_AT);
        let pusher = Pusher::start(&jobs, name, options).unwrap();
        Node { clock: clock.clone(), jobs, client: client(clock), pusher }
    }

    async fn put(&self, ids: impl IntoIterator<Item = usize>) {
        let puts = ids.into_iter().map(|id| self.jobs.put(KIND, &format!("job-{id:04}"), "{}"));
        self.jobs.put_all(puts).await.unwrap();
    }

    fn push(&self, kind: &str, url: &str, more: Value) {
        let target = PushTarget::webhook(config(url, more), &self.client).unwrap();
        self.pusher.set(Kind::new(kind).unwrap(), Some(target));
    }

    fn status(&self) -> PushKindStatus {
        self.pusher.status().kinds.remove(0)
    }

    fn counts(&self) -> DeliveryCounts {
        self.status().deliveries
    }

    fn target(&self) -> PushTargetStatus {
        self.pusher.status().targets.remove(0)
    }

    async fn job(&self, id: usize) -> Option<JobView> {
        self.jobs.get(KIND, &format!("job-{id:04}")).await.unwrap()
    }

    async fn is_empty(&self) -> bool {
        let counts = self.jobs.kind(KIND).await.unwrap().counts;
        (counts.pending, counts.leased, counts.dead) == (0, 0, 0)
    }

    async fn until_empty(&self) {
        self.until_empty_with(|| ()).await;
    }

    /// Moves the clock while nothing is in flight, so that backoffs pass and no delivery times out.
    async fn until_empty_moving(&self) {
        self.until_empty_with(|| {
            if self.pusher.status().in_flight == 0 {
                self.clock.advance(Duration::from_secs(1));
            }
        })
        .await;
    }

    async fn until_empty_with(&self, step: impl Fn()) {
        let mut tries = 0;
        while !self.is_empty().await {
            tries += 1;
            assert!(tries < 100_000, "jobs are left: {:?}", self.pusher.status());
            step();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

#[tokio::test]
async fn jobs_are_sent_when_they_are_due_and_their_results_are_kept() {
    let receiver = Receiver::start(|_, request| {
        let head = "200 OK\r\ncontent-type: application/json";
        Action::Respond(head, format!("[{}]", request.header("requeue-attempt")).into())
    })
    .await;
    let node = Node::new();
    let keep = |settings: &mut requeue_jobs::Settings| {
        settings.keep_done = Some(Retention { age: Duration::from_secs(60), count: 10 });
    };
    node.jobs.change_settings(KIND, keep).await.unwrap();
    node.push(KIND, &receiver.url(), json!({}));
    node.put([1]).await;
    let later = node.jobs.put(KIND, "job-0002", "{}").after(Duration::from_secs(60));
    later.await.unwrap();
    until("the first job was sent", || node.counts().done == 1).await;
    let done = node.job(1).await.unwrap();
    assert_eq!(done.state, JobState::Done);
    let result = done.done.unwrap().result.unwrap();
    assert_eq!((result.bytes(), result.content_type()), (&b"[1]"[..], "application/json"));
    assert_eq!(receiver.count(), 1);
    node.clock.advance(Duration::from_secs(60));
    until("the second job was sent", || node.counts().done == 2).await;
    let status = node.status();
    assert_eq!((status.in_flight, status.durations.count(), status.last_error), (0, 2, None));
    assert_eq!(node.target().circuit, CircuitState::Closed);
    assert_eq!(node.pusher.shut_down(Duration::from_secs(1)).await, 0);
}

#[tokio::test]
async fn a_job_that_fails_is_sent_again_with_the_same_id_and_a_higher_fence() {
    let receiver = Receiver::start(|n, _| match n {
        0 => Action::Respond("500 Oops", b"no room".to_vec()),
        1 => Action::Respond("404 Not Found\r\nretry-after: 90", Vec::new()),
        _ => ok(),
    })
    .await;
    let node = Node::new();
    node.push(KIND, &receiver.url(), json!({}));
    node.put([1]).await;
    until("the first attempt failed", || node.counts().retried == 1).await;
    let job = node.job(1).await.unwrap();
    assert_eq!((job.state, job.attempts), (JobState::Waiting, 1));
    let error = "status 500 Internal Server Error: no room";
    assert_eq!(job.failures[0].error.as_deref(), Some(error));
    assert_eq!(node.status().last_error.unwrap().error, error);
    node.clock.advance(Duration::from_secs(3600));
    until("the second attempt failed", || node.counts().retried == 2).await;
    let job = node.job(1).await.unwrap();
    let wait = job.version.due.saturating_since(BEGAN_AT);
    assert_eq!(wait, Duration::from_secs(3690), "Retry-After replaces the backoff");
    node.clock.advance(Duration::from_secs(90));
    until("the third attempt succeeded", || node.counts().done == 1).await;
    let requests = receiver.requests();
    let column =
        |name: &str| requests.iter().map(|r| r.header(name).to_owned()).collect::<Vec<_>>();
    let id = "order%2Eclose/job-0001/1";
    assert_eq!(column("webhook-id"), [id, id, id]);
    assert_eq!(column("requeue-attempt"), ["1", "2", "3"]);
    assert_eq!(column("requeue-previous-failure"), ["", error, "status 404 Not Found"]);
    assert_eq!(column("webhook-timestamp"), ["1796112000", "1796115600", "1796115690"]);
    let fences: Vec<u64> = column("requeue-fence").iter().map(|f| f.parse().unwrap()).collect();
    assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
}

#[tokio::test]
async fn a_job_that_is_gone_is_dead() {
    let receiver = Receiver::start(|_, _| Action::Respond("410 Gone", b"bye".to_vec())).await;
    let node = Node::new();
    node.push(KIND, &receiver.url(), json!({}));
    node.put([1]).await;
    until("the job was buried", || node.counts().buried == 1).await;
    let job = node.job(1).await.unwrap();
    assert_eq!((job.state, job.failures.len()), (JobState::Dead, 1));
    assert_eq!(job.failures[0].error.as_deref(), Some("status 410 Gone: bye"));
}

#[tokio::test]
async fn a_stalled_delivery_ends_with_its_timeout_and_before_its_lease() {
    let receiver = Receiver::start(|n, _| if n == 0 { Action::Stall(vec![]) } else { ok() }).await;
    let node = Node::new();
    node.push(KIND, &receiver.url(), json!({"timeout": "1h"}));
    node.put([1]).await;
    until("the request arrived", || receiver.count() == 1).await;
    let lease = node.job(1).await.unwrap().lease.unwrap();
    let length = lease.ends_at.saturating_since(lease.claimed_at);
    assert_eq!(length, Duration::from_secs(3600) + requeue_push::LEASE_MARGIN);
    node.clock.advance(Duration::from_secs(3600));
    until("the attempt failed", || node.counts().unreachable == 1).await;
    let job = node.job(1).await.unwrap();
    assert_eq!(job.failures[0].error.as_deref(), Some("there was no response within 1h"));
    node.until_empty_moving().await;
}

#[tokio::test]
async fn retry_after_stops_all_jobs_of_the_target_and_a_ramp_follows() {
    let busy = Arc::new(AtomicBool::new(true));
    let is_busy = Arc::clone(&busy);
    let receiver = Receiver::start(move |_, _| match is_busy.load(Ordering::SeqCst) {
        true => Action::Respond("429 Too Many Requests\r\nretry-after: 60", Vec::new()),
        false => ok(),
    })
    .await;
    let node = Node::new();
    node.push(KIND, &receiver.url(), json!({"concurrency": 1}));
    node.put(0..10).await;
    until("the target is slowed", || node.target().circuit == CircuitState::Slowed).await;
    let target = node.target();
    let after = BEGAN_AT.saturating_add(Duration::from_secs(60));
    assert_eq!((target.until, target.limit, receiver.count()), (Some(after), Some(1), 1));
    assert_eq!(target.last_error.unwrap().error, "status 429 Too Many Requests");
    // Another kind with the same target has to wait, too.
    node.push("order.remind", &receiver.url(), json!({}));
    node.jobs.put("order.remind", "a", "{}").await.unwrap();
    busy.store(false, Ordering::SeqCst);
    node.clock.advance(Duration::from_secs(59));
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    assert_eq!(receiver.count(), 1);
    for id in 1..10 {
        let job = node.job(id).await.unwrap();
        assert_eq!((job.state, job.attempts), (JobState::Ready, 0), "it was not claimed");
    }
    node.clock.advance(Duration::from_secs(1));
    node.until_empty().await;
    until("the circuit is closed", || node.target().circuit == CircuitState::Closed).await;
    assert_eq!(node.counts(), counts(|counts| (counts.done, counts.slowed) = (10, 1)));
    until("the other kind was sent", || receiver.count() == 12).await;
}

#[tokio::test]
async fn a_503_without_retry_after_pauses_briefly() {
    let receiver = Receiver::start(|n, _| match n {
        0 => Action::Respond("503 Service Unavailable", Vec::new()),
        _ => ok(),
    })
    .await;
    let node = Node::new();
    node.push(KIND, &receiver.url(), json!({"concurrency": 1}));
    node.put(0..3).await;
    until("the target is slowed", || node.counts().slowed == 1).await;
    assert_eq!((node.target().circuit, receiver.count()), (CircuitState::Slowed, 1));
    node.clock.advance(Duration::from_secs(1));
    until("the others were sent", || node.counts().done >= 2).await;
    node.until_empty_moving().await;
}

#[tokio::test]
async fn jobs_of_an_unreachable_target_use_up_no_attempts() {
    let down = Arc::new(AtomicBool::new(true));
    let is_down = Arc::clone(&down);
    let receiver = Receiver::start(move |_, _| match is_down.load(Ordering::SeqCst) {
        true => Action::Write(Vec::new()),
        false => ok(),
    })
    .await;
    let node = Node::new();
    node.push(KIND, &receiver.url(), json!({"concurrency": 1}));
    node.put(0..20).await;
    until("the circuit is open", || node.target().circuit == CircuitState::Open).await;
    let open_for = |seconds| Some(BEGAN_AT.saturating_add(Duration::from_secs(seconds)));
    assert_eq!((receiver.count(), node.target().until), (5, open_for(5)));
    for id in 5..20 {
        let job = node.job(id).await.unwrap();
        assert_eq!((job.state, job.attempts), (JobState::Ready, 0), "it was not claimed");
    }
    node.clock.advance(Duration::from_secs(5));
    until("the probe failed", || receiver.count() == 6 && node.target().until == open_for(15))
        .await;
    down.store(false, Ordering::SeqCst);
    node.clock.advance(Duration::from_secs(10));
    until("the rest was sent", || node.counts().done >= 14).await;
    node.until_empty_moving().await;
    assert_eq!(node.counts(), counts(|counts| (counts.done, counts.unreachable) = (20, 6)));
    until("the circuit is closed", || node.target().circuit == CircuitState::Closed).await;
}

fn counts(set: impl FnOnce(&mut DeliveryCounts)) -> DeliveryCounts {
    let mut counts = DeliveryCounts::default();
    set(&mut counts);
    counts
}

#[tokio::test]
async fn a_changed_setting_takes_effect_for_the_next_claim() {
    let (old, new) = (Receiver::start(|_, _| ok()).await, Receiver::start(|_, _| ok()).await);
    let node = Node::new();
    node.push(KIND, &old.url(), json!({}));
    node.put([1]).await;
    node.until_empty().await;
    node.push(KIND, &new.url(), json!({}));
    node.put([2]).await;
    node.until_empty().await;
    node.pusher.set(kind(), None);
    until("the kind is no longer delivered", || node.pusher.status().kinds.is_empty()).await;
    node.put([3]).await;
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    assert_eq!(node.job(3).await.unwrap().state, JobState::Ready);
    let target = PushTarget::webhook(config(&new.url(), json!({})), &node.client).unwrap();
    node.pusher.replace_all([(kind(), target)].into());
    node.until_empty().await;
    assert_eq!((old.count(), new.count()), (1, 2));
    node.pusher.replace_all([].into());
    assert!(node.pusher.status().kinds.is_empty());
}

#[tokio::test]
async fn a_shutdown_waits_for_deliveries_and_claims_no_more() {
    let receiver = Receiver::start(|_, _| Action::Stall(Vec::new())).await;
    let node = Node::new();
    node.push(KIND, &receiver.url(), json!({"concurrency": 1}));
    node.put(0..2).await;
    until("a request arrived", || receiver.count() == 1).await;
    // The delivery takes longer than the shutdown waits.
    let pusher = node.pusher;
    let ended =
        tokio::spawn(async move { (pusher.shut_down(Duration::from_secs(5)).await, pusher) });
    until("the shutdown ended", || {
        node.clock.advance(Duration::from_millis(100));
        ended.is_finished()
    })
    .await;
    let (left, pusher) = ended.await.unwrap();
    assert_eq!(left, 1);
    let view = node.jobs.get(KIND, "job-0001").await.unwrap().unwrap();
    assert_eq!((view.state, view.attempts), (JobState::Ready, 0));
    // After a shutdown, nothing is started any more.
    let target = PushTarget::webhook(config(&receiver.url(), json!({})), &node.client).unwrap();
    pusher.set(kind(), Some(target));
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    assert_eq!(receiver.count(), 1);
}

#[tokio::test]
async fn jobs_that_were_claimed_and_not_started_are_released_at_a_shutdown() {
    let receiver = Receiver::start(|_, _| ok()).await;
    let clock = ManualClock::new();
    let store = MemoryStore::with(WallClock::manual(&clock, BEGAN_AT));
    let store = Arc::new(Faulty::new(Arc::new(store)));
    let node = Node::on(Arc::clone(&store) as Arc<dyn Store>, &clock, "node-1");
    node.put(0..5).await;
    // The claim leases the jobs, and returns only after the shutdown has begun.
    store.at(1, Fault::SlowReply);
    let before = store.calls();
    node.push(KIND, &receiver.url(), json!({}));
    until("the jobs are claimed", || store.calls() > before).await;
    let pusher = node.pusher;
    let shut_down = async { pusher.shut_down(Duration::from_secs(60)).await };
    let let_go = async { store.let_go() };
    let (left, ()) = tokio::join!(shut_down, let_go);
    assert_eq!((left, receiver.count()), (0, 0));
    for id in 0..5 {
        let job = node.jobs.get(KIND, &format!("job-{id:04}")).await.unwrap().unwrap();
        assert_eq!((job.state, job.attempts), (JobState::Ready, 0));
    }
}

#[tokio::test]
async fn a_settlement_is_repeated_while_the_store_is_unavailable() {
    let clock = ManualClock::new();
    let store = MemoryStore::with(WallClock::manual(&clock, BEGAN_AT));
    let store = Arc::new(Faulty::new(Arc::new(store)));
    let (faulty, calls) = (Arc::clone(&store), Arc::new(AtomicU64::new(u64::MAX)));
    let calls_before = Arc::clone(&calls);
    let receiver = Receiver::start(move |_, _| {
        // The claim has returned, and the next call settles.
        faulty.at(1, Fault::Refused);
        faulty.at(2, Fault::LostReply);
        calls_before.store(faulty.calls(), Ordering::SeqCst);
        ok()
    })
    .await;
    let node = Node::on(Arc::clone(&store) as Arc<dyn Store>, &clock, "node-1");
    node.push(KIND, &receiver.url(), json!({"concurrency": 1}));
    node.put([1]).await;
    until("the job was settled", || {
        // The clock moves from the first settlement on, so that the delivery does not time out.
        if store.calls() > calls.load(Ordering::SeqCst) {
            clock.advance(Duration::from_millis(10));
        }
        node.counts().done == 1
    })
    .await;
    assert!(store.calls() >= calls.load(Ordering::SeqCst) + 3, "two faults and a success");
    assert_eq!((receiver.count(), node.counts().unsettled), (1, 0));
    node.until_empty().await;
}

#[tokio::test]
async fn a_kind_whose_target_hangs_does_not_stop_the_others() {
    let hangs = Receiver::start(|_, _| Action::Stall(Vec::new())).await;
    let works = Receiver::start(|_, _| ok()).await;
    let clock = ManualClock::new();
    let store = Arc::new(MemoryStore::with(WallClock::manual(&clock, BEGAN_AT)));
    let mut node = Node::on(store, &clock, "node-1");
    let mut options = PusherOptions::default();
    (options.clock, options.max_in_flight) = (WallClock::manual(&clock, BEGAN_AT), 40);
    node.pusher = Pusher::start(&node.jobs, "node-1", options).unwrap();
    for name in ["hangs-1", "hangs-2", "hangs-3"] {
        let puts = (0..50).map(|id| node.jobs.put(name, &id.to_string(), "{}"));
        node.jobs.put_all(puts).await.unwrap();
        node.push(name, &hangs.url(), json!({"concurrency": 1000}));
    }
    until("three kinds hang", || node.pusher.status().in_flight >= 28).await;
    node.put(0..100).await;
    node.push(KIND, &works.url(), json!({"concurrency": 1000}));
    node.until_empty().await;
    assert_eq!(works.count(), 100);
    assert!(node.pusher.status().in_flight < 40);
}

#[tokio::test]
async fn a_target_that_panics_or_hangs_is_a_failed_attempt() {
    struct Broken;
    impl Target for Broken {
        fn name(&self) -> String {
            "broken".to_owned()
        }

        fn deliver<'a>(&'a self, delivery: &'a Delivery) -> DeliveryFuture<'a> {
            match delivery.job.id().as_str() {
                "job-0001" => panic!("at first"),
                "job-0002" => Box::pin(async { panic!("later") }),
                _ => Box::pin(std::future::pending()),
            }
        }
    }
    let node = Node::new();
    node.put(1..4).await;
    let target = PushTarget::new(Arc::new(Broken), Duration::from_secs(2), 10);
    node.pusher.set(kind(), Some(target));
    until("two deliveries panicked", || node.counts().retried == 2).await;
    node.clock.advance(Duration::from_secs(3));
    until("the third was given up", || node.counts().unreachable == 1).await;
    for (id, error) in [
        (1, "the target panicked: at first"),
        (2, "the target panicked: later"),
        (3, "the target returned no outcome within 2s"),
    ] {
        let job = node.job(id).await.unwrap();
        assert_eq!(job.failures[0].error.as_deref(), Some(error));
    }
    assert_eq!(node.pusher.shut_down(Duration::from_secs(1)).await, 0);
}

/// Records the jobs in the order in which their deliveries begin.
struct InOrder(Mutex<Vec<String>>);

impl Target for InOrder {
    fn name(&self) -> String {
        "in order".to_owned()
    }

    fn keeps_order(&self) -> bool {
        true
    }

    fn deliver<'a>(&'a self, delivery: &'a Delivery) -> DeliveryFuture<'a> {
        Box::pin(async {
            // As a client library does it: the message goes through a lock of the runtime.
            let mut begun = self.0.lock().await;
            begun.push(delivery.job.id().to_string());
            drop(begun);
            tokio::task::yield_now().await;
            super::DONE
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn jobs_of_a_target_that_keeps_the_order_begin_in_it() {
    let node = Node::new();
    let target = Arc::new(InOrder(Mutex::default()));
    for id in 0..1000 {
        node.put([id]).await;
        node.clock.advance(Duration::from_millis(1));
    }
    let timeout = Duration::from_secs(10);
    let push = PushTarget::new(Arc::<InOrder>::clone(&target), timeout, 256);
    node.pusher.set(kind(), Some(push));
    node.until_empty().await;
    let begun = target.0.lock().await;
    let expected: Vec<_> = (0..1000).map(|id| format!("job-{id:04}")).collect();
    assert_eq!(*begun, expected);
}
