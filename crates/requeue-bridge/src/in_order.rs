//! [`poll_then_unlock`]: sends messages in the order of the calls.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use tokio::sync::MutexGuard;

/// Polls a future once, drops the guard, and waits for the future. For client libraries that send a message
/// when a future is first polled: calls that take the lock in an order send their messages in this order.
pub(crate) async fn poll_then_unlock<T, F: Future>(
    guard: MutexGuard<'_, T>,
    future: F,
) -> F::Output {
    let mut future = pin!(future);
    let first = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
    drop(guard);
    match first {
        Poll::Ready(output) => output,
        Poll::Pending => future.await,
    }
}
