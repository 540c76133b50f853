//! The resources that a process has used so far, as reported by Linux.

use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::time::Duration;

/// CPU time of all its current threads.
pub(super) fn cpu_time(process: u32) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).expect("the process runs").flatten();
    // A thread may have ended in the meantime.
    let stats = tasks.filter_map(|task| fs::read_to_string(task.path().join("schedstat")).ok());
    let ns = stats.filter_map(|stat| stat.split(' ').next()?.parse::<u64>().ok());
    Duration::from_nanos(ns.sum())
}

/// CPU time of this process, including threads that have ended.
pub(super) fn own_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.try_into().expect("it has not run backwards")
}

/// Its memory in bytes.
pub(super) fn rss(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("the process runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|kib| kib.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.expect("a number") * 1024
}

/// The running processes that it started.
pub(super) fn children(process: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).expect("the process runs").flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let lists: Vec<String> = lists.collect();
    lists.iter().flat_map(|list| list.split_whitespace()).filter_map(|id| id.parse().ok()).collect()
}
