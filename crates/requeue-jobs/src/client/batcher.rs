//! Combines concurrent calls into batches.
//!
//! ```text
//!           poll            the batch before has completed      the batch completes
//!   a call ------> queued ------------------------------> sent ------------------> has its result
//! ```
//!
//! One batch is in flight at a time, and the calls in it are its *members*. Calls that are made
//! meanwhile are queued for the next batch. There is no timer and no task: **every call that is
//! polled drives the batch in flight**, whether it is a member or still queued. When the store wakes
//! the batcher, all waiting calls are woken. Any of them may be a future that nobody polls at the
//! moment, such as an arm of a `select!`, and the others must not depend on it.
//!
//! - Calls are sent in the order in which they were first polled.
//! - A call that is dropped while it is queued is not sent. The outcome of a member that is dropped
//!   is unknown.
//! - When all members are dropped, the batch is dropped too, and the next one is sent. A batch that
//!   never completes, and whose results nobody waits for, blocks no other call.
//! - If the store panics, only the members of the batch fail.
//!
//! If no batch is in flight, a call is sent by its first poll. A caller that knows of others that are
//! about to call can make a *gathering* call instead: it is sent together with the next call. The first
//! of several gathering calls wakes itself until no more calls are expected, and then sends all of
//! them. The others depend on its polls.

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

/// The future of a batch at the store.
pub(super) type Batch<T, X> =
    Pin<Box<dyn Future<Output = Result<BatchResults<T, X>, StoreError>> + Send>>;

/// Batches the calls of one method: entries `E`, with a result `T` or an error `X` each.
pub(super) struct Batcher<E, T, X> {
    /// Sends a batch.
    send: Box<dyn Fn(Vec<E>) -> Batch<T, X> + Send + Sync>,
    /// Returns how many bytes of the batch's limit an entry uses.
    weigh: fn(&E) -> usize,
    /// Given to the store's future: wakes this batcher.
    waker: Waker,
    state: Mutex<State<E, T, X>>,
}

struct State<E, T, X> {
    /// Calls that are not sent yet, by number: the order of their first polls.
    queued: VecDeque<(u64, E)>,
    /// The calls in the batch in flight, in the order of its entries.
    /// Invariant: empty if no batch is in flight.
    members: Vec<u64>,
    /// The number of members that are not dropped.
    /// Invariant: at least one if the batch is parked.
    awaited: usize,
    in_flight: InFlight<T, X>,
    /// Whether the store has woken the batch since it was last polled.
    woken: bool,
    /// The gathering call that wakes itself to send what is queued.
    /// Invariant: if there is one, it is queued, and no batch is in flight.
    gathering: Option<u64>,
    /// All calls that are not dropped and have not returned their result yet.
    calls: BTreeMap<u64, CallState<T, X>>,
    numbered: u64,
}

enum InFlight<T, X> {
    None,
    /// A call is polling the batch, without the lock.
    Polled,
    Parked(Batch<T, X>),
}

enum CallState<T, X> {
    /// The waker is `None` once the call was woken.
    Waiting(Option<Waker>),
    Completed(Result<T, X>),
}

/// What the polling call does next.
enum Step<E, T, X> {
    Send(Vec<E>),
    Poll(Batch<T, X>),
}

