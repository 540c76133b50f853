//! Sends requests to a server.
//!
//! All connections run on one thread with a tokio runtime of its own, so that they can be used from any
//! executor and from plain threads. Each request has a connection for itself; idle connections are
//! reused. A request that the server may have received is never sent again.

mod bounds;
mod pool;

use super::address::ServerAddress;
use super::options::{HttpConnectError, Options};
use super::request_body::RequestBody;
use super::tls;
use bounds::{MAX_ERROR_LEN, Pace, max_response_len};
use http_body_util::BodyExt;
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use pool::Pool;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Handle};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Chunks of a response that are read before the caller takes them.
const AHEAD: usize = 4;

/// A request failed without a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TransportError {
    /// The request was not sent.
    NotSent(String),
    /// The request may have been executed.
    Unknown(String),
}

/// A request to send.
pub(super) struct HttpCall {
    pub(super) method: Method,
    /// The path with the query, without the prefix of the server's address.
    pub(super) path: String,
    pub(super) accept: &'static str,
    pub(super) content_type: &'static str,
    pub(super) body: RequestBody,
    /// How long the server may wait before it responds (long polling). `None` disables the timeouts for
    /// the response and its chunks.
    pub(super) wait: Option<Duration>,
}

/// A response that was read completely.
pub(super) struct HttpResponse {
    pub(super) status: StatusCode,
    pub(super) bytes: Vec<u8>,
}

/// A response that is read in chunks.
pub(super) struct Download {
    pub(super) status: StatusCode,
    pub(super) chunks: mpsc::Receiver<Result<Bytes, TransportError>>,
    _task: AbortOnDrop<()>,
}

/// The connections of a store. Clones share them, and the last clone closes them.
#[derive(Clone)]
pub(super) struct Transport {
    shared: Arc<Shared>,
}

/// Invariant: no task of the runtime holds this, or the thread would never end.
struct Shared {
    handle: Handle,
    sender: Arc<Sender>,
    /// Ends the thread when it is dropped.
    _end: oneshot::Sender<()>,
}

struct Sender {
    pool: Pool,
    token: Option<HeaderValue>,
    response_timeout: Duration,
}

impl Transport {
    pub(super) fn open(
        address: ServerAddress,
        options: &Options,
    ) -> Result<Transport, HttpConnectError> {
        let tls = address.tls.then(|| tls::connector(options)).transpose()?;
        let token = options.token.as_ref().map(|token| {
            let mut value =
                HeaderValue::from_str(&format!("Bearer {}", token.0)).map_err(|_| {
                    let reason = "the token contains characters that a header cannot".to_owned();
                    HttpConnectError::Options { reason }
                })?;
            value.set_sensitive(true);
            Ok(value)
        });
        let pool = Pool::new(address, tls, options.connect_timeout);
        let response_timeout = options.response_timeout;
        let sender = Arc::new(Sender { pool, token: token.transpose()?, response_timeout });
        let started = start();
        let (handle, end) =
            started.map_err(|error| HttpConnectError::Thread { reason: error.to_string() })?;
        Ok(Transport { shared: Arc::new(Shared { handle, sender, _end: end }) })
    }

    pub(super) fn url(&self) -> &str {
        &self.shared.sender.pool.address.url
    }

    /// Returns the number of idle connections that can be reused.
    #[cfg(test)]
    pub(super) fn idle(&self) -> usize {
        self.shared.sender.pool.usable()
    }

    /// Sends a request, and reads the whole response.
    pub(super) async fn send(&self, call: HttpCall) -> Result<HttpResponse, TransportError> {
        let sender = self.shared.sender.clone();
        let task = AbortOnDrop(self.shared.handle.spawn(async move { sender.send(call).await }));
        task.join().await.unwrap_or_else(|reason| Err(TransportError::Unknown(reason)))
    }

    /// Sends a request, and reads the response as fast as the caller takes its chunks.
    pub(super) async fn download(&self, call: HttpCall) -> Result<Download, TransportError> {
        let pace = call.wait.map(|_| Pace::new(self.shared.sender.response_timeout));
        self.begin(call, pace).await
    }

    /// Like [`download`](Transport::download), for a response without end: it may be slow, but not silent
    /// for longer than `max_silence`.
    pub(super) async fn stream(
        &self,
        call: HttpCall,
        max_silence: Duration,
    ) -> Result<Download, TransportError> {
        self.begin(call, Some(Pace::endless(max_silence))).await
    }

    async fn begin(&self, call: HttpCall, pace: Option<Pace>) -> Result<Download, TransportError> {
        let sender = self.shared.sender.clone();
        let (head, received) = oneshot::channel();
        let (to, chunks) = mpsc::channel(AHEAD);
        let task = self.shared.handle.spawn(async move {
            match sender.begin(call).await {
                Err(error) => drop(head.send(Err(error))),
                Ok((response, _connection)) => {
                    drop(head.send(Ok(response.status())));
                    forward(&sender.pool.address.url, response.into_body(), pace, &to).await;
                }
            }
        });
        let task = AbortOnDrop(task);
        let head =
            received.await.unwrap_or_else(|error| Err(TransportError::Unknown(error.to_string())));
        Ok(Download { status: head?, chunks, _task: task })
    }
}

