//! Connections to a Cluster.

use super::*;
use crate::connections::cluster::slot_of;
use requeue_testkit::servers::{RedisCluster, RedisServer, until};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

/// Tags whose slots are spread over all nodes.
fn tags() -> Vec<String> {
    (0..30).map(|n| format!("requeue:k{n}")).collect()
}

/// Returns how often the script ran on this tag, from the node that owns it.
fn count(cluster: &RedisCluster, tag: &str) -> String {
    let owner = &cluster.nodes()[cluster.owner(slot_of(tag))];
    owner.command(&["GET", &format!("{{{tag}}}:count")])
}

#[test]
fn calls_reach_the_node_that_owns_the_keys() {
    let cluster = RedisCluster::start(3, 0);
    let (link, signals) = link(&cluster.url());
    let mut used = [false; 3];
    for tag in tags() {
        assert_eq!(slot_of(&tag), cluster.slot(&tag));
        assert_eq!(echo(&link, &tag, "a").unwrap(), text("a"));
        assert_eq!(count(&cluster, &tag), "1");
        used[cluster.owner(slot_of(&tag))] = true;
    }
    assert_eq!(used, [true; 3]);
    let format = &cluster.nodes()[cluster.owner(slot_of("requeue"))];
    assert_eq!(format.command(&["GET", "{requeue}:format"]), "1");
    // Messages arrive from all nodes.
    link.subscribe("{t}:wake");
    assert_eq!(next(&signals), "resumed");
    for (n, node) in cluster.nodes().iter().enumerate() {
        node.command(&["PUBLISH", "{t}:wake", &n.to_string()]);
        message(&signals, &format!("{{t}}:wake {n}"));
    }
    // One node is enough to find the others.
    let one = format!("redis+cluster://{}", cluster.nodes()[2].address());
    let (link, _signals) = super::link(&one);
    for tag in tags() {
        echo(&link, &tag, "b").unwrap();
    }
    let tag = &*tags()[0];
    cluster.move_slot(slot_of(tag), (cluster.owner(slot_of(tag)) + 1) % 3);
    // The new owner is known soon, and calls are no longer redirected.
    until("calls are no longer redirected", || {
        let before = redirections(&cluster);
        echo(&link, tag, "a").unwrap();
        redirections(&cluster) == before
    });
}

#[test]
fn no_call_is_lost_while_a_slot_migrates() {
    let cluster = RedisCluster::start(3, 0);
    let (link, _signals) = link(&cluster.url());
    let (tag, stop) = ("requeue:sms", Arc::new(AtomicBool::new(false)));
    let done = Arc::new(AtomicUsize::new(0));
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let (link, stop, done) = (link.clone(), stop.clone(), done.clone());
            thread::spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    assert_eq!(echo(&link, tag, "a").unwrap(), text("a"));
                    done.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    let slot = slot_of(tag);
    for _ in 0..6 {
        let before = done.load(Ordering::SeqCst);
        cluster.move_slot(slot, (cluster.owner(slot) + 1) % 3);
        // The callers continue on the new owner.
        while done.load(Ordering::SeqCst) < before + 100 {
            thread::yield_now();
        }
    }
    stop.store(true, Ordering::SeqCst);
    for caller in callers {
        caller.join().unwrap();
    }
    assert_eq!(count(&cluster, tag), done.load(Ordering::SeqCst).to_string());
}

/// Returns how often the nodes have redirected calls.
fn redirections(cluster: &RedisCluster) -> Vec<String> {
    let errors = |node: &RedisServer| node.command(&["INFO", "errorstats"]);
    let moved =
        |errors: String| errors.lines().find(|line| line.contains("MOVED")).map(str::to_owned);
    cluster.nodes().iter().filter_map(|node| moved(errors(node))).collect()
}

/// Returns how many connections a server has accepted.
fn connections(server: &RedisServer) -> usize {
    let stats = server.command(&["INFO", "stats"]);
    let line = stats.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
    line.unwrap().trim().parse().unwrap()
}

