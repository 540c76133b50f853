//! The jobs of all systems: the same in Go and JavaScript.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const BODY_LEN: usize = 100;

#[derive(Debug, Clone)]
pub(super) struct Job {
    pub(super) body: String,
    /// In milliseconds since 1970. `None` if it is due immediately.
    pub(super) due_ms: Option<u64>,
}

/// Jobs that are due after the same delay.
pub(super) fn plain(count: usize, delay: Duration) -> Vec<Job> {
    let due_ms = (!delay.is_zero()).then(|| now_ms() + millis(delay));
    vec![Job { body: "x".repeat(BODY_LEN), due_ms }; count]
}

/// Jobs with different delays. The body contains the due time.
pub(super) fn scheduled(count: usize, first: Duration, last: Duration) -> Vec<Job> {
    let now = now_ms();
    let job = |i| {
        let due = now + delay_ms(i, millis(first), millis(last));
        Job { body: format!("{due:<BODY_LEN$}"), due_ms: Some(due) }
    };
    (0..count).map(job).collect()
}

/// The delays of all jobs are spread evenly from `first` to `last`, in an order that looks random.
fn delay_ms(i: usize, first: u64, last: u64) -> u64 {
    let number = u32::try_from(i + 1).expect("there are fewer jobs");
    // Knuth's multiplier: a bijection that moves neighbours far apart.
    let mixed = number.wrapping_mul(0x9E37_79B1);
    first + (((last - first) * u64::from(mixed)) >> 32)
}

/// How late a job with this body is now, in microseconds.
pub(super) fn late_us(body: &str) -> i64 {
    let due_ms: i64 = body.trim_end().parse().expect("the body contains the due time");
    since_1970().as_micros() as i64 - due_ms * 1000
}

fn now_ms() -> u64 {
    millis(since_1970())
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970")
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).expect("it is before the year 586000000")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_those_of_go_and_javascript() {
        let delays: Vec<_> = (0..4).map(|i| delay_ms(i, 1000, 10_000)).collect();
        assert_eq!(delays, [6562, 3124, 8686, 5249]);
    }

    #[test]
    fn a_body_tells_how_late_it_is() {
        let jobs = scheduled(2, Duration::from_secs(1), Duration::from_secs(10));
        assert!(jobs.iter().all(|job| job.body.len() == BODY_LEN));
        assert!((-10_000_000..0).contains(&late_us(&jobs[0].body)));
    }

    #[test]
    fn a_job_without_delay_has_no_due_time() {
        assert_eq!(plain(1, Duration::ZERO)[0].due_ms, None);
        assert!(plain(1, Duration::from_secs(1))[0].due_ms.is_some());
    }
}
