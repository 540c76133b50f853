//! What clients sent and what they received. No id is put twice.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The recorded results.
#[derive(Default)]
pub(super) struct Records(Mutex<Notes>);

#[derive(Default)]
struct Notes {
    jobs: HashMap<u64, Job>,
    puts: Vec<Duration>,
    claims: Vec<Duration>,
    /// Calls that failed, by what they were and how.
    failed: HashMap<(&'static str, &'static str), u64>,
    /// How long after a drain the full disk accepted puts again.
    drains: Vec<Duration>,
    delivered: u64,
    bytes: u64,
    violations: Vec<String>,
}

#[derive(Default)]
struct Job {
    /// The put returned success.
    acknowledged: bool,
    delivered: bool,
    /// When its ack returned success.
    acked: Option<Instant>,
}

impl Records {
    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// These jobs are about to be put.
    pub(super) fn sends(&self, numbers: &[u64]) {
        let mut notes = self.notes();
        notes.jobs.extend(numbers.iter().map(|number| (*number, Job::default())));
    }

    pub(super) fn acknowledged(&self, number: u64, len: usize) {
        let mut notes = self.notes();
        notes.bytes += len as u64;
        notes.jobs.entry(number).or_default().acknowledged = true;
    }

    /// A claim that began at this time returned the job with this body.
    pub(super) fn delivered(&self, number: u64, began: Instant, is_intact: bool) {
        let mut notes = self.notes();
        notes.delivered += 1;
        let mut violation = None;
        match notes.jobs.get_mut(&number) {
            None => violation = Some(format!("job {number} was never put")),
            Some(job) => {
                job.delivered = true;
                if job.acked.is_some_and(|acked| acked < began) {
                    violation = Some(format!("job {number} was acked, and then claimed"));
                }
            }
        }
        if !is_intact {
            violation = Some(format!("job {number} has another body"));
        }
        notes.violations.extend(violation);
    }

    pub(super) fn acked(&self, number: u64) {
        self.notes().jobs.entry(number).or_default().acked = Some(Instant::now());
    }

    pub(super) fn put_took(&self, time: Duration) {
        self.notes().puts.push(time);
    }

    pub(super) fn claim_took(&self, time: Duration) {
        self.notes().claims.push(time);
    }

    pub(super) fn failed(&self, call: &'static str, how: &'static str) {
        *self.notes().failed.entry((call, how)).or_default() += 1;
    }

    pub(super) fn drained(&self, time: Duration) {
        self.notes().drains.push(time);
    }

    pub(super) fn violation(&self, text: String) {
        self.notes().violations.push(text);
    }

    pub(super) fn report(&self) {
        let mut notes = self.notes();
        let notes = &mut *notes;
        let acknowledged = notes.jobs.values().filter(|job| job.acknowledged).count();
        let acked = notes.jobs.values().filter(|job| job.acked.is_some()).count();
        println!(
            "{acknowledged} jobs put ({} MiB), {} deliveries, {acked} acked",
            notes.bytes >> 20,
            notes.delivered
        );
        println!("puts {}", quantiles(&mut notes.puts));
        println!("claims that returned jobs {}", quantiles(&mut notes.claims));
        let mut failed: Vec<_> = notes.failed.iter().collect();
        failed.sort();
        for ((call, how), count) in failed {
            println!("{call}: {count} {how}");
        }
        if !notes.drains.is_empty() {
            println!("the disk was full {} times;", notes.drains.len());
            println!("puts were accepted again after {:.1?} from the drain", notes.drains);
        }
    }

    /// Every acknowledged put was delivered, and nothing contradicted the contract.
    pub(super) fn check(&self) {
        let notes = self.notes();
        assert_eq!(notes.violations, Vec::<String>::new());
        assert!(notes.jobs.values().any(|job| job.acked.is_some()), "nothing was done");
        let is_lost = |job: &Job| job.acknowledged && !job.delivered;
        let lost: Vec<_> = notes.jobs.iter().filter(|(_, job)| is_lost(job)).collect();
        let lost: Vec<u64> = lost.into_iter().map(|(number, _)| *number).collect();
        assert_eq!(lost, Vec::<u64>::new(), "acknowledged, but lost");
    }
}

pub(super) fn quantiles(times: &mut [Duration]) -> String {
    times.sort();
    let at = |share: f64| times.get((times.len() as f64 * share) as usize).copied();
    let [p50, p99] = [at(0.5), at(0.99)].map(Option::unwrap_or_default);
    let max = times.last().copied().unwrap_or_default();
    format!("({}): p50 {p50:.1?}, p99 {p99:.1?}, max {max:.1?}", times.len())
}
