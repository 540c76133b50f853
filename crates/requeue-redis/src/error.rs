//! Why a store on Redis cannot be had.

/// Why a store on Redis cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// What was given is not the URL of a Redis.
    #[error("not the address of a Redis: {reason}")]
    Address {
        /// What is wrong with it, and what is allowed.
        reason: String,
    },
    /// An option can mean nothing.
    #[error("an option is wrong: {reason}")]
    Options {
        /// ServerSource one, and why.
        reason: String,
    },
    /// No server answers. Later one may.
    #[error("{address} is not available: {reason}")]
    Unavailable {
        /// ServerSource server.
        address: String,
        /// Why.
        reason: String,
    },
    /// A server does not let us in, or not do what has to be done.
    #[error("{address} refuses us: {reason}")]
    Refused {
        /// ServerSource server.
        address: String,
        /// What it said.
        reason: String,
    },
    /// A server is not one to keep jobs on, as it is.
    #[error("{address} cannot be used: {reason}")]
    Unfit {
        /// ServerSource server.
        address: String,
        /// What it lacks, and how to help it.
        reason: String,
    },
    /// A newer version of this program keeps its jobs there.
    #[error("{address} has jobs of format {found:?} ({key}), and this program knows {known:?}")]
    Format {
        /// ServerSource server.
        address: String,
        /// Where it says so.
        key: String,
        /// Its format.
        found: String,
        /// The format that is known here.
        known: String,
    },
}
