//! [`broker_target`]: publishes the jobs of a kind to a message broker.

use crate::error::BridgeError;
use crate::outgoing::Outgoing;
use requeue_http::times::show_duration;
use requeue_push::{
    Broker, BrokerUrl, Delivery, DeliveryFuture, DeliveryOutcome, PushConfig, PushTarget, PushUrl,
    Target,
};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

/// How connections to brokers are made.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct BrokerOptions {
    /// A file with certificates of authorities that are trusted in addition to those of the system, in PEM.
    pub ca_file: Option<PathBuf>,
    /// A file with the certificate that clients present to brokers, in PEM. Requires `client_key`.
    pub client_cert: Option<PathBuf>,
    /// A file with the private key of that certificate, in PEM.
    pub client_key: Option<PathBuf>,
    /// A `.creds` file with the JWT and the key of a NATS user. Used for all NATS servers.
    pub nats_creds_file: Option<PathBuf>,
}

/// The connection to a broker. It is made when the first message is published, and again after it was lost.
pub(crate) trait Publish: Send + Sync + 'static {
    /// Publishes a message, and waits until the broker confirms it. If there is a connection, the message is
    /// sent when the future is first polled, so that messages are sent in the order of the calls. The future
    /// may be dropped.
    fn publish<'a>(&'a self, message: &'a Outgoing) -> PublishFuture<'a>;
}

pub(crate) type PublishFuture<'a> = Pin<Box<dyn Future<Output = DeliveryOutcome> + Send + 'a>>;

/// Returns the target of a push setting whose URL is that of a message broker. Fails if the setting is
/// invalid, or this build does not support the broker.
///
/// A job is acked when the broker has confirmed its message. While the broker is unreachable or overloaded,
/// no attempts are counted.
pub fn broker_target(
    config: PushConfig,
    options: &BrokerOptions,
) -> Result<PushTarget, BridgeError> {
    config.check()?;
    let PushUrl::Broker(url) = &config.url else { return Err(BridgeError::NotABroker) };
    let publisher = publisher(url.clone(), options)?;
    let (timeout, concurrency, url) = (config.timeout, config.concurrency, url.clone());
    let target = BrokerTarget { config, url, publisher };
    Ok(PushTarget::new(Arc::new(target), timeout, concurrency))
}

/// Returns what publishes to a broker, by its scheme.
pub(crate) fn publisher(
    url: BrokerUrl,
    options: &BrokerOptions,
) -> Result<Box<dyn Publish>, BridgeError> {
    match url.broker() {
        #[cfg(feature = "amqp")]
        Broker::Amqp => Ok(Box::new(crate::amqp::AmqpPublisher::new(url, options)?)),
        #[cfg(feature = "kafka")]
        Broker::Kafka => Ok(Box::new(crate::kafka::KafkaPublisher::new(url, options)?)),
        #[cfg(feature = "nats")]
        Broker::Nats => Ok(Box::new(crate::nats::NatsPublisher::new(url, options)?)),
        #[cfg(feature = "redis")]
        Broker::Redis => Ok(Box::new(crate::redis_streams::RedisPublisher::new(url, options)?)),
        #[allow(unreachable_patterns)] // with all features
        broker => Err(BridgeError::NotSupported { broker: broker.scheme() }),
    }
}

struct BrokerTarget {
    config: PushConfig,
    url: BrokerUrl,
    publisher: Box<dyn Publish>,
}

/// Returns the outcome with an error that whoever may set the URL may read.
fn with_shown_error(mut outcome: DeliveryOutcome, url: &BrokerUrl) -> DeliveryOutcome {
    match &mut outcome {
        DeliveryOutcome::Retry { error, .. }
        | DeliveryOutcome::SlowDown { error, .. }
        | DeliveryOutcome::Unreachable { error }
        | DeliveryOutcome::Unavailable { error }
        | DeliveryOutcome::Overloaded { error }
        | DeliveryOutcome::Bury { error } => *error = url.error_text(error),
        _ => {}
    }
    outcome
}

impl Target for BrokerTarget {
    fn name(&self) -> String {
        self.url.origin()
    }

    fn keeps_order(&self) -> bool {
        true
    }

    fn deliver<'a>(&'a self, delivery: &'a Delivery) -> DeliveryFuture<'a> {
        Box::pin(async {
            let outgoing = match Outgoing::new(&self.config, delivery) {
                Ok(outgoing) => outgoing,
                Err(error) => return DeliveryOutcome::Bury { error },
            };
            let publish = self.publisher.publish(&outgoing);
            // The broker may have stored the message: the next attempt has the same id.
            match tokio::time::timeout(self.config.timeout, publish).await {
                Ok(outcome) => with_shown_error(outcome, &self.url),
                Err(_) => {
                    let timeout = show_duration(self.config.timeout);
                    let error = format!("the broker did not confirm the message within {timeout}");
                    DeliveryOutcome::Unavailable { error }
                }
            }
        })
    }
}
