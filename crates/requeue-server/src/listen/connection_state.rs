//! The state of a connection, and a stream that updates it.
//!
//! ```text
//!          first byte            head complete
//!   idle -------------> head -------------------> busy
//!    ^                                              |
//!    +------ the response is written completely ----+
//! ```
//!
//! An idle connection, and one that takes long to send the head of a request or a
//! [body of anyone](super::BodyHandle::is_from_anyone), may be [evicted](ConnectionState::evict) if a new
//! connection needs its place.
//!
//! hyper flushes the stream only when its own buffer is empty, and it moves the last piece of a
//! body into that buffer in one step. So if a flush succeeds after a body has ended, the kernel has
//! the complete response (also with TLS: flushing a TLS stream writes its records). Then the
//! response counts as delivered: see [`Delivery`].

use super::Delivery;
use super::Options;
use crate::response_memory::{CONTENDED_GRACE, CONTENDED_RATE};
use bytes::Bytes;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::Instant;

/// State shared by the stream, the service and the response bodies of one connection.
pub(crate) struct ConnectionState {
    state: Mutex<State>,
    evict: Notify,
}

struct State {
    phase: Phase,
    /// Since when the client has not read any of the data to be written.
    stalled: Option<Instant>,
    /// How long the current response was stalled before that, …
    stalled_before: Duration,
    /// … and how many of its bytes were written since it first stalled.
    written: u64,
    /// The client has closed its half of the connection.
    ended: bool,
    /// A response was sent before its request was read completely.
    unread: bool,
    /// Responses that are neither delivered nor lost, oldest first. More than one only if the
    /// client pipelines requests.
    pending: Vec<PendingResponse>,
    next: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum Phase {
    Idle(Instant),
    Head {
        since: Instant,
        /// No byte has arrived on this connection.
        silent: bool,
    },
    Busy,
    /// The client must send a body, and nobody knows who it is.
    Body(Instant),
}

struct PendingResponse {
    number: u64,
    delivery: Delivery,
    /// hyper has the complete response.
    complete: bool,
}

/// What a connection that has no request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum IdlePhase {
    /// The first byte.
    Silent,
    /// The next request.
    Idle,
    /// The rest of the head of a request.
    Head,
    /// The rest of a body of anyone.
    Body,
}

/// Why a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum TimeoutReason {
    /// No request came for too long.
    Idle,
    /// The head of a request did not arrive in time.
    Head,
    /// The client does not read the response, or too slowly.
    Write,
}

impl ConnectionState {
    /// Creates the state of a new connection: the client must send the head of a request.
    pub(crate) fn new() -> Arc<Self> {
        let state = State {
            phase: Phase::Head { since: Instant::now(), silent: true },
            stalled: None,
            stalled_before: Duration::ZERO,
            written: 0,
            ended: false,
            unread: false,
            pending: Vec::new(),
            next: 0,
        };
        Arc::new(Self { state: Mutex::new(state), evict: Notify::new() })
    }

    /// Returns whether and since when the connection is idle or waits for what anyone can send, and
    /// which of them.
    pub(crate) fn idle_since(&self) -> Option<(IdlePhase, Instant)> {
        match self.lock().phase {
            Phase::Head { since, silent: true } => Some((IdlePhase::Silent, since)),
            Phase::Idle(since) => Some((IdlePhase::Idle, since)),
            Phase::Head { since, silent: false } => Some((IdlePhase::Head, since)),
            Phase::Body(since) => Some((IdlePhase::Body, since)),
            Phase::Busy => None,
        }
    }

    /// Closes the connection if it is idle, because a new one needs its place.
    pub(crate) fn evict(&self) {
        self.evict.notify_one();
    }

    /// Waits until the connection is to be closed for a new one.
    pub(crate) async fn evicted(&self) {
        self.evict.notified().await;
    }

    /// Records that the head of a request has arrived. Returns the number of the request.
    pub(crate) fn begin(&self) -> (u64, Delivery) {
        let delivery = Delivery::new();
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        state.phase = Phase::Busy;
        state.unread = false;
        state.pending.push(PendingResponse { number, delivery: delivery.clone(), complete: false });
        (number, delivery)
    }

    /// Records that the client of the current request, which may be anyone, has to send the rest of a body
    /// since this time.
    pub(crate) fn waits_for_body(&self, since: Instant) {
        self.lock().phase = Phase::Body(since);
    }

    /// Records that the body of the current request has arrived, or is not waited for any more.
    pub(crate) fn has_body(&self) {
        let mut state = self.lock();
        if let Phase::Body(_) = state.phase {
            state.phase = Phase::Busy;
        }
    }

    /// Records that the response is sent before the request was read completely.
    pub(crate) fn leave_unread(&self) {
        self.lock().unread = true;
    }

