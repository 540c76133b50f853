//! A server is stopped with SIGTERM.

use super::load::{Load, list};
use super::node::{KIND, LONG, Node, block_on, claim};
use crate::support::Dir;
use requeue_jobs::{JobState, Settled};
use requeue_testkit::{Random, check_seeds};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

#[test]
fn stopping_under_load_loses_nothing_and_leaves_no_undelivered_leases() {
    check_seeds(&[], "REQUEUE_STOPS", 1, |seed| {
        let (dir, mut random) = (Dir::new(), Random::new(seed));
        let load = Load::new(LONG);
        for _ in 0..2 {
            let node = Node::on_disk(&dir);
            let client = node.client.clone();
            load.run(&[&client], random.number(), || {
                load.reaches(100 + random.below(100));
                node.stop();
            });
        }
        let node = Node::on_disk(&dir);
        load.holders_are_known(&node.client);
        load.ends_well(&node.client);
        Ok(())
    });
}

#[test]
fn waiting_claims_get_an_empty_response_when_the_server_stops() {
    let dir = Dir::new();
    let node = Node::on_disk(&dir);
    // A claim that kept waiting would get it.
    block_on(node.jobs().put(KIND, "a", "").after(Duration::from_secs(30))).unwrap();
    let client = node.client.clone();
    thread::scope(|scope| {
        let ask = || scope.spawn(|| claim(&client, "1m"));
        let claims: Vec<_> = (0..20).map(|_| ask()).collect();
        node.awaits_claims(20);
        node.stop();
        for claim in claims {
            assert_eq!(claim.join().unwrap().unwrap(), []);
        }
    });
}

#[test]
fn leases_survive_a_stop() {
    let dir = Dir::new();
    let node = Node::on_disk(&dir);
    block_on(node.jobs().put(KIND, "a", "")).unwrap();
    let job = claim(&node.client, "0s").unwrap().remove(0);
    let before = block_on(node.jobs().get(KIND, "a")).unwrap();
    node.stop();
    let node = Node::on_disk(&dir);
    assert_eq!(block_on(node.jobs().get(KIND, "a")).unwrap(), before);
    assert_eq!(block_on(node.jobs().ack(&job.receipt)).unwrap(), Settled::Done);
}

#[test]
fn jobs_claimed_during_a_stop_are_delivered_or_released() {
    const COUNT: usize = 20;
    let answered = Cell::new(0);
    check_seeds(&[], "REQUEUE_STOPS", 5, |seed| {
        let (dir, mut random) = (Dir::new(), Random::new(seed));
        let node = Node::on_disk(&dir);
        let client = node.client.clone();
        let held: BTreeSet<String> = thread::scope(|scope| {
            let ask = || scope.spawn(|| claim(&client, "1m").expect("it is answered"));
            let claims: Vec<_> = (0..COUNT).map(|_| ask()).collect();
            node.awaits_claims(COUNT as u64);
            for id in 0..COUNT {
                block_on(node.jobs().put(KIND, &id.to_string(), "")).unwrap();
                if id >= random.below(COUNT) {
                    break;
                }
            }
            node.stop();
            let jobs = claims.into_iter().flat_map(|claim| claim.join().unwrap());
            jobs.map(|job| job.id().as_str().to_owned()).collect()
        });
        answered.set(answered.get() + held.len());
        let node = Node::on_disk(&dir);
        for job in list(&node.client) {
            let state =
                if held.contains(job.id.as_str()) { JobState::Leased } else { JobState::Ready };
            assert_eq!((job.state, job.attempts), (state, 0), "{}", job.id.as_str());
        }
        Ok(())
    });
    println!("{} claims were answered", answered.get());
}

/// Longer than a test may take: a server that waits this long fails the test.
const NEVER: &str = "10m";

fn with_limit(dir: &Dir, limit: &str) -> Node {
    Node::start(dir, &["--listen", "127.0.0.1:0", "--data", "d", "--shutdown-limit", limit])
}

/// Sends a request, and reads the beginning of the response.
fn send(node: &Node, request: &str) -> TcpStream {
    let mut stream = node.stream();
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut line = [0; 12];
    stream.read_exact(&mut line).expect("it answers");
    assert!(line.starts_with(b"HTTP/1.1 "), "{}", String::from_utf8_lossy(&line));
    stream
}

#[test]
fn connections_without_a_request_do_not_delay_the_shutdown() {
    let dir = Dir::new();
    let node = with_limit(&dir, NEVER);
    let silent = node.stream();
    let kept = send(&node, "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let events = send(&node, "GET /v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n");
    node.stop();
    drop((silent, kept, events));
}

#[test]
fn a_request_that_does_not_end_is_cut_off() {
    let dir = Dir::new();
    let node = with_limit(&dir, "200ms");
    let head = "PUT /v1/kinds/mail/jobs/a HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\n\
                content-type: application/json\r\ncontent-length: 1000000\r\n\r\n";
    let mut stream = send(&node, head);
    thread::scope(|scope| {
        // Sends the body slowly until the connection is closed.
        scope.spawn(move || {
            while stream.write_all(b" ").is_ok() {
                thread::park_timeout(Duration::from_millis(10));
            }
        });
        node.stop();
    });
    assert_eq!(block_on(Node::on_disk(&dir).jobs().get(KIND, "a")).unwrap(), None);
}
