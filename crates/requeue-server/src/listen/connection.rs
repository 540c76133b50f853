//! Serving one connection.

use super::body_memory::BodyMemory;
use super::connection_state::{ConnectionState, IdlePhase, TimeoutReason, TrackedStream};
use super::later::{Slot, WaitingRequest};
use super::self_wake::SelfWaking;
use super::service::RequestService;
use super::{Options, Shutdown, Tls};
use crate::requests::Endpoint;
use axum::http::{HeaderValue, header};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

/// How much of a request is read ahead of the handler, in bytes, at least.
const READ_AHEAD: usize = 64 << 10;
/// How often the deadline of a response that holds memory is checked, because it moves nearer when
/// another request waits for memory.
const CONTENTION_CHECK: Duration = Duration::from_secs(1);

/// What all connections of a server share.
pub(super) struct ConnectionContext {
    pub(super) endpoint: Endpoint,
    pub(super) options: Arc<Options>,
    pub(super) body_memory: BodyMemory,
    pub(super) tls: Option<Tls>,
    pub(super) shutdown: Shutdown,
    /// Cancelled when the time for a graceful shutdown is over.
    pub(super) cut: CancellationToken,
}

impl ConnectionContext {
    /// Serves one connection until it is closed.
    pub(super) async fn serve(
        &self,
        tcp: TcpStream,
        peer: SocketAddr,
        state: Arc<ConnectionState>,
    ) {
        // Declared first, so that it is dropped last, after the handler.
        let state = LostOnDrop(state);
        // A response is written as a whole: Nagle's algorithm would only delay it.
        let _ = tcp.set_nodelay(true);
        match &self.tls {
            None => self.serve_http(tcp, peer, &state.0).await,
            // Boxed because the future is large: connections without TLS need not reserve its size.
            Some(tls) => Box::pin(self.serve_tls(tls, tcp, peer, &state.0)).await,
        }
    }

    async fn serve_tls(
        &self,
        tls: &Tls,
        tcp: TcpStream,
        peer: SocketAddr,
        state: &Arc<ConnectionState>,
    ) {
        state.handshake();
        let handshake = timeout(self.options.handshake_timeout, tls.acceptor().accept(tcp));
        let result = tokio::select! {
            // There is no request yet.
            () = self.shutdown.requested() => return,
            () = state.evicted() => return,
            result = handshake => result,
        };
        match result {
            Ok(Ok(stream)) => self.serve_http(stream, peer, state).await,
            Ok(Err(error)) => tracing::debug!(%peer, %error, "TLS handshake failed"),
            Err(_) => tracing::debug!(%peer, "TLS handshake took too long"),
        }
    }

