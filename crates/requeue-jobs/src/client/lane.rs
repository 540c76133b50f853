//! Joins concurrent calls into batches.
//!
//! ```text
//!           poll            the flight before has landed          lands
//!   a call ------> queued -----------------------------> aboard ------> answered
//! ```
//!
//! One batch is under way at a time, the *flight*; what is called meanwhile is the next. There
//! is no timer, and no task: **whoever is polled moves the flight on**, aboard or still queued.
//! When the store has news, all who wait are told, since any of them may be a future that
//! nobody polls at the moment (an arm of a `select!`, say), and the others must not hang on it.
//!
//! - Calls are sent in the order in which they were first polled.
//! - A call that is dropped while it is queued is not sent. One that is aboard may be done.
//! - When nobody aboard waits any more, the flight is dropped, and the next is sent: what may
//!   never land, and nobody would hear of, holds nobody up.
//! - A store that panics costs those aboard their answer, and nobody else.

use crate::error::StoreError;
use crate::limits::{MAX_BATCH, MAX_BATCH_BYTES};
use crate::panics::guarded;
use crate::store::Each;
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};

/// A batch at the store.
pub(super) type Batch<T, X> = Pin<Box<dyn Future<Output = Result<Each<T, X>, StoreError>> + Send>>;

/// Calls of one verb: entries `E`, each answered by a `T` or an `X`.
pub(super) struct Lane<E, T, X> {
    /// Sends a batch.
    send: Box<dyn Fn(Vec<E>) -> Batch<T, X> + Send + Sync>,
    /// How many bytes of the batch's limit an entry takes.
    weigh: fn(&E) -> usize,
    /// Tells this lane that the store has news.
    waker: Waker,
    state: Mutex<State<E, T, X>>,
}

struct State<E, T, X> {
    /// Calls that are not sent yet, by number, which is the order of their first polls.
    queued: VecDeque<(u64, E)>,
    /// Whose answers the flight brings, in its order.
    /// Invariant: empty if there is no flight.
    aboard: Vec<u64>,
    /// How many of them have not left.
    /// Invariant: at least one if the flight is parked.
    awaited: usize,
    flight: Flight<T, X>,
    /// The store has news of the flight since it was last polled.
    news: bool,
    /// All calls that are not dropped and have no answer yet, or have not fetched it.
    seats: BTreeMap<u64, Seat<T, X>>,
    numbered: u64,
}

enum Flight<T, X> {
    None,
    /// Somebody is polling it, without the lock.
    Polled,
    Parked(Batch<T, X>),
}

enum Seat<T, X> {
    /// `None`: it was told to look.
    Waits(Option<Waker>),
    Answered(Result<T, X>),
}

/// What is to be done for the flight to get further.
enum Step<E, T, X> {
    Send(Vec<E>),
    Poll(Batch<T, X>),
}

/// How far the flight got.
enum Flown<T, X> {
    Landed(Result<Each<T, X>, StoreError>),
    Parked(Batch<T, X>),
}

impl<E, T, X> Lane<E, T, X>
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
            aboard: Vec::new(),
            awaited: 0,
            flight: Flight::None,
            news: false,
            seats: BTreeMap::new(),
            numbered: 0,
        };
        Arc::new_cyclic(|lane| Lane {
            send: Box::new(send),
            weigh,
            waker: Waker::from(Arc::new(News(Weak::clone(lane)))),
            state: Mutex::new(state),
        })
    }

    /// Does nothing before it is polled.
    pub(super) fn call(self: &Arc<Self>, entry: E) -> Call<E, T, X> {
        Call { lane: Arc::clone(self), stage: Stage::New(entry) }
    }

    fn poll(self: &Arc<Self>, number: u64, waker: &Waker) -> Poll<Result<T, X>> {
        loop {
            // Wakers are foreign code: cloned before the lock is taken, dropped after it is released.
            let mut waker = Some(waker.clone());
            let answer = self.lock().look(number, &mut waker);
            drop(guarded(|| drop(waker)));
            let landed = self.fly();
            if let Some(answer) = answer {
                // This call leaves, and does not see to a second batch that is queued.
                if landed {
                    self.tell_all();
                }
                return Poll::Ready(answer);
            }
            if !landed {
                return Poll::Pending;
            }
        }
    }

    /// Moves the flight on, or sends the next. Answers whether it landed.
    fn fly(self: &Arc<Self>) -> bool {
        let Some(step) = self.lock().step(self.weigh) else {
            return false;
        };
        let flown = guarded(|| {
            let mut batch = match step {
                Step::Send(entries) => (self.send)(entries),
                Step::Poll(batch) => batch,
            };
            match batch.as_mut().poll(&mut Context::from_waker(&self.waker)) {
                Poll::Ready(answers) => Flown::Landed(answers),
                Poll::Pending => Flown::Parked(batch),
            }
        });
        let answers = match flown {
            Ok(Flown::Parked(batch)) => {
                self.park(batch);
                return false;
            }
            Ok(Flown::Landed(answers)) => answers,
            Err(message) => {
                Err(StoreError::Unknown { reason: format!("the store panicked: {message}") })
            }
        };
        let wakers = self.lock().land(answers);
        wake_all(wakers);
        true
    }

    fn park(&self, batch: Batch<T, X>) {
        let mut state = self.lock();
        state.flight = Flight::Parked(batch);
        let (abandoned, mut wakers) = state.abandon();
        if state.news {
            // It came while the flight was polled, and woke nobody.
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
        let seat = state.seats.remove(&number);
        let place = state.queued.binary_search_by_key(&number, |(number, _)| *number);
        let entry = place.ok().and_then(|place| state.queued.remove(place));
        if entry.is_none() && matches!(seat, Some(Seat::Waits(_))) {
            state.awaited -= 1;
        }
        let (abandoned, wakers) = state.abandon();
        drop(state);
        drop(guarded(|| drop((seat, entry, abandoned))));
        wake_all(wakers);
    }
}

