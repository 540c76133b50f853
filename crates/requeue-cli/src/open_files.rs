//! The limit of open files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit of open files to `needed`, or as far as the hard limit allows. The soft
/// limit of most systems is about a thousand. Returns the resulting limit.
pub(crate) fn raise_limit(needed: u64) -> u64 {
    let limit = getrlimit(Resource::Nofile);
    // `None` means unlimited.
    let (current, maximum) = (limit.current.unwrap_or(u64::MAX), limit.maximum.unwrap_or(u64::MAX));
    // Never raised further than needed: child processes inherit it, and some programs fail with a
    // large limit.
    if current >= needed {
        return current;
    }
    let wanted = needed.min(maximum);
    match setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit }) {
        Ok(()) => wanted,
        Err(_) => current,
    }
}
