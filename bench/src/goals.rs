//! The goals, which are printed next to the results.

use crate::system::System::{self, *};
use crate::workloads::disk;

/// The lowest acceptable ratios.
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
    ("redis", "bulk-put", Apalis, 6.0),
    ("redis", "put-50", Asynq, 3.0),
    ("redis", "put-50", BullMq, 5.0),
    ("redis", "process-50-cpu", Asynq, 10.0),
    ("redis", "process-50-cpu", BullMq, 6.0),
    ("redis", "process-50-cpu", Apalis, 10.0),
    ("http", "put-100", Beanstalkd, 1.0),
    ("http", "put-100-c16", Beanstalkd, 1.0),
    ("http", "cycle-100", Beanstalkd, 1.0),
    ("http", "cycle-100-c16", Beanstalkd, 1.0),
];

const GIB: f64 = (1 << 30) as f64;

/// The highest acceptable values.
const VALUES: &[(&str, &str, f64)] = &[
    ("disk", "churn-1m-written", 4.0),
    ("disk", "churn-10m-written", 4.0),
    ("disk", "churn-1m-space", disk::space_to_reach(disk::LIVE_OF_1M)),
    ("disk", "churn-10m-space", disk::space_to_reach(disk::LIVE_OF_10M)),
    ("disk", "reopen-10m", 2e9),
    ("disk", "reopen-10m-rss", GIB),
    ("redis", "put-50-cpu", 1.4 * 4_700.0),
    ("redis", "process-50-cpu", 1.4 * 8_500.0),
    ("redis", "memory", 300.0),
    ("redis", "lateness-p50", 2e6),
    ("redis", "lateness-p99", 20e6),
    ("redis", "lateness-early", 0.0),
];

/// Returns the lowest acceptable ratio to `peer`.
pub(crate) fn ratio(suite: &str, workload: &str, peer: System) -> Option<f64> {
    let goal = RATIOS.iter().find(|(s, w, p, _)| (*s, *w, *p) == (suite, workload, peer));
    goal.map(|&(.., ratio)| ratio)
}

/// Returns the highest acceptable value.
pub(crate) fn value(suite: &str, workload: &str) -> Option<f64> {
    let goal = VALUES.iter().find(|(s, w, _)| (*s, *w) == (suite, workload));
    goal.map(|&(.., value)| value)
}
