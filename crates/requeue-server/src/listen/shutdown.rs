//! The request to shut down.

use tokio_util::sync::CancellationToken;

/// A handle that requests the shutdown of a server. Clones share one request.
///
/// ```
/// use requeue_server::listen::Shutdown;
///
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let shutdown = Shutdown::new();
/// let handler = shutdown.clone();
/// let long_poll = tokio::spawn(async move { handler.requested().await });
/// shutdown.request();
/// long_poll.await.unwrap();
/// assert!(shutdown.is_requested());
/// # });
/// ```
#[derive(Clone, Debug, Default)]
pub struct Shutdown(CancellationToken);

impl Shutdown {
    /// Creates a handle; the shutdown is not requested.
    pub fn new() -> Self {
        Self::default()
    }

    /// Requests the shutdown. It cannot be undone; repeating it changes nothing.
    pub fn request(&self) {
        self.0.cancel();
    }

    /// Returns whether the shutdown was requested.
    pub fn is_requested(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Waits until the shutdown is requested. Cancel safe.
    pub async fn requested(&self) {
        self.0.cancelled().await;
    }

    /// Returns a handle of its own that is requested together with this one.
    pub(crate) fn child(&self) -> Self {
        Self(self.0.child_token())
    }
}