    /// Records that hyper gets the last part of a response.
    pub(crate) fn complete(&self, number: u64) {
        let mut state = self.lock();
        let mut pending = state.pending.iter_mut();
        if let Some(response) = pending.find(|response| response.number == number) {
            response.complete = true;
        }
    }

    /// Marks all pending responses as lost: the connection has ended.
    pub(crate) fn lost(&self) {
        let pending = std::mem::take(&mut self.lock().pending);
        for response in pending {
            response.delivery.lost();
        }
    }

    /// Returns whether the client may still be sending a request that is not read.
    pub(crate) fn is_unread(&self) -> bool {
        let state = self.lock();
        state.unread && !state.ended
    }

    /// Returns when this connection is to be closed if nothing happens, and why.
    pub(crate) fn deadline(&self, options: &Options) -> Option<(Instant, TimeoutReason)> {
        let state = self.lock();
        let phase = match state.phase {
            Phase::Idle(since) => Some((since + options.idle_timeout, TimeoutReason::Idle)),
            Phase::Head { since, .. } => Some((since + options.head_timeout, TimeoutReason::Head)),
            // The body has a time limit of its own, for which there is a response.
            Phase::Busy | Phase::Body(_) => None,
        };
        let write =
            state.stalled.map(|since| (state.must_read_by(since, options), TimeoutReason::Write));
        phase.into_iter().chain(write).min_by_key(|(at, _)| *at)
    }

    /// Returns whether a response holds memory: then its deadline can move nearer at any time,
    /// because another request waits for memory.
    pub(crate) fn holds_memory(&self) -> bool {
        self.lock().pending.iter().any(|response| response.delivery.holds_memory())
    }

    /// Returns whether all responses but that of the current request are written.
    pub(crate) fn is_quiet(&self) -> bool {
        let state = self.lock();
        // hyper flushes whenever it has something to write: otherwise the stream is stalled.
        state.pending.len() == 1 && state.stalled.is_none()
    }

    /// Records that the connection is being closed. If it is idle, closing may take as long as the
    /// head of a request.
    pub(crate) fn closing(&self) {
        let mut state = self.lock();
        if let Phase::Idle(_) = state.phase {
            state.phase = Phase::Head { since: Instant::now(), silent: false };
            // The connection became idle after its last response, so hyper has read the rest.
            state.unread = false;
        }
    }

    fn read(&self, bytes: usize) {
        let mut state = self.lock();
        match &mut state.phase {
            _ if bytes == 0 => state.ended = true,
            Phase::Idle(_) => state.phase = Phase::Head { since: Instant::now(), silent: false },
            Phase::Head { silent, .. } => *silent = false,
            Phase::Busy | Phase::Body(_) => {}
        }
    }

    /// Records that a TLS handshake begins: until it ends, the state does not see what arrives.
    pub(crate) fn handshake(&self) {
        self.read(1);
    }

    /// Records the result of a write or flush.
    fn wrote(&self, progress: Poll<usize>) {
        let mut state = self.lock();
        match progress {
            Poll::Ready(bytes) => {
                state.written += bytes as u64;
                if let Some(since) = state.stalled.take() {
                    state.stalled_before += since.elapsed();
                }
            }
            Poll::Pending => {
                if state.stalled.is_none() && state.stalled_before.is_zero() {
                    // What the buffers of the kernel took says nothing about the client.
                    state.written = 0;
                }
                state.stalled.get_or_insert_with(Instant::now);
            }
        }
    }

    fn flushed(&self) {
        // One after the other, because almost always there is one.
        while let Some(delivery) = self.next_delivered() {
            delivery.delivered();
        }
    }

    /// Removes a response that is written completely.
    fn next_delivered(&self) -> Option<Delivery> {
        let mut state = self.lock();
        let at = state.pending.iter().position(|response| response.complete)?;
        let response = state.pending.remove(at);
        if state.pending.is_empty() {
            state.phase = Phase::Idle(Instant::now());
            (state.stalled_before, state.written) = (Duration::ZERO, 0);
        }
        Some(response.delivery)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns when the connection is to be closed if the client, which has not read since `since`,
    /// does not read: too long without a byte, or too slow on average.
    ///
    /// Only the time in which the client does not read counts, so that a response that the server
    /// has nothing to send for, such as events, is never slow.
    fn must_read_by(&self, since: Instant, options: &Options) -> Instant {
        let contended = self.pending.iter().any(|response| response.delivery.is_contended());
        let (grace, rate) = match contended {
            true => (CONTENDED_GRACE, CONTENDED_RATE),
            false => (options.write_timeout, options.min_response_rate),
        };
        let allowed = grace + Duration::from_secs(self.written / rate.max(1));
        let at = since + allowed.saturating_sub(self.stalled_before);
        at.min(since + options.write_timeout)
    }
}

/// A stream that updates the [`ConnectionState`] as it reads and writes.
pub(crate) struct TrackedStream<S> {
    inner: S,
    state: Arc<ConnectionState>,
    /// Bytes that were read from `inner` and are to be read again.
    unread: Bytes,
}

impl<S> TrackedStream<S> {
    pub(crate) fn new(inner: S, state: Arc<ConnectionState>) -> Self {
        Self { inner, state, unread: Bytes::new() }
    }

