//! How many files may be open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Asks for as many open files as are needed: most systems allow a thousand until they are asked
/// for more. Answers how many there may be.
pub(crate) fn allow(needed: u64) -> u64 {
    let limit = getrlimit(Resource::Nofile);
    // `None` is no limit at all.
    let (current, maximum) = (limit.current.unwrap_or(u64::MAX), limit.maximum.unwrap_or(u64::MAX));
    // Commands inherit it, and some cannot do with more: what is not needed is not asked for.
    if current >= needed {
        return current;
    }
    let wanted = needed.min(maximum);
    match setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit }) {
        Ok(()) => wanted,
        Err(_) => current,
    }
}
