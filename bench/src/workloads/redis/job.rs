//! The jobs of all systems: 16 bytes of id, 100 of body. The same in Go and JavaScript.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const BODY_LEN: usize = 100;

pub(crate) struct Job {
    pub(crate) id: String,
    pub(crate) body: String,
}

/// All ids are different, and not in the order of the jobs.
pub(crate) fn make_up(made: &mut u32, count: usize) -> Vec<Job> {
    (0..count).map(|_| Job { id: next_id(made), body: "x".repeat(BODY_LEN) }).collect()
}

/// The body contains the due time.
pub(crate) fn make_up_due(made: &mut u32, due: &[u64]) -> Vec<Job> {
    let job = |due| Job { id: next_id(made), body: format!("{due:BODY_LEN$}") };
    due.iter().map(job).collect()
}

fn next_id(made: &mut u32) -> String {
    *made += 1;
    // Knuth's multiplier: a bijection that moves neighbours far apart.
    let mixed = made.wrapping_mul(0x9E37_79B1);
    format!("j{mixed:08x}{made:07x}")
}

/// This many times, evenly over `spread` after `lead`, in milliseconds since 1970.
pub(crate) fn due_times(count: usize, lead: Duration, spread: Duration) -> Vec<u64> {
    let base = micros_since_1970() / 1000 + millis(lead);
    (0..count as u64).map(|i| base + millis(spread) * i / count as u64).collect()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).expect("a few seconds")
}

fn micros_since_1970() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970");
    u64::try_from(since.as_micros()).expect("it is before the year 586000")
}

/// The delay of a job with this body, in microseconds, or 0 if the body contains no time.
pub(crate) fn lateness(body: &str) -> i64 {
    let due: Option<i64> = body.trim_start().parse().ok();
    due.map_or(0, |due| micros_since_1970().cast_signed() - due * 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_those_of_go_and_javascript() {
        let mut made = 0;
        let jobs = make_up(&mut made, 2);
        assert_eq!((jobs[1].id.as_str(), jobs[1].body.len()), ("j3c6ef3620000002", 100));
    }

    #[test]
    fn a_body_tells_how_late_it_is() {
        let due = due_times(1, Duration::ZERO, Duration::ZERO);
        let job = &make_up_due(&mut 0, &due)[0];
        assert_eq!(job.body.len(), 100);
        assert!((0..60_000_000).contains(&lateness(&job.body)));
        assert_eq!(lateness("xx"), 0);
    }
}
