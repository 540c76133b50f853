//! Calls code that may panic: handlers, callbacks and stores of the user.

use crate::error::StoreError;
use crate::store::StoreFuture;
use std::any::Any;
use std::future::poll_fn;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;

/// Calls `foreign` and returns the message if it panics. The panic hook has reported the panic.
pub(crate) fn guarded<T>(foreign: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(foreign)).map_err(|payload| {
        let message = message(&*payload);
        // Dropping the payload may panic as well, with a payload that may panic again.
        if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            mem::forget(another);
        }
        message
    })
}

/// Calls a store and awaits the result. If the store panics, the outcome is unknown.
pub(crate) async fn guarded_call<'a, T>(
    call: impl FnOnce() -> StoreFuture<'a, T>,
) -> Result<T, StoreError> {
    let unknown =
        |message| StoreError::Unknown { reason: format!("the store panicked: {message}") };
    let mut future = guarded(call).map_err(unknown)?;
    let result = poll_fn(|cx| match guarded(|| future.as_mut().poll(cx)) {
        Ok(poll) => poll,
        Err(message) => Poll::Ready(Err(unknown(message))),
    });
    let result = result.await;
    guarded(|| drop(future)).map_err(unknown)?;
    result
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("without a message").to_owned()
}
