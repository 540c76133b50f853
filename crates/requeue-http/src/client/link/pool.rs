//! Connections, and those that are kept for the next request.

use super::super::address::Address;
use super::super::body::Sent;
use super::{Trouble, told};
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

/// How long a connection is kept without a request: less than a server keeps it, so that none is
/// used just when it is being closed.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// Connections that are kept: as many as are used at once by most.
const MOST_KEPT: usize = 32;

/// How long a connection has to be ready again, once its answer is read. It is at once, unless the
/// server answered before it had read the request.
const READY_WITHIN: Duration = Duration::from_millis(50);

pub(super) type Connection = SendRequest<Sent>;

pub(super) struct Pool {
    pub(super) address: Address,
    tls: Option<TlsConnector>,
    connect_timeout: Duration,
    /// And since when; the latest is the last.
    kept: Mutex<Vec<(Connection, Instant)>>,
}

impl Pool {
    pub(super) fn new(
        address: Address,
        tls: Option<TlsConnector>,
        connect_timeout: Duration,
    ) -> Self {
        Pool { address, tls, connect_timeout, kept: Mutex::default() }
    }

    /// Sends a request, and waits for the head of the answer.
    pub(super) async fn begin(
        &self,
        mut request: Request<Sent>,
        limit: Option<Duration>,
    ) -> Result<(Response<Incoming>, Connection), Trouble> {
        loop {
            let (mut connection, was_kept) = match self.take() {
                Some(connection) => (connection, true),
                None => (self.connect().await?, false),
            };
            let answer = connection.try_send_request(request);
            let answer = match limit {
                None => answer.await,
                Some(limit) => timeout(limit, answer).await.map_err(|_| {
                    Trouble::Unknown(format!("{} did not answer in {limit:?}", self.address.url))
                })?,
            };
            let mut error = match answer {
                Ok(response) => return Ok((response, connection)),
                Err(error) => error,
            };
            let reason = format!("{}: {}", self.address.url, told(error.error()));
            // It is given back only if not one byte of it was written.
            request = match error.take_message() {
                None => return Err(Trouble::Unknown(reason)),
                Some(_) if !was_kept => return Err(Trouble::NotSent(reason)),
                // The connection was closed while it was kept: the next may be open.
                Some(request) => request,
            };
        }
    }

    /// Keeps a connection whose answer was read, if it can be used again.
    pub(super) async fn keep(&self, mut connection: Connection) {
        if let Ok(Ok(())) = timeout(READY_WITHIN, connection.ready()).await {
            let mut kept = self.kept();
            kept.retain(|(connection, _)| !connection.is_closed());
            if kept.len() < MOST_KEPT {
                kept.push((connection, Instant::now()));
            }
        }
    }

    fn take(&self) -> Option<Connection> {
        let mut kept = self.kept();
        while let Some((connection, since)) = kept.pop() {
            if since.elapsed() < KEPT_FOR && connection.is_ready() {
                return Some(connection);
            }
        }
        None
    }

    #[cfg(test)]
    pub(super) fn usable(&self) -> usize {
        self.kept().iter().filter(|(connection, _)| connection.is_ready()).count()
    }

    fn kept(&self) -> MutexGuard<'_, Vec<(Connection, Instant)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn connect(&self) -> Result<Connection, Trouble> {
        let connected = timeout(self.connect_timeout, self.try_connect()).await;
        let reason = match connected {
            Ok(Ok(connection)) => return Ok(connection),
            Ok(Err(error)) => told(&error),
            Err(_) => format!("there was no connection in {:?}", self.connect_timeout),
        };
        Err(Trouble::NotSent(format!("{}: {reason}", self.address.url)))
    }

    async fn try_connect(&self) -> io::Result<Connection> {
        let Address { host, port, .. } = &self.address;
        let stream = TcpStream::connect((&**host, *port)).await?;
        // A request is one write, and somebody waits for its answer.
        stream.set_nodelay(true)?;
        match &self.tls {
            None => begun(stream).await,
            Some(tls) => {
                let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
                begun(tls.connect(name, stream).await?).await
            }
        }
    }
}

async fn begun(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> io::Result<Connection> {
    let (connection, io) =
        http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    // What ends it, who sends over it is told.
    tokio::spawn(async move { drop(io.await) });
    Ok(connection)
}
