//! The client of a requeue server: a store over HTTP.
//!
//! [`HttpStore`] implements [`Store`](requeue_jobs::Store), so everything that uses a store works over
//! the network: [`Jobs`](requeue_jobs::Jobs), [`JobWorker`](requeue_jobs::JobWorker), export and
//! import.
//!
//! | what happens | error |
//! |---|---|
//! | no connection can be opened | [unavailable](requeue_jobs::StoreError::Unavailable): nothing was done |
//! | the connection breaks, no response arrives in time, or it arrives too slowly or is too long | [unknown](requeue_jobs::StoreError::Unknown), if the call changes something; otherwise unavailable |
//! | the server reports that it is busy, shutting down or without its store | unavailable |
//! | a proxy between client and server fails | unknown, if the call changes something; otherwise unavailable |
//! | the token is rejected | unavailable: the same call works with a valid token |
//!
//! The client never repeats a request that the server may have received.
//!
//! A response is read up to a bound: 256 MiB for a claim, a page of jobs, or the schedules of a kind; 64
//! MiB for the results of a batch, and for lists of kinds and workers; 64 KiB for an error; 16 MiB for
//! everything else. Exports are not bounded, because they are written as they arrive; nor are streams of
//! events, in which each event is at most 64 KiB long.

mod address;
mod calls;
mod chunks;
mod errors;
mod event_parser;
mod events;
mod options;
mod path;
mod request_body;
mod store;
#[cfg(test)]
mod tests;
mod tls;
mod transport;

pub use calls::CallError;
pub use events::{EventStream, StreamedEvent};
pub use options::{HttpConnectError, Options, Secret};
pub use path::{path, with_query};

use address::ServerAddress;
use std::fmt;
use transport::Transport;

/// A store that sends every operation to a requeue server.
///
/// Clones share their connections. The store works with any async executor and from plain threads,
/// because it runs its network I/O on a thread of its own. Dropping a future ends its request; the
/// operation may have been done.
///
/// The service starts the runs of schedules: [`tick`](requeue_jobs::Store::tick) fails.
///
/// ```no_run
/// use requeue_http::HttpStore;
/// use requeue_jobs::Jobs;
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// # async fn doc() -> Result<(), Box<dyn std::error::Error>> {
/// let jobs = Jobs::new(Arc::new(HttpStore::connect("http://127.0.0.1:8080")?));
/// jobs.put("order.close", "order-42", "unpaid").after(Duration::from_secs(300)).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct HttpStore {
    transport: Transport,
}

impl HttpStore {
    /// Creates a store for the server at this URL: `http://host:port` or `https://host`, followed by
    /// a path if a proxy serves it under one.
    ///
    /// This does not connect. If the server cannot be reached, the first call fails. Fails itself if
    /// the URL is invalid, or if no thread can be started.
    ///
    /// ```
    /// use requeue_http::HttpStore;
    ///
    /// let store = HttpStore::connect("https://example.com/queue/")?;
    /// assert_eq!(store.url(), "https://example.com/queue");
    /// assert!(HttpStore::connect("redis://127.0.0.1").is_err());
    /// # Ok::<(), requeue_http::client::HttpConnectError>(())
    /// ```
    pub fn connect(url: &str) -> Result<Self, HttpConnectError> {
        HttpStore::connect_with(url, Options::default())
    }

    /// Like [`connect`](HttpStore::connect), with options. Also fails if an option is invalid.
    pub fn connect_with(url: &str, options: Options) -> Result<Self, HttpConnectError> {
        options.check()?;
        let transport = Transport::open(ServerAddress::parse(url)?, &options)?;
        Ok(HttpStore { transport })
    }

    /// Returns the URL of the server.
    pub fn url(&self) -> &str {
        self.transport.url()
    }
}

impl fmt::Debug for HttpStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpStore").field("url", &self.url()).finish_non_exhaustive()
    }
}
