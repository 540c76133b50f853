//! [`Producer`]: sends records, and waits until the brokers have stored them.

use super::Connector;
use super::client::{Client, Context, LastError, describe};
use super::headers::{payload, record_headers};
use crate::message::Message;
use rdkafka::error::KafkaError;
use rdkafka::producer::{FutureProducer, FutureRecord, Producer as _};
use rdkafka::types::RDKafkaErrorCode;

/// The settings of all producers.
const SETTINGS: [(&str, &str); 7] = [
    // All replicas that are in sync have stored a record, and a repeated request does not store it twice.
    ("acks", "all"),
    ("enable.idempotence", "true"),
    // Below the default timeout of push settings, 10 seconds: a record that was given up is not sent later. The
    // library checks it about once per second.
    ("message.timeout.ms", "7000"),
    // How long a topic may be unknown, for example because the broker is just creating it.
    ("topic.metadata.propagation.max.ms", "5000"),
    // Java clients choose the same partition for a key.
    ("partitioner", "murmur2_random"),
    // Above the limit of a job's body. The broker decides what is too large.
    ("message.max.bytes", "4000000"),
    ("queue.buffering.max.kbytes", "65536"),
];

/// A connection to all brokers of a cluster. The library connects in the background, and again after a
/// connection was lost.
pub(super) struct Producer {
    client: Client<FutureProducer<Context>>,
    last_error: LastError,
}

/// Why a record was not delivered.
#[derive(Debug)]
pub(super) struct SendError {
    pub(super) code: RDKafkaErrorCode,
    /// A text for people.
    pub(super) text: String,
}

impl Producer {
    /// Creates a producer. It does not wait for a connection.
    pub(super) async fn create(
        connector: &Connector,
        settings: &[(&str, &str)],
    ) -> Result<Self, String> {
        let config = connector.config(&[&SETTINGS[..], settings].concat());
        let context = Context::default();
        let last_error = context.last_error.clone();
        let create = move || config.create_with_context(context);
        Ok(Producer { client: Client::create(create).await?, last_error })
    }

    /// Sends a record when the future is first polled, and waits until it is stored. If the future is dropped, the
    /// record may still be delivered.
    pub(super) async fn send(
        &self,
        topic: &str,
        key: Option<&[u8]>,
        message: &Message,
        id: Option<&str>,
    ) -> Result<(), SendError> {
        let record = FutureRecord {
            topic,
            partition: None,
            payload: payload(message),
            key,
            timestamp: None,
            headers: Some(record_headers(message, id)),
        };
        let error = match self.client.send_result(record) {
            Ok(delivery) => match delivery.await {
                Ok(Ok(_delivered)) => return Ok(()),
                Ok(Err((error, _message))) => error,
                Err(_canceled) => KafkaError::Canceled,
            },
            Err((error, _record)) => error,
        };
        let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail);
        let text = match (code, self.client.client().fatal_error()) {
            (_, Some((_, reason))) => reason,
            (RDKafkaErrorCode::MessageTimedOut, None) => {
                let reason = self.last_error.recent().map(|reason| format!(": {reason}"));
                format!("the message was not stored within 7s{}", reason.unwrap_or_default())
            }
            _ => describe(&error),
        };
        Err(SendError { code, text })
    }

    /// Whether it can deliver further records. An idempotent producer is lost after some errors, for example if
    /// the brokers have lost its state.
    pub(super) fn is_usable(&self) -> bool {
        self.client.client().fatal_error().is_none()
    }

    pub(super) fn last_error(&self) -> &LastError {
        &self.last_error
    }

    /// Returns a copy for a call that blocks.
    pub(super) fn library(&self) -> FutureProducer<Context> {
        self.client.clone()
    }
}
