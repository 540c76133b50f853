//! Deliveries and the bytes of their bodies are bounded.

use super::pusher::{KIND, kind};
use super::{BEGAN_AT, until};
use requeue_jobs::{Jobs, ManualClock, MemoryStore, WallClock};
use requeue_push::{
    Delivery, DeliveryFuture, DeliveryOutcome, PushTarget, Pusher, PusherOptions, Target,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Semaphore;

/// A target that stalls until it is let go, and counts what is in flight.
struct Stalled {
    let_go: Semaphore,
    now: Mutex<(usize, usize)>,
    most: Mutex<(usize, usize)>,
    done: AtomicUsize,
}

impl Target for Stalled {
    fn name(&self) -> String {
        "stalled".to_owned()
    }

    fn deliver<'a>(&'a self, delivery: &'a Delivery) -> DeliveryFuture<'a> {
        let len = delivery.job.body().len();
        {
            let (mut now, mut most) = (self.now.lock().unwrap(), self.most.lock().unwrap());
            *now = (now.0 + 1, now.1 + len);
            *most = (most.0.max(now.0), most.1.max(now.1));
        }
        Box::pin(async move {
            self.let_go.acquire().await.unwrap().forget();
            let mut now = self.now.lock().unwrap();
            *now = (now.0 - 1, now.1 - len);
            self.done.fetch_add(1, Ordering::SeqCst);
            DeliveryOutcome::Done { result: None }
        })
    }
}

/// Delivers `count` jobs with bodies of `len` bytes to a stalled target. Returns the highest number of
/// deliveries in flight, and of bytes.
async fn most(count: usize, len: usize, max_in_flight: usize, max_bytes: usize) -> (usize, usize) {
    let clock = ManualClock::new();
    let store = MemoryStore::with(WallClock::manual(&clock, BEGAN_AT));
    let jobs = Jobs::with_clock(Arc::new(store), &clock);
    let body = vec![b'x'; len];
    let puts = (0..count).map(|id| jobs.put(KIND, &id.to_string(), &body));
    jobs.put_all(puts).await.unwrap();
    let mut options = PusherOptions::default();
    options.clock = WallClock::manual(&clock, BEGAN_AT);
    (options.max_in_flight, options.max_bytes) = (max_in_flight, max_bytes);
    let pusher = Pusher::start(&jobs, "node-1", options).unwrap();
    let stalled = Arc::new(Stalled {
        let_go: Semaphore::new(0),
        now: Mutex::default(),
        most: Mutex::default(),
        done: AtomicUsize::new(0),
    });
    let target = Arc::clone(&stalled) as Arc<dyn Target>;
    pusher.set(kind(), Some(PushTarget::new(target, Duration::from_secs(10), 10_000)));
    // A kind uses half of the room, or a little less: the room is given in whole bodies.
    let full =
        |now: (usize, usize)| now.0 >= max_in_flight / 2 || now.1 + (2 << 20) >= max_bytes / 2;
    until("the room is used", || full(*stalled.now.lock().unwrap())).await;
    while stalled.done.load(Ordering::SeqCst) < count {
        let status = pusher.status();
        assert!(status.in_flight <= max_in_flight && status.bytes <= max_bytes, "{status:?}");
        let before = stalled.done.load(Ordering::SeqCst);
        stalled.let_go.add_permits(97);
        let enough = (before + 97).min(count);
        until("jobs were let go", || stalled.done.load(Ordering::SeqCst) >= enough).await;
    }
    assert_eq!(pusher.shut_down(Duration::from_secs(1)).await, 0);
    assert_eq!(jobs.kind(KIND).await.unwrap().counts.pending, 0);
    *stalled.most.lock().unwrap()
}

#[tokio::test]
async fn the_number_of_deliveries_is_bounded() {
    let (in_flight, bytes) = most(10_000, 100, 300, 64 << 20).await;
    assert_eq!((in_flight, bytes), (150, 15_000));
}

#[tokio::test]
async fn the_bytes_of_bodies_are_bounded() {
    let (in_flight, bytes) = most(10_000, 10 << 10, 10_000, 8 << 20).await;
    assert!(bytes <= 4 << 20, "{bytes}");
    assert!(in_flight >= 200, "{in_flight}");
}

#[tokio::test]
async fn the_largest_bodies_are_delivered_one_by_one_if_there_is_no_more_room() {
    let (in_flight, bytes) = most(20, 1 << 20, 10_000, 0).await;
    assert_eq!((in_flight, bytes), (1, 1 << 20));
}
