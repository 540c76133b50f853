//! Consumes a stream as a consumer group.
//!
//! ```text
//!            XREADGROUP >                 XACK
//!   new ---------------------> pending ----------> done
//!                               ^   |
//!                               +---+ after a new connection: XREADGROUP 0
//!                                     after `ack_wait`: XAUTOCLAIM
//! ```
//!
//! All bridges of a group are one consumer of Redis: a bridge that starts gets first what was delivered and not
//! acked, in its order, then new entries. So a message does not come after a newer one with the same key if the
//! bridge was killed in between.

use super::entry::{Entry, PAYLOAD, entries, entries_of_stream, fields};
use super::{BLOCK, Connector};
use crate::error::BridgeError;
use crate::incoming::Received;
use crate::message::Message;
use crate::source::{Source, SourceConfig, SourceFuture, ack_wait};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, FromRedisValue, Value};
use requeue_jobs::Timestamp;
use requeue_push::{BrokerUrl, InvalidPush};
use std::time::Duration;
use tokio::time::Instant;

/// The consumer of all bridges of a group.
const CONSUMER: &str = "bridge";

/// Ids below this are not the milliseconds at which Redis got an entry (this is in 2001), but numbers that the
/// publisher has chosen.
const FIRST_TIME: u64 = 1_000_000_000_000;

/// Fails if the URL names no stream, or has an invalid parameter.
pub(crate) fn check_source(url: &BrokerUrl) -> Result<(), BridgeError> {
    url.check_parameters(&["ack_wait", "db", "delete", "payload"])?;
    let wrong = |reason: String| Err(BridgeError::Invalid(InvalidPush::Url { reason }));
    if !matches!(url.segments(), [stream] if !stream.is_empty()) {
        return wrong(
            "its path must name a stream, such as redis://host/orders.delayed".to_owned(),
        );
    }
    if let Some(value) = url.parameter("db")
        && value.parse::<u32>().is_err()
    {
        return wrong(format!("db is {value:?}; it must be a number"));
    }
    if let Some(value) = url.parameter("delete")
        && !matches!(value, "true" | "false")
    {
        return wrong(format!("delete is {value:?}; it must be true or false"));
    }
    ack_wait(url).map(drop)
}

pub(crate) struct RedisSource {
    connection: MultiplexedConnection,
    stream: String,
    group: String,
    /// The field with the payload.
    payload: String,
    rejected: String,
    /// Whether entries are removed from the stream when they are acked.
    delete: bool,
    ack_wait: Duration,
    /// Whether there may be entries that were delivered before this connection and not acked.
    has_backlog: bool,
    /// When to look for entries that were delivered and not acked for long.
    claim_at: Instant,
    /// The ids of the entries that the latest call of `receive` returned.
    ids: Vec<String>,
}

impl RedisSource {
    /// Connects, and creates the stream and its group if they are missing. A new group gets all entries of the
    /// stream.
    pub(crate) async fn connect(config: &SourceConfig) -> Result<Self, String> {
        let connector = Connector::new(&config.url, &config.options).map_err(|e| e.to_string())?;
        let connection = connector.connect().await?;
        let stream = config.url.segments().last().cloned().unwrap_or_default();
        let rejected = config.rejected.clone().unwrap_or_else(|| format!("{stream}.rejected"));
        let mut source = RedisSource {
            connection,
            group: config.group.clone(),
            payload: config.url.parameter("payload").unwrap_or(PAYLOAD).to_owned(),
            rejected,
            delete: config.url.parameter("delete") == Some("true"),
            ack_wait: ack_wait(&config.url).map_err(|error| error.to_string())?,
            has_backlog: true,
            claim_at: Instant::now(),
            ids: Vec::new(),
            stream,
        };
        let mut create = redis::cmd("XGROUP");
        create.arg("CREATE").arg(&source.stream).arg(&source.group).arg("0").arg("MKSTREAM");
        match create.query_async::<Value>(&mut source.connection).await {
            Err(error) if error.code() != Some("BUSYGROUP") => {
                Err(format!("group {:?} of stream {:?}: {error}", source.group, source.stream))
            }
            _ => Ok(source),
        }
    }

    async fn query<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<T, String> {
        let result = command.query_async(&mut self.connection).await;
        result.map_err(|error| format!("stream {:?}: {error}", self.stream))
    }

