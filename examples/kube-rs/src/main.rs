//! A controller with a kube-rs watcher and a requeue queue. See `docs/kube-rs.md`.

use futures_util::{Stream, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::WatchStreamExt;
use kube::runtime::reflector::{self, ObjectRef, Store, store::Writer};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use requeue::limiter::default_controller;
use requeue::worker::{BoxError, Outcome, Worker};
use requeue::{AddOptions, PriorityQueue};
use std::collections::HashMap;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

type Queue = PriorityQueue<ObjectRef<Pod>>;

/// Keeps the local copy of the pods, and adds the key of every pod that exists or changes, until the
/// stream ends. Always first the copy, then the key: a worker that takes the key sees the change.
async fn feed(
    queue: &Queue,
    mut writer: Writer<Pod>,
    events: impl Stream<Item = watcher::Result<Event<Pod>>>,
) {
    let pods = writer.as_reader();
    // The pods of the list that is being read, and whether the copy lacks this version of them.
    let mut listed = HashMap::new();
    let mut is_first_list = true;
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        let event = match event {
            Ok(event) => event,
            // The stream goes on: it watches or lists again after a pause.
            Err(error) => {
                eprintln!("watching pods failed: {error}");
                continue;
            }
        };
        let mut keys = Vec::new();
        match &event {
            Event::Apply(pod) | Event::Delete(pod) => keys.push((ObjectRef::from_obj(pod), 0)),
            Event::Init => listed.clear(),
            Event::InitApply(pod) => {
                let key = ObjectRef::from_obj(pod);
                let copy = pods.get(&key);
                let is_same =
                    copy.is_some_and(|copy| copy.resource_version() == pod.resource_version());
                listed.insert(key, !is_same);
            }
            // A list replaces the copy as a whole, when it is complete.
            Event::InitDone => {
                let copied = pods.state();
                let known = copied.iter().map(|pod| ObjectRef::from_obj(&**pod));
                keys.extend(known.filter(|key| !listed.contains_key(key)).map(|key| (key, 0)));
                // The first list, and pods that have not changed, have a low priority.
                keys.extend(
                    listed.drain().map(|(key, changed)| {
                        (key, if is_first_list || !changed { -100 } else { 0 })
                    }),
                );
                is_first_list = false;
            }
        }
        writer.apply_watcher_event(&event);
        for (key, priority) in keys {
            queue.add_with(key, AddOptions::new().priority(priority));
        }
    }
}

/// Acts on the current state of the pod, whatever has happened to it.
async fn reconcile(pods: &Store<Pod>, key: &ObjectRef<Pod>) -> Result<Outcome, BoxError> {
    match pods.get(key) {
        Some(pod) => println!("{key}: {:?}", pod.status.as_ref().and_then(|s| s.phase.as_ref())),
        None => println!("{key}: gone"),
    }
    Ok(Outcome::Done) // or RequeueAfter(…); an error is retried with backoff
}

