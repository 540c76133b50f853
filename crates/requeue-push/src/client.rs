//! [`PushClient`]: sends HTTP requests to addresses that were checked.
//!
//! - **A name is resolved once.** All its addresses are checked, and one of those is connected to: a name
//!   server cannot return another address in between (DNS rebinding).
//! - **A connection is reused** only as long as its address is in the latest answer, which is at most
//!   [`LOOKUP_LIFETIME`](lookup::LOOKUP_LIFETIME) old.
//! - **No redirect is followed,** and no proxy of the environment is used.

mod lookup;
mod pool;
mod tls;

use crate::addresses::{forbidden, literal};
use crate::allowed::AllowedTargets;
use crate::config::WebhookUrl;
use crate::resolve::{Resolve, SystemResolver};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use lookup::Lookups;
use pool::Pool;
use requeue::{Clock, Moment};
use requeue_jobs::WallClock;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

pub(crate) type Connection = SendRequest<Full<Bytes>>;

/// The longest head of a response, in bytes, and how much of a response is read ahead. Ten thousand
/// receivers that send endless headers take ten thousand times as much memory.
const MAX_HEAD_LEN: usize = 16 << 10;

/// How many bytes of responses are held while they are read, over all deliveries. If there is no room, the
/// rest of a response is not read.
const RESPONSE_ROOM: usize = 16 << 20;

/// How long to wait until a connection is ready again after its response was read. It is ready immediately,
/// unless the receiver responded before it had read the whole request.
const READY_TIMEOUT: Duration = Duration::from_millis(50);

/// What a [`PushClient`] is made with.
#[derive(Clone)]
#[non_exhaustive]
pub struct PushClientOptions {
    /// The internal targets that may be connected to (default: none).
    pub allowed: AllowedTargets,
    /// Certificates of authorities that are trusted in addition to those of the system, in PEM.
    pub ca_file: Option<PathBuf>,
    /// What looks up host names (default: the resolver of the operating system).
    pub resolver: Arc<dyn Resolve>,
    /// The clock for timeouts and signatures (default: the system's).
    pub clock: WallClock,
}

impl Default for PushClientOptions {
    fn default() -> Self {
        PushClientOptions {
            allowed: AllowedTargets::none(),
            ca_file: None,
            resolver: Arc::new(SystemResolver),
            clock: WallClock::system(),
        }
    }
}

impl fmt::Debug for PushClientOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PushClientOptions")
            .field("allowed", &self.allowed)
            .field("ca_file", &self.ca_file)
            .finish_non_exhaustive()
    }
}

/// A [`PushClient`] cannot be made: the file of certificates cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct PushClientError {
    reason: String,
}

/// Sends the requests of all [`Webhook`](crate::Webhook)s of a process, and keeps idle connections. Clones
/// share them.
#[derive(Clone)]
pub struct PushClient {
    shared: Arc<Shared>,
}

struct Shared {
    clock: WallClock,
    lookups: Lookups,
    tls: TlsConnector,
    pool: Pool,
    /// The room for responses that are being read, in bytes.
    responses: Semaphore,
}

/// What a request was doing, for the message of a timeout.
#[derive(Default)]
pub(crate) struct Progress(AtomicU8);

/// The steps of a request.
#[derive(Clone, Copy)]
pub(crate) enum Step {
    LookUp,
    Connect,
    Encrypt,
    Wait,
    Read,
}

impl Progress {
    pub(crate) fn begin(&self, step: Step) {
        self.0.store(step as u8, Ordering::Relaxed);
    }

    /// Returns what did not end in time.
    pub(crate) fn missing(&self) -> &'static str {
        const MISSING: [&str; 5] = [
            "the name lookup did not end",
            "no connection was made",
            "the TLS handshake did not end",
            "there was no response",
            "the response was not complete",
        ];
        MISSING[usize::from(self.0.load(Ordering::Relaxed)).min(MISSING.len() - 1)]
    }
}

impl PushClient {
    /// Returns a client without connections. Fails if the file of certificates cannot be read.
    pub fn new(options: PushClientOptions) -> Result<Self, PushClientError> {
        let PushClientOptions { allowed, ca_file, resolver, clock } = options;
        let tls = tls::connector(ca_file.as_deref())?;
        let shared = Shared {
            clock,
            lookups: Lookups::new(allowed, resolver),
            tls,
            pool: Pool::default(),
            responses: Semaphore::new(RESPONSE_ROOM),
        };
        Ok(PushClient { shared: Arc::new(shared) })
    }

    pub(crate) fn wall_clock(&self) -> &WallClock {
        &self.shared.clock
    }

    fn clock(&self) -> &Clock {
        self.shared.clock.clock()
    }

