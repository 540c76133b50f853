//! How far something long has come.

/// How far something long has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Bytes that are done.
    pub bytes: u64,
    /// Bytes that there are. Not less than `bytes`, and as many at the end.
    pub total: u64,
}

/// Bytes between two reports: some thousand a second would be no news.
const STEP: u64 = 1 << 20;

/// Counts bytes, and reports them now and then.
pub(crate) struct Meter<'a> {
    done: u64,
    total: u64,
    told: u64,
    tell: &'a mut dyn FnMut(Progress),
}

impl<'a> Meter<'a> {
    pub(crate) fn new(total: u64, tell: &'a mut dyn FnMut(Progress)) -> Self {
        tell(Progress { bytes: 0, total });
        Meter { done: 0, total, told: 0, tell }
    }

    pub(crate) fn add(&mut self, bytes: u64) {
        self.done = self.done.saturating_add(bytes).min(self.total);
        if self.done - self.told >= STEP {
            self.told = self.done;
            (self.tell)(Progress { bytes: self.done, total: self.total });
        }
    }

    pub(crate) fn end(self) {
        (self.tell)(Progress { bytes: self.total, total: self.total });
    }
}
