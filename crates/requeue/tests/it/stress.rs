//! Concurrent threads, tasks, delays and cancellation on the real clock: no key is ever held
//! twice, and none is lost.

use requeue::limiter::default_item_based;
use requeue::{
    AddOptions, DelayingQueue, Drain, Get, GetMany, GetTimeoutError, Held, PriorityQueue, WorkQueue,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, SystemTime};

const KEYS: usize = 32;

/// Adds per producer; `scripts/soak` sets more.
fn adds() -> u64 {
    std::env::var("REQUEUE_STRESS_ADDS").map_or(20_000, |adds| adds.parse().expect("a number"))
}

/// Printed, so that a failure can be repeated with `REQUEUE_SEED`.
fn seed() -> u64 {
    let seed = std::env::var("REQUEUE_SEED").ok().map(|seed| seed.parse().expect("a number"));
    let now = || SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_nanos() as u64;
    let seed = seed.unwrap_or_else(now);
    println!("REQUEUE_SEED={seed}");
    seed
}

/// splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % limit
    }
}

/// The calls of this test, on any queue type.
trait Subject: WorkQueue<Key = usize> + Clone {
    fn get(&self) -> Get<'_, Self>;
    fn get_many(&self, max: usize) -> GetMany<'_, Self>;
    fn waiting(&self) -> usize;
    fn drain(&self, limit: Duration) -> Drain<'_, Self>;
    fn add_after(&self, key: usize, delay: Duration);
    fn requeue_after(held: Held<'_, Self>, delay: Duration);
}

macro_rules! subject {
    ($queue:ident, $add_after:expr) => {
        impl Subject for $queue<usize> {
            fn get(&self) -> Get<'_, Self> {
                $queue::get(self)
            }
            fn get_many(&self, max: usize) -> GetMany<'_, Self> {
                $queue::get_many(self, max)
            }
            fn waiting(&self) -> usize {
                $queue::waiting(self)
            }
            fn drain(&self, limit: Duration) -> Drain<'_, Self> {
                $queue::drain(self, limit)
            }
            fn add_after(&self, key: usize, delay: Duration) {
                $add_after(self, key, delay);
            }
            fn requeue_after(held: Held<'_, Self>, delay: Duration) {
                held.requeue_after(delay);
            }
        }
    };
}

subject!(DelayingQueue, DelayingQueue::add_after);
subject!(PriorityQueue, |queue: &PriorityQueue<usize>, key, delay| {
    queue.add_with(key, AddOptions::new().after(delay).priority(key as i32 % 3))
});

/// What the test knows of each key.
#[derive(Default)]
struct Ledger {
    /// Counted before the add.
    added: [AtomicU64; KEYS],
    /// What `added` was when the key was last handed out.
    served: [AtomicU64; KEYS],
    held: [AtomicBool; KEYS],
}

impl Ledger {
    fn begin(&self, key: usize) {
        assert!(!self.held[key].swap(true, SeqCst), "key {key} is held twice");
        self.served[key].store(self.added[key].load(SeqCst), SeqCst);
    }

    fn end<Q: Subject>(&self, held: Held<'_, Q>, random: &mut Random) {
        assert!(self.held[*held.key()].swap(false, SeqCst));
        match random.below(20) {
            0 => drop(held.requeue()),
            1 => Q::requeue_after(held, Duration::from_micros(random.below(300))),
            _ => held.done(),
        }
    }
}

async fn task<Q: Subject>(queue: Q, ledger: &'static Ledger, mut random: Random) {
    loop {
        // A `get` that loses against a ready future is cancelled, whether it was woken or not.
        let cancel = random.below(2) == 0;
        let mut got = tokio::select! {
            biased;
            got = queue.get() => got,
            () = tokio::task::yield_now(), if cancel => continue,
        };
        loop {
            let Some(held) = got else { return };
            ledger.begin(*held.key());
            if random.below(4) == 0 {
                tokio::task::yield_now().await;
            }
            if random.below(2) == 0 {
                ledger.end(held.into_owned(), &mut random);
                break;
            }
            assert!(ledger.held[*held.key()].swap(false, SeqCst));
            got = held.next().await;
        }
    }
}

fn thread<Q: Subject>(queue: &Q, ledger: &Ledger, mut random: Random) {
    loop {
        let held = match random.below(3) {
            0 => queue.get_many(3).wait(),
            1 => queue.get().wait().into_iter().collect(),
            _ => match queue.get().wait_timeout(Duration::from_micros(50)) {
                Err(GetTimeoutError::TimedOut) => continue,
                got => got.into_iter().collect(),
            },
        };
        if held.is_empty() {
            return;
        }
        held.iter().for_each(|held| ledger.begin(*held.key()));
        held.into_iter().for_each(|held| ledger.end(held, &mut random));
    }
}

fn produce<Q: Subject>(queue: &Q, ledger: &Ledger, mut random: Random) {
    for _ in 0..adds() {
        let key = random.below(KEYS as u64) as usize;
        ledger.added[key].fetch_add(1, SeqCst);
        match random.below(3) {
            0 => queue.add_after(key, Duration::from_micros(random.below(500))),
            1 => queue.add_after(key, Duration::ZERO),
            _ => drop(queue.add(key)),
        }
    }
}

#[test]
fn no_key_is_held_twice_and_none_is_lost() {
    stress(DelayingQueue::new());
}

#[test]
fn no_key_of_a_priority_queue_is_held_twice_and_none_is_lost() {
    stress(PriorityQueue::new(default_item_based()));
}

fn stress<Q: Subject>(queue: Q) {
    let seed = seed();
    let ledger: &'static Ledger = Box::leak(Box::default());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build();
    let runtime = runtime.expect("the system has threads to give");
    let tasks: Vec<_> =
        (0..4).map(|n| runtime.spawn(task(queue.clone(), ledger, Random(seed ^ n)))).collect();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (10..13)
            .map(|n| {
                scope.spawn({
                    let queue = &queue;
                    move || thread(queue, ledger, Random(seed ^ n))
                })
            })
            .collect();
        let producers: Vec<_> = (20..22)
            .map(|n| {
                scope.spawn({
                    let queue = &queue;
                    move || produce(queue, ledger, Random(seed ^ n))
                })
            })
            .collect();
        producers.into_iter().for_each(|producer| producer.join().expect("no producer panics"));
        while queue.waiting() > 0 {
            std::thread::yield_now();
        }
        let left = queue.drain(Duration::from_secs(60)).wait();
        assert!(left.held.is_empty(), "{left:?}");
        // Keys that holders requeued were kept; their adds had been processed before.
        workers.into_iter().for_each(|worker| worker.join().expect("no worker panics"));
    });
    for task in tasks {
        runtime.block_on(task).expect("no task panics");
    }
    for key in 0..KEYS {
        let (added, served) = (ledger.added[key].load(SeqCst), ledger.served[key].load(SeqCst));
        assert_eq!(served, added, "the last add of key {key} was lost");
    }
}
