//! The state of a connection, and a stream that updates it.
//!
//! ```text
//!          first byte            head complete
//!   idle -------------> head -------------------> busy
//!    ^                                              |
//!    +------ the response is written completely ----+
//! ```
//!
//! An idle connection, and one that takes long to send the head of a request, may be
//! [evicted](ConnectionState::evict) if a new connection needs its place.
//!
//! hyper flushes the stream only when its own buffer is empty, and it moves the last piece of a
//! body into that buffer in one step. So if a flush succeeds after a body has ended, the kernel has
//! the complete response (also with TLS: flushing a TLS stream writes its records). Then the
//! response counts as delivered: see [`Delivery`].

use super::Delivery;
use super::Options;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::Instant;

/// State shared by the stream, the service and the response bodies of one connection.
pub(crate) struct ConnectionState {
    state: Mutex<State>,
    /// How many bytes a client must read in a [`Options::write_timeout`].
    write_quota: u64,
    evict: Notify,
}

struct State {
    phase: Phase,
    /// Since when the client has not read enough of the data to be written.
    stalled: Option<Instant>,
    /// Bytes that were written since then.
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
    Head(Instant),
    Busy,
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
    /// The next request.
    Idle,
    /// The rest of the head of a request, or the first request.
    Head,
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
    pub(crate) fn new(options: &Options) -> Arc<Self> {
        let state = State {
            phase: Phase::Head(Instant::now()),
            stalled: None,
            written: 0,
            ended: false,
            unread: false,
            pending: Vec::new(),
            next: 0,
        };
        let write_quota = options.min_bytes(options.write_timeout);
        Arc::new(Self { state: Mutex::new(state), write_quota, evict: Notify::new() })
    }

    /// Returns whether and since when the connection is idle or waits for the head of a request, and
    /// which of them.
    pub(crate) fn idle_since(&self) -> Option<(IdlePhase, Instant)> {
        match self.lock().phase {
            Phase::Idle(since) => Some((IdlePhase::Idle, since)),
            Phase::Head(since) => Some((IdlePhase::Head, since)),
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
            Phase::Head(since) => Some((since + options.head_timeout, TimeoutReason::Head)),
            Phase::Busy => None,
        };
        let write =
            state.stalled.map(|since| (since + options.write_timeout, TimeoutReason::Write));
        phase.into_iter().chain(write).min_by_key(|(at, _)| *at)
    }

    /// Records that the connection is being closed. If it is idle, closing may take as long as the
    /// head of a request.
    pub(crate) fn closing(&self) {
        let mut state = self.lock();
        if let Phase::Idle(_) = state.phase {
            state.phase = Phase::Head(Instant::now());
            // The connection became idle after its last response, so hyper has read the rest.
            state.unread = false;
        }
    }

    fn read(&self, bytes: usize) {
        let mut state = self.lock();
        if bytes == 0 {
            state.ended = true;
        } else if let Phase::Idle(_) = state.phase {
            state.phase = Phase::Head(Instant::now());
        }
    }

    /// Records the result of a write.
    fn wrote(&self, progress: &Poll<io::Result<usize>>) {
        let mut state = self.lock();
        match progress {
            Poll::Ready(Ok(bytes)) if state.stalled.is_some() => {
                state.written += *bytes as u64;
                if state.written >= self.write_quota {
                    (state.stalled, state.written) = (None, 0);
                }
            }
            Poll::Ready(_) => {}
            Poll::Pending => {
                state.stalled.get_or_insert_with(Instant::now);
            }
        }
    }

    /// Records the result of a flush or shutdown.
    fn emptied(&self, progress: &Poll<io::Result<()>>) {
        let mut state = self.lock();
        match progress {
            Poll::Ready(_) => (state.stalled, state.written) = (None, 0),
            Poll::Pending => {
                state.stalled.get_or_insert_with(Instant::now);
            }
        }
    }

    fn flushed(&self) {
        let delivered: Vec<PendingResponse> = {
            let mut state = self.lock();
            if state.pending.is_empty() {
                return;
            }
            let delivered = state.pending.extract_if(.., |response| response.complete).collect();
            if state.pending.is_empty() {
                state.phase = Phase::Idle(Instant::now());
            }
            delivered
        };
        for response in delivered {
            response.delivery.delivered();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stream that updates the [`ConnectionState`] as it reads and writes.
pub(crate) struct TrackedStream<S> {
    inner: S,
    state: Arc<ConnectionState>,
}

impl<S> TrackedStream<S> {
    pub(crate) fn new(inner: S, state: Arc<ConnectionState>) -> Self {
        Self { inner, state }
    }

    pub(crate) fn into_inner(self) -> S {
        self.inner
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TrackedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.inner).poll_read(cx, buffer);
        if let Poll::Ready(Ok(())) = result {
            self.state.read(buffer.filled().len() - before);
        }
        result
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TrackedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.state.wrote(&result);
        result
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write_vectored(cx, slices);
        self.state.wrote(&result);
        result
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.inner).poll_flush(cx);
        self.state.emptied(&result);
        if let Poll::Ready(Ok(())) = result {
            self.state.flushed();
        }
        result
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.state.emptied(&result);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_reads_too_slowly_times_out() {
        let options = Options::default();
        let state = ConnectionState::new(&options);
        state.begin();
        let reason = || state.deadline(&options).map(|(_, reason)| reason);
        let wrote = |bytes| state.wrote(&Poll::Ready(Ok(bytes)));
        assert_eq!(reason(), None);
        state.wrote(&Poll::Pending);
        assert_eq!(reason(), Some(TimeoutReason::Write));
        // A byte now and then is not enough. The default is 1 KiB per second for a minute.
        wrote(1);
        state.wrote(&Poll::Pending);
        wrote((60 << 10) - 2);
        assert_eq!(reason(), Some(TimeoutReason::Write));
        wrote(1);
        assert_eq!(reason(), None);
        // The client has read everything that there was.
        state.wrote(&Poll::Pending);
        wrote(1);
        state.emptied(&Poll::Ready(Ok(())));
        assert_eq!(reason(), None);
    }
}
