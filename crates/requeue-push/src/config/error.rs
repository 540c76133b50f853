//! Why a push setting is invalid.

use requeue_http::times::show_duration;
use std::time::Duration;

/// A push setting is invalid. No message contains a secret, the value of a header or the URL, which may
/// contain a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidPush {
    /// The URL is invalid.
    #[error("the url is invalid: {reason}")]
    Url {
        /// What is wrong with it.
        reason: String,
    },
    /// A header is invalid.
    #[error("header {name:?}: {reason}")]
    Header {
        /// The name of the header.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// There are too many headers.
    #[error("{count} headers are too many; the limit is {limit}")]
    TooManyHeaders {
        /// How many there are.
        count: usize,
        /// How many are allowed.
        limit: usize,
    },
    /// A signing secret is invalid.
    #[error("the signing secret is invalid: {reason}")]
    Secret {
        /// What is wrong with it.
        reason: String,
    },
    /// There are too many secrets.
    #[error("{count} secrets are too many; the limit is {limit}: the new one and the previous one")]
    TooManySecrets {
        /// How many there are.
        count: usize,
        /// How many are allowed.
        limit: usize,
    },
    /// The setting has secrets that the store lacks, because the kind was imported.
    #[error("the signing secrets are not stored; set them again")]
    SecretsNotStored,
    /// The setting has a password that the store lacks, because the kind was imported.
    #[error("the password of the url is not stored; set the url again")]
    PasswordNotStored,
    /// The URL is that of a message broker, and the target would send HTTP requests.
    #[error("the url is that of a message broker")]
    NotHttp,
    /// A field is only for webhooks, and the URL is that of a message broker.
    #[error("the {field}: only requests over http and https have it, not messages")]
    HttpOnly {
        /// The field.
        field: &'static str,
    },
    /// A value is the masked one that the API shows.
    #[error("a value is masked ('…'); leave the field out to keep it")]
    Masked {
        /// The field with the value.
        field: &'static str,
    },
    /// The URL has another origin, and stored credentials would be sent there.
    #[error(
        "the url has another scheme, host or port than before: give the {field} again, or null for none"
    )]
    OtherOrigin {
        /// The field that has to be given again.
        field: &'static str,
    },
    /// The timeout is not a duration.
    #[error("the timeout: {reason}")]
    Duration {
        /// What is wrong with it.
        reason: String,
    },
    /// The timeout is too short or too long.
    #[error("the timeout is {}; the range is {} to {}",
        show_duration(*value), show_duration(*min), show_duration(*max))]
    Timeout {
        /// The timeout.
        value: Duration,
        /// The shortest timeout.
        min: Duration,
        /// The longest timeout.
        max: Duration,
    },
    /// The concurrency is too low or too high.
    #[error("the concurrency is {value}; the range is {min} to {max}")]
    Concurrency {
        /// The concurrency.
        value: u32,
        /// The lowest concurrency.
        min: u32,
        /// The highest concurrency.
        max: u32,
    },
    /// The format is unknown.
    #[error("the format: {reason}")]
    Format {
        /// What is wrong with it, and which formats there are.
        reason: String,
    },
    /// The setting is too long to be stored.
    #[error("{what} take {len} bytes in JSON; the limit is {limit}")]
    TooLong {
        /// What is too long.
        what: &'static str,
        /// The length in bytes.
        len: usize,
        /// The largest length in bytes.
        limit: usize,
    },
    /// The JSON has another form.
    #[error("{reason}")]
    Json {
        /// The error of the parser.
        reason: String,
    },
}

impl InvalidPush {
    pub(super) fn json(error: serde_json::Error) -> Self {
        InvalidPush::Json { reason: error.to_string() }
    }

    pub(super) fn url(reason: impl Into<String>) -> Self {
        InvalidPush::Url { reason: reason.into() }
    }

    /// Returns the field of the push setting that is invalid, such as `url`. `None` if it is not one field.
    pub fn field(&self) -> Option<&'static str> {
        match self {
            InvalidPush::Url { .. } | InvalidPush::PasswordNotStored | InvalidPush::NotHttp => {
                Some("url")
            }
            InvalidPush::HttpOnly { field } => Some(field),
            InvalidPush::Header { .. } | InvalidPush::TooManyHeaders { .. } => Some("headers"),
            InvalidPush::Secret { .. }
            | InvalidPush::TooManySecrets { .. }
            | InvalidPush::SecretsNotStored => Some("secrets"),
            InvalidPush::Masked { field } | InvalidPush::OtherOrigin { field } => Some(field),
            InvalidPush::Duration { .. } | InvalidPush::Timeout { .. } => Some("timeout"),
            InvalidPush::Concurrency { .. } => Some("concurrency"),
            InvalidPush::Format { .. } => Some("format"),
            InvalidPush::TooLong { .. } | InvalidPush::Json { .. } => None,
        }
    }
}
