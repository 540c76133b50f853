//! A connection, from its first byte to its last.

use super::exchange::Exchanges;
use super::intake::Budget;
use super::stream::{Conversation, Overdue, Stream};
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
pub(super) struct House {
    pub(super) router: Router,
    pub(super) options: Arc<Options>,
    pub(super) budget: Budget,
    pub(super) tls: Option<Tls>,
    pub(super) shutdown: Shutdown,
    /// Time is up for what has not ended by itself.
    pub(super) cut: CancellationToken,
}

impl House {
    /// Serves one client until it is gone.
    pub(super) async fn serve(&self, tcp: TcpStream, peer: SocketAddr) {
        // An answer is written as a whole: there is nothing to collect.
        let _ = tcp.set_nodelay(true);
        match &self.tls {
            None => self.converse(tcp, peer).await,
            // Apart, because it is large, and a connection without TLS would carry it, too.
            Some(tls) => Box::pin(self.secured(tls, tcp, peer)).await,
        }
    }

    async fn secured(&self, tls: &Tls, tcp: TcpStream, peer: SocketAddr) {
        let handshake = timeout(self.options.handshake_timeout, tls.acceptor().accept(tcp));
        let result = tokio::select! {
            // Nobody has asked for anything yet.
            () = self.shutdown.ordered() => return,
            result = handshake => result,
        };
        match result {
            Ok(Ok(stream)) => self.converse(stream, peer).await,
            Ok(Err(error)) => tracing::debug!(%peer, %error, "TLS handshake failed"),
            Err(_) => tracing::debug!(%peer, "TLS handshake took too long"),
        }
    }

    async fn converse<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S, peer: SocketAddr) {
        // Declared first, so that it is dropped last: by then the handler is gone.
        let conversation = Losing(Conversation::new());
        let exchanges = Exchanges {
            router: self.router.clone(),
            conversation: conversation.0.clone(),
            options: self.options.clone(),
            budget: self.budget.clone(),
            peer,
        };
        let stream = Stream::new(stream, conversation.0.clone());
        let mut connection = http1::Builder::new()
            .half_close(false)
            .keep_alive(true)
            // It would start late after a request that was waited for: see `Patience`.
            .header_read_timeout(None)
            .max_header_size(self.options.max_head)
            .serve_connection(TokioIo::new(stream), exchanges);
        let mut patience = Patience::new(&conversation.0, &self.options);
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
                () = shutdown.ordered(), if !stopping => {
                    stopping = true;
                    conversation.0.closing();
                    Pin::new(&mut connection).graceful_shutdown();
                }
                why = patience.ends() => {
                    tracing::debug!(%peer, ?why, "connection overdue");
                    if why != Overdue::Idle {
                        return;
                    }
                    conversation.0.closing();
                    Pin::new(&mut connection).graceful_shutdown();
                }
            }
        };
        if let Err(error) = result {
            tracing::debug!(%peer, %error, "connection failed");
        }
        // Without the handler, if it still ran.
        let stream = connection.into_parts().io.into_inner().into_inner();
        conversation.0.lost();
        if conversation.0.is_unread() {
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
struct Losing(Arc<Conversation>);

impl Drop for Losing {
    fn drop(&mut self) {
        self.0.lost();
    }
}

/// Waits until a connection has been quiet for too long.
///
/// The deadline moves with nearly every byte. The timer does not: it is set when the deadline comes
/// nearer, and looks again when it has fired.
struct Patience<'a> {
    conversation: &'a Conversation,
    options: &'a Options,
    timer: Option<Pin<Box<Sleep>>>,
}

impl<'a> Patience<'a> {
    fn new(conversation: &'a Conversation, options: &'a Options) -> Self {
        Self { conversation, options, timer: None }
    }

    async fn ends(&mut self) -> Overdue {
        let mut ends = pin!(poll_fn(|cx| self.poll(cx)));
        ends.as_mut().await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Overdue> {
        loop {
            let Some((at, why)) = self.conversation.deadline(self.options) else {
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
