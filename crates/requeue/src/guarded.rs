//! Calling foreign code and surviving its panics.

use std::any::Any;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs foreign code. If it panics, returns the message of the panic, which the panic hook has
/// already reported.
pub(crate) fn guarded<T>(foreign: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(foreign)).map_err(|payload| {
        let message = message(&*payload);
        discard(payload);
        message
    })
}

/// Drops a foreign value. Dropping may panic, and the payload of that panic may panic again.
pub(crate) fn discard<T>(foreign: T) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(foreign))) {
        mem::forget(payload);
    }
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("not with a message").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::panic_any;

    fn caught(foreign: impl FnOnce()) -> String {
        guarded(foreign).expect_err("it panics")
    }

    #[test]
    fn a_panic_is_known_by_its_message() {
        assert_eq!(caught(|| panic!("plain")), "plain");
        assert_eq!(caught(|| panic!("{} and {}", 1, 2)), "1 and 2");
        assert_eq!(caught(|| panic_any(7)), "not with a message");
    }

    #[test]
    fn a_payload_that_panics_when_dropped_is_survived() {
        struct Matryoshka;
        impl Drop for Matryoshka {
            fn drop(&mut self) {
                panic_any(Matryoshka);
            }
        }
        assert_eq!(caught(|| panic_any(Matryoshka)), "not with a message");
        discard(Matryoshka);
    }
}
