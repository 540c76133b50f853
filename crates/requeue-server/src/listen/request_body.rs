//! Request bodies and their limits.
//!
//! What a handler reads of a body counts towards the size of this request and towards the
//! [memory](BodyMemory) for all requests that are being handled. If a body exceeds a limit, or
//! arrives too slowly, reading it fails; whatever error the handler returns then, the client gets
//! the response for the limit.

use super::Options;
use super::body_memory::{BodyMemory, CROWDED_QUOTA, HeldMemory, Share, WaitGuard, patience};
use super::connection_state::ConnectionState;
use crate::response::ProblemResponse;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use requeue_http::{Problem, ProblemType};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::PollSemaphore;

/// A handle on the body of one request, in the extensions of every request.
#[derive(Clone)]
pub(crate) struct BodyHandle(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    streamed: bool,
    /// The limit of this body, if it is lower than that of all bodies.
    limit: Option<u64>,
    from_anyone: bool,
    /// The body was read completely.
    read: bool,
    error: Option<BodyError>,
    /// Its part of the memory for all bodies, held until the handler is done or releases it.
    held: HeldMemory,
}

/// What is left of a body when the handler returns.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum BodyRest {
    Nothing,
    /// The handler did not read it. If the rest has arrived already, hyper discards it and keeps
    /// the connection.
    Unread,
    Failed,
}

/// Why a body could not be read completely.
///
/// The error of the body, or its source, as the handler sees it. The client gets the response for
/// this error instead of the error that the handler returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BodyError {
    /// 413.
    #[error("the request body is larger than {limit} bytes")]
    TooLarge {
        /// The allowed number of bytes.
        limit: u64,
        /// The content length, if the request has one.
        announced: Option<u64>,
    },
    /// 408.
    #[error("the request body arrived too slowly: fewer than {bytes} bytes in {after:?}")]
    Slow {
        /// How many bytes must arrive in that time.
        bytes: u64,
        /// How long the server waited for them.
        after: Duration,
    },
    /// 408.
    #[error("the request body did not arrive within {after:?}")]
    Late {
        /// How long the server waited for it.
        after: Duration,
    },
    /// 408.
    #[error(
        "the memory for request bodies is short, and this body arrived too slowly: fewer than \
         {bytes} bytes in {after:?}"
    )]
    CutOff {
        /// How many bytes must arrive in that time.
        bytes: u64,
        /// How long the server waited for them.
        after: Duration,
    },
    /// 503.
    #[error(
        "the request bodies in flight use all {limit} bytes of memory for them; try again later"
    )]
    Crowded {
        /// The memory for the bodies of all requests.
        limit: u64,
    },
    /// 400. Usually the client is gone, and nobody gets this response.
    #[error("the request body is incomplete or malformed")]
    Broken,
}

impl BodyHandle {
    pub(crate) fn new() -> Self {
        Self(Arc::default())
    }

    /// Declares that the handler streams the body and keeps little of it: the body may have any
    /// size and does not count towards the memory for all bodies. Call it before reading.
    pub(crate) fn streamed(&self) {
        self.lock().streamed = true;
    }

    /// Limits this body to this many bytes. Call it before reading.
    pub(crate) fn limit_to(&self, bytes: u64) {
        self.lock().limit = Some(bytes);
    }

    /// Declares that anyone can send this body, as before a login: it must arrive as fast as the head of a
    /// request, and while it is waited for, the connection may be closed for a new one. Call it before
    /// reading.
    pub(crate) fn is_from_anyone(&self) {
        self.lock().from_anyone = true;
    }

    /// Declares that the request takes no more than this many bytes of memory from now on: call it
    /// when the body was parsed, and with 0 before waiting for anything but the store.
    pub(crate) fn shrink_to(&self, bytes: u64) {
        self.lock().held.shrink_to(bytes);
    }

    pub(crate) fn error(&self) -> Option<BodyError> {
        self.lock().error
    }

