//! How a put changes the version that is there.

use crate::content::Content;
use crate::priority::Priority;
use crate::put::Mode;
use crate::receipt::Generation;
use crate::time::Timestamp;
use crate::version::Version;

/// What a put sets: a version without a generation.
pub(super) struct NewVersion {
    pub content: Content,
    pub due: Timestamp,
    pub priority: Priority,
}

impl NewVersion {
    /// Returns the version after the put. `old` is that of the pending job, or of the successor.
    /// `first_put_at` is when debounce began to count.
    pub(super) fn merged(
        self,
        generation: Generation,
        mode: Mode,
        old: Option<&Version>,
        first_put_at: Timestamp,
        now: Timestamp,
    ) -> Version {
        let NewVersion { content, due, priority } = self;
        let (due, priority) = match (mode, old) {
            (Mode::Earliest, Some(old)) => (old.due.min(due), old.priority.max(priority)),
            // Not before now: the job would overtake others that have been ready for longer.
            (Mode::Debounce { max_wait }, _) => {
                (due.min(first_put_at.saturating_add(max_wait).max(now)), priority)
            }
            (Mode::Replace | Mode::Keep | Mode::Earliest, _) => (due, priority),
        };
        Version { content, due, priority, generation }
    }
}
