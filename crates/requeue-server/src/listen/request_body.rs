//! Request bodies and their limits.
//!
//! What a handler reads of a body counts towards the size of this request and towards the memory
//! for all requests that are being handled. If a body exceeds a limit, reading it fails; whatever
//! error the handler returns then, the client gets the response for the limit.

use super::Options;
use crate::response::ProblemResponse;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use requeue_http::{Problem, ProblemType};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::PollSemaphore;

/// A handle on the body of one request, in the extensions of every request.
#[derive(Clone)]
pub(crate) struct BodyHandle(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    streamed: bool,
    /// The body was read completely.
    read: bool,
    error: Option<BodyError>,
    /// Its share of the memory for all bodies, held until the handler and the response are done.
    held: Option<OwnedSemaphorePermit>,
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
    #[error("no data of the request body arrived for {after:?}")]
    Stalled {
        /// How long the server waited.
        after: std::time::Duration,
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
            Self::Stalled { .. } => (ProblemType::TooSlow, None, None),
            Self::Crowded { limit } => (ProblemType::Busy, Some(limit), None),
            Self::Broken => (ProblemType::Malformed, None, None),
        };
        let (limit, value) = (limit.map(Into::into), value.map(Into::into));
        let problem = Problem { limit, value, ..Problem::new(sort, self.to_string()) };
        ProblemResponse(problem).into_response()
    }
}

/// The memory for the bodies of all requests.
#[derive(Clone)]
pub(crate) struct BodyMemory {
    free: Arc<Semaphore>,
    limit: u64,
}

impl BodyMemory {
    pub(crate) fn new(options: &Options) -> Self {
        // A request of the maximum size must fit.
        let limit = options.max_buffered.max(options.max_request);
        let permits = usize::try_from(limit).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        Self { free: Arc::new(Semaphore::new(permits)), limit }
    }
}

/// The body of a request, as the handler reads it.
pub(crate) struct LimitedBody {
    inner: Incoming,
    body_handle: BodyHandle,
    options: Arc<Options>,
    body_memory: BodyMemory,
    /// Bytes received so far.
    received: u64,
    /// A piece that waits for memory, and the queue that it waits in.
    waiting: Option<(Bytes, PollSemaphore)>,
    /// Timer of a wait for the client or for memory. Created when a wait begins.
    limit: Option<Pin<Box<Sleep>>>,
    over: bool,
}

impl LimitedBody {
    pub(crate) fn new(
        inner: Incoming,
        body_handle: BodyHandle,
        options: Arc<Options>,
        body_memory: BodyMemory,
    ) -> Self {
        if inner.is_end_stream() {
            body_handle.lock().read = true;
        }
        Self {
            inner,
            body_handle,
            options,
            body_memory,
            received: 0,
            waiting: None,
            limit: None,
            over: false,
        }
    }

    fn fail(&mut self, error: BodyError) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.over = true;
        self.waiting = None;
        let mut state = self.body_handle.lock();
        state.error = Some(error);
        // The body is not used, and other requests wait for the memory.
        state.held = None;
        Poll::Ready(Some(Err(error)))
    }

    /// Returns whether the current wait has taken `limit`. The first call starts the wait.
    fn is_over(&mut self, cx: &mut Context<'_>, limit: std::time::Duration) -> bool {
        let sleep = self.limit.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + limit)));
        sleep.as_mut().poll(cx).is_ready()
    }

    /// Acquires the memory for the waiting piece.
    fn poll_memory(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let (piece, queue) = self.waiting.as_mut().expect("only called while a piece waits");
        let size = u32::try_from(piece.len()).unwrap_or(u32::MAX);
        match queue.poll_acquire_many(cx, size) {
            Poll::Ready(permit) => {
                let permit = permit.expect("this semaphore is never closed");
                let (piece, _) = self.waiting.take().expect("checked above");
                self.limit = None;
                let mut state = self.body_handle.lock();
                match &mut state.held {
                    Some(held) => held.merge(permit),
                    none => *none = Some(permit),
                }
                drop(state);
                Poll::Ready(Some(Ok(Frame::data(piece))))
            }
            Poll::Pending if self.is_over(cx, self.options.room_timeout) => {
                self.fail(BodyError::Crowded { limit: self.body_memory.limit })
            }
            Poll::Pending => Poll::Pending,
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
        let streamed = this.body_handle.lock().streamed;
        let limit = this.options.max_request;
        // Before the first byte is read, so that a client that sent `Expect: 100-continue` does not
        // send the body.
        let announced = this.inner.size_hint().lower();
        if !streamed && this.received == 0 && announced > limit {
            return this.fail(BodyError::TooLarge { limit, announced: Some(announced) });
        }
        let frame = match Pin::new(&mut this.inner).poll_frame(cx) {
            Poll::Pending if this.is_over(cx, this.options.body_timeout) => {
                return this.fail(BodyError::Stalled { after: this.options.body_timeout });
            }
            Poll::Pending => return Poll::Pending,
            Poll::Ready(frame) => frame,
        };
        this.limit = None;
        if this.inner.is_end_stream() || frame.is_none() {
            this.body_handle.lock().read = true;
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
        this.received += piece.len() as u64;
        if streamed || piece.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        if this.received > limit {
            return this.fail(BodyError::TooLarge { limit, announced: None });
        }
        this.waiting = Some((piece, PollSemaphore::new(this.body_memory.free.clone())));
        let frame = ready!(this.poll_memory(cx));
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.over || (self.waiting.is_none() && self.inner.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.waiting {
            // `inner` no longer counts the waiting piece.
            Some(_) => SizeHint::default(),
            None => self.inner.size_hint(),
        }
    }
}
