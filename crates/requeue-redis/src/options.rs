//! Options of a connection.

use crate::address::Secret;
use crate::error::RedisConnectError;
use std::path::PathBuf;
use std::time::Duration;

/// The longest prefix, in bytes: it is part of every key and every channel name.
const LONGEST_PREFIX: usize = 64;

/// The longest timeout or backoff, so that sums of times cannot overflow.
const LONGEST_TIME: Duration = Duration::from_secs(3600);

/// How a [`RedisStore`](crate::RedisStore) connects to Redis. The defaults suit a server in the same
/// data centre.
///
/// ```
/// use requeue_redis::Options;
///
/// let mut options = Options::default();
/// options.prefix = "shop-staging".to_owned();
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// The prefix of every key, so that several deployments can share one Redis. 1 to 64
    /// characters from `A`–`Z`, `a`–`z`, `0`–`9`, `.`, `_` and `-`; default `requeue`. Other
    /// characters are rejected because they have a meaning in key names (braces choose the
    /// Cluster slot) or in ACL patterns.
    pub prefix: String,
    /// How long connecting may take, including the checks before a server is used, and how long a
    /// call waits for a connection. Default 3 s, enough for one lost packet to be sent again.
    pub connect_timeout: Duration,
    /// How long a response may take; longer than any script should run. Default 5 s. After that
    /// the connection is closed and the call fails with an unknown outcome. A server is checked
    /// again each time three times this long has passed.
    pub response_timeout: Duration,
    /// How long to wait after the first failed attempt to connect. Default 50 ms. It doubles with
    /// each attempt, and up to half of it is subtracted at random, so that not all clients connect
    /// at the same moment to a server that has just started.
    pub first_backoff: Duration,
    /// The longest wait between attempts to connect: a server that is back is used again after at
    /// most about this long. Default 2 s.
    pub longest_backoff: Duration,
    /// Runs the connections on the tokio runtime that the store is opened on, instead of on a thread of
    /// their own. Default `false`. Saves the switch between threads with each call and each response.
    ///
    /// The runtime needs its I/O and time drivers (`enable_all`), and has to live as long as the store:
    /// when it has ended, all calls fail. Handlers that block its threads delay responses.
    pub use_current_runtime: bool,
    /// The user name for the sentinels, if they require one. Sentinels have users of their own.
    pub sentinel_user: Option<String>,
    /// The password for the sentinels, if they require one.
    pub sentinel_password: Option<Secret>,
    /// A PEM file with CA certificates to trust in addition to the system's, for example for a
    /// private CA. Used for URLs that begin with `rediss`.
    pub ca_file: Option<PathBuf>,
    /// A PEM file with the client certificate, for servers that require one. Requires `key_file`.
    pub certificate_file: Option<PathBuf>,
    /// A PEM file with the private key of the client certificate. Requires `certificate_file`.
    pub key_file: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            prefix: "requeue".to_owned(),
            connect_timeout: Duration::from_secs(3),
            response_timeout: Duration::from_secs(5),
            first_backoff: Duration::from_millis(50),
            longest_backoff: Duration::from_secs(2),
            use_current_runtime: false,
            sentinel_user: None,
            sentinel_password: None,
            ca_file: None,
            certificate_file: None,
            key_file: None,
        }
    }
}

impl Options {
    /// Fails with [`RedisConnectError::Options`] if an option is invalid.
    pub(crate) fn check(&self) -> Result<(), RedisConnectError> {
        let wrong = |reason: String| Err(RedisConnectError::Options { reason });
        let (prefix, bytes) = (&self.prefix, self.prefix.len());
        if !(1..=LONGEST_PREFIX).contains(&bytes) {
            return wrong(format!("prefix has {bytes} bytes, but must have 1 to {LONGEST_PREFIX}"));
        }
        let is_fine = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if let Some(odd) = prefix.chars().find(|&c| !is_fine(c)) {
            return wrong(format!(
                "prefix {prefix:?} contains {odd:?}; allowed are A-Z a-z 0-9 . _ -"
            ));
        }
        for (name, time) in [
            ("connect_timeout", self.connect_timeout),
            ("response_timeout", self.response_timeout),
            ("first_backoff", self.first_backoff),
            ("longest_backoff", self.longest_backoff),
        ] {
            if time > LONGEST_TIME {
                return wrong(format!("{name} is {time:?}, but must be at most {LONGEST_TIME:?}"));
            }
            if time.is_zero() {
                return wrong(format!("{name} is 0, but must be longer"));
            }
        }
        if self.longest_backoff < self.first_backoff {
            let (longest, first) = (self.longest_backoff, self.first_backoff);
            return wrong(format!(
                "longest_backoff {longest:?} is shorter than first_backoff {first:?}"
            ));
        }
        if self.certificate_file.is_some() != self.key_file.is_some() {
            return wrong("certificate_file and key_file must be given together".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_options_are_rejected() {
        type Set = fn(&mut Options);
        let cases: [(Set, &str); 10] = [
            (|options| options.prefix.clear(), "prefix has 0 bytes, but must have 1 to 64"),
            (
                |options| options.prefix = "a".repeat(65),
                "prefix has 65 bytes, but must have 1 to 64",
            ),
            (|options| options.prefix = "a{b".to_owned(), r#"prefix "a{b" contains '{'"#),
            (|options| options.prefix = "ä".to_owned(), "contains 'ä'"),
            (|options| options.connect_timeout = Duration::ZERO, "connect_timeout is 0"),
            (|options| options.first_backoff = Duration::ZERO, "first_backoff is 0"),
            (|options| options.longest_backoff = Duration::ZERO, "longest_backoff is 0"),
            (|options| options.first_backoff *= 50, "2s is shorter than first_backoff 2.5s"),
            (|options| options.response_timeout = Duration::MAX, "but must be at most 3600s"),
            (|options| options.key_file = Some("k".into()), "certificate_file and key_file"),
        ];
        Options::default().check().unwrap();
        for (set, what) in cases {
            let mut options = Options::default();
            set(&mut options);
            let error = options.check().expect_err(what).to_string();
            assert!(error.contains(what), "{error}");
        }
    }

    #[test]
    fn passwords_are_not_shown() {
        let sentinel_password = Some(Secret::from("hunter2"));
        let options = Options { sentinel_password, ..Options::default() };
        assert!(!format!("{options:?}").contains("hunter2"));
    }
}
