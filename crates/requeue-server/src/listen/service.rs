//! Handling one request of a connection.

use super::body_memory::BodyMemory;
use super::connection_state::ConnectionState;
use super::later::{Framing, LaterResponse, Slot, WaitingRequest};
use super::request_body::{BodyHandle, BodyRest, LimitedBody};
use super::{Delivery, Options, host};
use crate::requests::{Endpoint, RequestRecord};
use crate::response::ProblemResponse;
use axum::body::Body;
use axum::http::{HeaderValue, Request, Response, StatusCode, header};
use axum::response::IntoResponse;
use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use requeue_http::{Problem, ProblemType};
use std::convert::Infallible;
use std::future::{Future, pending, poll_fn, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

/// The hyper service of one connection: passes its requests to the router.
pub(crate) struct RequestService {
    pub(crate) endpoint: Endpoint,
    pub(crate) state: Arc<ConnectionState>,
    pub(crate) options: Arc<Options>,
    pub(crate) body_memory: BodyMemory,
    /// Where a request is put whose response is made later.
    pub(crate) waiting: Slot<WaitingRequest>,
    /// The response to a request that has waited. The next request stands in for that one.
    pub(crate) resumed: Slot<Response<ResponseBody>>,
}

impl hyper::service::Service<Request<Incoming>> for RequestService {
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        if let Some(response) = self.resumed.take() {
            return Box::pin(ready(Ok(response)));
        }
        let state = self.state.clone();
        let (number, delivery) = state.begin();
        let body_handle = BodyHandle::new();
        let (mut parts, body) = request.into_parts();
        let (invalid_host, framing) = (host::problem(&parts), Framing::of(&parts));
        let body = LimitedBody::new(
            body,
            body_handle.clone(),
            self.options.clone(),
            self.body_memory.clone(),
            self.state.clone(),
        );
        parts.extensions.insert(delivery.clone());
        parts.extensions.insert(body_handle.clone());
        let request = Request::from_parts(parts, Body::new(body));
        let (endpoint, waiting) = (self.endpoint.clone(), self.waiting.clone());
        let record = endpoint.begin(&request);
        let exchange = Exchange { state, number, delivery, record };
        Box::pin(async move {
            let mut response = match invalid_host {
                Some(problem) => {
                    drop(request);
                    ProblemResponse(problem).into_response()
                }
                None => exchange.handle(endpoint.call(request)).await,
            };
            if let Some(later) = LaterResponse::of(&mut response) {
                let response = Box::pin(exchange.handle(later));
                waiting.put(WaitingRequest { exchange, response, framing });
                // The listener drops this.
                return pending().await;
            }
            let rest = body_handle.rest();
            if is_error(&response)
                && let Some(error) = body_handle.error()
            {
                response = error.response();
            }
            if rest == BodyRest::Failed {
                // hyper closes the connection, but decides so after it has written the head.
                let close = HeaderValue::from_static("close");
                response.headers_mut().insert(header::CONNECTION, close);
            }
            if rest != BodyRest::Nothing {
                exchange.state.leave_unread();
            }
            Ok(exchange.finish(response))
        })
    }
}

fn is_error(response: &Response<Body>) -> bool {
    response.status().is_client_error() || response.status().is_server_error()
}

/// A request whose response is not made yet.
pub(super) struct Exchange {
    state: Arc<ConnectionState>,
    number: u64,
    delivery: Delivery,
    record: RequestRecord,
}

impl Exchange {
    /// Returns the response of the handler, or a 500 if it panics.
    fn handle<F: Future<Output = Response<Body>>>(
        &self,
        handler: F,
    ) -> impl Future<Output = Response<Body>> + use<F> {
        handle(self.record.instrument(handler), self.delivery.clone())
    }

    /// Records the response, and returns it with a body that records when it is complete.
    pub(super) fn finish(self, response: Response<Body>) -> Response<ResponseBody> {
        let Exchange { state, number, delivery, record } = self;
        record.finish(&response);
        if is_error(&response) {
            // An error response carries no jobs to the client.
            delivery.lost();
        }
        // hyper does not poll the body if it is empty or not allowed. (For HEAD, axum removes the
        // body.)
        let bodiless = [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED];
        if response.body().is_end_stream() || bodiless.contains(&response.status()) {
            state.complete(number);
        }
        response.map(|inner| ResponseBody { inner, state, number })
    }
}

/// Returns the response of the handler, or a 500 if it panics.
async fn handle(
    handler: impl Future<Output = Response<Body>>,
    delivery: Delivery,
) -> Response<Body> {
    let mut handler = pin!(handler);
    // The handler is not polled again after a panic, so its broken state is not observed.
    let polled = poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| handler.as_mut().poll(cx))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(response)) => Poll::Ready(Some(response)),
        Err(_) => Poll::Ready(None),
    });
    match polled.await {
        Some(response) => response,
        None => {
            tracing::error!("a request handler panicked");
            delivery.lost();
            let detail = "the request handler panicked; see the log of the server";
            ProblemResponse(Problem::new(ProblemType::Bug, detail)).into_response()
        }
    }
}

/// The body of a response. It records when its last part is taken.
pub(crate) struct ResponseBody {
    inner: Body,
    state: Arc<ConnectionState>,
    number: u64,
}

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.inner).poll_frame(cx);
        let last = match &frame {
            Poll::Pending | Poll::Ready(Some(Err(_))) => false,
            Poll::Ready(None) => true,
            // hyper does not poll again if the content length is reached.
            Poll::Ready(Some(Ok(frame))) => {
                frame.is_trailers()
                    || self.inner.is_end_stream()
                    || self.inner.size_hint().exact() == Some(0)
            }
        };
        if last {
            self.state.complete(self.number);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
