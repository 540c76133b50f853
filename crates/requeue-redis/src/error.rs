//! The error type of connecting.

/// Why connecting a [`RedisStore`](crate::RedisStore) failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RedisConnectError {
    /// The URL is invalid.
    #[error("invalid Redis URL: {reason}")]
    Address {
        /// What is wrong, and the supported forms. Does not contain parts of the URL, because they
        /// could belong to the password.
        reason: String,
    },
    /// An option is invalid.
    #[error("invalid option: {reason}")]
    Options {
        /// Which option, and what is wrong with it.
        reason: String,
    },
    /// The server cannot be reached or does not respond. A later attempt may succeed.
    #[error("{address} is not available: {reason}")]
    Unavailable {
        /// The server that was tried.
        address: String,
        /// The network error, or the server's response.
        reason: String,
    },
    /// The server denies access: wrong user or password, or missing permissions.
    #[error("{address} denied access: {reason}")]
    Refused {
        /// The server that was tried.
        address: String,
        /// The server's error.
        reason: String,
    },
    /// The server cannot store jobs with its current version, role or configuration.
    #[error("{address} cannot be used: {reason}")]
    Unfit {
        /// The server that was tried.
        address: String,
        /// What does not fit, and how to change it.
        reason: String,
    },
    /// The keys on the server have a format or use a feature that this version does not support, for
    /// example because a newer version wrote them. Nothing was changed.
    #[error("{address} has jobs in format {found:?} ({key}), but this version {reason}")]
    Format {
        /// The server that was tried.
        address: String,
        /// The key that contains the format.
        key: String,
        /// The format that the key contains, and the features that are in use.
        found: String,
        /// What this version supports, or the feature that it does not know.
        reason: String,
    },
}
