//! Foreign code may panic, and is survived.

use crate::error::StoreError;
use crate::store::StoreFuture;
use std::any::Any;
use std::future::poll_fn;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;

/// Runs foreign code. A panic is answered as its message; the panic hook has reported it.
pub(crate) fn guarded<T>(foreign: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(foreign)).map_err(|payload| {
        let message = message(&*payload);
        // It is foreign too: dropping it may panic, with a payload that may do so again.
        if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            mem::forget(another);
        }
        message
    })
}

/// Awaits what a store answers. If it panics instead, it is not known what it did.
pub(crate) async fn answered<'a, T>(
    ask: impl FnOnce() -> StoreFuture<'a, T>,
) -> Result<T, StoreError> {
    let unknown =
        |message| StoreError::Unknown { reason: format!("the store panicked: {message}") };
    let mut answer = guarded(ask).map_err(unknown)?;
    let given = poll_fn(|cx| match guarded(|| answer.as_mut().poll(cx)) {
        Ok(poll) => poll,
        Err(message) => Poll::Ready(Err(unknown(message))),
    });
    let given = given.await;
    guarded(|| drop(answer)).map_err(unknown)?;
    given
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("not with a message").to_owned()
}
