//! Jobs on disk, durable before a call returns: the store compared with a plain file, beanstalkd
//! and plain fjall.

mod beanstalkd;
mod churn;
mod claims;
mod commit;
mod fdatasync;
mod job;
mod ours;
mod plain_fjall;
mod process;
mod reopen;

use super::place::Place;
use crate::system::System::{self, *};
use beanstalkd::Beanstalkd as BeanstalkdQueue;
use fdatasync::Appends;
use job::{DAY, Job, Jobs};
use ours::Ours;
use plain_fjall::FjallQueue;
use requeue_bench::Measurement;
use requeue_bench::meter::passes;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The largest batch of a store.
const BATCH: usize = 1000;

/// A queue that one caller uses, group by group.
trait Queue {
    /// Returns when all jobs are durable.
    fn put(&mut self, jobs: &[Job]);

    /// Claims this many due jobs and acks them.
    fn work_off(&mut self, count: usize);

    /// Puts this many jobs, in the largest possible groups.
    fn fill(&mut self, mut jobs: Jobs, count: usize) {
        for done in (0..count).step_by(BATCH) {
            self.put(&jobs.take(BATCH.min(count - done)));
        }
    }
}

/// Returns `None` if `system` has no such workload. `scratch` is a directory that measurements share.
pub(crate) fn measure(
    system: System,
    workload: &str,
    budget: Duration,
    scratch: Option<PathBuf>,
) -> Option<Vec<Measurement>> {
    let place = Place::new(scratch);
    let (verb, what) = workload.split_once('-')?;
    let one = match (verb, system) {
        ("put", _) => Measurement::rate(puts(system, what.parse().ok()?, budget, &place)?),
        ("mixed", _) => {
            let group = match what {
                "1m" => 32,
                "1m-256" => 256,
                _ => return None,
            };
            Measurement::rate(mixed(system, group, budget, &place)?)
        }
        ("commit", Requeue) => Measurement::ns(commit::ours(&place, budget)),
        ("commit", Fdatasync) => Measurement::ns(commit::fdatasync(&place, budget)),
        ("claim", Requeue) => return Some(claims::measure(what, &place)),
        ("churn", Requeue) => return churn::measure(what, &place),
        ("reopen", Requeue) => return Some(reopen::measure(what, &place)),
        _ => return None,
    };
    Some(vec![one])
}

/// Jobs per second.
fn puts(system: System, group: usize, budget: Duration, place: &Place) -> Option<f64> {
    let dir = place.fresh(system.name());
    Some(match system {
        Requeue => put_groups(&mut Ours::open(&dir), group, budget),
        Beanstalkd => put_groups(&mut BeanstalkdQueue::synced(&dir), group, budget),
        Fjall => put_groups(&mut FjallQueue::open(&dir), group, budget),
        Fdatasync => {
            let mut file = Appends::create(&dir);
            rate(group, budget, Jobs::due_within(DAY), |jobs| file.append(jobs))
        }
        _ => return None,
    })
}

fn put_groups(queue: &mut impl Queue, group: usize, budget: Duration) -> f64 {
    rate(group, budget, Jobs::due_within(DAY), |jobs| queue.put(jobs))
}

/// Puts, claims and acks jobs that are due now, while a million others are due tomorrow.
fn mixed(system: System, group: usize, budget: Duration, place: &Place) -> Option<f64> {
    let dir = place.with_pending(system, 1_000_000);
    Some(match system {
        Requeue => mix(&mut Ours::with_pending(&dir, 1_000_000), group, budget),
        Beanstalkd => mix(&mut BeanstalkdQueue::synced(&dir), group, budget),
        Fjall => mix(&mut FjallQueue::open(&dir), group, budget),
        _ => return None,
    })
}

fn mix(queue: &mut impl Queue, group: usize, budget: Duration) -> f64 {
    rate(group, budget, Jobs::due_now(), |jobs| {
        queue.put(jobs);
        queue.work_off(jobs.len());
    })
}

/// Returns jobs per second, after a warm-up. Generating ids and bodies is not counted.
fn rate(group: usize, budget: Duration, mut jobs: Jobs, mut work: impl FnMut(&[Job])) -> f64 {
    let mut pass = || {
        let jobs = jobs.take(group);
        let started = Instant::now();
        work(&jobs);
        started.elapsed()
    };
    passes(group, budget / 4, &mut pass);
    1e9 / passes(group, budget, pass)
}

/// Creates a queue with this many jobs that are due tomorrow, for later measurements. `None` if
/// `system` is not on disk.
pub(crate) fn prepare(system: System, pending: usize, scratch: PathBuf) -> Option<()> {
    let make: fn(&Path, usize) = match system {
        Requeue => |dir, pending| drop(Ours::with_pending(dir, pending)),
        Beanstalkd => {
            |dir, pending| BeanstalkdQueue::unsynced(dir).fill(Jobs::due_tomorrow(), pending)
        }
        Fjall => |dir, pending| FjallQueue::open(dir).load(&Jobs::due_tomorrow().take(pending)),
        _ => return None,
    };
    Place::new(Some(scratch)).prepare(system, pending, |dir| make(dir, pending));
    Some(())
}
