//! What another process has used so far, by what Linux says of it.

use std::fs;
use std::time::Duration;

/// Of all its threads that there are now.
pub(super) fn cpu_time(process: u32) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).expect("it lives").flatten();
    // A thread may end meanwhile.
    let stats = tasks.filter_map(|task| fs::read_to_string(task.path().join("schedstat")).ok());
    let ns = stats.filter_map(|stat| stat.split(' ').next()?.parse::<u64>().ok());
    Duration::from_nanos(ns.sum())
}

/// The memory that it has, in bytes.
pub(super) fn rss(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it lives");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|kib| kib.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.expect("a number") * 1024
}

/// Those that it started and that run.
pub(super) fn children(process: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).expect("it lives").flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let lists: Vec<String> = lists.collect();
    lists.iter().flat_map(|list| list.split_whitespace()).filter_map(|id| id.parse().ok()).collect()
}
