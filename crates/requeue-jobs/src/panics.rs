//! Foreign code may panic, and is survived.

use std::any::Any;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};

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

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("not with a message").to_owned()
}
