//! Responses that are made later. While a request waits, its connection needs little memory.
//!
//! For each connection hyper holds two buffers of 8 KiB, which its options cannot make smaller. A
//! handler that waits for long therefore returns a [`LaterResponse`]: the future of its response.
//!
//! ```text
//!                    the connection is taken apart                        response
//!   request in hyper ----------------------------> polled without hyper ----------+
//!                                                                                 v
//!               a new connection of hyper reads a stand-in for the request and writes it
//! ```
//!
//! Everything else is as if hyper had waited: a disconnect drops the future, and so does the end of
//! a shutdown.

use super::service::Exchange;
use axum::body::Body;
use axum::http::{Response, Version, header, request};
use axum::response::IntoResponse;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type ResponseFuture = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

/// A response that is made by a future, which may wait for long. Only the listener awaits it: it
/// must be the whole response of a handler that has read its request.
pub(crate) struct LaterResponse(ResponseFuture);

/// A value that can be taken once, through any of its clones.
pub(super) struct Slot<T>(Arc<Mutex<Option<T>>>);

impl<T> Slot<T> {
    pub(super) fn new(value: Option<T>) -> Self {
        Slot(Arc::new(Mutex::new(value)))
    }

    pub(super) fn put(&self, value: T) {
        *self.lock() = Some(value);
    }

    pub(super) fn take(&self) -> Option<T> {
        self.lock().take()
    }

    pub(super) fn is_full(&self) -> bool {
        self.lock().is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Option<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Clone for Slot<T> {
    fn clone(&self) -> Self {
        Slot(Arc::clone(&self.0))
    }
}

impl LaterResponse {
    pub(crate) fn new<R: IntoResponse>(response: impl Future<Output = R> + Send + 'static) -> Self {
        LaterResponse(Box::pin(async { response.await.into_response() }))
    }

    /// Returns the future if the response is a placeholder for one.
    pub(super) fn of(response: &mut Response<Body>) -> Option<ResponseFuture> {
        response.extensions_mut().remove::<Slot<ResponseFuture>>()?.take()
    }
}

impl IntoResponse for LaterResponse {
    fn into_response(self) -> Response<Body> {
        let mut placeholder = Response::new(Body::empty());
        placeholder.extensions_mut().insert(Slot::new(Some(self.0)));
        placeholder
    }
}

/// A request whose response is made later.
pub(super) struct WaitingRequest {
    pub(super) exchange: Exchange,
    pub(super) response: ResponseFuture,
    pub(super) framing: Framing,
}

/// What the framing of a response depends on, besides the method: requests that wait have the same.
pub(super) struct Framing {
    version: Version,
    /// The values of the header `Connection`: copies, because a value shares the read buffer of hyper.
    connection: Vec<Box<[u8]>>,
}

impl Framing {
    pub(super) fn of(request: &request::Parts) -> Self {
        let connection = request.headers.get_all(header::CONNECTION).iter();
        let connection = connection.map(|value| value.as_bytes().into()).collect();
        Framing { version: request.version, connection }
    }

    /// Returns a request that a new connection of hyper reads before it writes the response.
    pub(super) fn stand_in(&self) -> Vec<u8> {
        let mut text = format!("POST / {:?}\r\n", self.version).into_bytes();
        for value in &self.connection {
            text.extend([b"connection: ", &**value, b"\r\n"].concat());
        }
        text.extend(b"\r\n");
        text
    }
}
