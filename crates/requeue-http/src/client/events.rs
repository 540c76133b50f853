//! The live stream of events, `GET /v1/events`.

use super::HttpStore;
use super::calls::CallError;
use super::event_parser::{EventParser, Message};
use super::path::with_query;
use super::transport::{Download, HttpCall};
use crate::wire::EventJson;
use hyper::Method;
use hyper::body::Bytes;
use requeue_jobs::Kind;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// How long a stream may be silent. The server sends a comment after 15 s without an event, so three of
/// them are missing.
const MAX_SILENCE: Duration = Duration::from_secs(45);

/// What a stream of events contains.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum StreamedEvent {
    /// An event.
    Event(Box<EventJson>),
    /// This client was too slow: this many events of all kinds are missing here.
    Missed {
        /// The number of missing events.
        count: u64,
    },
}

/// The data of the event `missed`.
#[derive(Deserialize)]
struct MissedCount {
    count: u64,
}

/// A stream of events, created by [`HttpStore::events`]. Dropping it closes its connection.
pub struct EventStream {
    /// Keeps the thread that reads the stream, also if the caller drops its store.
    store: HttpStore,
    download: Download,
    /// The chunk that is being parsed, and how much of it was.
    chunk: (Bytes, usize),
    parser: EventParser,
}

impl HttpStore {
    /// Opens a stream of the events of these kinds, or of all kinds if `kinds` is empty.
    ///
    /// The stream contains the operations that go through this node of the service from now on. Events
    /// are not stored: what happens while no stream is open is not in the next one.
    ///
    /// ```no_run
    /// use requeue_http::HttpStore;
    /// use requeue_http::client::{CallError, StreamedEvent};
    ///
    /// # async fn doc(store: HttpStore) -> Result<(), CallError> {
    /// let mut events = store.events(&[]).await?;
    /// while let Some(item) = events.next().await? {
    ///     if let StreamedEvent::Event(event) = item {
    ///         println!("{} {} {:?}", event.event, event.kind, event.id);
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn events(&self, kinds: &[Kind]) -> Result<EventStream, CallError> {
        let kinds = kinds.iter().map(Kind::as_str).collect::<Vec<_>>().join(",");
        let query: BTreeMap<_, _> =
            (!kinds.is_empty()).then_some(("kinds", kinds)).into_iter().collect();
        let path = with_query("/v1/events".to_owned(), &query);
        let mut call = HttpCall::json(Method::GET, &path, None);
        call.accept = "text/event-stream";
        let download = self.stream(call, MAX_SILENCE).await?;
        let (chunk, parser) = ((Bytes::new(), 0), EventParser::default());
        Ok(EventStream { store: self.clone(), download, chunk, parser })
    }
}

impl EventStream {
    /// Waits for the next event. Returns `None` at the end of the stream: the server is shutting down.
    ///
    /// Fails if the server ends the stream with a problem, because the token was revoked, if the connection breaks, if nothing arrives for 45 seconds although the server reports every
    /// 15 seconds that it is there, or if the stream is invalid. After an error, the stream cannot be
    /// continued. If this future is dropped, no event is lost.
    pub async fn next(&mut self) -> Result<Option<StreamedEvent>, CallError> {
        loop {
            let (chunk, at) = &mut self.chunk;
            if *at < chunk.len() {
                let read = self.parser.read(&chunk[*at..]);
                let (read, message) = read.map_err(|error| self.invalid(&error))?;
                self.chunk.1 += read;
                if let Some(message) = message {
                    return self.event(&message).map(Some);
                }
                continue;
            }
            match self.download.chunks.recv().await {
                None => return Ok(None),
                Some(chunk) => self.chunk = (chunk?, 0),
            }
        }
    }

    fn event(&self, message: &Message) -> Result<StreamedEvent, CallError> {
        let data = message.data.as_bytes();
        if message.event == "problem" {
            let problem = serde_json::from_slice(data).map_err(|error| self.invalid(&error))?;
            return Err(CallError::Problem(Box::new(problem)));
        }
        let event = match &*message.event {
            "missed" => serde_json::from_slice(data)
                .map(|MissedCount { count }| StreamedEvent::Missed { count }),
            _ => serde_json::from_slice(data).map(StreamedEvent::Event),
        };
        event.map_err(|error| self.invalid(&error))
    }

    fn invalid(&self, error: &dyn std::error::Error) -> CallError {
        CallError::Unknown { reason: format!("invalid response of {}: {error}", self.store.url()) }
    }
}

impl fmt::Debug for EventStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventStream").field("url", &self.store.url()).finish_non_exhaustive()
    }
}