impl Sender {
    async fn send(&self, call: HttpCall) -> Result<HttpResponse, TransportError> {
        let url = &self.pool.address.url;
        let mut pace = call.wait.map(|_| Pace::new(self.response_timeout));
        let max_len = max_response_len(&call.method, &call.path);
        let (mut response, connection) = self.begin(call).await?;
        let status = response.status();
        let mut bytes = Vec::new();
        if !status.is_success() {
            // The beginning of an error is enough. The rest is not read, so the connection is closed.
            while let Some(chunk) = next_chunk(url, response.body_mut(), &mut pace).await? {
                let left = MAX_ERROR_LEN - bytes.len();
                bytes.extend_from_slice(&chunk[..chunk.len().min(left)]);
                if chunk.len() > left {
                    return Ok(HttpResponse { status, bytes });
                }
            }
            self.pool.keep(connection).await;
            return Ok(HttpResponse { status, bytes });
        }
        let too_long = || {
            TransportError::Unknown(format!("{url}: the response is longer than {max_len} bytes"))
        };
        // The length that the server announces, before any of it is read.
        if response.body().size_hint().lower() > max_len as u64 {
            return Err(too_long());
        }
        while let Some(chunk) = next_chunk(url, response.body_mut(), &mut pace).await? {
            if chunk.len() > max_len - bytes.len() {
                return Err(too_long());
            }
            bytes.extend_from_slice(&chunk);
        }
        self.pool.keep(connection).await;
        Ok(HttpResponse { status, bytes })
    }

    /// Sends a request, and waits for the head of the response.
    async fn begin(
        &self,
        call: HttpCall,
    ) -> Result<(Response<Incoming>, pool::Connection), TransportError> {
        let HttpCall { method, path, accept, content_type, body, wait } = call;
        let mebibytes = match &body {
            RequestBody::Whole(Some(bytes)) => bytes.len() >> 20,
            _ => 0,
        };
        let sending = Duration::from_secs(mebibytes as u64);
        let limit = wait.map(|wait| wait + self.response_timeout + sending);
        let address = &self.pool.address;
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", address.prefix))
            .header(header::HOST, &address.authority)
            .header(header::ACCEPT, accept)
            .header(header::USER_AGENT, concat!("requeue/", env!("CARGO_PKG_VERSION")));
        if !matches!(body, RequestBody::Whole(None)) {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, token);
        }
        let request = request.body(body);
        let request = request.map_err(|error| TransportError::NotSent(error.to_string()))?;
        self.pool.begin(request, limit).await
    }
}

/// Returns the next chunk of a response, or `None` at its end. Fails if the server sends too slowly.
async fn next_chunk(
    url: &str,
    body: &mut Incoming,
    pace: &mut Option<Pace>,
) -> Result<Option<Bytes>, TransportError> {
    loop {
        let frame = match pace {
            None => body.frame().await,
            Some(pace) => {
                let (began, patience) = (Instant::now(), pace.patience());
                let frame = timeout(patience, body.frame()).await;
                let len = match &frame {
                    Ok(Some(Ok(frame))) => frame.data_ref().map_or(0, Bytes::len),
                    _ => 0,
                };
                pace.took(began.elapsed(), len);
                frame.map_err(|_| {
                    TransportError::Unknown(format!("{url}: {}", pace.complaint(patience)))
                })?
            }
        };
        match frame {
            None => return Ok(None),
            Some(Err(error)) => {
                let reason =
                    format!("{url}: the response was interrupted: {}", error_chain(&error));
                return Err(TransportError::Unknown(reason));
            }
            // Frames other than data, such as trailers, are ignored.
            Some(Ok(frame)) => {
                if let Ok(bytes) = frame.into_data() {
                    return Ok(Some(bytes));
                }
            }
        }
    }
}

/// Sends the chunks of a response to the caller, until its end or the first error.
async fn forward(
    url: &str,
    mut body: Incoming,
    mut pace: Option<Pace>,
    to: &mpsc::Sender<Result<Bytes, TransportError>>,
) {
    loop {
        let chunk = match next_chunk(url, &mut body, &mut pace).await {
            Ok(None) => return,
            Ok(Some(bytes)) => Ok(bytes),
            Err(error) => Err(error),
        };
        let failed = chunk.is_err();
        if to.send(chunk).await.is_err() || failed {
            return;
        }
    }
}

/// A task that is aborted when this is dropped. Its connection is then closed, which the server
/// notices.
struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> AbortOnDrop<T> {
    async fn join(mut self) -> Result<T, String> {
        (&mut self.0).await.map_err(|error| error.to_string())
    }
}

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Starts a thread with a runtime. The thread ends when the returned sender is dropped. Nothing waits
/// for that: waiting inside of another runtime could block it forever.
fn start() -> io::Result<(Handle, oneshot::Sender<()>)> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let (handle, (end, ended)) = (runtime.handle().clone(), oneshot::channel::<()>());
    let run = move || {
        drop(runtime.block_on(ended));
        // Does not wait for a DNS lookup that is in progress.
        runtime.shutdown_background();
    };
    thread::Builder::new().name("requeue-http".to_owned()).spawn(run)?;
    Ok((handle, end))
}

/// Returns the text of an error and of its sources.
fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}
