//! The connections to a server, and what became of a request.
//!
//! All of them live on one thread with a runtime of its own, so that they can be used from any
//! executor and from plain threads. A request has a connection for itself, one that is kept from
//! before where there is one. A request that may have been read is never sent again.

mod pool;

use super::address::Address;
use super::body::Sent;
use super::options::{ConnectError, Options};
use super::tls;
use http_body_util::BodyExt;
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use pool::Pool;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Bytes of an answer: a thousand jobs of a mebibyte, and as much again for how JSON writes them.
const LONGEST_ANSWER: usize = 2 << 30;

/// Parts of an answer that are read ahead of who wants them.
const AHEAD: usize = 4;

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    /// It was not sent.
    NotSent(String),
    /// It may have been done.
    Unknown(String),
}

/// What is asked.
pub(super) struct Call {
    pub(super) method: Method,
    /// With the query, and without what all paths begin with.
    pub(super) path: String,
    pub(super) content_type: &'static str,
    pub(super) sent: Sent,
    /// How long the server may wait before it answers. `None`: as long as it likes, and between
    /// the parts of its answer, too.
    pub(super) wait: Option<Duration>,
}

/// What was answered.
pub(super) struct HttpResponse {
    pub(super) status: StatusCode,
    pub(super) bytes: Vec<u8>,
}

/// What is being answered, part by part.
pub(super) struct Download {
    pub(super) status: StatusCode,
    pub(super) parts: mpsc::Receiver<Result<Bytes, Trouble>>,
    _task: Task<()>,
}

/// The connections of a store. Cheap to clone; with the last clone they are closed.
#[derive(Clone)]
pub(super) struct Link {
    shared: Arc<Shared>,
}

/// Invariant: no task of the runtime has it, or it would never end.
struct Shared {
    handle: Handle,
    line: Arc<Line>,
    /// Dropped, it ends the thread.
    _end: oneshot::Sender<()>,
}

struct Line {
    pool: Pool,
    token: Option<HeaderValue>,
    answer_timeout: Duration,
}

impl Link {
    pub(super) fn open(address: Address, options: &Options) -> Result<Link, ConnectError> {
        let tls = address.tls.then(|| tls::connector(options)).transpose()?;
        let token = options.token.as_ref().map(|token| {
            let mut value =
                HeaderValue::from_str(&format!("Bearer {}", token.0)).map_err(|_| {
                    let reason = "the token has what no header can have".to_owned();
                    ConnectError::Options { reason }
                })?;
            value.set_sensitive(true);
            Ok(value)
        });
        let pool = Pool::new(address, tls, options.connect_timeout);
        let answer_timeout = options.answer_timeout;
        let line = Arc::new(Line { pool, token: token.transpose()?, answer_timeout });
        let started = start();
        let (handle, end) =
            started.map_err(|error| ConnectError::Thread { reason: error.to_string() })?;
        Ok(Link { shared: Arc::new(Shared { handle, line, _end: end }) })
    }

    pub(super) fn url(&self) -> &str {
        &self.shared.line.pool.address.url
    }

    /// How many connections are kept that could be used.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.shared.line.pool.usable()
    }

    /// Sends it, and reads the whole answer.
    pub(super) async fn send(&self, call: Call) -> Result<HttpResponse, Trouble> {
        let line = self.shared.line.clone();
        let task = Task(self.shared.handle.spawn(async move { line.send(call).await }));
        task.end().await.unwrap_or_else(|reason| Err(Trouble::Unknown(reason)))
    }

    /// Sends it, and reads the answer as fast as it is taken.
    pub(super) async fn download(&self, call: Call) -> Result<Download, Trouble> {
        let line = self.shared.line.clone();
        let (head, begun) = oneshot::channel();
        let (to, parts) = mpsc::channel(AHEAD);
        let limit = call.wait.map(|_| line.answer_timeout);
        let task = self.shared.handle.spawn(async move {
            match line.begin(call).await {
                Err(trouble) => drop(head.send(Err(trouble))),
                Ok((response, _connection)) => {
                    drop(head.send(Ok(response.status())));
                    pass_on(response.into_body(), limit, &to).await;
                }
            }
        });
        let task = Task(task);
        let head = begun.await.unwrap_or_else(|error| Err(Trouble::Unknown(error.to_string())));
        Ok(Download { status: head?, parts, _task: task })
    }
}

