//! Waiting on an injected clock.

use requeue::{Clock, Moment};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

/// Returns the output of `future`, or drops it and returns `None` at `at`.
pub(crate) async fn by<F: Future>(clock: &Clock, at: Moment, future: F) -> Option<F::Output> {
    let end = clock.sleep(at.saturating_since(clock.now()));
    let (mut future, mut end) = (pin!(future), pin!(end));
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => end.as_mut().poll(cx).map(|()| None),
    })
    .await
}

/// Waits until one of the two futures is ready.
pub(crate) async fn first(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|cx| match one.as_mut().poll(cx) {
        Poll::Ready(()) => Poll::Ready(()),
        Poll::Pending => other.as_mut().poll(cx),
    })
    .await;
}
