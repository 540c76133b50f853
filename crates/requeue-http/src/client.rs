//! Jobs behind a server: a store over HTTP.
//!
//! [`HttpStore`] is a [`Store`](requeue_jobs::Store), so whatever works on a store works across
//! the network: [`Jobs`](requeue_jobs::Jobs), [`JobWorker`](requeue_jobs::JobWorker), exports.
//!
//! | what happens | what a call answers |
//! |---|---|
//! | no connection can be had | [unavailable](requeue_jobs::StoreError::Unavailable): nothing was done |
//! | the connection breaks, or no answer comes in time | [unknown](requeue_jobs::StoreError::Unknown), if it was to change something |
//! | the server, or a proxy, says that it is busy or stopping | unavailable |
//! | a proxy fails on the way | unknown, if it was to change something |
//! | the token is refused | unavailable: another token, and it works |
//!
//! Nothing that may have arrived is sent a second time by itself.

mod address;
mod body;
mod calls;
mod chunks;
mod link;
mod options;
mod path;
mod refused;
mod store;
#[cfg(test)]
mod tests;
mod tls;
mod told;

pub use calls::CallError;
pub use options::{ConnectError, Options, Secret};
pub use path::path;

use address::Address;
use link::Link;
use std::fmt;

/// Jobs behind a server.
///
/// A handle: clones share their connections. It works on any executor and from plain threads;
/// a thread of its own does what goes over the network. An answer that is dropped ends its
/// request: it may have been done.
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
    link: Link,
}

impl HttpStore {
    /// A store behind the server at this URL: `http://host:port` or `https://host`, and a path
    /// where a proxy has put it under one.
    ///
    /// Nothing is sent yet: whether there is a server, the first call finds out.
    ///
    /// ```
    /// use requeue_http::HttpStore;
    ///
    /// let store = HttpStore::connect("https://example.com/queue/")?;
    /// assert_eq!(store.url(), "https://example.com/queue");
    /// assert!(HttpStore::connect("redis://127.0.0.1").is_err());
    /// # Ok::<(), requeue_http::client::ConnectError>(())
    /// ```
    pub fn connect(url: &str) -> Result<Self, ConnectError> {
        HttpStore::connect_with(url, Options::default())
    }

    /// The same, with other options than the default ones.
    pub fn connect_with(url: &str, options: Options) -> Result<Self, ConnectError> {
        options.check()?;
        let link = Link::open(Address::of(url)?, &options)?;
        Ok(HttpStore { link })
    }

    /// Where the server is.
    pub fn url(&self) -> &str {
        self.link.url()
    }
}

impl fmt::Debug for HttpStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpStore").field("url", &self.url()).finish_non_exhaustive()
    }
}