    pub(crate) fn into_inner(self) -> S {
        self.inner
    }

    /// Puts back what was read after the current request. Copies it: its buffer may be large.
    pub(crate) fn unread(&mut self, bytes: &[u8]) {
        self.unread = Bytes::from([bytes, &self.unread].concat());
    }
}

/// How much of a next request is read while a request waits.
const WAITING_READ: usize = 64;

impl<S: AsyncRead + Unpin> TrackedStream<S> {
    /// Waits until the client disconnects; forever if it has sent more, as hyper does.
    pub(crate) fn poll_disconnect(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.unread.is_empty() {
            return Poll::Pending;
        }
        let mut bytes = [0; WAITING_READ];
        let mut buffer = ReadBuf::new(&mut bytes);
        match Pin::new(&mut *self).poll_read(cx, &mut buffer) {
            Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                self.unread(buffer.filled());
                Poll::Pending
            }
            Poll::Ready(_) => Poll::Ready(()),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TrackedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.unread.is_empty() {
            let next = self.unread.len().min(buffer.remaining());
            buffer.put_slice(&self.unread.split_to(next));
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.inner).poll_read(cx, buffer);
        if let Poll::Ready(Ok(())) = result {
            self.state.read(buffer.filled().len() - before);
        }
        result
    }
}

fn written<T>(result: &Poll<io::Result<T>>, bytes: impl FnOnce(&T) -> usize) -> Poll<usize> {
    match result {
        Poll::Ready(Ok(value)) => Poll::Ready(bytes(value)),
        Poll::Ready(Err(_)) => Poll::Ready(0),
        Poll::Pending => Poll::Pending,
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TrackedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.state.wrote(written(&result, |bytes| *bytes));
        result
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write_vectored(cx, slices);
        self.state.wrote(written(&result, |bytes| *bytes));
        result
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.inner).poll_flush(cx);
        self.state.wrote(written(&result, |_| 0));
        if let Poll::Ready(Ok(())) = result {
            self.state.flushed();
        }
        result
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.state.wrote(written(&result, |_| 0));
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::response_memory::ResponseMemory;

    /// Lets the client not read for `pause`, and then read this many bytes.
    async fn read_after(state: &ConnectionState, pause: Duration, bytes: usize) {
        state.wrote(Poll::Pending);
        tokio::time::advance(pause).await;
        state.wrote(Poll::Ready(bytes));
    }

    fn time_left(state: &ConnectionState) -> Option<Duration> {
        state.wrote(Poll::Pending);
        let (at, reason) = state.deadline(&Options::default())?;
        assert_eq!(reason, TimeoutReason::Write);
        Some(at - Instant::now())
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_times_out_without_a_byte_or_below_the_minimum_rate() {
        let (state, minute) = (ConnectionState::new(), Duration::from_secs(60));
        state.begin();
        assert_eq!(state.deadline(&Options::default()), None);
        assert_eq!(time_left(&state), Some(minute));
        // 16 KiB per second are enough.
        for _ in 0..10 {
            read_after(&state, minute, 60 * (16 << 10)).await;
        }
        assert_eq!(time_left(&state), Some(minute));
        // A byte now and then is not.
        let pause = Duration::from_secs(59);
        read_after(&state, pause, 1).await;
        assert_eq!(time_left(&state), Some(minute - pause));
        // While the server has nothing to send, nothing counts.
        state.wrote(Poll::Ready(0));
        tokio::time::advance(10 * minute).await;
        assert_eq!(time_left(&state), Some(minute - pause));
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_holds_memory_must_be_fast_while_others_wait_for_memory() {
        let (state, memory) = (ConnectionState::new(), ResponseMemory::new(0));
        let (_, delivery) = state.begin();
        delivery.hold(memory.reserve(usize::MAX).await.expect("all of it is free"));
        assert!(state.holds_memory());
        assert_eq!(time_left(&state), Some(Duration::from_secs(60)));
        let mut waiting = std::pin::pin!(memory.reserve(1));
        assert!(futures_util::poll!(waiting.as_mut()).is_pending());
        assert_eq!(time_left(&state), Some(CONTENDED_GRACE));
        // Nine seconds' worth of data at the rate, in ten seconds.
        read_after(&state, Duration::from_secs(10), 9 * CONTENDED_RATE as usize).await;
        assert_eq!(time_left(&state), Some(Duration::from_secs(1)));
        state.lost();
        waiting.await.expect("a lost response gives its memory back");
    }
}
