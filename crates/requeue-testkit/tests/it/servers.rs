//! The Redis servers for tests of other crates.

use requeue_testkit::servers::{RedisCluster, RedisServer, Sentinels, until};
use std::net::TcpStream;

#[test]
fn a_killed_server_comes_back_with_what_it_wrote() {
    let mut server = RedisServer::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    assert_eq!(server.command(&["SET", "a", "1"]), "OK");
    server.kill();
    assert!(TcpStream::connect(server.address()).is_err());
    server.start_again();
    assert_eq!(server.command(&["GET", "a"]), "1");
    let (address, dir) = (server.address(), server.dir().to_owned());
    drop(server);
    assert!(TcpStream::connect(address).is_err());
    assert!(!dir.exists());
}

#[test]
fn a_servers_clock_can_be_set_back() {
    let server = RedisServer::with_clock(&[]);
    let seconds = || server.command(&["TIME"]).lines().next().unwrap().parse::<u64>().unwrap();
    let before = seconds();
    server.set_clock(-86_400);
    until("the server has the new time", || seconds() < before);
}

#[test]
fn a_slot_moves_with_its_keys() {
    let cluster = RedisCluster::start(3, 0);
    let slot = cluster.slot("{a}");
    let from = cluster.owner(slot);
    assert_eq!(cluster.nodes()[from].command(&["SET", "{a}:1", "one"]), "OK");
    let to = (from + 1) % 3;
    cluster.move_slot(slot, to);
    assert_eq!(cluster.owner(slot), to);
    assert_eq!(cluster.nodes()[to].command(&["GET", "{a}:1"]), "one");
}

#[test]
fn the_replica_takes_over() {
    let mut sentinels = Sentinels::start();
    let first = sentinels.master().port();
    sentinels.master().command(&["SET", "a", "1"]);
    until("the replica has the key", || sentinels.replica().command(&["GET", "a"]) == "1");
    sentinels.kill_master();
    assert_ne!(sentinels.master().port(), first);
    assert_eq!(sentinels.master().command(&["GET", "a"]), "1");
    sentinels.start_again();
    sentinels.master().command(&["SET", "b", "2"]);
    until("the replica has the key", || sentinels.replica().command(&["GET", "b"]) == "2");
}

#[test]
fn the_master_can_be_made_a_replica() {
    let mut sentinels = Sentinels::start();
    let first = sentinels.master().port();
    sentinels.fail_over();
    assert_eq!(sentinels.replica().port(), first);
}
