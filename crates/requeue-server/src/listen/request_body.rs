//! Request bodies, within limits.
//!
//! A handler reads its body as it likes. What it reads has passed here, and counts: towards the size
//! of this request, and towards the memory of all requests that are being handled. A body that goes
//! past a limit ends in an error, and whatever error the handler makes of it, the client is answered
//! with the one that is true.

use super::Options;
use crate::response::ProblemResponse;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use requeue_http::{Problem, Sort};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::PollSemaphore;

/// A handle on the limits of one request's body, in the extensions of every request.
#[derive(Clone)]
pub(crate) struct BodyHandle(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    streamed: bool,
    /// All of the body was read.
    read: bool,
    refused: Option<BodyError>,
    /// Its share of the memory for all bodies, until the handler and what it answers are through.
    held: Option<OwnedSemaphorePermit>,
}

/// What a handler has left of its body.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum BodyRest {
    Nothing,
    /// It did not care. If the rest is here already, hyper reads it away and goes on.
    Unread,
    BodyError,
}

/// Why a body could not be read to its end.
///
/// It is what a handler finds as the (source of the) error of its body. The client gets an answer
/// that says so in place of whatever error the handler answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BodyError {
    /// 413.
    #[error("the request has more than {limit} bytes")]
    TooLarge {
        /// What is allowed.
        limit: u64,
        /// What it was going to be, where it said so.
        announced: Option<u64>,
    },
    /// 408.
    #[error("nothing came of the request's body for {after:?}")]
    Stalled {
        /// For how long.
        after: std::time::Duration,
    },
    /// 503.
    #[error("requests that are being read hold all of the {limit} bytes there are for them")]
    Crowded {
        /// What all of them may hold together.
        limit: u64,
    },
    /// 400. It would be for a client that is gone, if the client were not sending nonsense.
    #[error("the request's body is cut short, or is not framed as announced")]
    Broken,
}

impl BodyHandle {
    pub(crate) fn new() -> Self {
        Self(Arc::default())
    }

    /// This body is read piece by piece and nothing much of it is kept: it may be of any size, and does
    /// not count towards the memory of all. To be called before it is read.
    pub(crate) fn streamed(&self) {
        self.lock().streamed = true;
    }

    pub(crate) fn refused(&self) -> Option<BodyError> {
        self.lock().refused
    }

    pub(crate) fn left(&self) -> BodyRest {
        let state = self.lock();
        match (state.read, state.refused) {
            (true, _) => BodyRest::Nothing,
            (false, None) => BodyRest::Unread,
            (false, Some(_)) => BodyRest::BodyError,
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
    pub(crate) fn answer(self) -> Response {
        let (sort, limit, value) = match self {
            Self::TooLarge { limit, announced } => (Sort::TooLarge, Some(limit), announced),
            Self::Stalled { .. } => (Sort::TooSlow, None, None),
            Self::Crowded { limit } => (Sort::Busy, Some(limit), None),
            Self::Broken => (Sort::Malformed, None, None),
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
        // A request that may be read must fit.
        let limit = options.max_buffered.max(options.max_request);
        let permits = usize::try_from(limit).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        Self { free: Arc::new(Semaphore::new(permits)), limit }
    }
}

/// The body of a request, as its handler reads it.
pub(crate) struct RequestBody {
    inner: Incoming,
    body_handle: BodyHandle,
    options: Arc<Options>,
    body_memory: BodyMemory,
    /// Bytes that came.
    seen: u64,
    /// A piece that waits for room, and the queue it waits in.
    waiting: Option<(Bytes, PollSemaphore)>,
    /// When waiting, for the client or for room, is over. Made when there is a wait.
    limit: Option<Pin<Box<Sleep>>>,
    over: bool,
}

impl RequestBody {
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
            seen: 0,
            waiting: None,
            limit: None,
            over: false,
        }
    }

    fn refuse(&mut self, why: BodyError) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.over = true;
        self.waiting = None;
        let mut state = self.body_handle.lock();
        state.refused = Some(why);
        // It will not be used, and others wait for the room.
        state.held = None;
        Poll::Ready(Some(Err(why)))
    }

    /// Whether a wait that began at the first of these calls has taken `limit`.
    fn is_over(&mut self, cx: &mut Context<'_>, limit: std::time::Duration) -> bool {
        let sleep = self.limit.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + limit)));
        sleep.as_mut().poll(cx).is_ready()
    }

    /// Takes the memory for the piece that waits.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let (piece, queue) = self.waiting.as_mut().expect("called with a piece that waits");
        let size = u32::try_from(piece.len()).unwrap_or(u32::MAX);
        match queue.poll_acquire_many(cx, size) {
            Poll::Ready(permit) => {
                let permit = permit.expect("this semaphore is never closed");
                let (piece, _) = self.waiting.take().expect("seen above");
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
                self.refuse(BodyError::Crowded { limit: self.body_memory.limit })
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Body for RequestBody {
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
            return this.poll_room(cx);
        }
        let streamed = this.body_handle.lock().streamed;
        let limit = this.options.max_request;
        // Before the first byte is read: a client that asks whether to go on is told no.
        let announced = this.inner.size_hint().lower();
        if !streamed && this.seen == 0 && announced > limit {
            return this.refuse(BodyError::TooLarge { limit, announced: Some(announced) });
        }
        let frame = match Pin::new(&mut this.inner).poll_frame(cx) {
            Poll::Pending if this.is_over(cx, this.options.body_timeout) => {
                return this.refuse(BodyError::Stalled { after: this.options.body_timeout });
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
            Some(Err(_)) => return this.refuse(BodyError::Broken),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(piece) => piece,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            },
        };
        this.seen += piece.len() as u64;
        if streamed || piece.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        if this.seen > limit {
            return this.refuse(BodyError::TooLarge { limit, announced: None });
        }
        this.waiting = Some((piece, PollSemaphore::new(this.body_memory.free.clone())));
        let room = ready!(this.poll_room(cx));
        Poll::Ready(room)
    }

    fn is_end_stream(&self) -> bool {
        self.over || (self.waiting.is_none() && self.inner.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.waiting {
            // What waits is no longer counted by the other.
            Some(_) => SizeHint::default(),
            None => self.inner.size_hint(),
        }
    }
}
