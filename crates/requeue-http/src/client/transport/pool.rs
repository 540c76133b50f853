//! Opens connections, and keeps idle ones for the next request.

use super::super::address::ServerAddress;
use super::super::request_body::RequestBody;
use super::{TransportError, error_chain};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

/// How long an idle connection is kept. This is less than a server keeps it, so that no connection is
/// used at the moment when the server closes it.
const MAX_IDLE_TIME: Duration = Duration::from_secs(60);

/// Maximum number of idle connections. Most programs do not use more concurrently.
const MAX_IDLE: usize = 32;

/// How long to wait until a connection is ready again after its response was read. It is ready
/// immediately, unless the server responded before it had read the whole request.
const READY_TIMEOUT: Duration = Duration::from_millis(50);

pub(super) type Connection = SendRequest<RequestBody>;

pub(super) struct Pool {
    pub(super) address: ServerAddress,
    tls: Option<TlsConnector>,
    connect_timeout: Duration,
    /// Idle connections, and since when they are idle. The most recent is the last.
    idle: Mutex<Vec<(Connection, Instant)>>,
}

impl Pool {
    pub(super) fn new(
        address: ServerAddress,
        tls: Option<TlsConnector>,
        connect_timeout: Duration,
    ) -> Self {
        Pool { address, tls, connect_timeout, idle: Mutex::default() }
    }

    /// Sends a request, and waits for the head of the response.
    pub(super) async fn begin(
        &self,
        mut request: Request<RequestBody>,
        limit: Option<Duration>,
    ) -> Result<(Response<Incoming>, Connection), TransportError> {
        loop {
            let (mut connection, was_idle) = match self.take() {
                Some(connection) => (connection, true),
                None => (self.connect().await?, false),
            };
            let response = connection.try_send_request(request);
            let response = match limit {
                None => response.await,
                Some(limit) => timeout(limit, response).await.map_err(|_| {
                    TransportError::Unknown(format!(
                        "{} did not respond within {limit:?}",
                        self.address.url
                    ))
                })?,
            };
            let mut error = match response {
                Ok(response) => return Ok((response, connection)),
                Err(error) => error,
            };
            let reason = format!("{}: {}", self.address.url, error_chain(error.error()));
            // hyper returns the request only if it has written no byte of it.
            request = match error.take_message() {
                None => return Err(TransportError::Unknown(reason)),
                Some(_) if !was_idle => return Err(TransportError::NotSent(reason)),
                // The connection was closed while it was idle. Another one may be open.
                Some(request) => request,
            };
        }
    }

    /// Keeps a connection whose response was read, if it can be reused.
    pub(super) async fn keep(&self, mut connection: Connection) {
        if let Ok(Ok(())) = timeout(READY_TIMEOUT, connection.ready()).await {
            let mut idle = self.idle();
            idle.retain(|(connection, _)| !connection.is_closed());
            if idle.len() < MAX_IDLE {
                idle.push((connection, Instant::now()));
            }
        }
    }

    fn take(&self) -> Option<Connection> {
        let mut idle = self.idle();
        while let Some((connection, since)) = idle.pop() {
            if since.elapsed() < MAX_IDLE_TIME && connection.is_ready() {
                return Some(connection);
            }
        }
        None
    }

    #[cfg(test)]
    pub(super) fn usable(&self) -> usize {
        self.idle().iter().filter(|(connection, _)| connection.is_ready()).count()
    }

    fn idle(&self) -> MutexGuard<'_, Vec<(Connection, Instant)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn connect(&self) -> Result<Connection, TransportError> {
        let connected = timeout(self.connect_timeout, self.try_connect()).await;
        let reason = match connected {
            Ok(Ok(connection)) => return Ok(connection),
            Ok(Err(error)) => plain(&error_chain(&error)),
            Err(_) => format!("no connection within {:?}", self.connect_timeout),
        };
        Err(TransportError::NotSent(format!("{}: {reason}", self.address.url)))
    }

    async fn try_connect(&self) -> io::Result<Connection> {
        let ServerAddress { host, port, .. } = &self.address;
        let stream = TcpStream::connect((&**host, *port)).await?;
        // A request is a single write, and the caller waits for its response.
        stream.set_nodelay(true)?;
        match &self.tls {
            None => handshake(stream).await,
            Some(tls) => {
                let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
                handshake(tls.connect(name, stream).await?).await
            }
        }
    }
}

/// Replaces an error of webpki that rustls shows only as a value of its own.
fn plain(reason: &str) -> String {
    let known = "Other(OtherError(CaUsedAsEndEntity))";
    let hint = "it is the certificate of a CA: sign one for the server with it, or create it with \
                basicConstraints=CA:FALSE";
    reason.replace(known, hint)
}

async fn handshake(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> io::Result<Connection> {
    let (connection, io) =
        http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    // If the connection fails, the sender of the request gets the error.
    tokio::spawn(async move { drop(io.await) });
    Ok(connection)
}
