//! Which topics exist, and the creation of the topic for rejected messages.

use super::Connector;
use super::client::{Client, Context, blocking, describe};
use super::producer::Producer;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::error::KafkaError;
use rdkafka::producer::Producer as _;
use rdkafka::types::RDKafkaErrorCode;
use std::time::Duration;

/// How long brokers may take to respond when a source connects.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Broker defaults for the number of partitions and of replicas.
const BROKER_DEFAULT: i32 = -1;

/// Whether a topic can be used.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TopicState {
    Exists,
    Missing,
    /// It exists or not, and the broker reports this error.
    Failed(RDKafkaErrorCode),
}

/// Returns the state of a topic. Fails with a text for people if no broker responds within 10 seconds.
pub(super) async fn topic_state(
    connector: &Connector,
    producer: &Producer,
    topic: &str,
) -> Result<TopicState, String> {
    let (library, name) = (producer.library(), topic.to_owned());
    let fetch = move || {
        let metadata = library.client().fetch_metadata(Some(&name), CONNECT_TIMEOUT)?;
        let found = metadata.topics().iter().find(|topic| topic.name() == name);
        Ok::<_, KafkaError>(found.map(|topic| topic.error().map(RDKafkaErrorCode::from)))
    };
    match blocking(fetch).await? {
        Ok(Some(None | Some(RDKafkaErrorCode::LeaderNotAvailable))) => Ok(TopicState::Exists),
        Ok(None | Some(Some(RDKafkaErrorCode::UnknownTopicOrPartition))) => Ok(TopicState::Missing),
        Ok(Some(Some(code))) => Ok(TopicState::Failed(code)),
        Err(error) => {
            let reason = producer.last_error().recent().unwrap_or_else(|| describe(&error));
            Err(format!("no connection to {} within 10s: {reason}", connector.origin))
        }
    }
}

/// Creates a topic with the broker's defaults. Fails with a text for people.
pub(super) async fn create_topic(connector: &Connector, topic: &str) -> Result<(), String> {
    let config = connector.config(&[]);
    let create = move || config.create_with_context(Context::default());
    let admin: Client<AdminClient<Context>> = Client::create(create).await?;
    let replicas = TopicReplication::Fixed(BROKER_DEFAULT);
    let options = AdminOptions::new()
        .request_timeout(Some(CONNECT_TIMEOUT))
        .operation_timeout(Some(CONNECT_TIMEOUT));
    let topic = NewTopic::new(topic, BROKER_DEFAULT, replicas);
    match admin.create_topics([&topic], &options).await.map(|mut results| results.pop()) {
        // Another bridge may have created it.
        Ok(None | Some(Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists)))) => Ok(()),
        Ok(Some(Err((_, code)))) => Err(code.to_string()),
        Err(error) => Err(describe(&error)),
    }
}