    async fn serve_http<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
        peer: SocketAddr,
        state: &Arc<ConnectionState>,
    ) {
        let mut stream = TrackedStream::new(stream, state.clone());
        let resumed = Slot::new(None);
        loop {
            let service = RequestService {
                endpoint: self.endpoint.clone(),
                state: state.clone(),
                options: self.options.clone(),
                body_memory: self.body_memory.clone(),
                waiting: Slot::new(None),
                resumed: resumed.clone(),
            };
            // Boxed, so that a connection whose request waits does not hold its memory.
            let serving = Box::pin(self.serve_requests(stream, service, peer, state));
            let Some((rest, waiting)) = serving.await else { return };
            stream = rest;
            let Some(WaitingRequest { exchange, response, framing }) = waiting else { break };
            let Some(response) = self.wait(response, &mut stream).await else { break };
            let mut response = exchange.finish(response);
            if self.shutdown.is_requested() {
                let close = HeaderValue::from_static("close");
                response.headers_mut().insert(header::CONNECTION, close);
            }
            stream.unread(&framing.stand_in());
            resumed.put(response);
        }
        state.lost();
        if state.is_unread() {
            self.linger(stream.into_inner(), state).await;
        }
    }

    /// Serves the requests of a connection until it ends or until one waits. Returns the stream and
    /// the waiting request; `None` if the stream is to be closed immediately.
    async fn serve_requests<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: TrackedStream<S>,
        service: RequestService,
        peer: SocketAddr,
        state: &ConnectionState,
    ) -> Option<(TrackedStream<S>, Option<WaitingRequest>)> {
        let waiting = service.waiting.clone();
        let connection = http1::Builder::new()
            .half_close(false)
            .keep_alive(true)
            // hyper would start this timeout too late: `TimeoutTimer` replaces it.
            .header_read_timeout(None)
            .max_header_size(self.options.max_head)
            // What is read ahead of the handler does not count as its memory.
            .max_buf_size(READ_AHEAD.max(self.options.max_head))
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = SelfWaking::new(connection);
        let mut timeouts = TimeoutTimer::new(state, &self.options);
        // Child tokens, because polling a token takes its lock on every wake-up.
        let (shutdown, cut) = (self.shutdown.child(), self.cut.child_token());
        let mut stopping = false;
        let result = loop {
            tokio::select! {
                // The order matters: the connection makes progress before it is asked to end, so
                // that a request that has arrived is served and the deadline is current.
                biased;
                () = cut.cancelled() => {
                    tracing::debug!(%peer, "connection closed: the server stops");
                    return None;
                }
                result = &mut connection => break result,
                request = poll_fn(|_| taken(state, &waiting)) => {
                    let parts = connection.future.into_parts();
                    let mut stream = parts.io.into_inner();
                    stream.unread(&parts.read_buf);
                    return Some((stream, Some(request)));
                }
                () = shutdown.requested(), if !stopping => {
                    stopping = true;
                    state.closing();
                    Pin::new(&mut connection.future).graceful_shutdown();
                }
                () = state.evicted(), if !stopping => {
                    tracing::debug!(%peer, "connection closed: a new one needs its place");
                    if state.idle_since().is_some_and(|(phase, _)| phase != IdlePhase::Idle) {
                        return None;
                    }
                    stopping = true;
                    state.closing();
                    Pin::new(&mut connection.future).graceful_shutdown();
                }
                reason = timeouts.expired() => {
                    tracing::debug!(%peer, ?reason, "connection timed out");
                    if reason != TimeoutReason::Idle {
                        return None;
                    }
                    state.closing();
                    Pin::new(&mut connection.future).graceful_shutdown();
                }
            }
        };
        if let Err(error) = result {
            tracing::debug!(%peer, %error, "connection failed");
        }
        // This drops the handler, if it still runs.
        Some((connection.future.into_parts().io.into_inner(), None))
    }

    /// Waits for a response. Returns `None` if the client disconnects, or if the connection is cut.
    async fn wait<S: AsyncRead + AsyncWrite + Unpin, R>(
        &self,
        response: impl Future<Output = R>,
        stream: &mut TrackedStream<S>,
    ) -> Option<R> {
        tokio::select! {
            biased;
            () = self.cut.cancelled() => None,
            () = poll_fn(|cx| stream.poll_disconnect(cx)) => None,
            response = response => Some(response),
        }
    }

    /// Reads and discards the rest of the request for a while, so that the client gets the
    /// response.
    ///
    /// Closing a socket with unread data sends a reset. A client that gets it may lose a response
    /// that it has not read yet, for example that its request was too large.
    async fn linger(&self, mut stream: impl AsyncRead + Unpin, state: &ConnectionState) {
        let mut sink = vec![0; 16 * 1024];
        let drain = async { while let Ok(1..) = stream.read(&mut sink).await {} };
        tokio::select! {
            () = self.cut.cancelled() => {}
            () = state.evicted() => {}
            _ = timeout(self.options.linger, drain) => {}
        }
    }
}

/// Takes the waiting request of a connection, once all earlier responses are written.
fn taken(state: &ConnectionState, waiting: &Slot<WaitingRequest>) -> Poll<WaitingRequest> {
    let request = if waiting.is_full() && state.is_quiet() { waiting.take() } else { None };
    request.map_or(Poll::Pending, Poll::Ready)
}

/// Marks unfinished responses as lost when the connection ends for any reason, including a panic.
struct LostOnDrop(Arc<ConnectionState>);

impl Drop for LostOnDrop {
    fn drop(&mut self) {
        self.0.lost();
    }
}

/// Waits until a timeout of the connection expires.
///
/// The deadline moves with nearly every byte. The timer does not: it is only reset when the
/// deadline moves nearer. When it fires, it checks the current deadline.
struct TimeoutTimer<'a> {
    state: &'a ConnectionState,
    options: &'a Options,
    timer: Option<Pin<Box<Sleep>>>,
}

impl<'a> TimeoutTimer<'a> {
    fn new(state: &'a ConnectionState, options: &'a Options) -> Self {
        Self { state, options, timer: None }
    }

    async fn expired(&mut self) -> TimeoutReason {
        let mut expired = pin!(poll_fn(|cx| self.poll(cx)));
        expired.as_mut().await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<TimeoutReason> {
        loop {
            let Some((at, reason)) = self.state.deadline(self.options) else {
                return Poll::Pending;
            };
            let mut check_at = at;
            if self.state.holds_memory() {
                check_at = at.min(Instant::now() + CONTENTION_CHECK);
            }
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(check_at)));
            if check_at < timer.deadline() {
                timer.as_mut().reset(check_at);
            }
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            if at <= Instant::now() {
                return Poll::Ready(reason);
            }
            timer.as_mut().reset(check_at);
        }
    }
}
