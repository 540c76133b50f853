//! Options of a connection.

use crate::error::PostgresConnectError;
use std::time::Duration;

/// The longest timeout, so that sums of times cannot overflow.
const LONGEST_TIME: Duration = Duration::from_secs(3600);

/// The longest name of a schema: Postgres truncates longer names.
const LONGEST_SCHEMA: usize = 63;

/// How a [`PostgresStore`](crate::PostgresStore) uses its database. The defaults suit a server in the same
/// data centre.
///
/// ```
/// use requeue_postgres::Options;
///
/// let mut options = Options::default();
/// options.schema = "requeue_staging".to_owned();
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// The schema that contains the tables and functions, so that several queues can share one
    /// database. 1 to 63 characters from `a`–`z`, `0`–`9` and `_`, not beginning with a digit or `pg_`;
    /// default `requeue`.
    pub schema: String,
    /// The largest number of connections of this process. Default 10. One more is used for
    /// [`listen`](Self::listen).
    pub max_connections: usize,
    /// How long connecting to a host of the URL may take, before the next one is tried, and how long a call
    /// waits for a connection. Default 5 s.
    pub connect_timeout: Duration,
    /// How long a response may take. Default 30 s. After that the connection is closed, and a call that
    /// changes something fails with an unknown outcome.
    pub response_timeout: Duration,
    /// Creates the schema when the store is opened, if there is none. Default `true`. If `false`, opening a
    /// store without tables fails; a privileged role can create them with `requeue postgres migrate`.
    pub migrate: bool,
    /// How often a process looks for jobs of other processes, while someone waits for jobs. Default 100 ms.
    pub poll_interval: Duration,
    /// Whether to receive notifications of other processes (LISTEN), and to send them (NOTIFY), so that a
    /// job that is due immediately starts within milliseconds. Default `true`. Without it, or behind a
    /// connection pooler in transaction mode, a job starts within the poll interval.
    pub listen: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            schema: "requeue".to_owned(),
            max_connections: 10,
            connect_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(30),
            migrate: true,
            poll_interval: Duration::from_millis(100),
            listen: true,
        }
    }
}

impl Options {
    pub(crate) fn check(&self) -> Result<(), PostgresConnectError> {
        let fail = |reason| Err(PostgresConnectError::Options { reason });
        let name = &self.schema;
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let begins_well =
            name.starts_with(|c: char| !c.is_ascii_digit()) && !name.starts_with("pg_");
        if name.len() > LONGEST_SCHEMA || !begins_well || !name.chars().all(allowed) {
            return fail(format!(
                "the schema is {name:?}; it must have 1 to {LONGEST_SCHEMA} characters from a-z, 0-9 and _, and not begin with a digit or pg_"
            ));
        }
        if !(1..=1000).contains(&self.max_connections) {
            let count = self.max_connections;
            return fail(format!("max_connections is {count}; the range is 1 to 1000"));
        }
        for (name, value) in [
            ("connect_timeout", self.connect_timeout),
            ("response_timeout", self.response_timeout),
            ("poll_interval", self.poll_interval),
        ] {
            if value.is_zero() || value > LONGEST_TIME {
                return fail(format!("{name} is {value:?}; the range is up to {LONGEST_TIME:?}"));
            }
        }
        Ok(())
    }
}
