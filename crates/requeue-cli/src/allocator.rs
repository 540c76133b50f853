//! The memory of large responses is given back to the system.
//!
//! glibc takes large blocks directly from the system, and gives them back when they are freed. But
//! each time it does so, it raises the size from which a block counts as large, up to 32 MiB. After
//! the first large bodies, all memory comes from its own pools, which it hardly ever shrinks: after
//! a burst the process stays as large as it was at its peak. A fixed size prevents that. It can be
//! set by an environment variable that glibc reads when the program starts, or by `mallopt`, which
//! is not a safe function.
//!
//! Other C libraries, such as musl, always give large blocks back.

/// Starts this program again with the environment variable, if it is not set yet. The process id
/// stays the same. If that fails, the program continues as it is.
///
/// Call it first: everything that the process has done until now is lost.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) fn return_large_blocks() {
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    /// The size in bytes from which a block is large: the default of glibc at the start.
    const THRESHOLD: (&str, &str) = ("MALLOC_MMAP_THRESHOLD_", "131072");

    let (name, bytes) = THRESHOLD;
    if std::env::var_os(name).is_some() {
        return;
    }
    // Not "/proc/self/exe": the process would be listed as "exe".
    let Ok(program) = std::env::current_exe() else { return };
    let mut args = std::env::args_os();
    let mut command = Command::new(program);
    if let Some(program) = args.next() {
        command.arg0(program);
    }
    // It returns only if it fails.
    let _error = command.args(args).env(name, bytes).exec();
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn return_large_blocks() {}
