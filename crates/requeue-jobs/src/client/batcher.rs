//! Joins concurrent calls into batches.
//!
//! ```text
//!           poll            the in_flight before has completed          lands
//!   a call ------> queued -----------------------------> members ------> answered
//! ```
//!
//! One batch is under way at a time, the *in_flight*; what is called meanwhile is the next. There
//! is no timer, and no task: **whoever is polled moves the in_flight on**, members or still queued.
//! When the store has news, all who wait are told, since any of them may be a future that
//! nobody polls at the moment (an arm of a `select!`, say), and the others must not hang on it.
//!
//! - Calls are sent in the order in which they were first polled.
//! - A call that is dropped while it is queued is not sent. One that is members may be done.
//! - When nobody members waits any more, the in_flight is dropped, and the next is sent: what may
//!   never complete, and nobody would hear of, holds nobody up.
//! - A store that panics costs those members their answer, and nobody else.

use crate::error::StoreError;
use crate::limits::{MAX_BATCH, MAX_BATCH_BYTES};
use crate::panics::guarded;
use crate::store::BatchResults;
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};

/// A batch at the store.
pub(super) type Batch<T, X> =
    Pin<Box<dyn Future<Output = Result<BatchResults<T, X>, StoreError>> + Send>>;

/// Calls of one verb: entries `E`, each answered by a `T` or an `X`.
pub(super) struct Batcher<E, T, X> {
    /// Sends a batch.
    send: Box<dyn Fn(Vec<E>) -> Batch<T, X> + Send + Sync>,
    /// How many bytes of the batch's limit an entry takes.
    weigh: fn(&E) -> usize,
    /// Tells this batcher that the store has news.
    waker: Waker,
    state: Mutex<State<E, T, X>>,
}

struct State<E, T, X> {
    /// Calls that are not sent yet, by number, which is the order of their first polls.
    queued: VecDeque<(u64, E)>,
    /// Whose answers the in_flight brings, in its order.
    /// Invariant: empty if there is no in_flight.
    members: Vec<u64>,
    /// How many of them have not left.
    /// Invariant: at least one if the in_flight is parked.
    awaited: usize,
    in_flight: InFlight<T, X>,
    /// The store has news of the in_flight since it was last polled.
    news: bool,
    /// All calls that are not dropped and have no answer yet, or have not fetched it.
    calls: BTreeMap<u64, Member<T, X>>,
    numbered: u64,
}

enum InFlight<T, X> {
    None,
    /// Somebody is polling it, without the lock.
    Polled,
    Parked(Batch<T, X>),
}

enum Member<T, X> {
    /// `None`: it was told to look.
    Waits(Option<Waker>),
    Answered(Result<T, X>),
}

/// What is to be done for the in_flight to get further.
enum Step<E, T, X> {
    Send(Vec<E>),
    Poll(Batch<T, X>),
}

/// How far the in_flight got.
enum Progress<T, X> {
    Completed(Result<BatchResults<T, X>, StoreError>),
    Parked(Batch<T, X>),
}

