//! The resources that a process has used so far, as reported by Linux.

use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::time::Duration;

/// CPU time of all its current threads.
pub(super) fn cpu_time(process: u32) -> Duration {
    cpu_time_if_running(process).expect("the process runs")
}

fn cpu_time_if_running(process: u32) -> Option<Duration> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).ok()?.flatten();
    // A thread may have ended in the meantime.
    let stats = tasks.filter_map(|task| fs::read_to_string(task.path().join("schedstat")).ok());
    let ns = stats.filter_map(|stat| stat.split(' ').next()?.parse::<u64>().ok());
    Some(Duration::from_nanos(ns.sum()))
}

/// CPU time of a process and of all processes that it started, including those that have ended.
pub(super) fn cpu_time_of_all(process: u32) -> Duration {
    loop {
        let ended = cpu_time_of_ended(process);
        let children = children(process);
        let running = children.into_iter().filter_map(cpu_time_if_running).sum::<Duration>();
        // If a process ended in the meantime, it was counted twice or not at all.
        if cpu_time_of_ended(process) == ended {
            return cpu_time(process) + running + ended;
        }
    }
}

/// CPU time of the processes that it started and that have ended, in steps of a clock tick.
fn cpu_time_of_ended(process: u32) -> Duration {
    let stat = stat(process);
    let ticks: u64 =
        [CUTIME, CSTIME].map(|field| stat[field].parse::<u64>().expect("ticks")).iter().sum();
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// The process that started it.
pub(super) fn parent(process: u32) -> u32 {
    stat(process)[PARENT].parse().expect("a process id")
}

/// Positions in the line of a process after its name: `man 5 proc_pid_stat`.
const PARENT: usize = 1;
const CUTIME: usize = 13;
const CSTIME: usize = 14;

fn stat(process: u32) -> Vec<String> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).expect("the process runs");
    // The name is in parentheses, and may contain spaces.
    let (_, rest) = stat.rsplit_once(')').expect("the line contains a name");
    rest.split_whitespace().map(str::to_owned).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn the_time_of_ended_processes_is_part_of_the_time_of_all() {
        let this = std::process::id();
        let before = cpu_time_of_all(this);
        let count = "i=0; while [ $i -lt 300000 ]; do i=$((i + 1)); done";
        let status = Command::new("sh").args(["-c", count]).status().expect("there is a shell");
        assert!(status.success());
        assert!(cpu_time_of_ended(this) > Duration::ZERO);
        assert!(cpu_time_of_all(this) > before);
    }

    #[test]
    fn the_parent_of_a_child_is_this_process() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("there is a sleep");
        assert_eq!(parent(child.id()), std::process::id());
        assert!(children(std::process::id()).contains(&child.id()));
        child.kill().and_then(|()| child.wait()).expect("it is our child");
    }
}
