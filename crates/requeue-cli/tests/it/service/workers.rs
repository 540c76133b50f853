//! `requeue work` continues when its server is killed and restarted.

use super::node::{KIND, Node, block_on};
use super::shared_store::SharedStore;
use crate::support::{Dir, await_end, signal, until};
use requeue_testkit::servers::free_port;
use rustix::process::Signal;
use std::process::{Child, Stdio};

/// A server at a fixed port, which can be restarted.
fn node_at(dir: &Dir, port: u16) -> Node {
    Node::start(dir, &["--listen", &format!("127.0.0.1:{port}"), "--data", "d"])
}

/// A running `requeue work`, killed on drop.
struct Working(Child);

impl Working {
    fn start(dir: &Dir, node: &Node, args: &[&str]) -> Self {
        let fixed = ["work", KIND, "--server", node.url()];
        let mut command = dir.command(&[&fixed, args].concat());
        let command = command.stdout(Stdio::null()).stderr(Stdio::null());
        Working(command.spawn().expect("it starts"))
    }

    fn stop(mut self) {
        signal(&self.0.id().to_string(), Signal::TERM);
        let status = until("its end", || self.0.try_wait().expect("it is ours"));
        assert_eq!(status.code(), Some(0));
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until the job is acked.
fn await_ack(node: &Node) {
    let look = || block_on(node.jobs().get(KIND, "a")).expect("it answers");
    until("the end of the job", || look().is_none().then_some(()));
}

#[test]
fn a_command_that_runs_during_a_server_restart_is_acked() {
    let (dir, port) = (Dir::new(), free_port());
    let node = node_at(&dir, port);
    block_on(node.jobs().put(KIND, "a", "")).unwrap();
    let exec = "echo $REQUEUE_ATTEMPT >> ran; while [ ! -e go ]; do sleep 0.01; done";
    let worker = Working::start(&dir, &node, &["--exec", exec]);
    dir.await_file("ran");
    node.kill();
    let node = node_at(&dir, port);
    dir.write("go", "");
    await_ack(&node);
    worker.stop();
    assert_eq!(dir.read("ran"), "1\n");
}

#[test]
fn a_command_whose_lease_expired_without_the_server_is_killed_and_runs_again() {
    let (dir, port) = (Dir::new(), free_port());
    let node = node_at(&dir, port);
    block_on(node.jobs().put(KIND, "a", "")).unwrap();
    let exec = "echo $$ > pid.$REQUEUE_ATTEMPT; while [ ! -e go ]; do sleep 0.01; done";
    let worker = Working::start(&dir, &node, &["--lease", "1s", "--exec", exec]);
    let first = dir.await_file("pid.1");
    node.kill();
    await_end(&first);
    let node = node_at(&dir, port);
    dir.await_file("pid.2");
    dir.write("go", "");
    await_ack(&node);
    worker.stop();
}

#[test]
fn a_worker_continues_when_the_store_of_its_server_is_back() {
    for mut store in SharedStore::each_durable() {
        let dir = Dir::new();
        let node = Node::on(&dir, &store);
        let worker = Working::start(&dir, &node, &["--exec", "echo $REQUEUE_ID >> ran"]);
        block_on(node.jobs().put(KIND, "a", "")).unwrap();
        await_ack(&node);
        store.kill();
        until("it to know", || (node.status("/readyz") == 503).then_some(()));
        store.start_again();
        until("it to be ready", || (node.status("/readyz") == 200).then_some(()));
        block_on(node.jobs().put(KIND, "b", "")).unwrap();
        until("the next job", || (dir.read("ran") == "a\nb\n").then_some(()));
        worker.stop();
    }
}
