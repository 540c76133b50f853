//! Consumes a topic as a member of a consumer group.
//!
//! ```text
//!            receive                       ack
//!   group ------------> records in order ------> per partition: offset of the last record + 1 is committed
//!     ^                      |
//!     |                      +--- the partition was given to another member: nothing is committed
//!     +--- what was not committed is delivered again, to this member or to another
//! ```

use super::client::{Client, Context, blocking, describe};
use super::headers::message;
use super::producer::Producer;
use super::topics::{TopicState, create_topic, topic_state};
use super::{Connector, check_topic};
use crate::error::BridgeError;
use crate::incoming::Received;
use crate::message::Message;
use crate::source::{Source, SourceConfig, SourceFuture};
use crate::target::BrokerOptions;
use futures_util::FutureExt;
use rdkafka::Message as _;
use rdkafka::consumer::{CommitMode, Consumer, StreamConsumer};
use rdkafka::error::KafkaError;
use rdkafka::message::BorrowedMessage;
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{Offset, TopicPartitionList};
use requeue_jobs::Timestamp;
use requeue_push::BrokerUrl;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The settings of the consumer, without its group.
const SETTINGS: [(&str, &str); 8] = [
    ("enable.auto.commit", "false"),
    ("enable.auto.offset.store", "false"),
    ("auto.offset.reset", "earliest"),
    ("isolation.level", "read_committed"),
    ("allow.auto.create.topics", "false"),
    // After this time, the partitions of a bridge that was killed are given to another one.
    ("session.timeout.ms", "10000"),
    // What is fetched ahead.
    ("queued.min.messages", "1000"),
    ("queued.max.messages.kbytes", "16384"),
];

/// How long a commit is repeated while the broker is unavailable.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(10);

/// The pause before a commit is repeated.
const COMMIT_PAUSE: Duration = Duration::from_millis(100);

/// Fails if the URL does not name a topic.
pub(crate) fn check_source(url: &BrokerUrl) -> Result<(), BridgeError> {
    url.check_parameters(&["sasl"])?;
    Connector::new(url, &BrokerOptions::default()).map(drop)
}

pub(crate) struct KafkaSource {
    /// `None` after [`close`](Source::close).
    consumer: Option<Arc<Client<StreamConsumer<Context>>>>,
    topic: String,
    rejected: String,
    /// Why the topic for rejected messages could not be created.
    problem: Option<String>,
    /// Sends rejected messages.
    producer: Producer,
    /// The offset of the last record that was returned and not acked, by partition.
    returned: BTreeMap<i32, i64>,
}

impl KafkaSource {
    /// Connects, joins the consumer group, and creates the topic for rejected messages. Fails if no broker
    /// responds within 10 seconds, or the topic to consume does not exist.
    pub(crate) async fn connect(config: &SourceConfig) -> Result<Self, String> {
        let connector = Connector::new(&config.url, &config.options).map_err(|e| e.to_string())?;
        let topic = connector.topic.clone();
        let rejected = config.rejected.clone().unwrap_or_else(|| format!("{topic}.rejected"));
        check_topic(&rejected)?;
        let producer =
            Producer::create(&connector, &[("allow.auto.create.topics", "false")]).await?;
        let failed = |error: &str| format!("topic {topic:?} at {}: {error}", connector.origin);
        match topic_state(&connector, &producer, &topic).await? {
            TopicState::Exists => {}
            TopicState::Missing => return Err(failed("it does not exist")),
            TopicState::Failed(code) => return Err(failed(&code.to_string())),
        }
        let problem = match topic_state(&connector, &producer, &rejected).await? {
            TopicState::Exists => None,
            TopicState::Missing => create_topic(&connector, &rejected).await.err(),
            TopicState::Failed(code) => Some(code.to_string()),
        };
        if let Some(error) = &problem {
            tracing::warn!(topic = rejected, error, "there is no topic for rejected messages");
        }
        let settings = [&SETTINGS[..], &[("group.id", &config.group)]].concat();
        let (settings, name) = (connector.config(&settings), topic.clone());
        let join = move || {
            let consumer: StreamConsumer<Context> =
                settings.create_with_context(Context::default())?;
            consumer.subscribe(&[&name])?;
            Ok(consumer)
        };
        let consumer = Some(Arc::new(Client::create(join).await?));
        Ok(KafkaSource { consumer, topic, rejected, problem, producer, returned: BTreeMap::new() })
    }
}

fn received(record: &BorrowedMessage<'_>) -> Received {
    let millis = record.timestamp().to_millis().and_then(|millis| u64::try_from(millis).ok());
    Received {
        message: message(record),
        id: Some(format!("{}/{}/{}", record.topic(), record.partition(), record.offset())),
        at: millis.map(Timestamp::from_millis),
    }
}

/// Returns why a consumer cannot continue, or `None` if the library recovers by itself: it connects and joins the
/// group again.
fn lost(error: &KafkaError) -> Option<String> {
    use RDKafkaErrorCode as Code;
    let is_lost = matches!(
        error.rdkafka_error_code(),
        None | Some(
            Code::Fatal
                | Code::UnknownTopic
                | Code::UnknownTopicOrPartition
                | Code::TopicAuthorizationFailed
                | Code::GroupAuthorizationFailed
                | Code::InvalidGroupId
                | Code::InconsistentGroupProtocol
                // This build cannot read the records: the consumer does not get past them.
                | Code::BadCompression
                | Code::NotImplemented
                | Code::UnsupportedCompressionType
        )
    ) || matches!(error, KafkaError::MessageConsumptionFatal(_));
    is_lost.then(|| describe(error))
}

