//! Metrics of this process, with the names that all Prometheus clients use. They are read from
//! `/proc`; where that does not exist, there are none.

use super::registered;
use prometheus::proto::MetricFamily;
use prometheus::{Counter, Gauge, Registry};
use std::fs;

/// Clock ticks per second in `/proc/self/stat`. Linux has used this value on all its usual
/// platforms for two decades, whatever the kernel's own clock.
const TICKS: f64 = 100.0;

/// Returns the metrics. It reads a few files.
pub(super) fn families() -> Vec<MetricFamily> {
    let registry = Registry::new();
    let gauge = |name: &str, help: &str, value: Option<f64>| {
        if let Some(value) = value {
            registered(&registry, Gauge::new(name, help)).set(value);
        }
    };
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let (status, stat) = (read("/proc/self/status"), read("/proc/self/stat"));
    gauge(
        "process_resident_memory_bytes",
        "Resident memory of the process.",
        kibibytes(&status, "VmRSS"),
    );
    gauge(
        "process_virtual_memory_bytes",
        "Virtual memory of the process.",
        kibibytes(&status, "VmSize"),
    );
    gauge("process_threads", "Threads of the process.", field(&status, "Threads"));
    let open = fs::read_dir("/proc/self/fd").ok().map(|files| files.count() as f64);
    gauge("process_open_fds", "Open files of the process.", open);
    gauge("process_max_fds", "Limit of open files.", max_files(&read("/proc/self/limits")));
    gauge(
        "process_start_time_seconds",
        "When the process started, in seconds since 1970.",
        start_time(&stat, &read("/proc/stat")),
    );
    if let Some(seconds) = cpu_time(&stat) {
        let cpu = Counter::new("process_cpu_seconds_total", "CPU time of the process.");
        registered(&registry, cpu).inc_by(seconds);
    }
    registry.gather()
}

/// Returns the number after `name:` in a status file.
fn field(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

fn kibibytes(text: &str, name: &str) -> Option<f64> {
    field(text, name).map(|kibibytes| kibibytes * 1024.0)
}

fn max_files(limits: &str) -> Option<f64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(f64::INFINITY),
        limit => limit.parse().ok(),
    }
}

/// Returns a field of `/proc/self/stat` by its number in proc(5), from 3 on. The second field is
/// the name of the program, which may contain anything.
fn stat_field(stat: &str, number: usize) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(number - 3)?.parse().ok()
}

fn cpu_time(stat: &str) -> Option<f64> {
    Some((stat_field(stat, 14)? + stat_field(stat, 15)?) / TICKS)
}

fn start_time(stat: &str, of_system: &str) -> Option<f64> {
    let booted = of_system.lines().find_map(|line| line.strip_prefix("btime "))?;
    Some(booted.trim().parse::<f64>().ok()? + stat_field(stat, 22)? / TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_proc_are_read() {
        let stat = "7 (a) (b) S 1 7 7 0 -1 4 0 0 0 0 150 50 0 0 20 0 9 0 1000 0 0";
        assert_eq!(
            (cpu_time(stat), start_time(stat, "cpu 1\nbtime 500\n")),
            (Some(2.0), Some(510.0))
        );
        let status = "Name:\tx\nVmRSS:\t    12 kB\nThreads:\t3\n";
        assert_eq!(
            (kibibytes(status, "VmRSS"), field(status, "Threads")),
            (Some(12288.0), Some(3.0))
        );
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files   1024   4096   files\n";
        assert_eq!((max_files(limits), max_files("")), (Some(1024.0), None));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_has_all_of_them() {
        let names: Vec<String> = families().iter().map(|family| family.name().to_owned()).collect();
        assert_eq!(names.len(), 7, "{names:?}");
    }
}
