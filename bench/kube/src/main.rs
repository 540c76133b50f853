//! kube-runtime's controller on the workloads of requeue's workers: one measurement per run.
//!
//! ```text
//!   requeue-bench-kube WORKLOAD SECONDS
//! ```

// Shared as files: a dependency on the crate would change this one's Cargo.lock whenever
// requeue's own dependencies change. Not everything in them is used here.
#[allow(dead_code)]
#[path = "../../src/keys.rs"]
mod keys;
#[allow(dead_code)]
#[path = "../../src/meter.rs"]
mod meter;

use futures::{StreamExt, future, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use keys::make_keys;
use kube_runtime::controller::{Action, Config};
use kube_runtime::reflector::{self, Store};
use kube_runtime::{Controller, watcher};
use meter::passes;
use std::convert::Infallible;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

const BACKLOG: usize = 10_000;
/// The same number as in the other tokio workloads.
const TOKIO_WORKERS: usize = 2;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let measured = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["worker-tokio", seconds] => seconds.parse().ok().map(|seconds| worker(1, seconds)),
        ["worker-tokio-4", seconds] => seconds.parse().ok().map(|seconds| worker(4, seconds)),
        _ => None,
    };
    match measured {
        Some(ns) => {
            println!("{{\"value\":{ns},\"unit\":\"ns\"}}");
            ExitCode::SUCCESS
        }
        None => {
            eprintln!("usage: requeue-bench-kube worker-tokio|worker-tokio-4 SECONDS");
            ExitCode::FAILURE
        }
    }
}

/// A controller processes a backlog, without a cluster: its store is filled and its watch
/// is a list.
fn worker(concurrency: u16, seconds: f64) -> f64 {
    let objects: Vec<ConfigMap> =
        make_keys::<String>(BACKLOG).iter().map(|key| object(key)).collect();
    let store = store(&objects);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(TOKIO_WORKERS)
        .enable_time()
        .build()
        .expect("the system has two threads to spare");
    let pass = || {
        let watch = stream::iter(objects.clone().into_iter().map(Ok));
        // A stream that ended would end the controller before all keys are done.
        let watch = watch.chain(stream::pending());
        let controller = Controller::for_stream(watch, store.clone())
            .with_config(Config::default().concurrency(concurrency));
        // Spawned, because the thread that blocks on a runtime is not one of its workers.
        let working = runtime.spawn(async move {
            let started = Instant::now();
            let finished = controller.run(reconcile, never_fails, Arc::new(())).take(BACKLOG);
            assert!(finished.all(|answer| future::ready(answer.is_ok())).await);
            started.elapsed()
        });
        runtime.block_on(working).expect("the task does not panic")
    };
    pass();
    passes(BACKLOG, Duration::from_secs_f64(seconds), pass)
}

async fn reconcile(_: Arc<ConfigMap>, _: Arc<()>) -> Result<Action, Infallible> {
    Ok(Action::await_change())
}

fn never_fails(_: Arc<ConfigMap>, never: &Infallible, _: Arc<()>) -> Action {
    match *never {}
}

/// The object that a key such as `namespace-12/pod-3fa92c-0776` stands for.
fn object(key: &str) -> ConfigMap {
    let (namespace, name) = key.split_once('/').expect("keys have a namespace");
    let metadata = ObjectMeta {
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        ..ObjectMeta::default()
    };
    ConfigMap { metadata, ..ConfigMap::default() }
}

fn store(objects: &[ConfigMap]) -> Store<ConfigMap> {
    let (store, mut writer) = reflector::store();
    writer.apply_watcher_event(&watcher::Event::Init);
    for object in objects {
        writer.apply_watcher_event(&watcher::Event::InitApply(object.clone()));
    }
    writer.apply_watcher_event(&watcher::Event::InitDone);
    store
}
