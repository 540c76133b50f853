//! A reconcile loop: retries with backoff, and a graceful drain on Ctrl-C.
//!
//! Each deployment wants a number of pods. Every change of a deployment is an `add` of its
//! name. A worker then starts or stops pods until the numbers match, whatever has changed
//! meanwhile. Half of the calls to the cluster fail.
//!
//! Run `cargo run --example controller` and press Ctrl-C, or run `cargo run --example
//! controller -- 2` to stop after two seconds.

use requeue::RateLimitingQueue;
use requeue::limiter::{Bucket, Chain, ExponentialFailure};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const WORKERS: usize = 4;

/// The wanted and the running pods by deployment, and the number of calls made.
#[derive(Default)]
struct Cluster {
    deployments: Mutex<BTreeMap<Arc<str>, (u32, u32)>>,
    calls: Mutex<u32>,
}

impl Cluster {
    fn want(&self, name: &Arc<str>, pods: u32) {
        self.deployments.lock().expect("no panic").entry(Arc::clone(name)).or_default().0 = pods;
    }

    /// Starts or stops at most one pod. Returns how many pods are still missing or too many.
    fn step(&self, name: &str) -> Result<u32, &'static str> {
        let mut calls = self.calls.lock().expect("no panic");
        *calls += 1;
        if calls.is_multiple_of(2) {
            return Err("the API server is busy");
        }
        let mut deployments = self.deployments.lock().expect("no panic");
        let (want, have) = deployments.get_mut(name).ok_or("no such deployment")?;
        match (*want).cmp(have) {
            std::cmp::Ordering::Less => *have -= 1,
            std::cmp::Ordering::Equal => {}
            std::cmp::Ordering::Greater => *have += 1,
        }
        Ok(want.abs_diff(*have))
    }
}

async fn work(queue: RateLimitingQueue<Arc<str>>, cluster: Arc<Cluster>) {
    while let Some(held) = queue.get().await {
        match cluster.step(held.key()) {
            Ok(0) => held.forget(), // the numbers match; dropping `held` marks it done
            Ok(_) => drop(held.requeue()),
            Err(error) => {
                let (name, failures) = (Arc::clone(held.key()), held.num_requeues() + 1);
                let delay = held.retry().delay;
                println!("{name}: {error} ({failures} in a row), again in {delay:?}");
            }
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let backoff = ExponentialFailure::new(Duration::from_millis(5), Duration::from_secs(60));
    let limiter = backoff.and(Bucket::new(100.0, 100)?).jittered(0.2)?;
    let queue = RateLimitingQueue::<Arc<str>>::new(limiter);
    let cluster = Arc::new(Cluster::default());
    let workers: Vec<_> =
        (0..WORKERS).map(|_| tokio::spawn(work(queue.clone(), Arc::clone(&cluster)))).collect();

    for (name, pods) in [("web", 3), ("api", 2), ("mail", 1)] {
        let name = Arc::from(name);
        cluster.want(&name, pods);
        queue.add(name);
    }

    match std::env::args().nth(1) {
        Some(seconds) => tokio::time::sleep(Duration::from_secs_f64(seconds.parse()?)).await,
        None => tokio::signal::ctrl_c().await?,
    }
    let left = queue.drain(Duration::from_secs(20)).await; // processes what is ready
    for worker in workers {
        worker.await?;
    }
    println!("stopped; {} keys left", left.len());
    for (name, (want, have)) in cluster.deployments.lock().expect("no panic").iter() {
        println!("{name}: {have} of {want} pods");
    }
    Ok(())
}
