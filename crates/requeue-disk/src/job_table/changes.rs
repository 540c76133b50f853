//! The log entries of a kind that are not in the log yet.

use std::mem;

/// The buffer that each kind keeps after a large group. There may be 10,000 kinds.
const KEPT_BYTES: usize = 32 << 10;

/// The log entries of changes since the last [`drain`](Self::drain).
#[derive(Default)]
pub(super) struct Changes {
    pub(super) bytes: Vec<u8>,
    /// How many bytes of them the group has counted.
    noted: usize,
}

impl Changes {
    /// Returns how many bytes there are, and how many were added since the last call.
    pub(super) fn end(&mut self) -> (usize, usize) {
        let before = mem::replace(&mut self.noted, self.bytes.len());
        (self.noted, self.noted - before)
    }

    /// Passes the changes to `log`, and clears them.
    pub(super) fn drain(&mut self, log: impl FnOnce(&[u8])) {
        log(&self.bytes);
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES);
        self.noted = 0;
    }
}
