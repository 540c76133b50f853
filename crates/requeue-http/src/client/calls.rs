//! Requests beyond the `Store` trait: statistics, backup, export, import, and any other request.

use super::HttpStore;
use super::errors::problem_of;
use super::request_body::RequestBody;
use super::transport::{Download, HttpCall, HttpResponse, TransportError};
use crate::problem::Problem;
use hyper::Method;
use hyper::body::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::future::{Future, poll_fn};
use std::io::{self, Read, Write};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::mpsc;

/// Bytes of a chunk of an import.
const CHUNK: usize = 64 << 10;

/// Chunks of an import that are read from the file before they are sent.
const AHEAD: usize = 4;

/// Maximum bytes of a line that reports the progress of a backup.
const MAX_BACKUP_LINE: usize = 64 << 10;

/// A request failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The server, or a proxy, responded with an error.
    #[error(transparent)]
    Problem(Box<Problem>),
    /// The request was not sent. Nothing was done.
    #[error("server unavailable: {reason}")]
    Unavailable {
        /// The cause.
        reason: String,
    },
    /// The request was sent, but there was no response, or an invalid one.
    #[error("outcome unknown: {reason}")]
    Unknown {
        /// The cause.
        reason: String,
    },
    /// The input of an import cannot be read, or the output of an export cannot be written.
    #[error("file error")]
    File(#[source] io::Error),
}

/// A line of the response to a backup request.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum BackupLine {
    Copied { bytes: u64, of: u64 },
    Done(Value),
    Error(Box<Problem>),
}

impl From<TransportError> for CallError {
    fn from(error: TransportError) -> Self {
        match error {
            TransportError::NotSent(reason) => CallError::Unavailable { reason },
            TransportError::Unknown(reason) => CallError::Unknown { reason },
        }
    }
}

impl HttpCall {
    pub(super) fn json(method: Method, path: &str, body: Option<Bytes>) -> HttpCall {
        HttpCall {
            method,
            path: path.to_owned(),
            accept: "application/json",
            content_type: "application/json",
            body: RequestBody::Whole(body),
            wait: Some(Duration::ZERO),
        }
    }
}

impl HttpStore {
    /// Sends any request. Returns status and body of the response, also of an error response.
    ///
    /// `path` starts with `/v1` and includes the query string; see [`path`](super::path()).
    pub async fn request(
        &self,
        method: &str,
        path: &str,
        json: Option<Vec<u8>>,
    ) -> Result<(u16, Vec<u8>), CallError> {
        let call = HttpCall::json(method_of(method)?, path, json.map(Bytes::from));
        let HttpResponse { status, bytes } = self.transport.send(call).await?;
        Ok((status.as_u16(), bytes))
    }