#[test]
fn a_key_of_a_migrating_slot_is_found_on_the_target_node() {
    let cluster = RedisCluster::start(3, 0);
    let mut options = quick();
    options.response_timeout = Duration::from_millis(300);
    let (link, _signals) = open(&cluster.url(), &options).unwrap();
    let (tag, other) = ("requeue:sms", "requeue:mail");
    let slot = slot_of(tag);
    let to = (cluster.owner(slot) + 1) % 3;
    echo(&link, tag, "a").unwrap();
    cluster.begin_move(slot, to);
    cluster.move_keys(slot, to);
    // The only key is on the target node, which has never loaded the script.
    echo(&link, tag, "b").unwrap();
    let target = &cluster.nodes()[to];
    // One of the two keys is not on the target: neither node can run the script now.
    let half = HALF.begin(&[format!("{{{tag}}}:count"), format!("{{{tag}}}:none")]);
    let command_error = block_on(link.call(tag, half, Some(&HALF))).unwrap_err();
    assert!(
        matches!(&command_error, CommandError::NotDone(reason) if reason.contains("TRYAGAIN")),
        "{command_error:?}"
    );
    // Calls for other slots do not wait for that.
    echo(&link, other, "a").unwrap();
    cluster.end_move(slot, to);
    assert_eq!(target.command(&["GET", &format!("{{{tag}}}:count")]), "2");
    echo(&link, tag, "c").unwrap();
    assert_eq!(count(&cluster, tag), "3");
}

#[test]
fn calls_go_to_a_replica_that_becomes_master() {
    let mut cluster = RedisCluster::start(3, 1);
    let (link, signals) = link(&cluster.url());
    link.subscribe("{t}:wake");
    assert_eq!(next(&signals), "resumed");
    for tag in tags() {
        echo(&link, &tag, "a").unwrap();
    }
    let dead = cluster.owner(slot_of("t"));
    echo(&link, "t", "a").unwrap();
    cluster.node_mut(dead).kill();
    for command_error in until_it_works(&link) {
        let (CommandError::NotDone(reason) | CommandError::Unknown(reason)) = command_error;
        assert!(!reason.is_empty());
    }
    for tag in tags() {
        while echo(&link, &tag, "b").is_err() {}
    }
    let publisher = cluster.owner(slot_of("t"));
    assert_ne!(publisher, dead);
    // If the listener was connected to the dead node, it soon connects to another one.
    published(&signals, &cluster.nodes()[publisher], "{t}:wake", "1");
    // It comes back as a replica, and no client connects to it.
    cluster.node_mut(dead).start_again();
    for tag in tags() {
        while echo(&link, &tag, "c").is_err() {}
    }
    until("no client connects to it", || {
        let before = connections(&cluster.nodes()[dead]);
        thread::sleep(4 * quick().longest_backoff);
        connections(&cluster.nodes()[dead]) == before + 1
    });
}

#[test]
fn a_call_fails_as_not_done_if_its_node_is_down() {
    let mut cluster = RedisCluster::with(3, 0, &["--cluster-require-full-coverage", "no"]);
    let mut options = quick();
    options.connect_timeout = Duration::from_millis(300);
    options.response_timeout = Duration::from_millis(600);
    let (link, _signals) = open(&cluster.url(), &options).unwrap();
    let dead = cluster.owner(slot_of("t"));
    echo(&link, "t", "a").unwrap();
    let port = cluster.nodes()[dead].port().to_string();
    let mut elsewhere = tags();
    elsewhere.retain(|tag| cluster.owner(slot_of(tag)) != dead);
    cluster.node_mut(dead).kill();
    drop(echo(&link, "t", "b"));
    let Err(CommandError::NotDone(reason)) = echo(&link, "t", "c") else {
        panic!("the call was sent")
    };
    assert!(reason.contains(&port), "{reason}");
    // Calls to the other nodes succeed.
    for tag in &elsewhere {
        echo(&link, tag, "a").unwrap();
    }
    // Its disk contains only its name and its slots, which is enough.
    cluster.node_mut(dead).start_again();
    until_it_works(&link);
}

#[test]
fn an_address_of_the_wrong_type_is_rejected_with_a_hint() {
    let cluster = RedisCluster::start(3, 0);
    let text = refused(&cluster.nodes()[0].url(), &quick()).to_string();
    assert!(
        text.contains(
            "it is a node of a Cluster: use an address that begins with redis+cluster://"
        ),
        "{text}"
    );
    let server = RedisServer::start();
    let text = refused(&format!("redis+cluster://{}", server.address()), &quick()).to_string();
    assert!(text.contains("cluster support disabled"), "{text}");
}

#[test]
fn every_master_is_checked() {
    let cluster = RedisCluster::start(3, 0);
    let third = &cluster.nodes()[2];
    third.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let text = refused(&cluster.url(), &quick()).to_string();
    assert!(text.starts_with(&third.address()), "{text}");
    assert!(text.contains("maxmemory-policy is allkeys-lru"), "{text}");
    third.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    let owner = &cluster.nodes()[cluster.owner(slot_of("requeue"))];
    owner.command(&["SET", "{requeue}:format", "9"]);
    let error = refused(&cluster.url(), &quick());
    assert!(matches!(error, RedisConnectError::Format { .. }), "{error}");
}
