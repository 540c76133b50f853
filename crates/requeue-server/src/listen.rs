//! How the server listens: sockets, connections, limits, TLS, and the end of it all.
//!
//! It serves any [`Router`] and knows no route. HTTP/1.1 only, where one answer follows another, so
//! that it can be said of each whether it was written ([`Delivery`]).
//!
//! | | when it is too much |
//! |---|---|
//! | connections | the next ones wait in the kernel's queue |
//! | a TLS handshake, a request's head, a pause between requests, a client that does not read | the connection is closed |
//! | a request's head, too large or with too many fields | 431, by hyper, without a document |
//! | a request's body, too large | 413 |
//! | a request's body that does not come | 408 |
//! | bodies in memory, of all requests | the next ones wait, then 503 |
//! | open files of the process | accepting pauses, and goes on |
//!
//! A handler that panics is answered for with a 500, and its connection goes on.

mod connection;
mod connection_state;
mod delivery;
mod options;
mod request_body;
mod service;
mod shutdown;
mod tls;

pub(crate) use delivery::Delivery;
pub use options::Options;
pub(crate) use request_body::BodyHandle;
pub use shutdown::Shutdown;
pub use tls::{Tls, TlsError};

use crate::metrics::Metrics;
use axum::Router;
use connection::ConnectionContext;
use request_body::BodyMemory;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The first and the longest pause after an accept that failed.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// A socket that is ready to serve.
#[derive(Debug)]
pub struct Listener {
    tcp: TcpListener,
    options: Options,
    tls: Option<Tls>,
    metrics: Option<Arc<Metrics>>,
}

impl Listener {
    /// On a socket that is bound.
    pub fn new(tcp: TcpListener, options: Options) -> Self {
        Self { tcp, options, tls: None, metrics: None }
    }

    /// Speaks TLS, and nothing else, on it.
    pub fn with_tls(self, tls: Tls) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// Counts its connections.
    pub fn with_metrics(self, metrics: Arc<Metrics>) -> Self {
        Self { metrics: Some(metrics), ..self }
    }

    /// Serves until it is told to stop, and returns when every connection is gone.
    ///
    /// Told to stop, it accepts no more, and closes the connections that are idle. Requests under way
    /// are finished, with `connection: close`; handlers that wait for something are to end when
    /// `shutdown` is ordered. What is left after [`Options::drain`] is cut. By the time this returns,
    /// each answer was written, or what its handler gave to [`Delivery::or_else`] has run.
    ///
    /// Dropping the future cuts all connections, without waiting for them.
    pub(crate) async fn serve(self, router: Router, shutdown: Shutdown) {
        let cut = CancellationToken::new();
        let _cut_if_dropped = cut.clone().drop_guard();
        let drain = self.options.drain;
        let context = Arc::new(ConnectionContext {
            router,
            body_memory: BodyMemory::new(&self.options),
            options: Arc::new(self.options),
            tls: self.tls,
            shutdown: shutdown.clone(),
            cut: cut.clone(),
        });
        let connections = TaskTracker::new();
        tokio::select! {
            () = shutdown.requested() => {}
            never = accept(&self.tcp, &context, &connections, self.metrics.as_deref()) => match never {},
        }
        drop(self.tcp);
        connections.close();
        if timeout(drain, connections.wait()).await.is_err() {
            tracing::warn!(connections = connections.len(), ?drain, "cutting what has not ended");
            cut.cancel();
            connections.wait().await;
        }
    }
}

async fn accept(
    tcp: &TcpListener,
    context: &Arc<ConnectionContext>,
    connections: &TaskTracker,
    metrics: Option<&Metrics>,
) -> std::convert::Infallible {
    let mut slots = ConnectionSlots::new(context.options.max_connections);
    loop {
        let slot = slots.take().await;
        let (stream, peer) = connection(tcp).await;
        let (context, counted) = (context.clone(), metrics.map(Metrics::connection));
        connections.spawn(async move {
            context.serve(stream, peer).await;
            drop((slot, counted));
        });
    }
}

/// The next connection, however long it takes to get one.
async fn connection(tcp: &TcpListener) -> (TcpStream, SocketAddr) {
    let (mut pause, longest) = BACK_OFF;
    loop {
        match tcp.accept().await {
            Ok(accepted) => return accepted,
            // Gone before it was accepted: the next one may well be there.
            Err(error) if is_about_the_client(&error) => {}
            // Out of files or of memory, most likely. Trying at once would only burn time.
            Err(error) => {
                tracing::error!(%error, ?pause, "could not accept a connection");
                sleep(pause).await;
                pause = (pause * 2).min(longest);
            }
        }
    }
}

fn is_about_the_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// Room for so many connections.
struct ConnectionSlots {
    free: Arc<Semaphore>,
    all: usize,
    /// It was said that there is none, and not yet that there is some again.
    full: bool,
}

impl ConnectionSlots {
    fn new(all: usize) -> Self {
        let all = all.clamp(1, Semaphore::MAX_PERMITS);
        Self { free: Arc::new(Semaphore::new(all)), all, full: false }
    }

    async fn take(&mut self) -> OwnedSemaphorePermit {
        if self.free.available_permits() == 0 && !self.full {
            self.full = true;
            tracing::warn!(max = self.all, "no room for more connections: new ones wait");
        }
        let slot = self.free.clone().acquire_owned().await;
        // A tenth, lest it be said with every connection that comes and goes.
        if self.full && self.free.available_permits() >= self.all / 10 {
            self.full = self.free.available_permits() == 0;
            if !self.full {
                tracing::info!("room for connections again");
            }
        }
        slot.expect("this semaphore is never closed")
    }
}

#[cfg(test)]
mod tests;
