//! Logs why store calls fail, without repeating itself.

use requeue::{Clock, Moment};
use requeue_jobs::{StoreError, StoreMethod};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long a reason is not logged again.
const PAUSE: Duration = Duration::from_secs(60);

/// Maximum number of reasons that are remembered. If there are more within [`PAUSE`], the others
/// are counted, but not logged.
const MAX_REASONS: usize = 100;

/// Logs each reason for which store calls fail at most once a minute, with the number of failures.
pub(crate) struct FailureLog {
    clock: Clock,
    reasons: Mutex<HashMap<String, Seen>>,
}

struct Seen {
    logged_at: Moment,
    /// Failures since then.
    more: u64,
}

impl FailureLog {
    pub(crate) fn new(clock: Clock) -> Self {
        FailureLog { clock, reasons: Mutex::default() }
    }

    /// Records a failed call. An invalid call is not a failure of the store.
    pub(crate) fn failed(&self, method: StoreMethod, error: &StoreError) {
        if matches!(error, StoreError::Invalid(_)) {
            return;
        }
        let reason = error.to_string();
        if let Some(more) = self.is_due(&reason) {
            let method = method.name();
            tracing::warn!(
                method,
                reason,
                more,
                "store calls fail (logged once a minute; `more` counts those since the last line)"
            );
        }
    }

    /// Returns how often this reason occurred since it was last logged, if it is to be logged now.
    fn is_due(&self, reason: &str) -> Option<u64> {
        let now = self.clock.now();
        let mut reasons = self.reasons.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(seen) = reasons.get_mut(reason) {
            if now.saturating_since(seen.logged_at) < PAUSE {
                seen.more += 1;
                return None;
            }
            seen.logged_at = now;
            return Some(std::mem::take(&mut seen.more));
        }
        if reasons.len() >= MAX_REASONS {
            reasons.retain(|_, seen| now.saturating_since(seen.logged_at) < PAUSE);
        }
        if reasons.len() >= MAX_REASONS {
            return None;
        }
        reasons.insert(reason.to_owned(), Seen { logged_at: now, more: 0 });
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::tests::Lines;
    use requeue::ManualClock;

    fn unavailable(reason: &str) -> StoreError {
        StoreError::Unavailable { reason: reason.to_owned() }
    }

    #[test]
    fn each_reason_is_logged_once_a_minute_with_a_count() {
        let clock = ManualClock::new();
        let log = FailureLog::new(clock.clone().into());
        let lines = Lines::of(|| {
            for _ in 0..10 {
                log.failed(StoreMethod::Put, &unavailable("the disk is full"));
                log.failed(StoreMethod::Claim, &unavailable("a table is damaged"));
            }
            clock.advance(PAUSE);
            log.failed(StoreMethod::Put, &unavailable("the disk is full"));
        });
        assert_eq!(lines.len(), 3, "{lines:#?}");
        assert!(lines[0].contains("the disk is full") && lines[0].contains("more=0"));
        assert!(lines[1].contains("a table is damaged") && lines[1].contains("claim"));
        assert!(lines[2].contains("the disk is full") && lines[2].contains("more=9"));
    }

    #[test]
    fn the_number_of_reasons_is_bounded() {
        let log = FailureLog::new(ManualClock::new().into());
        let lines = Lines::of(|| {
            for n in 0..10 * MAX_REASONS {
                log.failed(StoreMethod::Put, &unavailable(&n.to_string()));
            }
        });
        assert_eq!(lines.len(), MAX_REASONS);
    }
}