    /// Sends a request, and waits for the head of the response. Fails with a text for people.
    ///
    /// The caller bounds the time: `deadline` only divides what is left of it between several addresses.
    pub(crate) async fn send(
        &self,
        url: &WebhookUrl,
        mut request: Request<Full<Bytes>>,
        deadline: Moment,
        progress: &Progress,
    ) -> Result<(Response<Incoming>, OpenConnection), String> {
        let shared = &self.shared;
        let addresses = match literal(url.host()) {
            Some(address) => {
                shared.lookups.check(url, &[address])?;
                Arc::from([address])
            }
            None => {
                progress.begin(Step::LookUp);
                shared.lookups.addresses(self.clock(), url).await?
            }
        };
        let origin: Arc<str> = url.origin().into();
        loop {
            let idle = shared.pool.take(&origin, &addresses, self.clock().now());
            let (mut connection, address, was_idle) = match idle {
                Some((connection, address)) => (connection, address, true),
                None => {
                    let (connection, address) =
                        self.connect(url, &addresses, deadline, progress).await?;
                    (connection, address, false)
                }
            };
            progress.begin(Step::Wait);
            let mut error = match connection.try_send_request(request).await {
                Ok(response) => {
                    return Ok((response, OpenConnection { connection, origin, address }));
                }
                Err(error) => error,
            };
            // hyper returns the request only if it has written no byte of it.
            request = match error.take_message() {
                // The connection was closed while it was idle. Another one may be open.
                Some(request) if was_idle => request,
                _ => {
                    let host = shown(url, address);
                    return Err(format!(
                        "the connection to {host} failed: {}",
                        chain(error.error())
                    ));
                }
            };
        }
    }

    /// Returns room for so many bytes of a response, if there is some.
    pub(crate) fn response_room(&self, len: usize) -> Option<SemaphorePermit<'_>> {
        self.shared.responses.try_acquire_many(u32::try_from(len).ok()?).ok()
    }

    /// Keeps a connection whose response was read completely, if it can be reused.
    pub(crate) async fn keep(&self, open: OpenConnection) {
        let OpenConnection { mut connection, origin, address } = open;
        let end = self.clock().now().saturating_add(READY_TIMEOUT);
        if let Some(Ok(())) = self.clock().timeout_at(end, connection.ready()).await {
            self.shared.pool.keep(origin, connection, address, self.clock().now());
        }
    }

    /// Connects to the first of some checked addresses that accepts a connection.
    async fn connect(
        &self,
        url: &WebhookUrl,
        addresses: &[IpAddr],
        deadline: Moment,
        progress: &Progress,
    ) -> Result<(Connection, IpAddr), String> {
        progress.begin(Step::Connect);
        let mut failures = Vec::new();
        for (i, ip) in addresses.iter().enumerate() {
            let socket = SocketAddr::new(*ip, url.port());
            let target = match shown(url, *ip) {
                host if host == ip.to_string() => socket.to_string(),
                host => format!("{host}:{}", url.port()),
            };
            let now = self.clock().now();
            // The time that is left is shared by the addresses that are left.
            let share = deadline.saturating_since(now) / (addresses.len() - i).max(1) as u32;
            let connected = match i + 1 < addresses.len() {
                true => {
                    self.clock()
                        .timeout_at(now.saturating_add(share), TcpStream::connect(socket))
                        .await
                }
                false => Some(TcpStream::connect(socket).await),
            };
            match connected {
                None => failures.push(format!("{target} did not respond")),
                Some(Err(error)) => failures.push(format!("no connection to {target}: {error}")),
                Some(Ok(stream)) => return Ok((self.handshake(url, stream, progress).await?, *ip)),
            }
        }
        Err(failures.join("; "))
    }

    async fn handshake(
        &self,
        url: &WebhookUrl,
        stream: TcpStream,
        progress: &Progress,
    ) -> Result<Connection, String> {
        // A request is a single write, and the sender waits for its response.
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        if !url.is_https() {
            return start(stream).await.map_err(|error| chain(&error));
        }
        progress.begin(Step::Encrypt);
        let failed =
            |error: io::Error| format!("TLS with {} failed: {}", url.host(), chain(&error));
        let name = ServerName::try_from(url.host().to_owned());
        let name = name.map_err(|error| failed(io::Error::other(error)))?;
        let stream = self.shared.tls.connect(name, stream).await.map_err(failed)?;
        start(stream).await.map_err(|error| chain(&error))
    }
}

impl fmt::Debug for PushClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PushClient").finish_non_exhaustive()
    }
}

/// A connection whose response is being read. Dropping it closes the connection.
pub(crate) struct OpenConnection {
    connection: Connection,
    origin: Arc<str>,
    address: IpAddr,
}

async fn start(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> io::Result<Connection> {
    let mut builder = http1::Builder::new();
    builder.max_buf_size(MAX_HEAD_LEN);
    let handshake = builder.handshake(TokioIo::new(stream)).await;
    let (connection, io) = handshake.map_err(io::Error::other)?;
    // If the connection fails, the sender of the request gets the error.
    tokio::spawn(async move { drop(io.await) });
    Ok(connection)
}

/// Returns what an error calls an address: itself, or the name in the URL if the address is internal. Whoever may set
/// a URL and read its errors does not learn the addresses behind the names of an internal network.
fn shown(url: &WebhookUrl, address: IpAddr) -> String {
    if literal(url.host()).is_none() && forbidden(address).is_some() {
        url.host().to_owned()
    } else {
        address.to_string()
    }
}

/// Returns the text of an error and of its sources.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        // Some errors repeat their source.
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = error.source();
    }
    text
}