impl<E, T, X> Batcher<E, T, X>
where
    E: Send + 'static,
    T: Send + 'static,
    X: From<StoreError> + Send + 'static,
{
    pub(super) fn new(
        send: impl Fn(Vec<E>) -> Batch<T, X> + Send + Sync + 'static,
        weigh: fn(&E) -> usize,
    ) -> Arc<Self> {
        let state = State {
            queued: VecDeque::new(),
            members: Vec::new(),
            awaited: 0,
            in_flight: InFlight::None,
            news: false,
            calls: BTreeMap::new(),
            numbered: 0,
        };
        Arc::new_cyclic(|batcher| Batcher {
            send: Box::new(send),
            weigh,
            waker: Waker::from(Arc::new(News(Weak::clone(batcher)))),
            state: Mutex::new(state),
        })
    }

    /// Does nothing before it is polled.
    pub(super) fn call(self: &Arc<Self>, entry: E) -> Call<E, T, X> {
        Call { batcher: Arc::clone(self), stage: Stage::New(entry) }
    }

    fn poll(self: &Arc<Self>, number: u64, waker: &Waker) -> Poll<Result<T, X>> {
        loop {
            // Wakers are foreign code: cloned before the lock is taken, dropped after it is released.
            let mut waker = Some(waker.clone());
            let answer = self.lock().look(number, &mut waker);
            drop(guarded(|| drop(waker)));
            let completed = self.advance();
            if let Some(answer) = answer {
                // This call leaves, and does not see to a second batch that is queued.
                if completed {
                    self.tell_all();
                }
                return Poll::Ready(answer);
            }
            if !completed {
                return Poll::Pending;
            }
        }
    }

    /// Moves the in_flight on, or sends the next. Answers whether it completed.
    fn advance(self: &Arc<Self>) -> bool {
        let Some(step) = self.lock().step(self.weigh) else {
            return false;
        };
        let flown = guarded(|| {
            let mut batch = match step {
                Step::Send(entries) => (self.send)(entries),
                Step::Poll(batch) => batch,
            };
            match batch.as_mut().poll(&mut Context::from_waker(&self.waker)) {
                Poll::Ready(answers) => Progress::Completed(answers),
                Poll::Pending => Progress::Parked(batch),
            }
        });
        let answers = match flown {
            Ok(Progress::Parked(batch)) => {
                self.park(batch);
                return false;
            }
            Ok(Progress::Completed(answers)) => answers,
            Err(message) => {
                Err(StoreError::Unknown { reason: format!("the store panicked: {message}") })
            }
        };
        let wakers = self.lock().complete(answers);
        wake_all(wakers);
        true
    }

    fn park(&self, batch: Batch<T, X>) {
        let mut state = self.lock();
        state.in_flight = InFlight::Parked(batch);
        let (abandoned, mut wakers) = state.abandon();
        if state.news {
            // It came while the in_flight was polled, and woke nobody.
            wakers.extend(state.take_wakers());
        }
        drop(state);
        drop(guarded(|| drop(abandoned)));
        wake_all(wakers);
    }

    fn tell_all(&self) {
        let wakers = self.lock().take_wakers();
        wake_all(wakers);
    }

    fn leave(&self, number: u64) {
        let mut state = self.lock();
        let member = state.calls.remove(&number);
        let place = state.queued.binary_search_by_key(&number, |(number, _)| *number);
        let entry = place.ok().and_then(|place| state.queued.remove(place));
        if entry.is_none() && matches!(member, Some(Member::Waits(_))) {
            state.awaited -= 1;
        }
        let (abandoned, wakers) = state.abandon();
        drop(state);
        drop(guarded(|| drop((member, entry, abandoned))));
        wake_all(wakers);
    }
}

impl<E, T, X> Batcher<E, T, X> {
    fn lock(&self) -> MutexGuard<'_, State<E, T, X>> {
        // No foreign code runs under it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<E, T, X> State<E, T, X> {
    fn join(&mut self, entry: E) -> u64 {
        self.numbered += 1;
        self.queued.push_back((self.numbered, entry));
        self.calls.insert(self.numbered, Member::Waits(None));
        self.numbered
    }

    /// The answer to a call, which is over then; without one, `waker` is told, and the one
    /// before it is left in its place.
    fn look(&mut self, number: u64, waker: &mut Option<Waker>) -> Option<Result<T, X>> {
        match self.calls.get_mut(&number).expect("it has a member until it is answered") {
            Member::Waits(old) => mem::swap(old, waker),
            Member::Answered(_) => match self.calls.remove(&number) {
                Some(Member::Answered(answer)) => return Some(answer),
                _ => unreachable!("it was there"),
            },
        }
        None
    }

    /// `None`: the in_flight is as far as it can be, or somebody else sees to it.
    fn step(&mut self, weigh: fn(&E) -> usize) -> Option<Step<E, T, X>> {
        match mem::replace(&mut self.in_flight, InFlight::Polled) {
            InFlight::None if self.queued.is_empty() => self.in_flight = InFlight::None,
            InFlight::None => {
                self.news = false;
                return Some(Step::Send(self.take_batch(weigh)));
            }
            InFlight::Parked(batch) if self.news => {
                self.news = false;
                return Some(Step::Poll(batch));
            }
            other => self.in_flight = other,
        }
        None
    }

    /// As many as a batch may have, and at least one.
    fn take_batch(&mut self, weigh: fn(&E) -> usize) -> Vec<E> {
        debug_assert!(self.members.is_empty());
        let mut bytes = 0;
        let fits = self.queued.iter().take(MAX_BATCH).take_while(|(_, entry)| {
            bytes += weigh(entry);
            bytes <= MAX_BATCH_BYTES
        });
        let count = fits.count().max(1);
        let (members, entries) = self.queued.drain(..count).unzip();
        self.members = members;
        self.awaited = count;
        entries
    }

