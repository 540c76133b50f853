//! Responses that are made later. While a request waits, its connection needs little memory.
//!
//! For each connection hyper holds two buffers of 8 KiB, and the futures of a request take some
//! more. A handler that waits for long therefore returns a [`LaterResponse`]: the future of its
//! response.
//!
//! ```text
//!                         park: all else is read and written
//!   polled in hyper ------------------------------------------> polled without hyper
//!         | response                                                | response
//!         v                                                         v
//!   written by hyper                      a new connection of hyper reads STAND_IN and writes it
//! ```
//!
//! Everything else is as if hyper had waited: a disconnect drops the future, and so does the end of
//! a shutdown.

use super::service::{Exchange, ResponseBody};
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method, Response, Version, header, request};
use axum::response::IntoResponse;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

/// The request that a new connection of hyper reads before it writes the response of a parked
/// request. Only requests whose responses do not depend on more than this are parked.
pub(super) const STAND_IN: &[u8] = b"POST / HTTP/1.1\r\n\r\n";

type ResponseFuture = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

/// A response that is made by a future, which may wait for long. Only the listener awaits it: it
/// must be the whole response of a handler.
pub(crate) struct LaterResponse(ResponseFuture);

/// An extension of the placeholder. Extensions must be `Clone`; it is taken once.
#[derive(Clone)]
struct Placeholder(Arc<Mutex<Option<ResponseFuture>>>);

impl LaterResponse {
    pub(crate) fn new<R: IntoResponse>(response: impl Future<Output = R> + Send + 'static) -> Self {
        LaterResponse(Box::pin(async { response.await.into_response() }))
    }

    /// Returns the future if the response is a placeholder for one.
    pub(super) fn of(response: &mut Response<Body>) -> Option<ResponseFuture> {
        let Placeholder(later) = response.extensions_mut().remove()?;
        lock(&later).take()
    }
}

impl IntoResponse for LaterResponse {
    fn into_response(self) -> Response<Body> {
        let mut placeholder = Response::new(Body::empty());
        let later = Arc::new(Mutex::new(Some(self.0)));
        placeholder.extensions_mut().insert(Placeholder(later));
        placeholder
    }
}

/// Returns whether the response to a request would be the same for [`STAND_IN`].
pub(super) fn can_park(request: &request::Parts) -> bool {
    let keeps_alive = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"keep-alive");
    let headers: &HeaderMap = &request.headers;
    request.method == Method::POST
        && request.version == Version::HTTP_11
        && headers.get_all(header::CONNECTION).iter().all(keeps_alive)
}

/// A request whose response is made later.
pub(super) struct WaitingRequest {
    pub(super) exchange: Exchange,
    pub(super) response: ResponseFuture,
}

impl Future for WaitingRequest {
    type Output = Response<Body>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response<Body>> {
        self.response.as_mut().poll(cx)
    }
}

/// Where the waiting request of a connection is kept, so that it can be taken away from hyper.
#[derive(Clone, Default)]
pub(super) struct ParkingSlot(Arc<Mutex<Option<WaitingRequest>>>);

impl ParkingSlot {
    /// Waits for the response, unless the request is taken away: then it waits forever.
    pub(super) async fn wait(&self, request: WaitingRequest) -> Response<ResponseBody> {
        *lock(&self.0) = Some(request);
        std::future::poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<Response<ResponseBody>> {
        let mut slot = lock(&self.0);
        let Some(waiting) = slot.as_mut() else { return Poll::Pending };
        let response = ready!(Pin::new(waiting).poll(cx));
        let waiting = slot.take();
        drop(slot);
        match waiting {
            Some(waiting) => Poll::Ready(waiting.exchange.finish(response)),
            None => Poll::Pending,
        }
    }

    pub(super) fn is_waiting(&self) -> bool {
        lock(&self.0).is_some()
    }

    /// Takes the waiting request, if there is one.
    pub(super) fn take(&self) -> Option<WaitingRequest> {
        lock(&self.0).take()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
