//! Replays the traces of queues.

use super::limiter::RecordedDelays;
use super::metrics::{Sampler, TICK};
use super::trace::{Got, Step};
use requeue::{
    AddOptions, DelayingQueue, Get, Held, ManualClock, PriorityQueue, Queue, QueueAdapter,
    QueueMetrics, RateLimitingQueue, Snapshot, StopMode, TryGetError, WorkQueue,
};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// The calls of a trace, on any queue type. A trace only makes calls that its queue has.
pub(crate) trait Subject: WorkQueue<Key = String> + Sized {
    fn get(&self) -> Get<'_, Self>;
    fn try_get(&self) -> Result<Held<'_, Self>, TryGetError>;
    fn shut_down_with_drain(&self) -> Drained<'_>;
    fn snapshot(&self) -> Snapshot<String>;
    fn metrics(&self) -> Option<QueueMetrics>;
    fn add_after(&self, _: String, _: Duration) {
        unreachable!("traces of this queue do not call it")
    }
    fn add_rate_limited(&self, _: String) {
        unreachable!("traces of this queue do not call it")
    }
    fn forget(&self, _: &str) {
        unreachable!("traces of this queue do not call it")
    }
    fn num_requeues(&self, _: &str) -> u32 {
        unreachable!("traces of this queue do not call it")
    }
    fn add_many(&self, _: Vec<String>, _: AddOptions) {
        unreachable!("traces of this queue do not call it")
    }
    fn priority(_: &Held<'_, Self>) -> Option<i32> {
        None
    }

    /// Whether the traces may end a hold that does not exist.
    const TAKES_STRAY_DONE: bool = false;
}

type Drained<'q> = Pin<Box<dyn Future<Output = ()> + 'q>>;

/// `$methods` is the type that has the methods of `$queue`.
macro_rules! subject {
    ($queue:ty, $methods:ident { $($rest:item)* }) => {
        impl Subject for $queue {
            fn get(&self) -> Get<'_, Self> {
                <$queue>::get(self)
            }
            fn try_get(&self) -> Result<Held<'_, Self>, TryGetError> {
                <$queue>::try_get(self)
            }
            fn shut_down_with_drain(&self) -> Drained<'_> {
                Box::pin($methods::shut_down_with_drain(self))
            }
            fn snapshot(&self) -> Snapshot<String> {
                $methods::snapshot(self)
            }
            fn metrics(&self) -> Option<QueueMetrics> {
                $methods::metrics(self)
            }
            $($rest)*
        }
    };
    ($queue:ty, $methods:ident limits { $($rest:item)* }) => {
        subject!($queue, $methods {
            fn add_after(&self, key: String, delay: Duration) {
                $methods::add_after(self, key, delay);
            }
            fn add_rate_limited(&self, key: String) {
                <$queue>::add_rate_limited(self, key);
            }
            fn forget(&self, key: &str) {
                <$queue>::forget(self, key);
            }
            fn num_requeues(&self, key: &str) -> u32 {
                <$queue>::num_requeues(self, key)
            }
            $($rest)*
        });
    };
}

subject!(Queue<String>, Queue {});
subject!(DelayingQueue<String>, DelayingQueue {
    fn add_after(&self, key: String, delay: Duration) {
        DelayingQueue::add_after(self, key, delay);
    }
});
subject!(RateLimitingQueue<String>, DelayingQueue limits {});
subject!(QueueAdapter<Queue<String>>, QueueAdapter limits {});
subject!(PriorityQueue<String>, PriorityQueue limits {
    fn add_many(&self, keys: Vec<String>, options: AddOptions) {
        PriorityQueue::add_many(self, keys, options);
    }
    fn priority(held: &Held<'_, Self>) -> Option<i32> {
        Some(held.priority())
    }
    const TAKES_STRAY_DONE: bool = true;
});

/// A future that is polled only after it was woken: a lost wake-up fails the replay.
struct Parked<F> {
    future: Pin<Box<F>>,
    woken: Arc<Flag>,
}

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl<F: Future> Parked<F> {
    fn new(future: F) -> Self {
        Parked { future: Box::pin(future), woken: Arc::new(Flag(AtomicBool::new(true))) }
    }

    fn poll(&mut self) -> Poll<F::Output> {
        if !self.woken.0.swap(false, Ordering::SeqCst) {
            return Poll::Pending;
        }
        let waker = Waker::from(Arc::clone(&self.woken));
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }
}

/// The state of a replay: a queue in the middle of a trace.
struct Replay<'q, Q: Subject> {
    queue: &'q Q,
    clock: &'q ManualClock,
    held: Vec<Held<'q, Q>>,
    parked: Option<Parked<Get<'q, Q>>>,
    /// The result of a parked `get` that returned in this step.
    woke: Option<Got>,
    /// `None` if it has returned.
    drains: Vec<Option<Parked<Drained<'q>>>>,
    sampler: Sampler,
    delays: &'q RecordedDelays,
}

pub(crate) fn replay<Q: Subject>(
    queue: &Q,
    clock: &ManualClock,
    delays: &RecordedDelays,
    steps: &[Step],
) -> Result<(), String> {
    let (held, drains, sampler) = (Vec::new(), Vec::new(), Sampler::default());
    let (parked, woke) = (None, None);
    let mut replay = Replay { queue, clock, held, parked, woke, drains, sampler, delays };
    for (number, step) in steps.iter().enumerate() {
        let result = replay.act(step).and_then(|()| replay.compare(step));
        result.map_err(|error| format!("step {number}: {error}\n  {step:?}"))?;
    }
    Ok(())
}

