//! Callers that make one request after the other, and the duration of each.

use super::job::{Job, Jobs};
use requeue_bench::Measurement;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// One connection.
pub(super) trait Caller: Send {
    /// Returns when all jobs are durable.
    fn put(&mut self, jobs: &[Job]);

    /// Claims this many jobs of any caller and acks them. There are at least as many.
    fn work_off(&mut self, count: usize);
}

impl Caller for Box<dyn Caller> {
    fn put(&mut self, jobs: &[Job]) {
        (**self).put(jobs);
    }

    fn work_off(&mut self, count: usize) {
        (**self).work_off(count);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    /// Puts jobs that are due later.
    Put,
    /// Puts jobs that are due, claims as many and acks them.
    Cycle,
}

/// The times of a caller.
struct Took {
    /// The duration of each batch.
    each: Vec<Duration>,
    /// The total, including the time between batches, in which jobs are generated.
    all: Duration,
}

/// A workload: `put-100`, `cycle-1-c16`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    verb: Verb,
    batch: usize,
    pub(super) callers: usize,
}

impl Shape {
    pub(super) fn named(workload: &str) -> Option<Shape> {
        let mut words = workload.split('-');
        let verb = match words.next()? {
            "put" => Verb::Put,
            "cycle" => Verb::Cycle,
            _ => return None,
        };
        let batch = words.next()?.parse().ok()?;
        let callers = words.next().map_or(Some(1), |word| word.strip_prefix('c')?.parse().ok())?;
        Some(Shape { verb, batch, callers })
    }

    /// Runs all callers concurrently, after a warm-up. `cpu_time` is that of the server.
    pub(super) fn measure<C: Caller>(
        self,
        workload: &str,
        callers: Vec<C>,
        budget: Duration,
        cpu_time: impl Fn() -> Duration,
    ) -> Vec<Measurement> {
        let (ready, ready_ones) = mpsc::channel();
        let (took, cpu) = thread::scope(|scope| {
            let mut starts = Vec::new();
            let mut running = Vec::new();
            for (n, mut caller) in callers.into_iter().enumerate() {
                let ready = ready.clone();
                let (start, started) = mpsc::channel();
                starts.push(start);
                running.push(scope.spawn(move || {
                    let mut jobs = Jobs::new(n, self.verb == Verb::Cycle);
                    self.repeat(&mut caller, &mut jobs, budget / 4);
                    drop(ready);
                    // Nothing is ever sent: all start when the sender is dropped.
                    let _: Result<(), _> = started.recv();
                    self.repeat(&mut caller, &mut jobs, budget)
                }));
            }
            drop(ready);
            // Ends when all have finished the warm-up, or have panicked, which is reported below.
            let _: Result<(), _> = ready_ones.recv();
            let before = cpu_time();
            drop(starts);
            let took = running.into_iter().map(|caller| caller.join().expect("a caller panicked"));
            let took: Vec<Took> = took.collect();
            (took, cpu_time() - before)
        });
        self.measurements(workload, took, cpu)
    }

    fn repeat(self, caller: &mut impl Caller, jobs: &mut Jobs, budget: Duration) -> Took {
        let (mut took, started) = (Vec::new(), Instant::now());
        while took.is_empty() || started.elapsed() < budget {
            let jobs = jobs.take(self.batch);
            let began = Instant::now();
            caller.put(&jobs);
            if self.verb == Verb::Cycle {
                caller.work_off(jobs.len());
            }
            took.push(began.elapsed());
        }
        Took { each: took, all: started.elapsed() }
    }

    fn measurements(self, workload: &str, took: Vec<Took>, cpu: Duration) -> Vec<Measurement> {
        // Each caller by its own time: they do not end together, and the last one alone is no load.
        let rate = |took: &Took| (took.each.len() * self.batch) as f64 / took.all.as_secs_f64();
        let rate = took.iter().map(rate).sum();
        let mut took: Vec<Duration> = took.into_iter().flat_map(|took| took.each).collect();
        took.sort_unstable();
        let jobs = (took.len() * self.batch) as f64;
        let ns = |took: Duration| Measurement::ns(took.as_nanos() as f64);
        vec![
            Measurement::rate(rate),
            ns(took[took.len() / 2]).of(format!("{workload}-p50")),
            ns(took[took.len() * 99 / 100]).of(format!("{workload}-p99")),
            Measurement::ns(cpu.as_nanos() as f64 / jobs).of(format!("{workload}-cpu")),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_what_is_done() {
        let shape = |verb, batch, callers| Some(Shape { verb, batch, callers });
        assert_eq!(Shape::named("put-100"), shape(Verb::Put, 100, 1));
        assert_eq!(Shape::named("cycle-1-c16"), shape(Verb::Cycle, 1, 16));
        assert_eq!(Shape::named("waiting-10k"), None);
    }

    #[test]
    fn a_rate_is_that_of_all_callers() {
        struct Quick(usize);
        impl Caller for Quick {
            fn put(&mut self, jobs: &[Job]) {
                self.0 += jobs.len();
            }
            fn work_off(&mut self, count: usize) {
                self.0 -= count;
                assert_eq!(self.0, 0);
            }
        }
        let shape = Shape::named("cycle-10-c3").expect("a valid name");
        let callers = (0..3).map(|_| Quick(0)).collect();
        let budget = Duration::from_millis(1);
        let measured = shape.measure("cycle-10-c3", callers, budget, || Duration::ZERO);
        let names: Vec<_> = measured.iter().filter_map(|m| m.workload.as_deref()).collect();
        assert_eq!(names, ["cycle-10-c3-p50", "cycle-10-c3-p99", "cycle-10-c3-cpu"]);
        assert!(measured[0].value > 0.0);
    }
}
