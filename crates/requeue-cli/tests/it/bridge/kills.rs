//! Server and bridge are killed while messages are in flight.

use super::client::{Client, ask, rabbit};
use super::process::{BridgeProcess, count, in_the_future, kind, serve};
use crate::support::{Dir, Server, until};
use requeue_http::HttpStore;
use requeue_jobs::{Body, JobId, JobView, Kind, Put, Query, Store};
use requeue_testkit::servers::{RabbitServer, RedisServer};
use requeue_testkit::{Direction, Proxy, block_on};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::Range;

/// The class and method of `basic.ack` in a frame of AMQP: with it, a consumer acks a message, and the broker
/// confirms one.
const BASIC_ACK: &[u8] = &[0, 60, 0, 80];

/// Longer than the lease of a delivery: 15 seconds more than the default timeout.
const PAST_THE_LEASE: i64 = 30;

/// A RabbitMQ whose queue `billing` gets what is published to `orders` with the routing key `order`.
fn declared(dir: &Dir) -> Option<RabbitServer> {
    let rabbit = rabbit()?;
    ask(dir, &rabbit, &["declare", "orders", "billing", "order"]);
    Some(rabbit)
}

fn kill(server: Server) {
    server.signal(Signal::KILL);
    server.end();
}

/// Lets a server publish the jobs of the kind `order` to RabbitMQ at this address.
fn publish_orders(dir: &Dir, server: &Server, address: &str) {
    let url = format!("amqp://{address}/orders?routing_key=order");
    let push = ["kind", "order", "--push", &url, "--push-concurrency", "20"];
    dir.run(&[&push[..], &["--server", &server.url]].concat()).ok();
}

fn header<'a>(message: &'a Value, name: &str) -> &'a str {
    message["headers"][name].as_str().unwrap_or_else(|| panic!("no {name} in {message:#}"))
}

fn number(message: &Value, name: &str) -> u64 {
    header(message, name).parse().expect("a number")
}

#[test]
fn a_server_killed_between_confirm_and_ack_publishes_the_message_again_with_its_id() {
    let dir = Dir::new();
    let Some(rabbit) = declared(&dir) else { return };
    let redis = RedisServer::with_clock(&[]);
    let proxy = Proxy::to(redis.address().parse().unwrap()).unwrap();
    let store = format!("redis://{}", proxy.address());
    let start = || Server::of(serve(&dir, &[&rabbit.address()], &["--store", &store]));
    let server = start();
    publish_orders(&dir, &server, &rabbit.address());
    let consumer = Client::start(&dir, &rabbit, &["consume", "billing"]);
    let ask =
        |args: &[&str], server: &Server| dir.run(&[args, &["--server", &server.url]].concat());
    ask(&["pause", "order"], &server).ok();
    ask(&["put", "order", "order-7", "hello"], &server).ok();
    // Of the requests to the store that follow, only the ack names the job. It is sent when RabbitMQ has
    // confirmed the message.
    proxy.hold_at(Direction::ToServer, b"order-7");
    ask(&["resume", "order"], &server).ok();
    until("the ack", || proxy.is_holding(Direction::ToServer).then_some(()));
    let first = consumer.await_messages(1).remove(0);
    kill(server);
    // The ack is lost with its connection.
    proxy.cut();
    proxy.release();
    let server = start();
    let leased = ask(&["get", "order", "order-7", "--json"], &server).ok().json();
    assert_eq!(leased["state"], "leased", "{leased:#}");
    assert_eq!(consumer.messages().len(), 1);
    kill(server);

    redis.set_clock(PAST_THE_LEASE);
    let server = start();
    let second = consumer.await_messages(2).remove(1);
    until("the ack", || (count(&dir, &server, "order") == 0).then_some(()));
    assert_eq!(header(&first, "x-deduplication-header"), "order/order-7/1");
    for same in ["message_id", "body"] {
        assert_eq!(first[same], second[same]);
    }
    for same in ["x-deduplication-header", "requeue-id", "requeue-kind"] {
        assert_eq!(header(&first, same), header(&second, same));
    }
    // A lease that has expired is a failed attempt.
    let attempts = [&first, &second].map(|message| number(message, "requeue-attempt"));
    assert_eq!(attempts, [1, 2]);
    assert!(number(&second, "requeue-fence") > number(&first, "requeue-fence"));
    ask(&["get", "order", "order-7"], &server).code(3);
    assert_eq!(consumer.messages().len(), 2);
}

