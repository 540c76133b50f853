//! Adds messages to a stream.

use super::Connector;
use super::entry::fields;
use crate::error::BridgeError;
use crate::in_order::poll_then_unlock;
use crate::outgoing::Outgoing;
use crate::target::{BrokerOptions, Publish, PublishFuture};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind};
use requeue_push::{BrokerUrl, DeliveryOutcome};
use tokio::sync::Mutex;

/// The field with the id of the message. Redis does not remove duplicates itself.
const MESSAGE_ID: &str = "requeue-message-id";

/// Publishes the jobs of a kind to a stream.
pub(crate) struct RedisPublisher {
    connector: Connector,
    stream: String,
    /// About how many entries the stream keeps. `None`: all.
    max_len: Option<String>,
    /// `None` before the first message and after an error.
    connection: Mutex<Option<MultiplexedConnection>>,
}

impl RedisPublisher {
    pub(crate) fn new(url: BrokerUrl, options: &BrokerOptions) -> Result<Self, BridgeError> {
        let connector = Connector::new(&url, options)?;
        let stream = url.segments().last().cloned().unwrap_or_default();
        let max_len = url.parameter("maxlen").map(str::to_owned);
        Ok(RedisPublisher { connector, stream, max_len, connection: Mutex::new(None) })
    }

    /// Returns the open connection, or opens one.
    async fn open(
        &self,
        open: &mut Option<MultiplexedConnection>,
    ) -> Result<MultiplexedConnection, String> {
        if let Some(open) = open {
            return Ok(open.clone());
        }
        let connection = self.connector.connect().await?;
        *open = Some(connection.clone());
        Ok(connection)
    }

    async fn send(&self, message: &Outgoing) -> DeliveryOutcome {
        let mut add = redis::cmd("XADD");
        add.arg(&self.stream);
        if let Some(max_len) = &self.max_len {
            add.arg("MAXLEN").arg("~").arg(max_len);
        }
        add.arg("*").arg(MESSAGE_ID).arg(&message.id);
        for (name, value) in fields(&message.message) {
            add.arg(name).arg(value);
        }
        // Until the command is sent, the others wait: they are sent in the order of the calls. It is sent when its
        // future is first polled, because the buffer of the connection has room for all deliveries.
        let mut open = self.connection.lock().await;
        let mut connection = match self.open(&mut open).await {
            Ok(connection) => connection,
            Err(error) => return DeliveryOutcome::Unavailable { error },
        };
        let added = Cmd::query_async::<String>(&add, &mut connection);
        match poll_then_unlock(open, added).await {
            Ok(_id) => DeliveryOutcome::Done { result: None },
            Err(error) => {
                if is_connection_error(&error) {
                    // The next delivery connects again.
                    *self.connection.lock().await = None;
                }
                outcome(&self.stream, &error)
            }
        }
    }
}

/// Whether the connection cannot be used any more, or the server is not the one to use.
fn is_connection_error(error: &RedisError) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Io | ErrorKind::Parse | ErrorKind::Server(ServerErrorKind::ReadOnly)
    ) || error.is_unrecoverable_error()
}

/// Returns what an error of `XADD` means for the job.
fn outcome(stream: &str, error: &RedisError) -> DeliveryOutcome {
    let text = format!("stream {stream:?}: {error}");
    match (error.kind(), error.code()) {
        (_, Some("OOM")) => DeliveryOutcome::Overloaded { error: text },
        // It is not a stream, the user may not write to it, or a node of a cluster does not have it.
        (_, Some("WRONGTYPE")) => DeliveryOutcome::Retry { error: text, after: None },
        (
            ErrorKind::Server(
                ServerErrorKind::ResponseError
                | ServerErrorKind::NoPerm
                | ServerErrorKind::Moved
                | ServerErrorKind::Ask,
            ),
            _,
        ) => DeliveryOutcome::Retry { error: text, after: None },
        _ => DeliveryOutcome::Unavailable { error: text },
    }
}

impl Publish for RedisPublisher {
    fn publish<'a>(&'a self, message: &'a Outgoing) -> PublishFuture<'a> {
        Box::pin(self.send(message))
    }
}
