//! Sockets, connections, limits, TLS and shutdown.
//!
//! The listener speaks HTTP/1.1 only: there one response follows another, so that the server knows
//! of each response whether it was written completely. Jobs of a response that was not are
//! released.
//!
//! | limit | what happens beyond it |
//! |---|---|
//! | number of connections | idle connections are closed; if there are none, new ones wait in the kernel's queue |
//! | time for a TLS handshake, for the head of a request, between two requests; rate at which a client reads | the connection is closed |
//! | size of a request's head, number of its header fields | 431, sent by hyper without a problem document |
//! | size of a request's body | 413 |
//! | rate at which a request's body arrives | 408 |
//! | memory for the bodies of all requests | slow ones get 408; requests wait, then 503, the largest first |
//! | open files of the process | accepting pauses and is retried |
//!
//! If a handler panics, the response is a 500, and the connection stays open.

mod body_memory;
mod connection;
mod connection_state;
mod delivery;
mod host;
mod later;
mod options;
mod request_body;
mod self_wake;
mod service;
mod shutdown;
mod tls;

pub(crate) use delivery::Delivery;
pub(crate) use later::LaterResponse;
pub use options::Options;
pub(crate) use request_body::BodyHandle;
pub use shutdown::Shutdown;
pub use tls::{Tls, TlsError};

use crate::metrics::ServerMetrics;
use crate::requests::Endpoint;
use body_memory::BodyMemory;
use connection::ConnectionContext;
use connection_state::{ConnectionState, IdlePhase};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// First and longest pause after a failed accept.
const ACCEPT_BACKOFF: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// A bound socket with its limits, ready for [`App::serve`](crate::App::serve).
#[derive(Debug)]
pub struct Listener {
    tcp: TcpListener,
    options: Options,
    tls: Option<Tls>,
    metrics: Option<Arc<ServerMetrics>>,
}

impl Listener {
    /// Creates a listener on a bound socket.
    pub fn new(tcp: TcpListener, options: Options) -> Self {
        Self { tcp, options, tls: None, metrics: None }
    }

    /// Accepts only TLS connections.
    pub fn with_tls(self, tls: Tls) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// Counts open connections in these metrics. [`App::serve`](crate::App::serve) sets its own.
    pub fn with_metrics(self, metrics: Arc<ServerMetrics>) -> Self {
        Self { metrics: Some(metrics), ..self }
    }

    /// Serves until the shutdown is requested, and returns when all connections are closed.
    ///
    /// On shutdown it accepts no more connections and closes idle ones. Requests in flight finish,
    /// with `connection: close`; handlers that wait for something must end when `shutdown` is
    /// requested. Connections that are still open after [`Options::drain`] are cut. When this
    /// returns, each response was written, or the callback passed to [`Delivery::on_lost`] has run.
    ///
    /// Dropping the future cuts all connections without waiting for them.
    pub(crate) async fn serve(self, endpoint: Endpoint, shutdown: Shutdown) {
        let cut = CancellationToken::new();
        let _cut_if_dropped = cut.clone().drop_guard();
        let drain = self.options.drain;
        let context = Arc::new(ConnectionContext {
            endpoint,
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
            tracing::warn!(
                connections = connections.len(),
                ?drain,
                "shutdown time limit reached: closing connections with requests in flight"
            );
            cut.cancel();
            connections.wait().await;
        }
    }
}

async fn accept(
    tcp: &TcpListener,
    context: &Arc<ConnectionContext>,
    connections: &TaskTracker,
    metrics: Option<&ServerMetrics>,
) -> std::convert::Infallible {
    let mut slots = ConnectionSlots::new(&context.options);
    loop {
        // First the connection, then its place: idle connections are only closed for a client that
        // is there. One connection more than the limit may therefore be open, without being served.
        let (stream, peer) = next_connection(tcp).await;
        let slot = slots.take().await;
        let (context, counted) = (context.clone(), metrics.map(ServerMetrics::connection));
        let state = ConnectionState::new();
        slots.opened(&state);
        connections.spawn(async move {
            context.serve(stream, peer, state).await;
            drop((slot, counted));
        });
    }
}

/// Accepts the next connection, and retries after errors.
async fn next_connection(tcp: &TcpListener) -> (TcpStream, SocketAddr) {
    let (mut pause, longest) = ACCEPT_BACKOFF;
    loop {
        match tcp.accept().await {
            Ok(accepted) => return accepted,
            // The client closed the connection before it was accepted.
            Err(error) if is_client_error(&error) => {}
            // Most likely the process is out of files or memory: an immediate retry would fail.
            Err(error) => {
                tracing::error!(%error, ?pause, "could not accept a connection; retrying after a pause");
                sleep(pause).await;
                pause = (pause * 2).min(longest);
            }
        }
    }
}

fn is_client_error(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// Limits the number of connections. If all are in use, those that have been idle for the longest
/// time are closed.
struct ConnectionSlots {
    free: Arc<Semaphore>,
    all: usize,
    /// How long a connection must be idle before it is closed for a new one.
    idle: Duration,
    /// Open connections, and some that are closed.
    open: Vec<Weak<ConnectionState>>,
    /// The log says that the limit is reached, and not yet that there is room again.
    full: bool,
}

/// How often idle connections are looked for while a new connection waits.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

impl ConnectionSlots {
    fn new(options: &Options) -> Self {
        let all = options.max_connections.clamp(1, Semaphore::MAX_PERMITS);
        let free = Arc::new(Semaphore::new(all));
        Self { free, all, idle: options.slow_after, open: Vec::new(), full: false }
    }

    /// Waits for a place. Closes idle connections to get one.
    async fn take(&mut self) -> OwnedSemaphorePermit {
        if self.free.available_permits() == 0 && !self.full {
            self.full = true;
            tracing::warn!(
                max = self.all,
                "connection limit reached: idle connections are closed, new ones wait until others close"
            );
        }
        let slot = loop {
            if self.free.available_permits() == 0 {
                self.close_idle();
            }
            if let Ok(slot) = timeout(LOOK_AGAIN, self.free.clone().acquire_owned()).await {
                break slot;
            }
        };
        // Only when a tenth is free, to avoid a log line for every connection at the limit.
        if self.full && self.free.available_permits() >= self.all / 10 {
            self.full = self.free.available_permits() == 0;
            if !self.full {
                tracing::info!("below the connection limit again");
            }
        }
        slot.expect("this semaphore is never closed")
    }

    /// Registers a connection that has taken a place.
    fn opened(&mut self, state: &Arc<ConnectionState>) {
        if self.open.len() >= 2 * self.all {
            self.open.retain(|state| state.strong_count() > 0);
        }
        self.open.push(Arc::downgrade(state));
    }

    /// Closes one in a hundred connections, if so many are idle: looking at all of them takes time.
    fn close_idle(&mut self) {
        self.open.retain(|state| state.strong_count() > 0);
        let now = Instant::now();
        let idle = self.open.iter().filter_map(|state| {
            let state = state.upgrade()?;
            let (phase, since) = state.idle_since()?;
            // Clients send their first request as soon as they are connected.
            let idle = if phase == IdlePhase::Silent { self.idle / 10 } else { self.idle };
            (since + idle <= now).then_some(((phase, since), state))
        });
        let mut idle: Vec<_> = idle.collect();
        idle.sort_by_key(|(key, _)| *key);
        for (_, state) in idle.into_iter().take(self.all.div_ceil(100)) {
            state.evict();
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
