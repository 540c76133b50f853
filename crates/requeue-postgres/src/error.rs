//! Errors of opening a store.

/// Why a [`PostgresStore`](crate::PostgresStore) could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PostgresConnectError {
    /// The URL is invalid. The URL itself is not shown, because it may contain a password.
    #[error("invalid Postgres URL: {reason}")]
    Url {
        /// What is wrong with it.
        reason: String,
    },
    /// An option is invalid.
    #[error("invalid option: {reason}")]
    Options {
        /// Which option, its value and the limit.
        reason: String,
    },
    /// A file with certificates cannot be used.
    #[error("TLS cannot be set up: {reason}")]
    Tls {
        /// Which file, and why.
        reason: String,
    },
    /// No server can be reached at the moment.
    #[error("{address} is not available: {reason}")]
    Unavailable {
        /// The servers that were tried.
        address: String,
        /// The network error, or the server's response.
        reason: String,
    },
    /// The server denies access, or the role lacks a privilege.
    #[error("{address} denied access: {reason}")]
    Refused {
        /// The servers that were tried.
        address: String,
        /// The server's error, and what helps.
        reason: String,
    },
    /// The server cannot store jobs, for example because its version is too old.
    #[error("{address} cannot be used: {reason}")]
    Unfit {
        /// The servers that were tried.
        address: String,
        /// What does not fit, and how to change it.
        reason: String,
    },
    /// Another version of requeue has created the tables, or uses them in a way that this version does not know. Nothing was
    /// changed.
    #[error(
        "the schema {schema:?} on {address} {found}: run the version that created it, or move its jobs with `requeue export` and `requeue import`"
    )]
    Format {
        /// The servers that were tried.
        address: String,
        /// The schema.
        schema: String,
        /// What was found: another format, or features that are not supported.
        found: String,
    },
}