    /// Gives up a in_flight that nobody waits for, and tells all to look: one of them sends the next.
    fn abandon(&mut self) -> (InFlight<T, X>, Vec<Waker>) {
        match &self.in_flight {
            InFlight::Parked(_) if self.awaited == 0 => {
                self.members.clear();
                (mem::replace(&mut self.in_flight, InFlight::None), self.take_wakers())
            }
            _ => (InFlight::None, Vec::new()),
        }
    }

    /// Gives everybody members an answer, and tells who is to be woken.
    fn complete(&mut self, answers: Result<BatchResults<T, X>, StoreError>) -> Vec<Waker>
    where
        X: From<StoreError>,
    {
        self.in_flight = InFlight::None;
        self.awaited = 0;
        let members = mem::take(&mut self.members);
        let of = members.len();
        let answers = answers.and_then(|answers| match answers.len() {
            got if got == of => Ok(answers),
            // Nobody knows whose they are.
            got => {
                let reason = format!("the store gave {got} answers to {of} entries");
                Err(StoreError::Unknown { reason })
            }
        });
        let to_all = |error: StoreError| (0..of).map(|_| Err(error.clone().into())).collect();
        let answers: BatchResults<T, X> = answers.unwrap_or_else(to_all);
        let mut wakers = Vec::with_capacity(of);
        for (number, answer) in members.into_iter().zip(answers) {
            // Who left does not hear it.
            if let Some(member) = self.calls.get_mut(&number)
                && let Member::Waits(waker) = mem::replace(member, Member::Answered(answer))
            {
                wakers.extend(waker);
            }
        }
        wakers
    }

    fn take_wakers(&mut self) -> Vec<Waker> {
        let waker = |member: &mut Member<T, X>| match member {
            Member::Waits(waker) => waker.take(),
            Member::Answered(_) => None,
        };
        self.calls.values_mut().filter_map(waker).collect()
    }
}

/// Held by the store, which has news. The batcher has the store: a store that wakes from a thread of
/// its own must not find itself with the last handle to itself.
struct News<E, T, X>(Weak<Batcher<E, T, X>>);

impl<E, T, X> Wake for News<E, T, X>
where
    E: Send + 'static,
    T: Send + 'static,
    X: Send + 'static,
{
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let Some(batcher) = self.0.upgrade() else { return };
        let mut state = batcher.lock();
        state.news = true;
        let wakers = match state.in_flight {
            InFlight::Parked(_) => state.take_wakers(),
            // Who polls it looks again.
            InFlight::Polled | InFlight::None => Vec::new(),
        };
        drop(state);
        // Those who are woken may drop theirs at once.
        drop(batcher);
        wake_all(wakers);
    }
}

fn wake_all(wakers: Vec<Waker>) {
    for waker in wakers {
        drop(guarded(|| waker.wake()));
    }
}

/// One call, on its way.
pub(super) struct Call<E, T, X>
where
    E: Send + 'static,
    T: Send + 'static,
    X: From<StoreError> + Send + 'static,
{
    batcher: Arc<Batcher<E, T, X>>,
    stage: Stage<E>,
}

enum Stage<E> {
    New(E),
    Joined(u64),
    Over,
}

impl<E, T, X> Future for Call<E, T, X>
where
    E: Send + Unpin + 'static,
    T: Send + 'static,
    X: From<StoreError> + Send + 'static,
{
    type Output = Result<T, X>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let call = self.get_mut();
        if let Stage::New(_) = call.stage
            && let Stage::New(entry) = mem::replace(&mut call.stage, Stage::Over)
        {
            call.stage = Stage::Joined(call.batcher.lock().join(entry));
        }
        let Stage::Joined(number) = call.stage else {
            panic!("polled after it was answered");
        };
        let answer = call.batcher.poll(number, cx.waker());
        if answer.is_ready() {
            call.stage = Stage::Over;
        }
        answer
    }
}

impl<E, T, X> Drop for Call<E, T, X>
where
    E: Send + 'static,
    T: Send + 'static,
    X: From<StoreError> + Send + 'static,
{
    fn drop(&mut self) {
        if let Stage::Joined(number) = self.stage {
            self.batcher.leave(number);
        }
    }
}

#[cfg(test)]
mod tests;
