//! Why a bridge or a target cannot be made.

use requeue_push::InvalidPush;

/// A bridge, or a target at a message broker, cannot be made. No message contains a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BridgeError {
    /// The URL or another setting is invalid.
    #[error(transparent)]
    Invalid(#[from] InvalidPush),
    /// The URL is not that of a message broker.
    #[error(
        "the url must begin with amqp://, nats://, kafka:// or redis://, or with TLS amqps://, nats+tls://, \
         kafka+tls:// or rediss://"
    )]
    NotABroker,
    /// This build does not support the broker.
    #[error("this build does not support {broker}; build it with --features brokers")]
    NotSupported {
        /// The scheme of its URLs, such as `amqp`.
        broker: &'static str,
    },
    /// A file of certificates cannot be read, or the client library rejects a setting.
    #[error("{reason}")]
    Setting {
        /// What is wrong.
        reason: String,
    },
}