/// The result of polling the batch in flight.
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
            woken: false,
            gathering: None,
            calls: BTreeMap::new(),
            numbered: 0,
        };
        Arc::new_cyclic(|batcher| Batcher {
            send: Box::new(send),
            weigh,
            waker: Waker::from(Arc::new(BatchWaker(Weak::clone(batcher)))),
            state: Mutex::new(state),
        })
    }

    /// Returns a call that does nothing before it is polled.
    pub(super) fn call(self: &Arc<Self>, entry: E) -> Call<E, T, X> {
        Call { batcher: Arc::clone(self), stage: Stage::New(entry) }
    }

    fn poll(self: &Arc<Self>, number: u64, waker: &Waker) -> Poll<Result<T, X>> {
        loop {
            // Wakers are foreign code: cloned before the lock is taken, dropped after it is released.
            let mut waker = Some(waker.clone());
            let result = self.lock().take_result(number, &mut waker);
            drop(guarded(|| drop(waker)));
            let completed = self.advance(number);
            if let Some(result) = result {
                // This call ends here, so another one has to send the next batch.
                if completed {
                    self.wake_waiting();
                }
                return Poll::Ready(result);
            }
            if !completed {
                return Poll::Pending;
            }
        }
    }

    /// Polls the batch in flight, or sends the next one, for the call with this number. Returns
    /// `true` if it completed. The call has to look for its result then: it is not woken, because
    /// an executor would poll it once more, and might start another thread for that.
    fn advance(self: &Arc<Self>, number: u64) -> bool {
        let Some(step) = self.lock().step(self.weigh) else {
            return false;
        };
        let progress = guarded(|| {
            let mut batch = match step {
                Step::Send(entries) => (self.send)(entries),
                Step::Poll(batch) => batch,
            };
            match batch.as_mut().poll(&mut Context::from_waker(&self.waker)) {
                Poll::Ready(results) => Progress::Completed(results),
                Poll::Pending => Progress::Parked(batch),
            }
        });
        let results = match progress {
            Ok(Progress::Parked(batch)) => {
                self.park(batch);
                return false;
            }
            Ok(Progress::Completed(results)) => results,
            Err(message) => {
                Err(StoreError::Unknown { reason: format!("the store panicked: {message}") })
            }
        };
        let (wakers, own) = self.lock().complete(results, number);
        drop(guarded(|| drop(own)));
        wake_all(wakers);
        true
    }

    fn park(&self, batch: Batch<T, X>) {
        let mut state = self.lock();
        state.in_flight = InFlight::Parked(batch);
        let (abandoned, mut wakers) = state.abandon();
        if state.woken {
            // The store woke the batch while it was polled, when no call could be woken.
            wakers.extend(state.take_wakers());
        }
        drop(state);
        drop(guarded(|| drop(abandoned)));
        wake_all(wakers);
    }

    fn wake_waiting(&self) {
        let wakers = self.lock().take_wakers();
        wake_all(wakers);
    }

    /// Removes a call that was dropped.
    fn remove(&self, number: u64) {
        let mut state = self.lock();
        let call = state.calls.remove(&number);
        let index = state.queued.binary_search_by_key(&number, |(number, _)| *number);
        let entry = index.ok().and_then(|index| state.queued.remove(index));
        if entry.is_none() && matches!(call, Some(CallState::Waiting(_))) {
            state.awaited -= 1;
        }
        let (abandoned, mut wakers) = state.abandon();
        if state.gathering == Some(number) {
            state.gathering = None;
            wakers.extend(state.take_wakers());
        }
        drop(state);
        drop(guarded(|| drop((call, entry, abandoned))));
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
    /// Queues a call and returns its number.
    fn enqueue(&mut self, entry: E, waker: Option<Waker>) -> u64 {
        self.numbered += 1;
        self.queued.push_back((self.numbered, entry));
        self.calls.insert(self.numbered, CallState::Waiting(waker));
        self.numbered
    }

    /// Returns the result of a call, which is over then. If there is none yet, stores `waker` and
    /// leaves the previous one in its place.
    fn take_result(&mut self, number: u64, waker: &mut Option<Waker>) -> Option<Result<T, X>> {
        match self.calls.get_mut(&number).expect("a call is listed until it has its result") {
            CallState::Waiting(old) => mem::swap(old, waker),
            CallState::Completed(_) => match self.calls.remove(&number) {
                Some(CallState::Completed(result)) => return Some(result),
                _ => unreachable!("the call was just found"),
            },
        }
        None
    }

    /// Returns `None` if there is nothing to do, or if another call is doing it.
    fn step(&mut self, weigh: fn(&E) -> usize) -> Option<Step<E, T, X>> {
        match mem::replace(&mut self.in_flight, InFlight::Polled) {
            InFlight::None if self.queued.is_empty() => self.in_flight = InFlight::None,
            InFlight::None => {
                self.woken = false;
                return Some(Step::Send(self.take_batch(weigh)));
            }
            InFlight::Parked(batch) if self.woken => {
                self.woken = false;
                return Some(Step::Poll(batch));
            }
            other => self.in_flight = other,
        }
        None
    }

    /// Takes as many queued entries as a batch may contain, and at least one.
    fn take_batch(&mut self, weigh: fn(&E) -> usize) -> Vec<E> {
        debug_assert!(self.members.is_empty());
        self.gathering = None;
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

    /// Drops the batch in flight if no member waits for it. Returns the batch, and the wakers of the
    /// queued calls: one of them sends the next batch.
    fn abandon(&mut self) -> (InFlight<T, X>, Vec<Waker>) {
        match &self.in_flight {
            InFlight::Parked(_) if self.awaited == 0 => {
                self.members.clear();
                (mem::replace(&mut self.in_flight, InFlight::None), self.take_wakers())
            }
            _ => (InFlight::None, Vec::new()),
        }
    }

    /// Gives each member its result. Returns the wakers of the members, that of the call `polling`
    /// separately.
    fn complete(
        &mut self,
        results: Result<BatchResults<T, X>, StoreError>,
        polling: u64,
    ) -> (Vec<Waker>, Option<Waker>)
    where
        X: From<StoreError>,
    {
        self.in_flight = InFlight::None;
        self.awaited = 0;
        let members = mem::take(&mut self.members);
        let count = members.len();
        let results = results.and_then(|results| match results.len() {
            got if got == count => Ok(results),
            // It is not known which result belongs to which entry.
            got => {
                let reason = format!("the store returned {got} results for {count} entries");
                Err(StoreError::Unknown { reason })
            }
        });
        let to_all = |error: StoreError| (0..count).map(|_| Err(error.clone().into())).collect();
        let results: BatchResults<T, X> = results.unwrap_or_else(to_all);
        let (mut wakers, mut own) = (Vec::with_capacity(count.saturating_sub(1)), None);
        for (number, result) in members.into_iter().zip(results) {
            // A call that was dropped is no longer listed.
            if let Some(call) = self.calls.get_mut(&number)
                && let CallState::Waiting(waker) = mem::replace(call, CallState::Completed(result))
            {
                match number == polling {
                    true => own = waker,
                    false => wakers.extend(waker),
                }
            }
        }
        (wakers, own)
    }

    fn take_wakers(&mut self) -> Vec<Waker> {
        let waker = |call: &mut CallState<T, X>| match call {
            CallState::Waiting(waker) => waker.take(),
            CallState::Completed(_) => None,
        };
        self.calls.values_mut().filter_map(waker).collect()
    }
}

/// The waker that the store holds. It is weak because the batcher owns the store: a store that wakes
/// from a thread of its own must not end up with the last handle to itself.
struct BatchWaker<E, T, X>(Weak<Batcher<E, T, X>>);

impl<E, T, X> Wake for BatchWaker<E, T, X>
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
        state.woken = true;
        let wakers = match state.in_flight {
            InFlight::Parked(_) => state.take_wakers(),
            // The call that polls the batch checks `woken` afterwards.
            InFlight::Polled | InFlight::None => Vec::new(),
        };
        drop(state);
        // Before the wakers run: a woken call may drop the last other handle.
        drop(batcher);
        wake_all(wakers);
    }
}

