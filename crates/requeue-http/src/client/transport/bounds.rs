//! Bounds of a response: how long it may be, and how slowly it may arrive.
//!
//! A server that is broken, or is not ours, can otherwise take all memory of its client, or keep it
//! waiting for ever.

use hyper::Method;
use std::time::Duration;

/// Maximum bytes of an error response that are read. A problem has fewer. The page of a proxy may have
/// more, but its beginning says what is wrong.
pub(super) const MAX_ERROR_LEN: usize = 64 << 10;

/// Maximum bytes of a page of jobs or of a claim: a thousand jobs with 16 MiB of bodies, in which JSON
/// escapes each byte to six, and with five errors of 2 KiB each.
const MAX_JOBS_LEN: usize = 256 << 20;

/// Maximum bytes of the results of a batch, which can be a problem for each of a thousand entries; and of
/// lists of up to ten thousand kinds.
const MAX_LIST_LEN: usize = 64 << 20;

/// Maximum bytes of other responses. The longest is a job with a successor: two bodies of 1 MiB.
const MAX_OTHER_LEN: usize = 16 << 20;

/// The slowest rate at which a response may arrive, in bytes per second.
const MIN_RATE: u64 = 16 << 10;

/// Returns the maximum length of the response to a request.
pub(super) fn max_response_len(method: &Method, path: &str) -> usize {
    let route = path.split('?').next().unwrap_or_default();
    let ends = |name: &str| route.ends_with(name);
    if ends("/claim") || (*method == Method::GET && (ends("/jobs") || ends("/schedules"))) {
        return MAX_JOBS_LEN;
    }
    let lists = ["/jobs", "/put", "/settle", "/change", "/restore", "/kinds", "/stats", "/workers"];
    if lists.iter().any(|name| ends(name)) { MAX_LIST_LEN } else { MAX_OTHER_LEN }
}

/// How fast a response arrives. The time during which nobody reads it does not count.
#[derive(Debug)]
pub(super) struct Pace {
    /// The longest pause between two chunks. The whole response may take this much longer than
    /// [`MIN_RATE`] allows.
    pause: Duration,
    spent: Duration,
    received: u64,
    /// A response without end has no minimum rate.
    endless: bool,
}

impl Pace {
    pub(super) fn new(pause: Duration) -> Self {
        Pace { pause, spent: Duration::ZERO, received: 0, endless: false }
    }

    /// The pace of a response without end, in which only pauses are limited.
    pub(super) fn endless(pause: Duration) -> Self {
        Pace { endless: true, ..Pace::new(pause) }
    }

    /// Returns how long the next chunk may take.
    pub(super) fn patience(&self) -> Duration {
        if self.endless {
            return self.pause;
        }
        let allowed = self.pause + Duration::from_secs(self.received / MIN_RATE);
        self.pause.min(allowed.saturating_sub(self.spent))
    }

    /// Records how long a chunk took, and its length.
    pub(super) fn took(&mut self, time: Duration, len: usize) {
        self.spent += time;
        self.received += len as u64;
    }

    /// The error if a chunk took longer than this patience.
    pub(super) fn complaint(&self, patience: Duration) -> String {
        // It paused, even if the chunks before it took a part of the time.
        if patience > self.pause / 2 {
            return format!("the response stalled for {patience:?}");
        }
        let received = self.received;
        format!("the response is too slow: {received} bytes, fewer than {MIN_RATE} per second")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_response_has_a_bound_by_what_it_contains() {
        let of = |method: Method, path: &str| max_response_len(&method, path) >> 20;
        assert_eq!(of(Method::POST, "/v1/claim"), 256);
        assert_eq!(of(Method::GET, "/v1/kinds/mail/jobs?state=dead&limit=1000"), 256);
        assert_eq!(of(Method::POST, "/v1/kinds/mail/jobs"), 64);
        assert_eq!(of(Method::POST, "/v1/settle"), 64);
        assert_eq!(of(Method::GET, "/v1/kinds"), 64);
        assert_eq!(of(Method::GET, "/v1/kinds/mail/jobs/a"), 16);
        assert_eq!(of(Method::POST, "/v1/import"), 16);
    }

    #[test]
    fn a_response_may_pause_but_not_all_the_time() {
        let second = Duration::from_secs(1);
        let mut pace = Pace::new(30 * second);
        assert_eq!(pace.patience(), 30 * second);
        pace.took(29 * second, 1);
        assert_eq!(pace.patience(), second);
        // A minute's worth of bytes.
        pace.took(second / 2, 60 * MIN_RATE as usize);
        assert_eq!(pace.patience(), 30 * second);
        pace.took(90 * second, 0);
        assert_eq!(pace.patience(), Duration::ZERO);
    }

    #[test]
    fn an_endless_response_may_be_as_slow_as_it_likes_but_not_silent() {
        let second = Duration::from_secs(1);
        let mut pace = Pace::endless(45 * second);
        for _ in 0..100 {
            pace.took(15 * second, 14);
        }
        assert_eq!(pace.patience(), 45 * second);
        assert_eq!(pace.complaint(45 * second), "the response stalled for 45s");
    }
}
