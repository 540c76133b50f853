//! What the connections know about the servers: problems and counts, for
//! [`Store::status`](requeue_jobs::Store::status).

use requeue_jobs::{StoreMetric, StoreMetricKind, StoreProblem, StoreStatus, Timestamp, WallClock};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// There is no connection to a server.
pub(super) const DISCONNECTED: &str = "redis_disconnected";
/// The pub/sub connection is down.
pub(super) const NOTIFICATIONS_DOWN: &str = "redis_notifications_down";
/// A server rejects new jobs because its memory is full.
pub(super) const OUT_OF_MEMORY: &str = "redis_out_of_memory";
/// A server rejects writes for another reason.
const REJECTS_WRITES: &str = "redis_rejects_writes";

/// The most calls that wait for Redis. More are rejected: if the server hangs, they would otherwise
/// fill the memory until they time out.
const MAX_CALLS: usize = 50_000;
/// The most bytes of commands that wait for Redis.
const MAX_CALL_BYTES: usize = 128 << 20;

/// The state of all connections of a store.
#[derive(Default)]
pub(super) struct Health {
    /// By name and server.
    problems: Mutex<BTreeMap<(&'static str, String), SeenProblem>>,
    /// Whether a server has rejected a write and has not accepted one since. Saves a lock per call.
    has_rejections: AtomicBool,
    connections: AtomicU64,
    commands: AtomicU64,
    waiting: Mutex<Waiting>,
}

struct SeenProblem {
    detail: String,
    since: Timestamp,
}

/// Calls without a reply yet.
#[derive(Default)]
struct Waiting {
    calls: usize,
    bytes: usize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Health {
    /// Records a problem of a server. Its time is that of the first report.
    pub(super) fn report(&self, name: &'static str, server: &str, detail: &str) {
        let mut problems = lock(&self.problems);
        let problem = problems.entry((name, server.to_owned())).or_insert_with(|| {
            let since = WallClock::system().now();
            SeenProblem { detail: String::new(), since }
        });
        detail.clone_into(&mut problem.detail);
    }

    /// Records that a problem of a server is over.
    pub(super) fn resolve(&self, name: &'static str, server: &str) {
        lock(&self.problems).remove(&(name, server.to_owned()));
    }

    /// Records that a connection was opened.
    pub(super) fn connected(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that a server rejected a command with this error.
    pub(super) fn rejected(&self, server: &str, code: &str, text: &str) {
        let (name, what) = match code {
            "OOM" => (OUT_OF_MEMORY, "puts fail, claims and settlements work"),
            "MISCONF" | "NOREPLICAS" => (REJECTS_WRITES, "no job can be put, claimed or settled"),
            _ => return,
        };
        self.report(name, server, &format!("{what}: {text}"));
        self.has_rejections.store(true, Ordering::Relaxed);
    }

    /// Records that a server accepted a command that adds data.
    pub(super) fn accepted(&self, server: &impl ToString) {
        if self.has_rejections.swap(false, Ordering::Relaxed) {
            let server = &server.to_string();
            self.resolve(OUT_OF_MEMORY, server);
            self.resolve(REJECTS_WRITES, server);
            let others = lock(&self.problems)
                .keys()
                .any(|(name, _)| [OUT_OF_MEMORY, REJECTS_WRITES].contains(name));
            self.has_rejections.fetch_or(others, Ordering::Relaxed);
        }
    }

    /// Counts a call until the returned guard is dropped. Fails with the reason if too many wait.
    pub(super) fn begin(self: &Arc<Self>, bytes: usize) -> Result<WaitingCall, String> {
        self.commands.fetch_add(1, Ordering::Relaxed);
        let mut waiting = lock(&self.waiting);
        let Waiting { calls, bytes: others } = *waiting;
        if calls >= MAX_CALLS || calls > 0 && others.saturating_add(bytes) > MAX_CALL_BYTES {
            return Err(format!(
                "{calls} calls with {others} bytes wait for Redis; the limits are {MAX_CALLS} \
                 calls and {MAX_CALL_BYTES} bytes"
            ));
        }
        waiting.calls += 1;
        waiting.bytes += bytes;
        drop(waiting);
        Ok(WaitingCall { health: self.clone(), bytes })
    }

    pub(super) fn status(&self) -> StoreStatus {
        let mut problems: Vec<StoreProblem> = Vec::new();
        for ((name, server), SeenProblem { detail, since }) in &*lock(&self.problems) {
            let detail = match detail.starts_with(server.as_str()) {
                true => detail.clone(),
                false => format!("{server}: {detail}"),
            };
            // A Cluster may have the same problem on several nodes.
            match problems.last_mut().filter(|last| last.name == *name) {
                Some(last) => {
                    last.detail += &format!("; {detail}");
                    last.since = last.since.min(*since);
                }
                None => problems.push(StoreProblem { name, detail, since: *since }),
            }
        }
        let (calls, bytes) = {
            let Waiting { calls, bytes } = *lock(&self.waiting);
            (calls as f64, bytes as f64)
        };
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64;
        let metric = |name, help, kind, value| StoreMetric { name, help, kind, value };
        let metrics = vec![
            metric(
                "redis_connections_total",
                "Connections to Redis servers that were opened, including reconnects.",
                StoreMetricKind::Counter,
                count(&self.connections),
            ),
            metric(
                "redis_commands_total",
                "Commands and scripts that were sent to Redis, including rejected ones.",
                StoreMetricKind::Counter,
                count(&self.commands),
            ),
            metric(
                "redis_commands_in_flight",
                "Commands and scripts that wait for a connection or a reply.",
                StoreMetricKind::Gauge,
                calls,
            ),
            metric(
                "redis_commands_in_flight_bytes",
                "Bytes of the commands that wait for a connection or a reply.",
                StoreMetricKind::Gauge,
                bytes,
            ),
        ];
        StoreStatus { problems, metrics }
    }
}

/// A call without a reply yet.
pub(super) struct WaitingCall {
    health: Arc<Health>,
    bytes: usize,
}

impl Drop for WaitingCall {
    fn drop(&mut self) {
        let mut waiting = lock(&self.health.waiting);
        waiting.calls -= 1;
        waiting.bytes -= self.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_rejected_when_too_many_bytes_or_calls_wait() {
        let health = Arc::new(Health::default());
        let one = health.begin(usize::MAX).expect("a single call of any size is sent");
        assert!(health.begin(1).is_err_and(|reason| reason.contains("1 calls with")));
        drop(one);
        let all: Vec<_> = (0..MAX_CALLS).map(|_| health.begin(1)).collect();
        assert!(all.iter().all(Result::is_ok));
        let reason = health.begin(1).err().expect("too many wait");
        assert!(reason.contains("50000 calls with 50000 bytes"), "{reason}");
        drop(all);
        let half = health.begin(MAX_CALL_BYTES / 2).expect("nothing waits");
        assert!(health.begin(MAX_CALL_BYTES).is_err());
        drop(health.begin(MAX_CALL_BYTES / 2).expect("they fit"));
        drop(half);
        let Waiting { calls, bytes } = *lock(&health.waiting);
        assert_eq!((calls, bytes), (0, 0));
    }

    #[test]
    fn a_problem_of_several_servers_is_reported_once_since_the_first_report() {
        let health = Health::default();
        for server in ["a:1", "b:2"] {
            health.rejected(server, "OOM", "command not allowed");
            health.rejected(server, "OOM", "command not allowed");
        }
        health.rejected("a:1", "ERR", "another error");
        let [problem] = &health.status().problems[..] else { panic!("one problem") };
        assert_eq!(problem.name, "redis_out_of_memory");
        assert!(problem.detail.contains("a:1: puts fail") && problem.detail.contains("b:2: puts"));
        health.accepted(&"a:1");
        assert!(!health.status().problems[0].detail.contains("a:1"));
        health.accepted(&"b:2");
        assert_eq!(health.status().problems, []);
    }
}
