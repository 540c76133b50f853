//! Options for opening a store.

use requeue_jobs::WallClock;

/// Options for opening a [`DiskStore`](crate::DiskStore). The defaults suit a machine that also
/// runs other programs.
///
/// Start from [`Options::default`] and change the fields that you need.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// The clock by which jobs fall due and leases expire. Default: the system's clock.
    pub wall_clock: WallClock,
    /// How many bytes of changed jobs are kept in memory, about, before they are written to
    /// tables. While tables are written, the store uses up to twice as much. Default: 128 MiB.
    pub memory: usize,
    /// The size of a segment of the log, in bytes, at least 8 KiB. Default: 16 MiB.
    pub segment: u64,
    /// Whether tables are written and merged on background threads. The writer waits for these
    /// threads only if they fall far behind. With `false` the writer does this work itself, so that
    /// everything happens in one order; this is meant for tests. Default: `true`.
    pub background: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            wall_clock: WallClock::system(),
            memory: 128 << 20,
            segment: 16 << 20,
            background: true,
        }
    }
}
