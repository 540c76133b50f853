//! Limits of single kinds.

use super::JobWorker;
use crate::error::Invalid;
use crate::limits::MAX_BATCH;
use crate::names::Kind;
#[cfg(feature = "serde")]
use std::collections::BTreeMap;
use std::time::Duration;

/// What a worker sets for one kind. `None` is the value of the worker.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct KindLimits {
    /// How many jobs of the kind run concurrently.
    pub(crate) concurrency: Option<usize>,
    /// How long an attempt may take.
    pub(crate) timeout: Option<Duration>,
}

impl JobWorker {
    /// Adds kinds to those that are claimed, and sets limits for some.
    #[cfg(feature = "serde")]
    pub(crate) fn with_kinds(
        mut self,
        kinds: impl Iterator<Item = Kind>,
        limits: BTreeMap<Kind, KindLimits>,
    ) -> Result<Self, Invalid> {
        for kind in kinds {
            if !self.kinds.contains(&kind) {
                self.kinds.push(kind);
            }
        }
        check_kinds(&self.kinds)?;
        self.limits = limits;
        Ok(self)
    }

    /// Returns how long an attempt at a job of this kind may take.
    pub(super) fn timeout_of(&self, kind: &Kind) -> Option<Duration> {
        let own = self.limits.get(kind).and_then(|limits| limits.timeout);
        own.or(self.timeout)
    }
}

pub(super) fn check_kinds(kinds: &[Kind]) -> Result<(), Invalid> {
    if kinds.len() > MAX_BATCH {
        let (what, count) = ("kinds of a worker", kinds.len());
        return Err(Invalid::TooMany { what, count, limit: MAX_BATCH });
    }
    Ok(())
}
