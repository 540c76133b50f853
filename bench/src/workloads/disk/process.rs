//! The resources that this process has used so far, as reported by Linux.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

pub(super) use crate::workloads::usage::own_cpu_time as cpu_time;

/// Waits until background work has ended, so that it does not affect the measurement.
pub(super) fn rest() {
    const SPAN: Duration = Duration::from_millis(50);
    let started = Instant::now();
    loop {
        let before = cpu_time();
        thread::sleep(SPAN);
        let busy = cpu_time() - before;
        if busy < SPAN / 20 || started.elapsed() > Duration::from_secs(30) {
            return;
        }
    }
}

/// Bytes that all processes have written to the device of this directory.
///
/// The counter of one process (`write_bytes`) counts every page of a folio of which one is
/// changed, and is ten times too high for a log that grows in small steps.
pub(super) fn written(dir: &Path) -> u64 {
    let device = fs::metadata(dir).expect("the directory exists").dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let stat = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat"));
    let stat = stat.expect("it is on a device that Linux counts for");
    let sectors: u64 =
        stat.split_whitespace().nth(6).and_then(|n| n.parse().ok()).expect("a number");
    sectors * 512
}

/// Bytes that it passed to the system to be written.
pub(super) fn handed_over() -> u64 {
    number("/proc/self/io", "wchar:")
}

/// Its peak memory in bytes.
pub(super) fn peak_rss() -> u64 {
    number("/proc/self/status", "VmHWM:") * 1024
}

/// Resets the peak memory.
pub(super) fn reset_peak_rss() {
    fs::write("/proc/self/clear_refs", "5").expect("a process may reset its own peak");
}

fn number(file: &str, name: &str) -> u64 {
    let text = fs::read_to_string(file).expect("Linux has this file");
    let rest =
        text.lines().find_map(|line| line.strip_prefix(name)).expect("the file has this line");
    let digits = rest.trim().trim_end_matches(" kB");
    digits.parse().expect("a number")
}

/// The size on disk of the files of a directory, in bytes.
pub(super) fn space(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).expect("the directory exists");
    // A file may have been removed in the meantime.
    let sizes = entries.flatten().filter_map(|entry| Some((entry.path(), entry.metadata().ok()?)));
    sizes.map(|(path, data)| if data.is_dir() { space(&path) } else { data.blocks() * 512 }).sum()
}
