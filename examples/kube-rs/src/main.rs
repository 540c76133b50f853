//! A controller with a kube-rs watcher and a requeue queue. See `docs/kube-rs.md`.

use futures_util::{Stream, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::WatchStreamExt;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use requeue::limiter::default_controller;
use requeue::worker::{BoxError, Outcome, Worker};
use requeue::{AddOptions, PriorityQueue};
use std::time::Duration;

type Queue = PriorityQueue<ObjectRef<Pod>>;

/// Adds the key of every pod that exists or changes, until the stream ends.
async fn feed(
    queue: &Queue,
    events: impl Stream<Item = watcher::Result<Event<Pod>>>,
) -> watcher::Result<()> {
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.try_next().await? {
        match event {
            // The initial list, also after a lost connection: low priority.
            Event::InitApply(pod) => {
                queue.add_with(ObjectRef::from_obj(&pod), AddOptions::new().priority(-100));
            }
            Event::Apply(pod) | Event::Delete(pod) => drop(queue.add(ObjectRef::from_obj(&pod))),
            Event::Init | Event::InitDone => {}
        }
    }
    Ok(())
}

/// Acts on the current state of the pod, whatever has happened to it.
async fn reconcile(pods: &Store<Pod>, key: &ObjectRef<Pod>) -> Result<Outcome, BoxError> {
    match pods.get(key) {
        Some(pod) => println!("{key}: {:?}", pod.status.as_ref().and_then(|s| s.phase.as_ref())),
        None => println!("{key}: gone"),
    }
    Ok(Outcome::Done) // or RequeueAfter(…); an error is retried with backoff
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let queue = Queue::new(default_controller());
    let (pods, writer) = reflector::store();
    let events = watcher(Api::all(Client::try_default().await?), watcher::Config::default());
    let events = events.default_backoff().reflect(writer);
    let worker =
        Worker::new(&queue).concurrency(8).timeout(Duration::from_secs(30)).spawn(move |run| {
            let pods = pods.clone();
            async move { reconcile(&pods, &run.key).await }
        });
    tokio::select! {
        ended = feed(&queue, events) => ended?,
        signal = tokio::signal::ctrl_c() => signal?,
    }
    let left = queue.drain(Duration::from_secs(20)).await; // processes what is ready
    worker.join().await;
    println!("{} keys were left", left.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;

    fn pod(name: &str) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.name = Some(name.to_owned());
        pod.metadata.namespace = Some("default".to_owned());
        pod
    }

    #[test]
    fn the_docs_show_this_program() {
        let (program, _) =
            include_str!("main.rs").split_once("\n#[cfg(test)]").expect("the file has tests");
        let (_, program) = program.split_once("\n\n").expect("the file starts with a doc comment");
        assert!(include_str!("../../../docs/kube-rs.md").contains(program));
    }

    #[tokio::test]
    async fn a_change_is_handled_before_the_initial_list() {
        let queue = Queue::new(default_controller());
        let events = [
            Event::Init,
            Event::InitApply(pod("a")),
            Event::InitApply(pod("b")),
            Event::InitDone,
            Event::Apply(pod("b")),
            Event::Delete(pod("c")),
        ];
        feed(&queue, stream::iter(events.map(Ok))).await.expect("no event is an error");
        let names = std::iter::from_fn(|| queue.try_get().ok()).map(|held| held.key().name.clone());
        assert_eq!(names.collect::<Vec<_>>(), ["b", "c", "a"]);
    }

    #[tokio::test]
    async fn a_pod_is_reconciled_in_its_current_state() {
        let queue = Queue::new(default_controller());
        let (pods, mut writer) = reflector::store();
        writer.apply_watcher_event(&Event::Apply(pod("a")));
        queue.add(ObjectRef::from_obj(&pod("a")));
        queue.add(ObjectRef::from_obj(&pod("gone")));
        let worker = Worker::new(&queue).spawn(move |run| {
            let pods = pods.clone();
            async move { reconcile(&pods, &run.key).await }
        });
        assert!(queue.drain(Duration::MAX).await.is_empty());
        worker.join().await;
    }
}
