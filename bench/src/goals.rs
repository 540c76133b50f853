//! What is to be reached, printed next to what was.

use crate::system::System::{self, *};
use crate::workloads::disk;

/// At least this ratio.
const RATIOS: &[(&str, &str, System, f64)] = &[
    ("disk", "put-1", Fdatasync, 1.0),
    ("disk", "put-32", Fdatasync, 1.0),
    ("disk", "put-32", Beanstalkd, 20.0),
    ("disk", "put-256", Fdatasync, 0.6),
    ("disk", "put-256", Beanstalkd, 40.0),
    ("disk", "put-1000", Fdatasync, 0.3),
    ("disk", "mixed-1m", Beanstalkd, 12.0),
    ("disk", "mixed-1m", Fjall, 2.0),
    ("disk", "mixed-1m-256", Beanstalkd, 12.0),
    ("disk", "mixed-1m-256", Fjall, 2.0),
];

const GIB: f64 = (1 << 30) as f64;

/// At most this value.
const VALUES: &[(&str, &str, f64)] = &[
    ("disk", "churn-1m-written", 4.0),
    ("disk", "churn-10m-written", 4.0),
    ("disk", "churn-1m-space", disk::space_to_reach(disk::LIVE_OF_1M)),
    ("disk", "churn-10m-space", disk::space_to_reach(disk::LIVE_OF_10M)),
    ("disk", "reopen-10m", 2e9),
    ("disk", "reopen-10m-rss", GIB),
];

/// The lowest ratio to `peer` that will do.
pub(crate) fn ratio(suite: &str, workload: &str, peer: System) -> Option<f64> {
    let goal = RATIOS.iter().find(|(s, w, p, _)| (*s, *w, *p) == (suite, workload, peer));
    goal.map(|&(.., ratio)| ratio)
}

/// The highest value that will do.
pub(crate) fn value(suite: &str, workload: &str) -> Option<f64> {
    let goal = VALUES.iter().find(|(s, w, _)| (*s, *w) == (suite, workload));
    goal.map(|&(.., value)| value)
}
