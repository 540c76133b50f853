//! The order to stop.

use tokio_util::sync::CancellationToken;

/// Tells a server, and everything that waits in it, to stop. Clones are one and the same.
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
    /// One that nobody has ordered yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Orders it. There is no way back; ordering twice changes nothing.
    pub fn request(&self) {
        self.0.cancel();
    }

    /// Whether it was ordered.
    pub fn is_requested(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Waits until it is ordered. May be dropped at any time.
    pub async fn requested(&self) {
        self.0.cancelled().await;
    }

    /// One that is ordered with this one, and that others do not look at.
    pub(crate) fn child(&self) -> Self {
        Self(self.0.child_token())
    }
}
