//! Clients that disconnect during a claim.

use super::node::{KIND, Node, block_on, claim_released, claim_request, read};
use crate::support::{Dir, until};
use requeue_jobs::{Body, ClaimedJob, JobId, Kind, Put, Settled, Store};
use requeue_testkit::{Random, check_seeds};
use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;

/// Sends a claim on a raw connection, which the test can close at any time.
fn send_claim(node: &Node, wait: &str, max: usize) -> TcpStream {
    let mut stream = node.stream();
    let body = claim_request(wait, max).to_string();
    let head = "POST /v1/claim HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).expect("it reads");
    stream
}

/// The claimed job, if the whole response arrived.
fn received(answer: &[u8]) -> Option<ClaimedJob> {
    let text = String::from_utf8_lossy(answer);
    let (head, body) = text.split_once("\r\n\r\n")?;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let answer = serde_json::from_str(body).ok()?;
    read(answer).pop()
}

#[test]
fn a_waiting_claim_takes_no_job_after_its_client_disconnected() {
    let dir = Dir::new();
    let node = Node::on_disk(&dir);
    let stream = send_claim(&node, "1m", 1);
    node.awaits_claims(1);
    drop(stream);
    node.awaits_claims(0);
    block_on(node.jobs().put(KIND, "a", "")).unwrap();
    claim_released(&node.client);
}

#[test]
fn a_claimed_job_is_delivered_or_released() {
    let dir = Dir::new();
    let node = Node::on_disk(&dir);
    let (answered, released) = (Cell::new(0), Cell::new(0));
    check_seeds(&[], "REQUEUE_LEAVES", 50, |seed| {
        let mut random = Random::new(seed);
        let mut stream = send_claim(&node, "1m", 1);
        node.awaits_claims(1);
        let jobs = node.jobs();
        let mut answer = Vec::new();
        thread::scope(|scope| {
            scope.spawn(|| block_on(jobs.put(KIND, "a", "")).unwrap());
            // A random delay: before, during or after the put.
            for _ in 0..random.below(30) {
                block_on(node.client.request("GET", "/healthz", None)).unwrap();
            }
            stream.shutdown(Shutdown::Write).unwrap();
            // An error is as good as the end of the stream.
            let _ = stream.read_to_end(&mut answer);
        });
        let (count, job) = match received(&answer) {
            Some(job) => (&answered, job),
            None => (&released, claim_released(&node.client)),
        };
        count.set(count.get() + 1);
        assert_eq!(block_on(jobs.ack(&job.receipt)).unwrap(), Settled::Done);
        assert_eq!(block_on(jobs.get(KIND, "a")).unwrap(), None);
        Ok(())
    });
    println!("{} were answered, {} were released", answered.get(), released.get());
}

#[test]
fn jobs_of_a_response_that_was_not_fully_read_are_released() {
    // More than fits into the socket buffers, and as much as a claim returns.
    const COUNT: usize = 16;
    let dir = Dir::new();
    let node = Node::on_disk(&dir);
    let body = Body::new(vec![b'x'; 1 << 20], "text/plain").expect("a body that fits");
    for number in 0..COUNT {
        let (kind, id) = (Kind::new(KIND).unwrap(), JobId::new(number.to_string()).unwrap());
        let placed = block_on(node.client.put(vec![Put::new(kind, id, body.clone())]));
        placed.unwrap().remove(0).unwrap();
    }
    let mut stream = send_claim(&node, "0s", COUNT);
    stream.read_exact(&mut [0; 4096]).unwrap();
    let counts = || block_on(node.client.kinds()).expect("it answers")[0].counts;
    assert_eq!(counts().leased, COUNT as u64);
    drop(stream);
    until("all of them", || (counts().pending == COUNT as u64).then_some(()));
    claim_released(&node.client);
}
