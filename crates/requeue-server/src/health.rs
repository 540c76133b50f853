//! The problems of a node that still serves requests, at least in part.
//!
//! A store reports its problems by [`Store::status`], for example that the disk is full. The
//! background tasks of the server report theirs here. Each problem is logged when it begins and when
//! it ends, and is part of `/readyz`, `/v1/stats` and `/metrics` in between.

use crate::listen::Shutdown;
use requeue_jobs::{Store, StoreProblem, StoreStatus, WallClock};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often the store is asked for its problems, so that the log has them although nobody looks.
const INTERVAL: Duration = Duration::from_secs(1);

/// A problem of the reaper: see [`Reaper`](crate::Reaper).
pub(crate) const REAPER_FAILED: &str = "reaper_failed";

/// The runs of schedules are not started: see [`ScheduleRunner`](crate::schedules::ScheduleRunner).
pub(crate) const SCHEDULES_NOT_RUNNING: &str = "schedules_not_running";

/// Timers of schedules were removed, and are set again.
pub(crate) const TIMERS_MISSING: &str = "schedule_timers_missing";

/// Changes of push settings are not noticed: see [`Push`](crate::push::Push).
pub(crate) const PUSH_NOT_UPDATED: &str = "push_not_updated";

/// The numbers of jobs could not be read for the last scrape of the metrics.
pub(crate) const COUNTS_UNAVAILABLE: &str = "counts_unavailable";

/// The current problems of this node.
pub(crate) struct Health {
    wall_clock: WallClock,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Problems of the background tasks of the server.
    own: BTreeMap<&'static str, StoreProblem>,
    /// Problems of the store whose beginning is in the log.
    of_store: BTreeMap<&'static str, StoreProblem>,
}

impl Health {
    pub(crate) fn new(wall_clock: WallClock) -> Self {
        Health { wall_clock, state: Mutex::default() }
    }

    /// Records that a task of the server fails. Repeated calls change nothing.
    pub(crate) fn begin(&self, name: &'static str, detail: String) {
        let since = self.wall_clock.now();
        let mut state = self.lock();
        if !state.own.contains_key(name) {
            tracing::warn!(problem = name, detail, "a problem began");
            state.own.insert(name, StoreProblem { name, detail, since });
        }
    }

    /// Records that a task of the server works again.
    pub(crate) fn end(&self, name: &'static str) {
        if self.lock().own.remove(name).is_some() {
            tracing::info!(problem = name, "the problem is over");
        }
    }

    /// Returns the measurements of the store, and the problems of the store and of the server,
    /// ordered by name. Logs which problems of the store began or ended since the last call.
    pub(crate) fn check(&self, store: &dyn Store) -> StoreStatus {
        let StoreStatus { problems, metrics } = store.status();
        let problems: BTreeMap<&'static str, StoreProblem> =
            problems.into_iter().map(|problem| (problem.name, problem)).collect();
        let mut state = self.lock();
        for problem in problems.values() {
            if !state.of_store.contains_key(problem.name) {
                let StoreProblem { name, detail, .. } = problem;
                tracing::error!(problem = name, detail, "a problem of the store began");
            }
        }
        for name in state.of_store.keys().filter(|name| !problems.contains_key(*name)) {
            tracing::info!(problem = name, "the problem of the store is over");
        }
        state.of_store = problems;
        let mut all = state.own.clone();
        all.extend(state.of_store.clone());
        StoreStatus { problems: all.into_values().collect(), metrics }
    }

    /// Checks the store periodically until the server stops.
    pub(crate) async fn watch(self: Arc<Self>, store: Arc<dyn Store>, stop: Shutdown) {
        let watching = async {
            loop {
                self.check(&*store);
                self.wall_clock.clock().sleep(INTERVAL).await;
            }
        };
        tokio::select! {
            biased;
            () = stop.requested() => {}
            () = watching => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use requeue_jobs::{Layered, MemoryStore, StoreMetric, StoreMetricKind, Timestamp};
    use std::io::Write;

    /// A store with problems that the test sets.
    #[derive(Default)]
    pub(crate) struct ProblemStore {
        store: MemoryStore,
        pub(crate) problems: Mutex<Vec<StoreProblem>>,
    }

    impl ProblemStore {
        pub(crate) fn set(&self, names: &[&'static str]) {
            let problem = |name: &&'static str| StoreProblem {
                name,
                detail: format!("{name} in /secret"),
                since: Timestamp::from_millis(1_700_000_000_000),
            };
            *self.problems.lock().expect("no panic") = names.iter().map(problem).collect();
        }
    }

    impl Layered for ProblemStore {
        fn inner(&self) -> &dyn Store {
            &self.store
        }

        fn status(&self) -> StoreStatus {
            let metric = |name, kind, value| StoreMetric { name, help: "A test.", kind, value };
            let metrics = vec![
                metric("disk_free_bytes", StoreMetricKind::Gauge, 4096.0),
                metric("disk_merges_total", StoreMetricKind::Counter, 7.0),
            ];
            StoreStatus { problems: self.problems.lock().expect("no panic").clone(), metrics }
        }
    }

    #[derive(Clone, Default)]
    pub(crate) struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Lines {
        /// Calls `log` and returns the lines that it logs.
        pub(crate) fn of(log: impl FnOnce()) -> Vec<String> {
            let lines = Lines::default();
            let writer = lines.clone();
            let subscriber = tracing_subscriber::fmt().without_time().with_ansi(false);
            let subscriber = subscriber.with_writer(move || writer.clone()).finish();
            tracing::subscriber::with_default(subscriber, log);
            let bytes = lines.0.lock().expect("no panic").clone();
            let text = String::from_utf8(bytes).expect("logs are text");
            text.lines().map(str::to_owned).collect()
        }
    }

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("no panic").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn each_problem_is_logged_when_it_begins_and_when_it_ends() {
        let (store, health) = (ProblemStore::default(), Health::new(WallClock::system()));
        let names = |store: &ProblemStore| -> Vec<&str> {
            health.check(store).problems.iter().map(|problem| problem.name).collect()
        };
        let lines = Lines::of(|| {
            assert_eq!(names(&store), [""; 0]);
            store.set(&["disk_full"]);
            assert_eq!(names(&store), ["disk_full"]);
            store.set(&["disk_full", "merge_failed"]);
            health.begin(REAPER_FAILED, "no".into());
            health.begin(REAPER_FAILED, "still no".into());
            assert_eq!(names(&store), ["disk_full", "merge_failed", "reaper_failed"]);
            assert_eq!(names(&store).len(), 3);
            store.set(&["merge_failed"]);
            health.end(REAPER_FAILED);
            health.end(REAPER_FAILED);
            assert_eq!(names(&store), ["merge_failed"]);
        });
        let found: Vec<_> = lines.iter().map(|line| line.trim_start()).collect();
        let expected = [
            ("ERROR", "disk_full"),
            ("WARN", "reaper_failed"),
            ("ERROR", "merge_failed"),
            ("INFO", "reaper_failed"),
            ("INFO", "disk_full"),
        ];
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (line, (level, name)) in found.iter().zip(expected) {
            assert!(line.starts_with(level) && line.contains(name), "{line}");
        }
    }
}
