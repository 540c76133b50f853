//! Waiting for one of several futures.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

/// Waits until one of the two futures is ready.
pub(crate) async fn first(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|cx| match one.as_mut().poll(cx) {
        Poll::Ready(()) => Poll::Ready(()),
        Poll::Pending => other.as_mut().poll(cx),
    })
    .await;
}
