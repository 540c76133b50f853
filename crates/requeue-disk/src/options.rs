//! What can be chosen when a directory is opened.

use requeue_jobs::WallClock;

/// How a [`DiskStore`](crate::DiskStore) works. The defaults suit a machine that does other
/// things too.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// Whose time it is.
    pub wall_clock: WallClock,
    /// About how many bytes of changed jobs are held in memory before they are written into
    /// tables. There may be twice as many while that goes on.
    pub memory: usize,
    /// How long a segment of the log is, in bytes.
    pub segment: u64,
    /// Whether tables are written and merged beside the writer, which then waits for them only
    /// when they are far behind. Without, all that happens does so in one order, as a test of it
    /// may need.
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