/// Whether a commit failed because the partitions are being given to other members. What was not committed is
/// delivered again.
fn is_rebalance(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(
        code,
        Code::IllegalGeneration
            | Code::RebalanceInProgress
            | Code::UnknownMemberId
            | Code::AssignmentLost
            | Code::NoOffset
    )
}

/// Commits the offsets of the partitions that the consumer still has.
fn commit(
    consumer: &StreamConsumer<Context>,
    topic: &str,
    returned: &BTreeMap<i32, i64>,
) -> Result<(), KafkaError> {
    let assigned = consumer.assignment()?;
    let mut offsets = TopicPartitionList::new();
    for (partition, offset) in returned {
        if assigned.find_partition(topic, *partition).is_some() {
            offsets.add_partition_offset(topic, *partition, Offset::Offset(offset + 1))?;
        }
    }
    match offsets.count() {
        0 => Ok(()),
        _ => consumer.commit(&offsets, CommitMode::Sync),
    }
}

impl Source for KafkaSource {
    fn receive(&mut self, max: usize) -> SourceFuture<'_, Vec<Received>> {
        Box::pin(async move {
            let KafkaSource { consumer, returned, .. } = self;
            let consumer = consumer.as_ref().ok_or("the source is closed")?;
            let mut batch = Vec::new();
            // Nothing is awaited after the first record, so that none is lost if this future is dropped.
            let mut next = Some(consumer.recv().await);
            while let Some(found) = next {
                match found {
                    Ok(record) => {
                        returned.insert(record.partition(), record.offset());
                        batch.push(received(&record));
                    }
                    Err(error) => match lost(&error) {
                        Some(error) => return Err(error),
                        None => tracing::warn!(error = describe(&error), "waiting for the broker"),
                    },
                }
                next = match batch.len() {
                    0 => Some(consumer.recv().await),
                    len if len < max => consumer.recv().now_or_never(),
                    _ => None,
                };
            }
            Ok(batch)
        })
    }

    fn ack(&mut self) -> SourceFuture<'_, ()> {
        Box::pin(async move {
            let end = Instant::now() + COMMIT_TIMEOUT;
            while !self.returned.is_empty() {
                let consumer = Arc::clone(self.consumer.as_ref().ok_or("the source is closed")?);
                let (topic, returned) = (self.topic.clone(), self.returned.clone());
                let committed = blocking(move || commit(&consumer, &topic, &returned)).await?;
                match committed {
                    Ok(()) => self.returned.clear(),
                    Err(error) if error.rdkafka_error_code().is_some_and(is_rebalance) => {
                        tracing::debug!(error = describe(&error), "not committed");
                        self.returned.clear();
                    }
                    Err(error) if Instant::now() >= end => {
                        return Err(format!("the commit failed: {}", describe(&error)));
                    }
                    Err(_) => tokio::time::sleep(COMMIT_PAUSE).await,
                }
            }
            Ok(())
        })
    }

    fn reject<'a>(&'a mut self, rejected: &'a Message) -> SourceFuture<'a, ()> {
        Box::pin(async move {
            let key = rejected.key.as_deref();
            let sent = self.producer.send(&self.rejected, key, rejected, None).await;
            sent.map_err(|error| {
                let problem = self.problem.as_ref().map_or(String::new(), |problem| {
                    format!("; when the bridge connected, it could not be created: {problem}")
                });
                let topic = &self.rejected;
                format!("topic {topic:?} for rejected messages: {}{problem}", error.text)
            })
        })
    }

    fn close(&mut self) -> SourceFuture<'_, ()> {
        let consumer = self.consumer.take();
        Box::pin(async move {
            // A consumer leaves its group when it is dropped. A commit that still runs drops it otherwise.
            match consumer.and_then(Arc::into_inner) {
                Some(consumer) => consumer.end().await,
                None => Ok(()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_some_errors_end_a_consumer() {
        use RDKafkaErrorCode as Code;
        for code in [Code::AllBrokersDown, Code::BrokerTransportFailure, Code::PollExceeded] {
            assert_eq!(lost(&KafkaError::MessageConsumption(code)), None);
        }
        for code in [Code::UnknownTopicOrPartition, Code::UnsupportedCompressionType] {
            assert!(lost(&KafkaError::MessageConsumption(code)).is_some(), "{code}");
        }
        assert!(lost(&KafkaError::MessageConsumptionFatal(Code::FencedInstanceId)).is_some());
    }

    #[test]
    fn a_source_is_a_topic() {
        for (url, expected) in [
            ("kafka://h/orders", None),
            ("kafka+tls://u:p@h/orders?sasl=scram-sha-256", None),
            ("kafka://h/", Some("is invalid")),
            ("kafka://h/orders?key=k", Some("there are sasl")),
        ] {
            let checked = check_source(&BrokerUrl::parse(url).unwrap());
            let error = checked.err().map(|error| error.to_string());
            match expected {
                None => assert_eq!(error, None, "{url}"),
                Some(expected) => assert!(error.unwrap().contains(expected), "{url}"),
            }
        }
    }
}
