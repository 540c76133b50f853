//! What can be chosen, and what cannot.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// So long may anything take: who waits longer has other troubles, and sums of times must not
/// overflow.
const LONGEST_TIME: Duration = Duration::from_secs(3600);

/// How a server is reached.
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
    /// What the server lets us in for.
    pub token: Option<Secret>,
    /// A file with certificates (PEM) that are trusted as the system's are: for a server
    /// whose certificate was signed by nobody else.
    pub ca_file: Option<PathBuf>,
    /// How long it may take to get a connection, with the name looked up and TLS begun. 5 s.
    pub connect_timeout: Duration,
    /// How long an answer may take to begin, and each of its parts to follow; for each MiB that is
    /// sent a second more, and for a call that waits as long as that. What has not answered by
    /// then is left, and may have been done. 10 s.
    pub answer_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            token: None,
            ca_file: None,
            connect_timeout: Duration::from_secs(5),
            answer_timeout: Duration::from_secs(10),
        }
    }
}

impl Options {
    /// Whether they can mean something.
    pub(super) fn check(&self) -> Result<(), ConnectError> {
        let wrong = |reason: String| Err(ConnectError::Options { reason });
        for (name, time) in
            [("connect_timeout", self.connect_timeout), ("answer_timeout", self.answer_timeout)]
        {
            if time > LONGEST_TIME {
                return wrong(format!("{name} is {time:?}, and the longest is {LONGEST_TIME:?}"));
            }
            if time.is_zero() {
                return wrong(format!("{name} is 0, and nothing is that fast"));
            }
        }
        Ok(())
    }
}

/// A token. It is not shown by `Debug`.
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

/// Why a store cannot be had: mend the call. Whether there is a server is not asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// What was given is not the URL of a server.
    #[error("not the address of a server: {reason}")]
    Address {
        /// What is wrong with it, and what is allowed.
        reason: String,
    },
    /// An option can mean nothing.
    #[error("an option is wrong: {reason}")]
    Options {
        /// Which one, and why.
        reason: String,
    },
    /// The system has no thread for it.
    #[error("there is no thread for its connections: {reason}")]
    Thread {
        /// Why.
        reason: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_can_mean_nothing_are_refused() {
        type Set = fn(&mut Options);
        let cases: [(Set, &str); 3] = [
            (|options| options.connect_timeout = Duration::ZERO, "connect_timeout is 0"),
            (|options| options.answer_timeout = Duration::ZERO, "answer_timeout is 0"),
            (|options| options.answer_timeout = Duration::MAX, "and the longest is 3600s"),
        ];
        Options::default().check().unwrap();
        for (set, what) in cases {
            let mut options = Options::default();
            set(&mut options);
            let told = options.check().expect_err(what).to_string();
            assert!(told.contains(what), "{told}");
        }
    }
}