/// Waits for Ctrl-C, or for SIGTERM, with which Kubernetes ends a pod.
async fn shutdown() -> std::io::Result<()> {
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = terminated.recv() => Ok(()),
        pressed = tokio::signal::ctrl_c() => pressed,
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let queue = Queue::new(default_controller());
    let (pods, writer) = reflector::store();
    let events = watcher(Api::all(Client::try_default().await?), watcher::Config::default());
    let worker =
        Worker::new(&queue).concurrency(8).timeout(Duration::from_secs(30)).spawn(move |run| {
            let pods = pods.clone();
            async move { reconcile(&pods, &run.key).await }
        });
    tokio::select! {
        () = feed(&queue, writer, events.default_backoff()) => {}
        stopped = shutdown() => stopped?,
    }
    let left = queue.drain(Duration::from_secs(20)).await; // processes what is ready
    worker.join().await;
    println!("{} keys were left", left.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{FutureExt, stream};
    use kube::client::Body;
    use serde_json::{Value, json};
    use tokio::sync::{mpsc, oneshot};

    #[test]
    fn the_docs_show_this_program() {
        let (program, _) =
            include_str!("main.rs").split_once("\n#[cfg(test)]").expect("the file has tests");
        let (_, program) = program.split_once("\n\n").expect("the file starts with a doc comment");
        assert!(include_str!("../../../docs/kube-rs.md").contains(program));
    }

    #[tokio::test]
    async fn sigterm_ends_the_program_with_a_drain() {
        let mut stopped = std::pin::pin!(shutdown());
        // Polled once, so that the signal does not end the test.
        assert!(stopped.as_mut().now_or_never().is_none());
        let pid = std::process::id().to_string();
        let sent = std::process::Command::new("kill").args(["-TERM", &pid]).status();
        assert!(sent.expect("kill starts").success());
        stopped.await.expect("the signal arrives");
    }

    /// A request to the API server. The test decides when it is answered, and with what.
    struct Request {
        uri: String,
        answer: oneshot::Sender<String>,
    }

    impl Request {
        fn respond(self, lines: impl IntoIterator<Item = Value>) {
            let lines: Vec<String> = lines.into_iter().map(|line| line.to_string()).collect();
            self.answer.send(lines.join("\n")).expect("the watcher waits for the response");
        }
    }

    fn api_server() -> (Client, mpsc::UnboundedReceiver<Request>) {
        let (send, requests) = mpsc::unbounded_channel();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (answer, answered) = oneshot::channel();
            let request = Request { uri: request.uri().to_string(), answer };
            let sent = send.send(request).map_err(|_| "the test has ended");
            async move {
                sent?;
                let body = answered.await.map_err(|_| "the test has ended")?;
                Ok::<_, BoxError>(http::Response::new(Body::from(body.into_bytes())))
            }
        });
        (Client::new(service, "default"), requests)
    }

    fn pod(name: &str, version: &str) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "resourceVersion": version},
        })
    }

    fn list(pods: &[(&str, &str)], next: Option<&str>) -> [Value; 1] {
        let items: Vec<_> = pods.iter().map(|(name, version)| pod(name, version)).collect();
        let metadata = json!({"resourceVersion": "100", "continue": next});
        [json!({"apiVersion": "v1", "kind": "PodList", "metadata": metadata, "items": items})]
    }

    fn gone() -> Value {
        let status = json!({
            "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": 410,
            "reason": "Expired", "message": "too old resource version",
        });
        json!({"type": "ERROR", "object": status})
    }

    /// What a run saw: the name of the pod, and its version in the local copy.
    type Seen = (String, Option<String>);

    async fn seen(runs: &mut mpsc::UnboundedReceiver<Seen>, count: usize) -> Vec<String> {
        let mut seen = Vec::new();
        for _ in 0..count {
            let (name, version) = runs.recv().await.expect("the worker runs");
            seen.push(format!("{name}: {}", version.as_deref().unwrap_or("gone")));
        }
        seen
    }

    /// Lets the worker and the watcher do what they can.
    async fn settle() {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn every_run_sees_the_newest_state_over_pages_and_a_relist() {
        let (client, mut server) = api_server();
        let queue = Queue::new(default_controller());
        let (pods, writer) = reflector::store();
        let (ran, mut runs) = mpsc::unbounded_channel();
        let worker = Worker::new(&queue).spawn(move |run| {
            let version = pods.get(&run.key).map(|pod: std::sync::Arc<Pod>| pod.resource_version());
            let sent = ran.send((run.key.name.clone(), version.flatten()));
            async move { sent.map(|()| Outcome::Done).map_err(BoxError::from) }
        });
        let config = watcher::Config::default().page_size(2);
        let events = watcher(Api::<Pod>::all(client), config).default_backoff();
        let feeding = tokio::spawn({
            let queue = queue.clone();
            async move { feed(&queue, writer, events).await }
        });

        // The first list has two pages. After the first one, the copy is still empty.
        let page = server.recv().await.unwrap();
        page.respond(list(&[("a", "1"), ("b", "2")], Some("page-2")));
        let page = server.recv().await.unwrap();
        assert!(page.uri.contains("continue=page-2"), "{}", page.uri);
        settle().await;
        assert!(runs.try_recv().is_err());
        page.respond(list(&[("c", "3")], None));
        let mut first = seen(&mut runs, 3).await;
        first.sort();
        assert_eq!(first, ["a: 1", "b: 2", "c: 3"]);

        // A change, and then the server has forgotten the version from which it was watched.
        let watch = server.recv().await.unwrap();
        assert!(watch.uri.contains("watch=true"), "{}", watch.uri);
        watch.respond([json!({"type": "MODIFIED", "object": pod("b", "4")}), gone()]);
        assert_eq!(seen(&mut runs, 1).await, ["b: 4"]);

        // Meanwhile a has changed, c was deleted and d is new. What changed comes before what did not.
        let page = server.recv().await.unwrap();
        page.respond(list(&[("a", "5"), ("b", "4")], Some("page-2")));
        let page = server.recv().await.unwrap();
        settle().await;
        assert!(runs.try_recv().is_err());
        page.respond(list(&[("d", "6")], None));
        let mut relisted = seen(&mut runs, 4).await;
        assert_eq!(relisted.pop().unwrap(), "b: 4");
        relisted.sort();
        assert_eq!(relisted, ["a: 5", "c: gone", "d: 6"]);

        feeding.abort();
        assert!(queue.drain(Duration::MAX).await.is_empty());
        worker.join().await;
    }

    #[tokio::test]
    async fn a_change_is_handled_before_the_initial_list() {
        let pod = |name| serde_json::from_value::<Pod>(pod(name, "1")).expect("a pod");
        let queue = Queue::new(default_controller());
        let (_pods, writer) = reflector::store();
        let events = [
            Event::Init,
            Event::InitApply(pod("a")),
            Event::InitApply(pod("b")),
            Event::InitDone,
            Event::Apply(pod("b")),
            Event::Delete(pod("c")),
        ];
        feed(&queue, writer, stream::iter(events.map(Ok))).await;
        let names = std::iter::from_fn(|| queue.try_get().ok()).map(|held| held.key().name.clone());
        assert_eq!(names.collect::<Vec<_>>(), ["b", "c", "a"]);
    }
}