fn expect<T: PartialEq + std::fmt::Debug>(what: &str, ours: T, theirs: T) -> Result<(), String> {
    if ours == theirs { Ok(()) } else { Err(format!("{what} is {ours:?}, not {theirs:?}")) }
}

/// In Go, 0 means no delay, and a negative delay means now, whatever the limiter returns.
fn options(step: &Step) -> AddOptions {
    let mut options = AddOptions::new().priority(step.priority.unwrap_or(0));
    if let Some(ns) = step.ns.filter(|&ns| ns != 0) {
        options = options.after(Duration::from_nanos(ns.max(0) as u64));
    }
    if step.rate_limited { options.rate_limited() } else { options }
}

impl<Q: Subject> Replay<'_, Q> {
    /// Executes the step and checks its result.
    fn act(&mut self, step: &Step) -> Result<(), String> {
        let queue = self.queue;
        let key = step.key.clone().unwrap_or_default();
        let ns = step.ns.unwrap_or_default();
        match step.op.as_str() {
            "add" => drop(queue.add(key)),
            "add_after" => queue.add_after(key, Duration::from_nanos(ns.max(0) as u64)),
            "add_rate_limited" => queue.add_rate_limited(key),
            "add_with_opts" => queue.add_many(step.keys.clone(), options(step)),
            "forget" => queue.forget(&key),
            "num_requeues" => {
                expect("num_requeues", Some(queue.num_requeues(&key) as usize), step.n)?;
            }
            "advance" => self.advance(Duration::from_nanos(ns as u64)),
            "get" if step.blocked => {
                let mut get = Parked::new(queue.get());
                expect("get", get.poll().is_pending(), true)?;
                self.parked = Some(get);
            }
            "get" => {
                let got = match queue.try_get() {
                    Ok(held) => {
                        let got = (held.key().clone(), Q::priority(&held));
                        self.held.push(held);
                        Some(got)
                    }
                    Err(TryGetError::ShutDown) => None,
                    Err(TryGetError::Empty) => return Err("get would block".to_owned()),
                };
                expect("shutdown", got.is_none(), step.shutdown)?;
                let (key, priority) = got.unzip();
                expect("the key", &key, &step.key)?;
                expect("the priority", priority.flatten(), step.priority)?;
            }
            "done" => match self.held.iter().position(|held| *held.key() == key) {
                Some(index) => self.held.remove(index).done(),
                None if Q::TAKES_STRAY_DONE => {}
                None => return Err("nobody holds it".to_owned()),
            },
            "len" => expect("len", Some(queue.len()), step.n)?,
            "shut_down" => queue.stop(StopMode::Now),
            "shut_down_with_drain" => {
                self.drains.push(Some(Parked::new(queue.shut_down_with_drain())));
            }
            "shutting_down" => expect("shutting_down", Some(queue.shutting_down()), step.value)?,
            other => return Err(format!("unknown operation {other:?}")),
        }
        Ok(())
    }

    /// Advances from tick to tick, because client-go refreshes gauges there, and from due time
    /// to due time, because a parked `get` takes the first key that falls due, not the best of
    /// all that do.
    fn advance(&mut self, mut by: Duration) {
        while !by.is_zero() {
            let tick = TICK.as_nanos() as u64;
            let next = tick - self.clock.now().as_nanos() % tick;
            let mut step = by;
            if self.queue.metrics().is_some() {
                step = step.min(Duration::from_nanos(next));
            }
            if self.parked.is_some() {
                let waiting = self.queue.snapshot().waiting;
                step = waiting.first().map_or(step, |waiting| step.min(waiting.due_in));
            }
            self.clock.advance(step);
            self.poll_parked();
            by -= step;
            let ticked = self.clock.now().as_nanos().is_multiple_of(tick);
            if let (true, false, Some(metrics)) =
                (ticked, self.queue.shutting_down(), self.queue.metrics())
            {
                self.sampler.tick(&metrics, &self.queue.snapshot());
            }
        }
    }

    fn poll_parked(&mut self) {
        if let Some(Poll::Ready(got)) = self.parked.as_mut().map(Parked::poll) {
            self.parked = None;
            let key = got.as_ref().map(|held| held.key().clone());
            let priority = got.as_ref().and_then(Q::priority);
            self.held.extend(got);
            self.woke = Some(Got { shutdown: key.is_none(), key, priority });
        }
    }

    /// Compares the state after the step.
    fn compare(&mut self, step: &Step) -> Result<(), String> {
        // A drain returns before a getter continues, as in the recording.
        for drain in &mut self.drains {
            if drain.as_mut().is_some_and(|drain| drain.poll().is_ready()) {
                *drain = None;
            }
        }
        if !step.blocked {
            self.poll_parked();
        }
        let woke = self.woke.take();
        expect("woke", &woke, &step.woke)?;
        expect("the limiter's delays", self.delays.take(), step.when_ns.clone())?;
        expect("len", Some(self.queue.len()), step.len)?;
        let drained: Vec<bool> = self.drains.iter().map(Option::is_none).collect();
        expect("drained", &drained, &step.drained)?;
        let measured = self.queue.metrics().map(|metrics| self.sampler.measure(metrics));
        expect("the metrics", &measured.flatten(), &step.m)
    }
}