    /// Sends any request, and deserializes the response. An empty response is read as `null`.
    ///
    /// Fails with [`CallError::Problem`] if the status is not 2xx.
    ///
    /// ```no_run
    /// use requeue_http::client::{CallError, path};
    /// use requeue_http::{HttpStore, wire};
    ///
    /// # async fn doc(store: HttpStore) -> Result<(), CallError> {
    /// let kinds: wire::KindList = store.call("GET", "/v1/kinds", None::<&()>).await?;
    /// store.call::<()>("POST", &path(&["v1", "kinds", "mail", "pause"]), None::<&()>).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn call<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: Option<&(impl Serialize + ?Sized)>,
    ) -> Result<T, CallError> {
        let body = body.map(serde_json::to_vec).transpose();
        let body = body.map_err(|error| CallError::Unavailable { reason: error.to_string() })?;
        self.read(HttpCall::json(method_of(method)?, path, body.map(Bytes::from))).await
    }

    /// Returns the statistics of the server, `GET /v1/stats`.
    pub async fn stats(&self) -> Result<Value, CallError> {
        self.call("GET", "/v1/stats", None::<&()>).await
    }

    /// Returns the workers that have claimed jobs recently, `GET /v1/workers`.
    pub async fn workers(&self) -> Result<Value, CallError> {
        self.call("GET", "/v1/workers", None::<&()>).await
    }

    /// Makes the server write a backup, if its operator has enabled that. Returns the directory and
    /// size of the backup.
    ///
    /// `progress` is called with the number of bytes copied so far and the approximate total.
    /// Dropping the future does not stop the backup.
    pub async fn backup(&self, mut progress: impl FnMut(u64, u64)) -> Result<Value, CallError> {
        let mut call = HttpCall::json(Method::POST, "/v1/backups", None);
        call.wait = None;
        let mut download = self.download(call).await?;
        let mut text = Vec::new();
        while let Some(chunk) = download.chunks.recv().await {
            text.extend_from_slice(&chunk?);
            if text.len() > MAX_BACKUP_LINE && !text.contains(&b'\n') {
                let reason = format!(
                    "a line of the response of {} is longer than {MAX_BACKUP_LINE} bytes",
                    self.url()
                );
                return Err(CallError::Unknown { reason });
            }
            while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = text.drain(..=end).collect();
                match serde_json::from_slice(&line) {
                    Ok(BackupLine::Copied { bytes, of }) => progress(bytes, of),
                    Ok(BackupLine::Done(done)) => return Ok(done),
                    Ok(BackupLine::Error(problem)) => return Err(CallError::Problem(problem)),
                    Err(error) => return Err(self.invalid_response(&error)),
                }
            }
        }
        Err(CallError::Unknown {
            reason: "the response ended before the backup was complete".to_owned(),
        })
    }

    /// Exports all jobs of the server as JSON Lines. Returns the number of bytes written.
    ///
    /// Writing blocks the thread. If the last line is not of type `end`, the export is incomplete.
    pub async fn export(&self, mut out: impl Write) -> Result<u64, CallError> {
        let mut download = self.download(HttpCall::json(Method::GET, "/v1/export", None)).await?;
        let mut count = 0;
        while let Some(chunk) = download.chunks.recv().await {
            let chunk = chunk?;
            out.write_all(&chunk).map_err(CallError::File)?;
            count += chunk.len() as u64;
        }
        out.flush().map_err(CallError::File)?;
        Ok(count)
    }

    async fn download(&self, call: HttpCall) -> Result<Download, CallError> {
        self.checked(self.transport.download(call).await?).await
    }

    /// Starts a response without end, which may be silent for `max_silence`.
    pub(super) async fn stream(
        &self,
        call: HttpCall,
        max_silence: Duration,
    ) -> Result<Download, CallError> {
        self.checked(self.transport.stream(call, max_silence).await?).await
    }

    /// Fails if the response is an error.
    async fn checked(&self, mut download: Download) -> Result<Download, CallError> {
        if download.status.is_success() {
            return Ok(download);
        }
        let mut body = Vec::new();
        while let Some(chunk) = download.chunks.recv().await
            && body.len() < CHUNK
        {
            body.extend_from_slice(&chunk?);
        }
        Err(CallError::Problem(Box::new(problem_of(self.url(), download.status, &body))))
    }

    /// Imports an export into the server. Returns the counts of the response.
    ///
    /// Reading blocks the thread. If the import fails halfway, the jobs before the error have been
    /// imported. It can be repeated: what the server already has stays unchanged.
    pub async fn import(&self, mut file: impl Read) -> Result<Value, CallError> {
        let (to, chunks) = mpsc::channel(AHEAD);
        let call = HttpCall {
            method: Method::POST,
            path: "/v1/import".to_owned(),
            accept: "application/json",
            content_type: "application/jsonl",
            body: RequestBody::Chunks(chunks),
            wait: None,
        };
        let mut response = pin!(self.read(call));
        let mut send = pin!(async move {
            loop {
                let mut chunk = Vec::with_capacity(CHUNK);
                (&mut file).take(CHUNK as u64).read_to_end(&mut chunk).map_err(CallError::File)?;
                let end = chunk.is_empty();
                let chunk = (!end).then(|| Bytes::from(chunk));
                // The receiver is dropped if the server has responded before the end.
                if to.send(chunk).await.is_err() || end {
                    return Ok(());
                }
            }
        });
        let mut sent = false;
        poll_fn(|cx| {
            if let Poll::Ready(response) = response.as_mut().poll(cx) {
                return Poll::Ready(response);
            }
            if !sent && let Poll::Ready(done) = send.as_mut().poll(cx) {
                sent = true;
                if let Err(error) = done {
                    return Poll::Ready(Err(error));
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Sends a request, and deserializes the response.
    pub(super) async fn read<T: DeserializeOwned>(&self, call: HttpCall) -> Result<T, CallError> {
        let HttpResponse { status, bytes } = self.transport.send(call).await?;
        if !status.is_success() {
            let problem = problem_of(self.url(), status, &bytes);
            return Err(CallError::Problem(Box::new(problem)));
        }
        let json = if bytes.is_empty() { &b"null"[..] } else { &bytes };
        serde_json::from_slice(json).map_err(|error| self.invalid_response(&error))
    }

    fn invalid_response(&self, error: &serde_json::Error) -> CallError {
        let reason = format!("invalid response of {}: {error}", self.url());
        CallError::Unknown { reason }
    }
}

fn method_of(method: &str) -> Result<Method, CallError> {
    let wrong = |_| CallError::Unavailable { reason: format!("{method:?} is not an HTTP method") };
    Method::from_bytes(method.as_bytes()).map_err(wrong)
}