    /// Returns at most `max` entries: those that were delivered before and not acked (`from` is `0`), or new
    /// ones (`>`).
    async fn read(&mut self, max: usize, from: &str) -> Result<Vec<Entry>, String> {
        let mut read = redis::cmd("XREADGROUP");
        read.arg("GROUP").arg(&self.group).arg(CONSUMER).arg("COUNT").arg(max);
        read.arg("BLOCK").arg(BLOCK.as_millis() as u64).arg("STREAMS").arg(&self.stream).arg(from);
        let response = self.query(&read).await?;
        entries_of_stream(response).ok_or_else(|| self.unexpected("XREADGROUP"))
    }

    /// Returns entries that were delivered and not acked for `ack_wait`: those of a bridge that was killed.
    async fn claim(&mut self, max: usize) -> Result<Vec<Entry>, String> {
        let mut claim = redis::cmd("XAUTOCLAIM");
        claim.arg(&self.stream).arg(&self.group).arg(CONSUMER);
        claim.arg(self.ack_wait.as_millis() as u64).arg("0-0").arg("COUNT").arg(max);
        let response = self.query::<Vec<Value>>(&claim).await?;
        let found = response.into_iter().nth(1).and_then(entries);
        found.ok_or_else(|| self.unexpected("XAUTOCLAIM"))
    }

    fn unexpected(&self, command: &str) -> String {
        format!("stream {:?}: the response to {command} cannot be read", self.stream)
    }

    /// Waits for entries.
    async fn next(&mut self, max: usize) -> Result<Vec<Entry>, String> {
        loop {
            let mut found = Vec::new();
            if self.has_backlog {
                found = self.read(max, "0").await?;
                self.has_backlog = !found.is_empty();
            } else if Instant::now() >= self.claim_at {
                found = self.claim(max).await?;
                if found.is_empty() {
                    self.claim_at = Instant::now() + self.ack_wait / 2;
                }
            }
            if found.is_empty() {
                found = self.read(max, ">").await?;
            }
            // What was deleted from the stream after it was delivered has nothing to put.
            let (deleted, found): (Vec<_>, Vec<_>) =
                found.into_iter().partition(|entry| entry.fields.is_empty());
            if !deleted.is_empty() {
                let ids: Vec<_> = deleted.into_iter().map(|entry| entry.id).collect();
                self.query::<Value>(redis::cmd("XACK").arg(&self.stream).arg(&self.group).arg(ids))
                    .await?;
            }
            if !found.is_empty() {
                return Ok(found);
            }
        }
    }

    fn received(&self, entry: Entry) -> Received {
        let millis = entry.id.split('-').next().and_then(|millis| millis.parse().ok());
        let at = millis.filter(|millis| *millis >= FIRST_TIME).map(Timestamp::from_millis);
        let id = Some(format!("{}/{}", self.stream, entry.id));
        Received { message: entry.into_message(&self.payload), id, at }
    }
}

impl Source for RedisSource {
    fn receive(&mut self, max: usize) -> SourceFuture<'_, Vec<Received>> {
        Box::pin(async move {
            // If this future is dropped, what Redis has delivered is claimed again after `ack_wait`.
            let found = self.next(max).await?;
            self.ids = found.iter().map(|entry| entry.id.clone()).collect();
            Ok(found.into_iter().map(|entry| self.received(entry)).collect())
        })
    }

    fn ack(&mut self) -> SourceFuture<'_, ()> {
        Box::pin(async move {
            let ids = std::mem::take(&mut self.ids);
            if ids.is_empty() {
                return Ok(());
            }
            let mut acked = redis::pipe();
            acked.cmd("XACK").arg(&self.stream).arg(&self.group).arg(&ids);
            if self.delete {
                acked.atomic().cmd("XDEL").arg(&self.stream).arg(&ids);
            }
            let result = acked.query_async::<Value>(&mut self.connection).await;
            result.map(drop).map_err(|error| format!("stream {:?}: {error}", self.stream))
        })
    }

    fn keep(&mut self) -> SourceFuture<'_, ()> {
        Box::pin(async move {
            let mut keep = redis::cmd("XCLAIM");
            keep.arg(&self.stream).arg(&self.group).arg(CONSUMER).arg(0).arg(&self.ids);
            self.query::<Value>(keep.arg("JUSTID")).await.map(drop)
        })
    }

    fn reject<'a>(&'a mut self, rejected: &'a Message) -> SourceFuture<'a, ()> {
        Box::pin(async move {
            let mut add = redis::cmd("XADD");
            add.arg(&self.rejected).arg("*");
            for (name, value) in fields(rejected) {
                add.arg(name).arg(value);
            }
            let added = add.query_async::<Value>(&mut self.connection).await;
            added.map(drop).map_err(|error| format!("stream {:?}: {error}", self.rejected))
        })
    }
}