#[test]
fn a_server_killed_while_it_publishes_loses_nothing() {
    const JOBS: usize = 500;
    const KILLS: usize = 4;
    let dir = Dir::new();
    let Some(rabbit) = declared(&dir) else { return };
    let proxy = Proxy::to(rabbit.address().parse().unwrap()).unwrap();
    let address = proxy.address().to_string();
    // Each server starts when the leases of the one before it have expired.
    let start = |round: usize| {
        let command = serve(&dir, &[&address], &["--data", "d"]);
        Server::of(in_the_future(command, round as i64 * PAST_THE_LEASE))
    };
    let mut server = start(0);
    publish_orders(&dir, &server, &address);
    let consumer = Client::start(&dir, &rabbit, &["consume", "billing"]);
    let put = |n: usize| {
        let id = JobId::new(format!("order-{n}")).unwrap();
        Put::new(Kind::new("order").unwrap(), id, Body::octets(n.to_string().into_bytes()).unwrap())
    };
    let put_all = |server: &Server, jobs: Range<usize>| {
        let store = HttpStore::connect(&server.url).unwrap();
        for result in block_on(store.put(jobs.map(put).collect())).unwrap() {
            result.unwrap();
        }
    };
    for round in 1..=KILLS {
        let seen = consumer.messages().len();
        if round % 2 == 0 {
            proxy.hold_at(Direction::ToClient, BASIC_ACK);
        }
        let jobs = JOBS / KILLS;
        put_all(&server, jobs * (round - 1)..jobs * round);
        if round % 2 == 0 {
            // RabbitMQ has stored a message, and the server does not know.
            until("a confirmation", || proxy.is_holding(Direction::ToClient).then_some(()));
        } else {
            consumer.await_messages(seen + 20);
        }
        kill(server);
        proxy.cut();
        proxy.release();
        server = start(round);
    }
    let await_no_jobs =
        |server: &Server| until("no jobs", || (count(&dir, server, "order") == 0).then_some(()));
    await_no_jobs(&server);
    // All other messages are before this one in the queue.
    let last = format!("order-{JOBS}");
    put_all(&server, JOBS..JOBS + 1);
    await_no_jobs(&server);
    let messages = until("the last message", || {
        let messages = consumer.messages();
        messages.iter().any(|message| header(message, "requeue-id") == last).then_some(messages)
    });
    let mut jobs: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for message in &messages {
        jobs.entry(header(message, "requeue-id")).or_default().push(message);
    }
    assert_eq!(jobs.len(), JOBS + 1);
    let duplicates = messages.len() - jobs.len();
    println!("{duplicates} duplicates");
    assert!(duplicates >= KILLS / 2, "{duplicates}");
    for (id, mut messages) in jobs {
        messages.sort_by_key(|message| number(message, "requeue-fence"));
        for message in &messages {
            assert_eq!(message["body"].as_str(), id.strip_prefix("order-"));
            assert_eq!(message["message_id"], messages[0]["message_id"]);
            assert_eq!(message["message_id"], header(message, "x-deduplication-header"));
            // 1, plus one for each lease that has expired, because its server was killed.
            let attempt = number(message, "requeue-attempt");
            assert!((1..=1 + KILLS as u64).contains(&attempt), "{message:#}");
        }
        let attempts = messages.iter().map(|message| number(message, "requeue-attempt"));
        assert!(attempts.is_sorted_by(|one, next| one < next), "{messages:#?}");
    }
}

/// Returns the jobs of the kind `orders` by id.
fn orders(server: &Server) -> BTreeMap<String, JobView> {
    let kind = Kind::new("orders").expect("a valid kind");
    let store = HttpStore::connect(&server.url).expect("a valid URL");
    let page = block_on(store.list(Query { limit: 1000, ..Query::new(kind) })).expect("it answers");
    assert_eq!(page.cursor, None);
    page.jobs.into_iter().map(|job| (job.id.to_string(), job)).collect()
}

#[test]
fn a_bridge_killed_between_put_and_ack_puts_the_message_again_under_its_id() {
    let dir = Dir::new();
    let Some(rabbit) = rabbit() else { return };
    let proxy = Proxy::to(rabbit.address().parse().unwrap()).unwrap();
    let from = format!("amqp://{}/orders.delayed", proxy.address());
    let server = Server::start(&dir, &["--data", "d"]);
    let start = || BridgeProcess::start(&dir, &from, &["orders", "--server", &server.url]);
    let await_jobs =
        |jobs| until("jobs", || (count(&dir, &server, "orders") >= jobs).then_some(()));
    let mut bridge = start();
    bridge.await_consuming();
    let publisher = Client::start(&dir, &rabbit, &["publish", "orders.delayed", "0", "300"]);
    for jobs in [50, 100, 150, 200] {
        await_jobs(jobs);
        bridge.kill();
        bridge = start();
    }
    publisher.end();
    await_jobs(300);
    bridge.kill();

    // All jobs are put, and no message of them is acked.
    proxy.hold_at(Direction::ToServer, BASIC_ACK);
    let bridge = start();
    ask(&dir, &rabbit, &["publish", "orders.delayed", "300", "500"]);
    await_jobs(500);
    until("an ack", || proxy.is_holding(Direction::ToServer).then_some(()));
    bridge.kill();
    proxy.cut();
    proxy.release();
    let before = orders(&server);
    let bridge = start();
    until("no messages", || {
        // With those that were delivered, and not acked.
        let queues = rabbit.ctl(&["list_queues", "name", "messages"]);
        assert!(queues.contains("requeue.orders.delayed.rejected\t0"), "{queues}");
        queues.lines().any(|line| line == "requeue.orders.delayed\t0").then_some(())
    });
    let stopped = bridge.stop(Signal::TERM).ok();
    let (put, _) = stopped.out.split_once(" messages put, 0 jobs cancelled, 0 messages").unwrap();
    assert!(put.parse::<usize>().unwrap() >= 200, "{stopped:#?}");
    let after = orders(&server);
    assert_eq!(after.len(), 500);
    assert_eq!(kind(&dir, &server, "orders")["pending"], 500);
    for n in 0..500 {
        let id = format!("m-{n}");
        let (before, after) = (&before[&id], &after[&id]);
        let body = String::from_utf8_lossy(after.body().bytes());
        assert!(body.ends_with(&format!("\n{n}")), "{body:?}");
        if n >= 300 {
            // It was put again: the delay begins again.
            assert!(
                after.version.generation > before.version.generation,
                "{before:#?}, then {after:#?}"
            );
            assert!(after.version.due > before.version.due, "{before:#?}, then {after:#?}");
        }
    }
}