    pub(crate) fn rest(&self) -> BodyRest {
        let state = self.lock();
        match (state.read, state.error) {
            (true, _) => BodyRest::Nothing,
            (false, None) => BodyRest::Unread,
            (false, Some(_)) => BodyRest::Failed,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for BodyHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BodyHandle")
            .field("streamed", &self.lock().streamed)
            .finish_non_exhaustive()
    }
}

impl BodyError {
    pub(crate) fn response(self) -> Response {
        let (sort, limit, value) = match self {
            Self::TooLarge { limit, announced } => (ProblemType::TooLarge, Some(limit), announced),
            Self::Slow { .. } | Self::Late { .. } | Self::CutOff { .. } => {
                (ProblemType::TooSlow, None, None)
            }
            Self::Crowded { limit } => (ProblemType::Busy, Some(limit), None),
            Self::Broken => (ProblemType::Malformed, None, None),
        };
        let (limit, value) = (limit.map(Into::into), value.map(Into::into));
        let problem = Problem { limit, value, ..Problem::new(sort, self.to_string()) };
        ProblemResponse(problem).into_response()
    }
}

/// How often a slow body that holds memory checks whether others need it, at most.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// The body of a request, as the handler reads it.
pub(crate) struct LimitedBody {
    inner: Incoming,
    body_handle: BodyHandle,
    options: Arc<Options>,
    body_memory: BodyMemory,
    connection: Arc<ConnectionState>,
    /// When a body of anyone was waited for first.
    since: Option<Instant>,
    /// Bytes received so far, without those in `rest`.
    received: u64,
    /// A piece that waits for memory.
    waiting: Option<WaitingPiece>,
    /// What follows the waiting piece, and belongs to another share of the memory.
    rest: Option<Bytes>,
    pace: Pace,
    /// The pace that counts while others need the memory that it holds.
    crowded_pace: Pace,
    /// Timer of a wait for the client or for memory. Created when a wait begins.
    timer: Option<Pin<Box<Sleep>>>,
    over: bool,
}

struct WaitingPiece {
    piece: Bytes,
    share: Share,
    queue: PollSemaphore,
    /// When the wait began, if it has.
    since: Option<(Instant, WaitGuard)>,
}

type PolledFrame = Poll<Option<Result<Frame<Bytes>, BodyError>>>;

impl LimitedBody {
    pub(crate) fn new(
        inner: Incoming,
        body_handle: BodyHandle,
        options: Arc<Options>,
        body_memory: BodyMemory,
        connection: Arc<ConnectionState>,
    ) -> Self {
        if inner.is_end_stream() {
            body_handle.lock().read = true;
        }
        Self {
            inner,
            body_handle,
            options,
            body_memory,
            connection,
            since: None,
            received: 0,
            waiting: None,
            rest: None,
            pace: Pace::default(),
            crowded_pace: Pace::default(),
            timer: None,
            over: false,
        }
    }

    fn fail(&mut self, error: BodyError) -> PolledFrame {
        self.over = true;
        self.connection.has_body();
        (self.waiting, self.rest) = (None, None);
        let mut state = self.body_handle.lock();
        state.error = Some(error);
        // The body is not used, and other requests wait for the memory.
        state.held = HeldMemory::default();
        Poll::Ready(Some(Err(error)))
    }

    /// Returns whether it is `at` or later. Otherwise the task is woken then.
    fn is_over(&mut self, cx: &mut Context<'_>, at: Instant) -> bool {
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
        if timer.deadline() != at {
            timer.as_mut().reset(at);
        }
        timer.as_mut().poll(cx).is_ready()
    }

