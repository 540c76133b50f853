//! `put-*`, `calls-*`: tasks put one job after the other, each waiting for its result.

use super::expensive_store::{ExpensiveStore, Price};
use requeue_bench::Measurement;
use requeue_bench::meter::passes;
use requeue_jobs::{Body, Due, JobId, Jobs, Kind, Put, Store};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The time in which a server reads a request, executes it and responds.
const WORK: Price = Price::Work(Duration::from_micros(20));
/// The time of a sync on a durable disk; tokio's timer has no shorter time.
const WAIT: Price = Price::Wait(Duration::from_millis(1));

const BODY: &[u8] = &[7; 100];
const LATER: Duration = Duration::from_secs(3600);

/// How a caller puts jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Settlement {
    /// Through a handle, which batches calls.
    Joined,
    /// With one store call per put.
    Single,
}

/// Returns `None` if there is no such workload.
pub(super) fn measure(action: Settlement, workload: &str, budget: Duration) -> Option<Measurement> {
    let (verb, rest) = workload.split_once('-')?;
    let (callers, price) = rest.split_once('-').unwrap_or((rest, "work"));
    let callers: usize = callers.parse().ok()?;
    let price = match price {
        "memory" => Price::Nothing,
        "work" => WORK,
        "wait" => WAIT,
        _ => return None,
    };
    let ops = if price == WAIT { 1_000 } else { 20_000 };
    let store = Arc::new(ExpensiveStore::new(price));
    let runtime = super::tokio();
    let pass = || runtime.block_on(put_all(&store, action, callers, ops / callers));
    pass();
    let (calls_before, mut passed) = (store.calls(), 0);
    let ns = passes(ops, budget, || {
        passed += ops;
        pass()
    });
    match verb {
        "put" => Some(Measurement::ns(ns)),
        "calls" => Some(Measurement::calls((store.calls() - calls_before) as f64 / passed as f64)),
        _ => None,
    }
}

async fn put_all(
    store: &Arc<ExpensiveStore>,
    action: Settlement,
    callers: usize,
    each: usize,
) -> Duration {
    let jobs = Jobs::new(Arc::clone(store) as Arc<dyn Store>);
    let started = Instant::now();
    let callers: Vec<_> = (0..callers)
        .map(|caller| {
            let (store, jobs, id) = (Arc::clone(store), jobs.clone(), format!("job-{caller}"));
            tokio::spawn(async move {
                for _ in 0..each {
                    match action {
                        Settlement::Joined => drop(jobs.put("bench", &id, BODY).after(LATER).await),
                        Settlement::Single => drop(store.put(vec![put(&id)]).await),
                    }
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.expect("a caller does not panic");
    }
    started.elapsed()
}

/// Makes the same put as a handle does.
fn put(id: &str) -> Put {
    let names = Kind::new("bench").and_then(|kind| Ok((kind, JobId::new(id)?)));
    let (kind, id) = names.expect("the names are short");
    let mut put = Put::new(kind, id, Body::octets(BODY).expect("the body is small"));
    put.due = Due::After(LATER);
    put
}
