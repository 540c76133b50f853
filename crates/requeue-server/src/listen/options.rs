//! Limits of connections and requests.

use std::time::Duration;

/// Limits of connections and requests. Each prevents one client from using up what all clients
/// share.
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
    /// Maximum number of connections. Each costs a few kilobytes and an open file: the limit of
    /// open files of the process must be higher by what the store needs. One more may be open,
    /// without being served. Default: 20,000.
    pub max_connections: usize,
    /// Time limit of a TLS handshake. Default: 10 seconds.
    pub handshake_timeout: Duration,
    /// Time limit from the first byte of a request, or from connecting, to the end of its head.
    /// Default: 10 seconds.
    pub head_timeout: Duration,
    /// Maximum size of a request's head in bytes. Ids and tokens are short; a proxy adds a few
    /// hundred bytes. The number of header fields is limited to 100 by hyper. Default: 32 KiB.
    pub max_head: usize,
    /// Time limit between two requests on a connection. It is longer than the 60 seconds for which
    /// proxies keep idle connections, so that the proxy closes first: if the server closed, it
    /// might do so while the next request is on its way. Default: 75 seconds.
    pub idle_timeout: Duration,
    /// Maximum size of a request's body in bytes. The largest batch of jobs must fit. Default: 32
    /// MiB.
    pub max_request: u64,
    /// How long the server waits for each part of a request's body, of
    /// [`min_rate`](Self::min_rate) times this many bytes. Time in which the server itself does not
    /// read does not count. Default: 30 seconds.
    pub body_timeout: Duration,
    /// Minimum rate at which a request's body must arrive, in bytes per second, on average over
    /// [`body_timeout`](Self::body_timeout). Default: 1 KiB per second.
    pub min_rate: u64,
    /// Memory in bytes for the bodies of all requests that are being read or handled; at least
    /// [`max_request`](Self::max_request). Bytes count when they arrive, not when a content length
    /// announces them. The process uses up to three times as much, because parsed requests take
    /// memory, too. A quarter of it is reserved for the first 64 KiB of every request, so that small
    /// requests do not wait for large ones. Default: 256 MiB.
    pub max_buffered: u64,
    /// If a request waits for memory: a body that holds some, and of which fewer than 256 KiB arrived
    /// in this time, is cut off (408). If all connections are in use: a connection that was idle for
    /// this time, took longer for the head of a request, or was silent for a tenth of this time
    /// since it was opened, is closed for a new one. Default: 1 second.
    pub slow_after: Duration,
    /// How long a request waits for its share of [`max_buffered`](Self::max_buffered) before the
    /// response is a 503. Short, because waiting requests hold connections. A request that holds some
    /// waits for a shorter time, the larger it is. Default: 5 seconds.
    pub room_timeout: Duration,
    /// How long a client may take to read the next byte of its response. Default: 60 seconds.
    pub write_timeout: Duration,
    /// Minimum rate in bytes per second at which a client must read its response, on average over
    /// the time in which the server could send more, after the first
    /// [`write_timeout`](Self::write_timeout). Default: 16 KiB/s.
    pub min_response_rate: u64,
    /// How long the rest of a request is read and discarded if the response was sent before the
    /// request was read completely. Default: 5 seconds.
    pub linger: Duration,
    /// How long requests in flight may take to finish after the shutdown request. Default: 30
    /// seconds.
    pub drain: Duration,
}

impl Options {
    /// Returns how many bytes must be transferred in this time.
    pub(super) fn min_bytes(&self, time: Duration) -> u64 {
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        (self.min_rate.saturating_mul(millis) / 1000).max(1)
    }
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
            min_rate: 1 << 10,
            max_buffered: 256 << 20,
            slow_after: Duration::from_secs(1),
            room_timeout: Duration::from_secs(5),
            write_timeout: Duration::from_secs(60),
            min_response_rate: 16 << 10,
            linger: Duration::from_secs(5),
            drain: Duration::from_secs(30),
        }
    }
}