impl Line {
    async fn send(&self, call: Call) -> Result<HttpResponse, Trouble> {
        let limit = call.wait.map(|_| self.answer_timeout);
        let (mut response, connection) = self.begin(call).await?;
        let mut bytes = Vec::new();
        while let Some(part) = part(response.body_mut(), limit).await? {
            if bytes.len() + part.len() > LONGEST_ANSWER {
                let reason = format!("the answer is longer than {LONGEST_ANSWER} bytes");
                return Err(Trouble::Unknown(reason));
            }
            bytes.extend_from_slice(&part);
        }
        self.pool.keep(connection).await;
        Ok(HttpResponse { status: response.status(), bytes })
    }

    /// Sends it, and waits for the head of the answer.
    async fn begin(&self, call: Call) -> Result<(Response<Incoming>, pool::Connection), Trouble> {
        let Call { method, path, content_type, sent, wait } = call;
        let mebibytes = match &sent {
            Sent::Whole(Some(bytes)) => bytes.len() >> 20,
            _ => 0,
        };
        let sending = Duration::from_secs(mebibytes as u64);
        let limit = wait.map(|wait| wait + self.answer_timeout + sending);
        let address = &self.pool.address;
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", address.prefix))
            .header(header::HOST, &address.authority)
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, concat!("requeue/", env!("CARGO_PKG_VERSION")));
        if !matches!(sent, Sent::Whole(None)) {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, token);
        }
        let request = request.body(sent);
        let request = request.map_err(|error| Trouble::NotSent(error.to_string()))?;
        self.pool.begin(request, limit).await
    }
}

/// The next part of an answer, in so long. `None`: that was all.
async fn part(body: &mut Incoming, limit: Option<Duration>) -> Result<Option<Bytes>, Trouble> {
    loop {
        let frame = match limit {
            None => body.frame().await,
            Some(limit) => timeout(limit, body.frame()).await.map_err(|_| {
                Trouble::Unknown(format!("the answer stopped in its middle for {limit:?}"))
            })?,
        };
        match frame {
            None => return Ok(None),
            Some(Err(error)) => {
                let reason = format!("the answer broke off: {}", told(&error));
                return Err(Trouble::Unknown(reason));
            }
            // What is no data is of no interest.
            Some(Ok(frame)) => {
                if let Ok(bytes) = frame.into_data() {
                    return Ok(Some(bytes));
                }
            }
        }
    }
}

async fn pass_on(
    mut body: Incoming,
    limit: Option<Duration>,
    to: &mpsc::Sender<Result<Bytes, Trouble>>,
) {
    loop {
        let part = match part(&mut body, limit).await {
            Ok(None) => return,
            Ok(Some(bytes)) => Ok(bytes),
            Err(trouble) => Err(trouble),
        };
        let over = part.is_err();
        if to.send(part).await.is_err() || over {
            return;
        }
    }
}

/// A task that ends with who waits for it: its connection is closed, and the server sees that.
struct Task<T>(JoinHandle<T>);

impl<T> Task<T> {
    async fn end(mut self) -> Result<T, String> {
        (&mut self.0).await.map_err(|error| error.to_string())
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Starts a thread with a runtime, that ends with what is returned. It is not waited for: to
/// wait inside of another runtime could block that for good.
fn start() -> io::Result<(Handle, oneshot::Sender<()>)> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let (handle, (end, ended)) = (runtime.handle().clone(), oneshot::channel::<()>());
    let run = move || {
        drop(runtime.block_on(ended));
        // A name that is being looked up is not waited for.
        runtime.shutdown_background();
    };
    thread::Builder::new().name("requeue-http".to_owned()).spawn(run)?;
    Ok((handle, end))
}

/// An error and what it is because of.
fn told(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}
