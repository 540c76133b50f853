//! A stream that knows how far its state is.
//!
//! ```text
//!          first byte            head complete
//!   idle -------------> head -------------------> busy
//!    ^                                              |
//!    +---- the answer is written, to its end -------+
//! ```
//!
//! hyper asks the stream to flush only when it holds no more bytes itself, and it takes the last piece
//! of a body and puts it into its buffer in one go. So a flush that succeeds after a body has ended
//! means that all of that answer is with the kernel (with TLS too: the flush of a TLS stream writes its
//! records out). This is what [`Delivery`] is told.

use super::Delivery;
use super::Options;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// What one connection's stream, service and bodies know together.
pub(crate) struct ConnectionState(Mutex<State>);

struct State {
    phase: Phase,
    /// Since when the client has taken nothing of what waits to be written.
    stalled: Option<Instant>,
    /// The client has ended its half.
    ended: bool,
    /// An answer went out before all of its request was read.
    unread: bool,
    /// Requests that were handed to the service and not settled, oldest first. More than one only
    /// where a client sends the next before it has the answer to the last.
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
    /// hyper has all of the answer.
    complete: bool,
}

/// Why a connection is to be closed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum TimeoutReason {
    /// It has been quiet between two requests.
    Idle,
    /// A request's head has not come.
    Head,
    /// The client does not read.
    Write,
}

impl ConnectionState {
    /// A new client is to send a head soon.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(State {
            phase: Phase::Head(Instant::now()),
            stalled: None,
            ended: false,
            unread: false,
            pending: Vec::new(),
            next: 0,
        })))
    }

    /// A request's head has come.
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

    /// A request is about to be answered of which not all was read.
    pub(crate) fn leave_unread(&self) {
        self.lock().unread = true;
    }

    /// The last of an answer is about to be handed to hyper.
    pub(crate) fn complete(&self, number: u64) {
        let mut state = self.lock();
        let mut pending = state.pending.iter_mut();
        if let Some(response) = pending.find(|response| response.number == number) {
            response.complete = true;
        }
    }

    /// The connection is no more.
    pub(crate) fn lost(&self) {
        let pending = std::mem::take(&mut self.lock().pending);
        for response in pending {
            response.delivery.lost();
        }
    }

    /// The client may still be sending what nobody is going to read.
    pub(crate) fn is_unread(&self) -> bool {
        let state = self.lock();
        state.unread && !state.ended
    }

    /// When this connection is to be closed if nothing happens, and why.
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

    /// It is about to be told to close. If it is idle, it gets as long for this as for a head.
    pub(crate) fn closing(&self) {
        let mut state = self.lock();
        if let Phase::Idle(_) = state.phase {
            state.phase = Phase::Head(Instant::now());
            // It has gone on after its last answer: hyper has read away what was left.
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

    /// The stream was asked to take something.
    fn wrote<T>(&self, progress: &Poll<io::Result<T>>) {
        let mut state = self.lock();
        match progress {
            Poll::Ready(_) => state.stalled = None,
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
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection's bytes, on their way past its [`ConnectionState`].
pub(crate) struct Stream<S> {
    inner: S,
    state: Arc<ConnectionState>,
}

impl<S> Stream<S> {
    pub(crate) fn new(inner: S, state: Arc<ConnectionState>) -> Self {
        Self { inner, state }
    }

    pub(crate) fn into_inner(self) -> S {
        self.inner
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Stream<S> {
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

impl<S: AsyncWrite + Unpin> AsyncWrite for Stream<S> {
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
        self.state.wrote(&result);
        if let Poll::Ready(Ok(())) = result {
            self.state.flushed();
        }
        result
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.state.wrote(&result);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_reads_slowly_is_not_taken_for_one_who_does_not_read() {
        let state = ConnectionState::new();
        state.begin();
        let overdue = || state.deadline(&Options::default()).map(|(_, why)| why);
        assert_eq!(overdue(), None);
        state.wrote::<()>(&Poll::Pending);
        assert_eq!(overdue(), Some(TimeoutReason::Write));
        state.wrote(&Poll::Ready(Ok(())));
        assert_eq!(overdue(), None);
    }
}
