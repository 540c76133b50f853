//! The limits.

use std::time::Duration;

/// What a server puts up with. Each limit keeps one client from taking what is there for all.
///
/// ```
/// use requeue_server::listen::Options;
/// use std::time::Duration;
///
/// let options = Options { drain: Duration::from_secs(5), ..Options::default() };
/// assert_eq!(options.max_connections, 20_000);
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    /// Connections at once. One costs a few kilobytes, and a file of the process: its limit of open
    /// files must be higher.
    pub max_connections: usize,
    /// For a TLS handshake.
    pub handshake_timeout: Duration,
    /// From the first byte of a request, or from connecting, to the end of its head.
    pub head_timeout: Duration,
    /// Bytes of a request's head. Ids and tokens are short; a proxy adds a few hundred bytes. It has
    /// a hundred fields at most, which is hyper's own limit.
    pub max_head: usize,
    /// Between two requests. Longer than the 60 seconds for which proxies keep a connection, so that it
    /// is the client that closes: a server that closes may do so as the next request is on its way.
    pub idle_timeout: Duration,
    /// Bytes of a request's body. The largest batch of jobs has to fit.
    pub max_request: u64,
    /// Between two pieces of a request's body.
    pub body_timeout: Duration,
    /// Bytes of the bodies of all requests that are being read or handled; never less than
    /// [`max_request`](Self::max_request). Counted as they come: who announces much and sends
    /// little holds little. The memory of the process is a small multiple of it, as what is
    /// parsed takes room too.
    pub max_buffered: u64,
    /// For a request to get its share of [`max_buffered`](Self::max_buffered). Short, as a crowd that
    /// waits takes up connections.
    pub room_timeout: Duration,
    /// For a client to read something of its answer.
    pub write_timeout: Duration,
    /// For a client to stop sending a request that was answered before it was read. It is not read
    /// for longer: the rest of it is of no use to anybody.
    pub linger: Duration,
    /// For requests under way, once the server is told to stop.
    pub drain: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_connections: 20_000,
            handshake_timeout: Duration::from_secs(10),
            head_timeout: Duration::from_secs(10),
            max_head: 32 * 1024,
            idle_timeout: Duration::from_secs(75),
            max_request: 32 << 20,
            body_timeout: Duration::from_secs(30),
            max_buffered: 256 << 20,
            room_timeout: Duration::from_secs(5),
            write_timeout: Duration::from_secs(60),
            linger: Duration::from_secs(5),
            drain: Duration::from_secs(30),
        }
    }
}
