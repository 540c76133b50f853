//! A connection, from its first byte to its last.

use super::connection_state::{ConnectionState, Stream, TimeoutReason};
use super::request_body::BodyMemory;
use super::service::RequestService;
use super::{Options, Shutdown, Tls};
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

/// What all connections of a server have in common.
pub(super) struct ConnectionContext {
    pub(super) router: Router,
    pub(super) options: Arc<Options>,
    pub(super) body_memory: BodyMemory,
    pub(super) tls: Option<Tls>,
    pub(super) shutdown: Shutdown,
    /// Time is up for what has not ended by itself.
    pub(super) cut: CancellationToken,
}

impl ConnectionContext {
    /// Serves one client until it is gone.
    pub(super) async fn serve(&self, tcp: TcpStream, peer: SocketAddr) {
        // An answer is written as a whole: there is nothing to collect.
        let _ = tcp.set_nodelay(true);
        match &self.tls {
            None => self.serve_http(tcp, peer).await,
            // Apart, because it is large, and a connection without TLS would carry it, too.
            Some(tls) => Box::pin(self.serve_tls(tls, tcp, peer)).await,
        }
    }

    async fn serve_tls(&self, tls: &Tls, tcp: TcpStream, peer: SocketAddr) {
        let handshake = timeout(self.options.handshake_timeout, tls.acceptor().accept(tcp));
        let result = tokio::select! {
            // Nobody has asked for anything yet.
            () = self.shutdown.requested() => return,
            result = handshake => result,
        };
        match result {
            Ok(Ok(stream)) => self.serve_http(stream, peer).await,
            Ok(Err(error)) => tracing::debug!(%peer, %error, "TLS handshake failed"),
            Err(_) => tracing::debug!(%peer, "TLS handshake took too long"),
        }
    }

    async fn serve_http<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S, peer: SocketAddr) {
        // Declared first, so that it is dropped last: by then the handler is gone.
        let state = LostOnDrop(ConnectionState::new());
        let pending = RequestService {
            router: self.router.clone(),
            state: state.0.clone(),
            options: self.options.clone(),
            body_memory: self.body_memory.clone(),
            peer,
        };
        let stream = Stream::new(stream, state.0.clone());
        let mut connection = http1::Builder::new()
            .half_close(false)
            .keep_alive(true)
            // It would start late after a request that was waited for: see `TimeoutTimer`.
            .header_read_timeout(None)
            .max_header_size(self.options.max_head)
            .serve_connection(TokioIo::new(stream), pending);
        let mut timeouts = TimeoutTimer::new(&state.0, &self.options);
        // Its own, as each look at one takes a lock, and there is one look for every wake-up.
        let (shutdown, cut) = (self.shutdown.child(), self.cut.child_token());
        let mut stopping = false;
        let result = loop {
            tokio::select! {
                // In this order: the connection does what it can before it is asked to end. A request
                // that has come is then served, and what is overdue is known.
                biased;
                () = cut.cancelled() => {
                    tracing::debug!(%peer, "connection cut: the server stops");
                    return;
                }
                result = &mut connection => break result,
                () = shutdown.requested(), if !stopping => {
                    stopping = true;
                    state.0.closing();
                    Pin::new(&mut connection).graceful_shutdown();
                }
                why = timeouts.ends() => {
                    tracing::debug!(%peer, ?why, "connection overdue");
                    if why != TimeoutReason::Idle {
                        return;
                    }
                    state.0.closing();
                    Pin::new(&mut connection).graceful_shutdown();
                }
            }
        };
        if let Err(error) = result {
            tracing::debug!(%peer, %error, "connection failed");
        }
        // Without the handler, if it still ran.
        let stream = connection.into_parts().io.into_inner().into_inner();
        state.0.lost();
        if state.0.is_unread() {
            self.linger(stream).await;
        }
    }

    /// Reads on for a while, so that the answer is not lost.
    ///
    /// A socket that is closed with something unread tells the client so by a reset, and with it the
    /// client may lose an answer that it has not read yet: why its request was too large, for one.
    async fn linger(&self, mut stream: impl AsyncRead + Unpin) {
        let mut sink = vec![0; 16 * 1024];
        let drain = async { while let Ok(1..) = stream.read(&mut sink).await {} };
        tokio::select! {
            () = self.cut.cancelled() => {}
            _ = timeout(self.options.linger, drain) => {}
        }
    }
}

/// Whatever ends a connection, a panic included, its answers are settled.
struct LostOnDrop(Arc<ConnectionState>);

impl Drop for LostOnDrop {
    fn drop(&mut self) {
        self.0.lost();
    }
}

/// Waits until a connection has been quiet for too long.
///
/// The deadline moves with nearly every byte. The timer does not: it is set when the deadline comes
/// nearer, and looks again when it has fired.
struct TimeoutTimer<'a> {
    state: &'a ConnectionState,
    options: &'a Options,
    timer: Option<Pin<Box<Sleep>>>,
}

impl<'a> TimeoutTimer<'a> {
    fn new(state: &'a ConnectionState, options: &'a Options) -> Self {
        Self { state, options, timer: None }
    }

    async fn ends(&mut self) -> TimeoutReason {
        let mut ends = pin!(poll_fn(|cx| self.poll(cx)));
        ends.as_mut().await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<TimeoutReason> {
        loop {
            let Some((at, why)) = self.state.deadline(self.options) else {
                return Poll::Pending;
            };
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
            if at < timer.deadline() {
                timer.as_mut().reset(at);
            }
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            if at <= Instant::now() {
                return Poll::Ready(why);
            }
            timer.as_mut().reset(at);
        }
    }
}
