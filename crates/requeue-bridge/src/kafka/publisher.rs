//! Publishes messages to a topic.

use super::Connector;
use super::producer::{Producer, SendError};
use crate::error::BridgeError;
use crate::in_order::poll_then_unlock;
use crate::outgoing::Outgoing;
use crate::target::{BrokerOptions, Publish, PublishFuture};
use rdkafka::types::RDKafkaErrorCode;
use requeue_push::{BrokerUrl, DeliveryOutcome};
use std::sync::Arc;
use tokio::sync::Mutex;

/// Publishes the jobs of a kind to a topic.
///
/// If the topic does not exist, the broker creates it or not, by its setting `auto.create.topics.enable`. If it
/// does not, the attempt fails.
pub(crate) struct KafkaPublisher {
    url: BrokerUrl,
    connector: Connector,
    batching: ProducerSlot,
    /// For a message that the broker has rejected as too large: it rejects whole batches.
    single: ProducerSlot,
}

/// A producer that is created when it is needed, and again if it is lost.
struct ProducerSlot {
    settings: &'static [(&'static str, &'static str)],
    producer: Mutex<Option<Arc<Producer>>>,
}

impl ProducerSlot {
    fn new(settings: &'static [(&'static str, &'static str)]) -> Self {
        ProducerSlot { settings, producer: Mutex::new(None) }
    }

    /// Sends a message. Until the library has it, later calls wait: messages are sent in the order of the calls.
    async fn send(
        &self,
        connector: &Connector,
        message: &Outgoing,
        key: &[u8],
    ) -> Result<(), Failed> {
        let mut slot = self.producer.lock().await;
        let producer = match &*slot {
            Some(producer) if producer.is_usable() => Arc::clone(producer),
            _ => {
                let created = Producer::create(connector, self.settings).await;
                let created = Arc::new(created.map_err(Failed::Create)?);
                *slot = Some(Arc::clone(&created));
                created
            }
        };
        let id = Some(message.id.as_str());
        let sent = producer.send(&connector.topic, Some(key), &message.message, id);
        poll_then_unlock(slot, sent).await.map_err(Failed::Send)
    }
}

impl KafkaPublisher {
    /// Returns a publisher that is not connected yet.
    pub(crate) fn new(url: BrokerUrl, options: &BrokerOptions) -> Result<Self, BridgeError> {
        let connector = Connector::new(&url, options)?;
        let single = ProducerSlot::new(&[("batch.num.messages", "1")]);
        Ok(KafkaPublisher { url, connector, batching: ProducerSlot::new(&[]), single })
    }

    /// Returns the key: the template of the URL, or that of the message, or the id of the job.
    fn key(&self, message: &Outgoing) -> Vec<u8> {
        match (message.template(&self.url, "key"), &message.message.key) {
            (Some(key), _) => key.into_bytes(),
            (None, Some(key)) => key.clone(),
            (None, None) => message.job_id.clone().into_bytes(),
        }
    }

    async fn send(&self, message: &Outgoing) -> DeliveryOutcome {
        let key = self.key(message);
        let mut sent = self.batching.send(&self.connector, message, &key).await;
        if let Err(Failed::Send(error)) = &sent
            && is_too_large(error.code)
        {
            sent = self.single.send(&self.connector, message, &key).await;
        }
        match sent {
            Ok(()) => DeliveryOutcome::Done { result: None },
            Err(Failed::Create(error)) => DeliveryOutcome::Unavailable { error },
            Err(Failed::Send(error)) => self.failed(&error, message.message.payload.len()),
        }
    }

    /// Returns the outcome of a message that was not delivered.
    fn failed(&self, error: &SendError, len: usize) -> DeliveryOutcome {
        use RDKafkaErrorCode as Code;
        let (topic, text) = (&self.connector.topic, &error.text);
        let error_text = format!("topic {topic:?} at {}: {text}", self.connector.origin);
        match error.code {
            code if is_too_large(code) => DeliveryOutcome::Bury {
                error: format!("topic {topic:?}: a message of {len} bytes is too large: {text}"),
            },
            Code::UnknownTopicOrPartition
            | Code::UnknownTopic
            | Code::UnknownPartition
            | Code::InvalidTopic
            | Code::TopicAuthorizationFailed
            | Code::ClusterAuthorizationFailed
            | Code::InvalidRecord
            | Code::InvalidMessage
            | Code::InvalidTimestamp
            | Code::PolicyViolation => DeliveryOutcome::Retry { error: error_text, after: None },
            Code::QueueFull | Code::ThrottlingQuotaExceeded => {
                DeliveryOutcome::Overloaded { error: error_text }
            }
            // The brokers are unreachable, did not respond in time, or do not accept the password. The message
            // may have been stored: the next one has the same id.
            _ => DeliveryOutcome::Unavailable { error: error_text },
        }
    }
}

/// Why a message was not delivered.
enum Failed {
    /// The library has rejected the settings.
    Create(String),
    Send(SendError),
}

fn is_too_large(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::MessageSizeTooLarge
            | RDKafkaErrorCode::MessageBatchTooLarge
            | RDKafkaErrorCode::InvalidMessageSize
    )
}

impl Publish for KafkaPublisher {
    fn publish<'a>(&'a self, message: &'a Outgoing) -> PublishFuture<'a> {
        Box::pin(self.send(message))
    }
}