fn wake_all(wakers: Vec<Waker>) {
    for waker in wakers {
        drop(guarded(|| waker.wake()));
    }
}

/// The future of one call.
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
    Queued(u64),
    Over,
}

impl<E, T, X> Call<E, T, X>
where
    E: Send + Unpin + 'static,
    T: Send + 'static,
    X: From<StoreError> + Send + 'static,
{
    /// Polls it as a gathering call, which is not sent while `expects_others` returns `true`. The
    /// executor has to poll it whenever it is woken.
    pub(super) fn poll_gathering(
        &mut self,
        cx: &mut Context<'_>,
        expects_others: impl FnOnce() -> bool,
    ) -> Poll<Result<T, X>> {
        let number = match mem::replace(&mut self.stage, Stage::Over) {
            Stage::New(entry) => {
                let is_idle = matches!(self.batcher.lock().in_flight, InFlight::None);
                let gathers = is_idle && expects_others();
                // Cloned before the lock is taken: see `Batcher::poll`.
                let waker = gathers.then(|| cx.waker().clone());
                let mut state = self.batcher.lock();
                let number = state.enqueue(entry, waker);
                self.stage = Stage::Queued(number);
                if gathers && matches!(state.in_flight, InFlight::None) {
                    let is_first = *state.gathering.get_or_insert(number) == number;
                    drop(state);
                    if is_first {
                        cx.waker().wake_by_ref();
                    }
                    return Poll::Pending;
                }
                number
            }
            Stage::Queued(number) => {
                self.stage = Stage::Queued(number);
                let is_first = self.batcher.lock().gathering == Some(number);
                if is_first && expects_others() {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                number
            }
            Stage::Over => panic!("polled after completion"),
        };
        let result = self.batcher.poll(number, cx.waker());
        if result.is_ready() {
            self.stage = Stage::Over;
        }
        result
    }
}

impl<E, T, X> Future for Call<E, T, X>
where
    E: Send + Unpin + 'static,
    T: Send + 'static,
    X: From<StoreError> + Send + 'static,
{
    type Output = Result<T, X>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.get_mut().poll_gathering(cx, || false)
    }
}

impl<E, T, X> Drop for Call<E, T, X>
where
    E: Send + 'static,
    T: Send + 'static,
    X: From<StoreError> + Send + 'static,
{
    fn drop(&mut self) {
        if let Stage::Queued(number) = self.stage {
            self.batcher.remove(number);
        }
    }
}

#[cfg(test)]
mod tests;