impl<E, T, X> Lane<E, T, X> {
    fn lock(&self) -> MutexGuard<'_, State<E, T, X>> {
        // No foreign code runs under it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<E, T, X> State<E, T, X> {
    fn join(&mut self, entry: E) -> u64 {
        self.numbered += 1;
        self.queued.push_back((self.numbered, entry));
        self.seats.insert(self.numbered, Seat::Waits(None));
        self.numbered
    }

    /// The answer to a call, which is over then; without one, `waker` is told, and the one
    /// before it is left in its place.
    fn look(&mut self, number: u64, waker: &mut Option<Waker>) -> Option<Result<T, X>> {
        match self.seats.get_mut(&number).expect("it has a seat until it is answered") {
            Seat::Waits(old) => mem::swap(old, waker),
            Seat::Answered(_) => match self.seats.remove(&number) {
                Some(Seat::Answered(answer)) => return Some(answer),
                _ => unreachable!("it was there"),
            },
        }
        None
    }

    /// `None`: the flight is as far as it can be, or somebody else sees to it.
    fn step(&mut self, weigh: fn(&E) -> usize) -> Option<Step<E, T, X>> {
        match mem::replace(&mut self.flight, Flight::Polled) {
            Flight::None if self.queued.is_empty() => self.flight = Flight::None,
            Flight::None => {
                self.news = false;
                return Some(Step::Send(self.board(weigh)));
            }
            Flight::Parked(batch) if self.news => {
                self.news = false;
                return Some(Step::Poll(batch));
            }
            other => self.flight = other,
        }
        None
    }

    /// As many as a batch may have, and at least one.
    fn board(&mut self, weigh: fn(&E) -> usize) -> Vec<E> {
        debug_assert!(self.aboard.is_empty());
        let mut bytes = 0;
        let fits = self.queued.iter().take(MAX_BATCH).take_while(|(_, entry)| {
            bytes += weigh(entry);
            bytes <= MAX_BATCH_BYTES
        });
        let count = fits.count().max(1);
        let (aboard, entries) = self.queued.drain(..count).unzip();
        self.aboard = aboard;
        self.awaited = count;
        entries
    }

    /// Gives up a flight that nobody waits for, and tells all to look: one of them sends the next.
    fn abandon(&mut self) -> (Flight<T, X>, Vec<Waker>) {
        match &self.flight {
            Flight::Parked(_) if self.awaited == 0 => {
                self.aboard.clear();
                (mem::replace(&mut self.flight, Flight::None), self.take_wakers())
            }
            _ => (Flight::None, Vec::new()),
        }
    }

    /// Gives everybody aboard an answer, and tells who is to be woken.
    fn land(&mut self, answers: Result<Each<T, X>, StoreError>) -> Vec<Waker>
    where
        X: From<StoreError>,
    {
        self.flight = Flight::None;
        self.awaited = 0;
        let aboard = mem::take(&mut self.aboard);
        let of = aboard.len();
        let answers = answers.and_then(|answers| match answers.len() {
            got if got == of => Ok(answers),
            // Nobody knows whose they are.
            got => {
                let reason = format!("the store gave {got} answers to {of} entries");
                Err(StoreError::Unknown { reason })
            }
        });
        let to_all = |error: StoreError| (0..of).map(|_| Err(error.clone().into())).collect();
        let answers: Each<T, X> = answers.unwrap_or_else(to_all);
        let mut wakers = Vec::with_capacity(of);
        for (number, answer) in aboard.into_iter().zip(answers) {
            // Who left does not hear it.
            if let Some(seat) = self.seats.get_mut(&number)
                && let Seat::Waits(waker) = mem::replace(seat, Seat::Answered(answer))
            {
                wakers.extend(waker);
            }
        }
        wakers
    }

    fn take_wakers(&mut self) -> Vec<Waker> {
        let waker = |seat: &mut Seat<T, X>| match seat {
            Seat::Waits(waker) => waker.take(),
            Seat::Answered(_) => None,
        };
        self.seats.values_mut().filter_map(waker).collect()
    }
}

/// Held by the store, which has news. The lane has the store: a store that wakes from a thread of
/// its own must not find itself with the last handle to itself.
struct News<E, T, X>(Weak<Lane<E, T, X>>);

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
        let Some(lane) = self.0.upgrade() else { return };
        let mut state = lane.lock();
        state.news = true;
        let wakers = match state.flight {
            Flight::Parked(_) => state.take_wakers(),
            // Who polls it looks again.
            Flight::Polled | Flight::None => Vec::new(),
        };
        drop(state);
        // Those who are woken may drop theirs at once.
        drop(lane);
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
    lane: Arc<Lane<E, T, X>>,
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
            call.stage = Stage::Joined(call.lane.lock().join(entry));
        }
        let Stage::Joined(number) = call.stage else {
            panic!("polled after it was answered");
        };
        let answer = call.lane.poll(number, cx.waker());
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
            self.lane.leave(number);
        }
    }
}

#[cfg(test)]
mod tests;
