//! Requests by hand: what the API has and a store has not.

use super::HttpStore;
use super::body::Sent;
use super::link::{Call, Download, HttpResponse, Trouble};
use super::refused::problem_of;
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

/// Bytes of a part of an import.
const PART: usize = 64 << 10;

/// Parts of an import that are read ahead of what is sent.
const AHEAD: usize = 4;

/// Why a request was not answered as it should be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The server, or a proxy before it, said why.
    #[error(transparent)]
    Problem(Box<Problem>),
    /// Nothing was sent.
    #[error("the server is not available: {reason}")]
    Unavailable {
        /// Why.
        reason: String,
    },
    /// It was sent, and there is no answer, or none that can be read.
    #[error("it is not known whether it was done: {reason}")]
    Unknown {
        /// Why.
        reason: String,
    },
    /// What is to be sent cannot be read, or what came cannot be written.
    #[error("the file failed")]
    File(#[source] io::Error),
}

/// A line of the answer to who wants a backup.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum BackupLine {
    Copied { bytes: u64, of: u64 },
    Done(Value),
    Error(Box<Problem>),
}

impl From<Trouble> for CallError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::NotSent(reason) => CallError::Unavailable { reason },
            Trouble::Unknown(reason) => CallError::Unknown { reason },
        }
    }
}

impl Call {
    pub(super) fn json(method: Method, path: &str, body: Option<Bytes>) -> Call {
        Call {
            method,
            path: path.to_owned(),
            content_type: "application/json",
            sent: Sent::Whole(body),
            wait: Some(Duration::ZERO),
        }
    }
}

impl HttpStore {
    /// Sends any request, and answers status and body, whatever they are. `path` begins with
    /// `/v1`, and has the query; see [`path`](super::path()).
    pub async fn request(
        &self,
        method: &str,
        path: &str,
        json: Option<Vec<u8>>,
    ) -> Result<(u16, Vec<u8>), CallError> {
        let call = Call::json(method_of(method)?, path, json.map(Bytes::from));
        let HttpResponse { status, bytes } = self.link.send(call).await?;
        Ok((status.as_u16(), bytes))
    }

    /// Sends any request, and reads the answer to it. Where that is empty it is read as `null`.
    ///
    /// ```no_run
    /// use requeue_http::client::{CallError, path};
    /// use requeue_http::{HttpStore, wire};
    ///
    /// # async fn doc(store: HttpStore) -> Result<(), CallError> {
    /// let kinds: wire::Kinds = store.call("GET", "/v1/kinds", None::<&()>).await?;
    /// store.call::<()>("POST", &path(&["v1", "kinds", "mail", "pause"]), None::<&()>).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn call<A: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: Option<&(impl Serialize + ?Sized)>,
    ) -> Result<A, CallError> {
        let body = body.map(serde_json::to_vec).transpose();
        let body = body.map_err(|error| CallError::Unavailable { reason: error.to_string() })?;
        self.read(Call::json(method_of(method)?, path, body.map(Bytes::from))).await
    }

    /// What there is, in numbers.
    pub async fn stats(&self) -> Result<Value, CallError> {
        self.call("GET", "/v1/stats", None::<&()>).await
    }

    /// Who claims.
    pub async fn workers(&self) -> Result<Value, CallError> {
        self.call("GET", "/v1/workers", None::<&()>).await
    }

    /// Has the server make a backup, where its operator wants them, and answers where it is and
    /// how large. `progress` is told how many bytes are copied, of about how many. Dropping the
    /// future does not stop it.
    pub async fn backup(&self, mut progress: impl FnMut(u64, u64)) -> Result<Value, CallError> {
        let mut call = Call::json(Method::POST, "/v1/backups", None);
        call.wait = None;
        let mut download = self.download(call).await?;
        let mut text = Vec::new();
        while let Some(part) = download.parts.recv().await {
            text.extend_from_slice(&part?);
            while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = text.drain(..=end).collect();
                match serde_json::from_slice(&line) {
                    Ok(BackupLine::Copied { bytes, of }) => progress(bytes, of),
                    Ok(BackupLine::Done(done)) => return Ok(done),
                    Ok(BackupLine::Error(problem)) => return Err(CallError::Problem(problem)),
                    Err(error) => return Err(self.unreadable(&error)),
                }
            }
        }
        Err(CallError::Unknown { reason: "the answer ended before the backup".to_owned() })
    }

    /// Writes all jobs as JSON Lines, and answers how many bytes. Writing blocks the thread.
    pub async fn export(&self, mut out: impl Write) -> Result<u64, CallError> {
        let mut download = self.download(Call::json(Method::GET, "/v1/export", None)).await?;
        let mut count = 0;
        while let Some(part) = download.parts.recv().await {
            let part = part?;
            out.write_all(&part).map_err(CallError::File)?;
            count += part.len() as u64;
        }
        out.flush().map_err(CallError::File)?;
        Ok(count)
    }

    async fn download(&self, call: Call) -> Result<Download, CallError> {
        let mut download = self.link.download(call).await?;
        if download.status.is_success() {
            return Ok(download);
        }
        let mut told = Vec::new();
        while let Some(part) = download.parts.recv().await
            && told.len() < PART
        {
            told.extend_from_slice(&part?);
        }
        Err(CallError::Problem(Box::new(problem_of(self.url(), download.status, &told))))
    }

    /// Sends what was exported, and answers what the server says of it. Reading blocks the
    /// thread. Where it fails in the middle, what came before it has arrived: it may be sent
    /// again, and what is there already is kept.
    pub async fn import(&self, mut file: impl Read) -> Result<Value, CallError> {
        let (to, parts) = mpsc::channel(AHEAD);
        let call = Call {
            method: Method::POST,
            path: "/v1/import".to_owned(),
            content_type: "application/jsonl",
            sent: Sent::Parts(parts),
            wait: None,
        };
        let mut answer = pin!(self.read(call));
        let mut send = pin!(async move {
            loop {
                let mut part = Vec::with_capacity(PART);
                (&mut file).take(PART as u64).read_to_end(&mut part).map_err(CallError::File)?;
                let over = part.is_empty();
                let part = (!over).then(|| Bytes::from(part));
                // Who does not take it has answered.
                if to.send(part).await.is_err() || over {
                    return Ok(());
                }
            }
        });
        let mut sent = false;
        poll_fn(|cx| {
            if let Poll::Ready(answer) = answer.as_mut().poll(cx) {
                return Poll::Ready(answer);
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

    /// Sends it, and reads the answer as JSON.
    pub(super) async fn read<A: DeserializeOwned>(&self, call: Call) -> Result<A, CallError> {
        let HttpResponse { status, bytes } = self.link.send(call).await?;
        if !status.is_success() {
            let problem = problem_of(self.url(), status, &bytes);
            return Err(CallError::Problem(Box::new(problem)));
        }
        let json = if bytes.is_empty() { &b"null"[..] } else { &bytes };
        serde_json::from_slice(json).map_err(|error| self.unreadable(&error))
    }

    fn unreadable(&self, error: &serde_json::Error) -> CallError {
        let reason = format!("the answer of {} cannot be read: {error}", self.url());
        CallError::Unknown { reason }
    }
}

fn method_of(method: &str) -> Result<Method, CallError> {
    let wrong = |_| CallError::Unavailable { reason: format!("{method:?} is no method") };
    Method::from_bytes(method.as_bytes()).map_err(wrong)
}