    /// Waits for the client.
    fn poll_client(&mut self, cx: &mut Context<'_>, streamed: bool) -> PolledFrame {
        let after = self.options.body_timeout;
        let (deadline, error) = if self.body_handle.lock().from_anyone {
            let (since, after) =
                (*self.since.get_or_insert_with(Instant::now), self.options.head_timeout);
            self.connection.waits_for_body(since);
            (since + after, BodyError::Late { after })
        } else {
            let bytes = self.options.min_bytes(after);
            (self.pace.wait(after), BodyError::Slow { bytes, after })
        };
        let now = Instant::now();
        if deadline <= now {
            return self.fail(error);
        }
        let mut check_at = deadline;
        if self.received > 0 && !streamed {
            let after = self.options.slow_after;
            let slow_at = self.crowded_pace.wait(after);
            if slow_at > now {
                check_at = check_at.min(slow_at);
            } else if self.body_memory.is_needed(&self.body_handle.lock().held) {
                return self.fail(BodyError::CutOff { bytes: CROWDED_QUOTA, after });
            } else {
                check_at = check_at.min(now + LOOK_AGAIN.max(after / 2));
            }
        }
        // If it is over already, the timer wakes the task.
        if self.is_over(cx, check_at) {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Takes the memory for a piece, and passes it on.
    fn pass(&mut self, mut piece: Bytes, cx: &mut Context<'_>) -> PolledFrame {
        let (share, most) = self.body_memory.share(self.received);
        if piece.len() as u64 > most {
            self.rest = Some(piece.split_off(most as usize));
        }
        self.received += piece.len() as u64;
        let queue = PollSemaphore::new(self.body_memory.semaphore(share));
        self.waiting = Some(WaitingPiece { piece, share, queue, since: None });
        self.poll_memory(cx)
    }

    /// Waits for the memory of the waiting piece.
    fn poll_memory(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        let waiting = self.waiting.as_mut().expect("only called while a piece waits");
        let (share, size) = (waiting.share, waiting.piece.len());
        let permits = u32::try_from(size).unwrap_or(u32::MAX);
        if let Poll::Ready(permit) = waiting.queue.poll_acquire_many(cx, permits) {
            let permit = permit.expect("this semaphore is never closed");
            let WaitingPiece { piece, .. } = self.waiting.take().expect("checked above");
            self.timer = None;
            self.body_handle.lock().held.add(share, permit);
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        let start = || (Instant::now(), self.body_memory.wait(share));
        let (since, _) = waiting.since.get_or_insert_with(start);
        let whole = self.received + self.inner.size_hint().lower();
        let until = *since
            + match self.body_handle.lock().held.bytes(share) {
                0 => self.options.room_timeout,
                _ => patience(whole, &self.options),
            };
        // Meanwhile its client is not slow.
        self.crowded_pace = Pace::default();
        if self.is_over(cx, until) {
            return self.fail(BodyError::Crowded { limit: self.body_memory.limit() });
        }
        Poll::Pending
    }
}

/// How fast a client sends.
#[derive(Default)]
struct Pace {
    /// Since when the client is waited for.
    since: Option<Instant>,
    /// For how long it was waited for since enough bytes arrived for the last time.
    waited: Duration,
    /// Bytes that arrived since then.
    bytes: u64,
}

impl Pace {
    /// Waits for the client. Returns when it is too slow, if nothing arrives.
    fn wait(&mut self, timeout: Duration) -> Instant {
        *self.since.get_or_insert_with(Instant::now) + timeout.saturating_sub(self.waited)
    }

    /// Records that bytes arrived, of which `enough` begin a new time.
    fn arrived(&mut self, bytes: u64, enough: u64) {
        self.bytes += bytes;
        self.waited += self.since.take().map_or(Duration::ZERO, |since| since.elapsed());
        if self.bytes >= enough {
            (self.bytes, self.waited) = (0, Duration::ZERO);
        }
    }
}

impl Body for LimitedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        if this.over {
            return Poll::Ready(None);
        }
        if this.waiting.is_some() {
            return this.poll_memory(cx);
        }
        if let Some(rest) = this.rest.take() {
            return this.pass(rest, cx);
        }
        let (streamed, limit) = {
            let state = this.body_handle.lock();
            let most = this.options.max_request;
            (state.streamed, state.limit.map_or(most, |limit| limit.min(most)))
        };
        // Before the first byte is read, so that a client that sent `Expect: 100-continue` does not
        // send the body.
        let announced = this.inner.size_hint().lower();
        if !streamed && this.received == 0 && announced > limit {
            return this.fail(BodyError::TooLarge { limit, announced: Some(announced) });
        }
        let frame = match Pin::new(&mut this.inner).poll_frame(cx) {
            Poll::Pending => return this.poll_client(cx, streamed),
            Poll::Ready(frame) => frame,
        };
        this.timer = None;
        if this.inner.is_end_stream() || frame.is_none() {
            this.body_handle.lock().read = true;
            this.connection.has_body();
        }
        let piece = match frame {
            None => {
                this.over = true;
                return Poll::Ready(None);
            }
            Some(Err(_)) => return this.fail(BodyError::Broken),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(piece) => piece,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            },
        };
        let arrived = piece.len() as u64;
        this.pace.arrived(arrived, this.options.min_bytes(this.options.body_timeout));
        this.crowded_pace.arrived(arrived, CROWDED_QUOTA);
        if streamed || piece.is_empty() {
            this.received += arrived;
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        if this.received + arrived > limit {
            return this.fail(BodyError::TooLarge { limit, announced: None });
        }
        this.pass(piece, cx)
    }

    fn is_end_stream(&self) -> bool {
        let nothing_waits = self.waiting.is_none() && self.rest.is_none();
        self.over || (nothing_waits && self.inner.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        // `inner` no longer counts the pieces that wait.
        if self.waiting.is_some() || self.rest.is_some() {
            return SizeHint::default();
        }
        self.inner.size_hint()
    }
}
