//! What can be chosen.

use crate::address::Secret;
use crate::error::ConnectError;
use std::path::PathBuf;
use std::time::Duration;

/// So long may a prefix be: it is part of every key, and of every message.
const LONGEST_PREFIX: usize = 64;

/// So long may anything take: who waits longer has other troubles, and sums of times must not
/// overflow.
const LONGEST_TIME: Duration = Duration::from_secs(3600);

/// How a store on Redis is connected. The defaults suit a server in the same data centre.
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
    /// Begins the name of every key, so that several deployments share one Redis: 1 to 64 of
    /// `A`–`Z`, `a`–`z`, `0`–`9`, `.`, `_` and `-`. Anything else could mean something to Redis
    /// (braces choose the node of a Cluster) or to ACL patterns.
    pub prefix: String,
    /// How long a connection may take, with all that is asked of a server before it is used;
    /// and how long a call waits for one. 3 s: enough for one lost packet that is sent again.
    pub connect_timeout: Duration,
    /// How long an answer may take. Longer than any script should run; what has not answered by
    /// then is left, and what was asked may have been done. 5 s. Every three times as long a
    /// server is asked whether it can still be used.
    pub answer_timeout: Duration,
    /// How long after a failed attempt to connect the next one comes. It doubles from attempt
    /// to attempt, and up to half of it is taken away at random, so that not all come at once
    /// to a server that has just come up. 50 ms.
    pub first_backoff: Duration,
    /// How long that can get: about so long after it is back a server is used again. 2 s.
    pub longest_backoff: Duration,
    /// As whom to ask sentinels, if they want to know. They have users of their own.
    pub sentinel_user: Option<String>,
    /// With which password to ask sentinels.
    pub sentinel_password: Option<Secret>,
    /// A file with certificates (PEM) that are trusted as the system's are: for a server
    /// whose certificate was signed by nobody else. For addresses with `rediss`.
    pub ca_file: Option<PathBuf>,
    /// A file with the certificate (PEM) to show to servers that ask for one.
    pub certificate_file: Option<PathBuf>,
    /// A file with the private key (PEM) of that certificate.
    pub key_file: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            prefix: "requeue".to_owned(),
            connect_timeout: Duration::from_secs(3),
            answer_timeout: Duration::from_secs(5),
            first_backoff: Duration::from_millis(50),
            longest_backoff: Duration::from_secs(2),
            sentinel_user: None,
            sentinel_password: None,
            ca_file: None,
            certificate_file: None,
            key_file: None,
        }
    }
}

impl Options {
    /// Whether they can mean something.
    pub(crate) fn check(&self) -> Result<(), ConnectError> {
        let wrong = |reason: String| Err(ConnectError::Options { reason });
        let (prefix, bytes) = (&self.prefix, self.prefix.len());
        if !(1..=LONGEST_PREFIX).contains(&bytes) {
            return wrong(format!("a prefix has 1 to {LONGEST_PREFIX} bytes, and not {bytes}"));
        }
        let is_fine = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if let Some(odd) = prefix.chars().find(|&c| !is_fine(c)) {
            return wrong(format!("prefix {prefix:?} has a {odd:?}, and only A-Za-z0-9._- may be"));
        }
        for (name, time) in [
            ("connect_timeout", self.connect_timeout),
            ("answer_timeout", self.answer_timeout),
            ("first_backoff", self.first_backoff),
            ("longest_backoff", self.longest_backoff),
        ] {
            if time > LONGEST_TIME {
                return wrong(format!("{name} is {time:?}, and the longest is {LONGEST_TIME:?}"));
            }
            if time.is_zero() {
                return wrong(format!("{name} is 0, and nothing is that fast"));
            }
        }
        if self.longest_backoff < self.first_backoff {
            let (longest, first) = (self.longest_backoff, self.first_backoff);
            return wrong(format!("longest_backoff {longest:?} is under first_backoff {first:?}"));
        }
        if self.certificate_file.is_some() != self.key_file.is_some() {
            return wrong("certificate_file and key_file go together".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_can_mean_nothing_are_refused() {
        type Set = fn(&mut Options);
        let cases: [(Set, &str); 10] = [
            (|options| options.prefix.clear(), "a prefix has 1 to 64 bytes, and not 0"),
            (|options| options.prefix = "a".repeat(65), "1 to 64 bytes, and not 65"),
            (|options| options.prefix = "a{b".to_owned(), r#"prefix "a{b" has a '{'"#),
            (|options| options.prefix = "ä".to_owned(), "has a 'ä'"),
            (|options| options.connect_timeout = Duration::ZERO, "connect_timeout is 0"),
            (|options| options.first_backoff = Duration::ZERO, "first_backoff is 0"),
            (|options| options.longest_backoff = Duration::ZERO, "longest_backoff is 0"),
            (|options| options.first_backoff *= 50, "2s is under first_backoff 2.5s"),
            (|options| options.answer_timeout = Duration::MAX, "and the longest is 3600s"),
            (|options| options.key_file = Some("k".into()), "certificate_file and key_file"),
        ];
        Options::default().check().unwrap();
        for (set, what) in cases {
            let mut options = Options::default();
            set(&mut options);
            let told = options.check().expect_err(what).to_string();
            assert!(told.contains(what), "{told}");
        }
    }

    #[test]
    fn passwords_are_not_shown() {
        let sentinel_password = Some(Secret::from("hunter2"));
        let options = Options { sentinel_password, ..Options::default() };
        assert!(!format!("{options:?}").contains("hunter2"));
    }
}
