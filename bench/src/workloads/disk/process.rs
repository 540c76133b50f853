//! What this process has used so far, by what Linux says of it.

use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Of all its threads.
pub(super) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.try_into().expect("it has not run backwards")
}

/// Lets work in the background come to an end, so that it is not taken for something else.
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

/// Bytes that were written to the device of this directory, by whomever.
///
/// What Linux says of one process (`write_bytes`) counts every page of a folio of which one is
/// touched, and tells ten times too much of a log that grows by little.
pub(super) fn written(dir: &Path) -> u64 {
    let device = fs::metadata(dir).expect("a directory of ours").dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let stat = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat"));
    let stat = stat.expect("it is on a device that Linux counts for");
    let sectors: u64 =
        stat.split_whitespace().nth(6).and_then(|n| n.parse().ok()).expect("a number");
    sectors * 512
}

/// Bytes that it handed to the system to be written.
pub(super) fn handed_over() -> u64 {
    number("/proc/self/io", "wchar:")
}

/// The most memory that it had, in bytes.
pub(super) fn peak_rss() -> u64 {
    number("/proc/self/status", "VmHWM:") * 1024
}

/// From here on, the peak is that of what follows.
pub(super) fn reset_peak_rss() {
    fs::write("/proc/self/clear_refs", "5").expect("a process may say this of itself");
}

fn number(file: &str, name: &str) -> u64 {
    let text = fs::read_to_string(file).expect("Linux has it");
    let rest = text.lines().find_map(|line| line.strip_prefix(name)).expect("it has this line");
    let digits = rest.trim().trim_end_matches(" kB");
    digits.parse().expect("a number")
}

/// Bytes that the files of a directory take on disk.
pub(super) fn space(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).expect("a directory of ours");
    // A file may be removed meanwhile.
    let sizes = entries.flatten().filter_map(|entry| Some((entry.path(), entry.metadata().ok()?)));
    sizes.map(|(path, data)| if data.is_dir() { space(&path) } else { data.blocks() * 512 }).sum()
}
