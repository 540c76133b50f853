//! Options of a client, and errors of connecting.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// The longest timeout. It keeps sums of timeouts from overflowing.
const MAX_TIMEOUT: Duration = Duration::from_secs(3600);

/// How a client connects to a server.
///
/// ```
/// use requeue_http::client::{Options, Secret};
///
/// let mut options = Options::default();
/// options.token = Some(Secret::from("hunter2"));
/// assert!(!format!("{options:?}").contains("hunter2"));
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// The token to send, if the server requires one. Default: none.
    pub token: Option<Secret>,
    /// A PEM file with certificates to trust in addition to those of the system, for example for a
    /// server with a self-signed certificate (created with `CA:FALSE`). Default: none.
    pub ca_file: Option<PathBuf>,
    /// The timeout of opening a connection, including DNS lookup and TLS handshake. At most 1 hour.
    /// Default: 5 s.
    pub connect_timeout: Duration,
    /// The timeout for the beginning of a response, and for each further part of it. For each MiB of
    /// the request, one second is added; for a long-polling call, the time that it waits. After the
    /// timeout, the outcome of the call is unknown. The whole response may take this long, and one
    /// second more for each 16 KiB of it. At most 1 hour. Default: 10 s.
    pub response_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            token: None,
            ca_file: None,
            connect_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(10),
        }
    }
}

impl Options {
    /// Fails if an option is out of range.
    pub(super) fn check(&self) -> Result<(), HttpConnectError> {
        let wrong = |reason: String| Err(HttpConnectError::Options { reason });
        for (name, time) in
            [("connect_timeout", self.connect_timeout), ("response_timeout", self.response_timeout)]
        {
            if time > MAX_TIMEOUT {
                return wrong(format!("{name} is {time:?}; the maximum is {MAX_TIMEOUT:?}"));
            }
            if time.is_zero() {
                return wrong(format!("{name} is 0; it must be longer"));
            }
        }
        Ok(())
    }
}

/// A token. `Debug` does not print it.
///
/// ```
/// use requeue_http::client::Secret;
///
/// assert_eq!(format!("{:?}", Secret::from("hunter2")), "Secret(…)");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub(super) String);

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Secret(text.to_owned())
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Secret(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// A store cannot be created, because an argument is invalid or a resource is missing. It does not tell
/// whether the server can be reached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HttpConnectError {
    /// The URL is invalid.
    #[error("invalid server URL: {reason}")]
    Address {
        /// What is wrong with the URL, and which forms are allowed.
        reason: String,
    },
    /// An option is invalid.
    #[error("invalid option: {reason}")]
    Options {
        /// The option, and what is wrong with it.
        reason: String,
    },
    /// The operating system could not start a thread.
    #[error("cannot start the network thread: {reason}")]
    Thread {
        /// The error of the operating system.
        reason: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_out_of_range_are_rejected() {
        type Set = fn(&mut Options);
        let cases: [(Set, &str); 3] = [
            (|options| options.connect_timeout = Duration::ZERO, "connect_timeout is 0"),
            (|options| options.response_timeout = Duration::ZERO, "response_timeout is 0"),
            (|options| options.response_timeout = Duration::MAX, "the maximum is 3600s"),
        ];
        Options::default().check().unwrap();
        for (set, what) in cases {
            let mut options = Options::default();
            set(&mut options);
            let error = options.check().expect_err(what).to_string();
            assert!(error.contains(what), "{error}");
        }
    }
}
