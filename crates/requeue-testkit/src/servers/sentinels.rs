//! A master, a replica, and who watches them.

use super::{RedisServer, folder, until};
use std::fs;

/// What the sentinels call their master.
const NAME: &str = "main";

/// A master, a replica and three sentinels, which make the replica master when the master is
/// gone.
///
/// ```no_run
/// use requeue_testkit::servers::Sentinels;
///
/// let mut sentinels = Sentinels::start();
/// sentinels.kill_master();
/// sentinels.master().command(&["SET", "a", "1"]);
/// ```
#[derive(Debug)]
pub struct Sentinels {
    servers: Vec<RedisServer>,
    sentinels: Vec<RedisServer>,
    master: usize,
}

impl Sentinels {
    /// Starts them all.
    ///
    /// # Panics
    ///
    /// If they do not start.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// Starts them all, with these arguments for master and replica.
    pub fn with(arguments: &[&str]) -> Self {
        let diskless = ["--repl-diskless-sync-delay", "0"];
        let master = RedisServer::with(&[&diskless[..], arguments].concat());
        let (port, address) = (master.port().to_string(), "127.0.0.1");
        let of_it = ["--replicaof", &format!("{address} {port}")];
        let replica = RedisServer::with(&[&diskless[..], &of_it, arguments].concat());
        until("the replica has what the master has", || {
            replica.command(&["INFO", "replication"]).contains("master_link_status:up")
        });
        let watch = |_| {
            let dir = folder();
            // A sentinel writes down what it learns.
            fs::write(dir.join("sentinel.conf"), "").expect("files can be written");
            let sentinel =
                RedisServer::in_folder(dir, &["sentinel.conf", "--sentinel"], &[], Vec::new());
            let set = |arguments: &[&str]| {
                assert_eq!(sentinel.command(&[&["SENTINEL"], arguments].concat()), "OK");
            };
            set(&["MONITOR", NAME, address, &port, "2"]);
            set(&["SET", NAME, "down-after-milliseconds", "500"]);
            set(&["SET", NAME, "failover-timeout", "2000"]);
            sentinel
        };
        let sentinels: Vec<_> = (0..3).map(watch).collect();
        let watched = Sentinels { servers: vec![master, replica], sentinels, master: 0 };
        until("the sentinels know each other", || {
            watched.sentinels.iter().all(|sentinel| {
                let known = sentinel.command(&["SENTINEL", "MASTER", NAME]);
                let known: Vec<_> = known.lines().collect();
                let says = |name, value| known.chunks(2).any(|pair| pair == [name, value]);
                says("num-slaves", "1") && says("num-other-sentinels", "2")
            })
        });
        watched
    }

    /// How a client finds them.
    pub fn url(&self) -> String {
        let addresses: Vec<_> = self.sentinels.iter().map(RedisServer::address).collect();
        format!("redis+sentinel://{}/{NAME}", addresses.join(","))
    }

    /// The server that is master.
    pub fn master(&self) -> &RedisServer {
        &self.servers[self.master]
    }

    /// The server that is not.
    pub fn replica(&self) -> &RedisServer {
        &self.servers[1 - self.master]
    }

    /// The sentinels.
    pub fn sentinels(&self) -> &[RedisServer] {
        &self.sentinels
    }

    /// Kills the master, and waits until most sentinels name the other one.
    pub fn kill_master(&mut self) {
        self.servers[self.master].kill();
        self.wait_for_failover();
    }

    /// Starts the killed server again, as a replica. The sentinels would make it one too, but
    /// only after a while.
    pub fn start_again(&mut self) {
        let port = self.master().port().to_string();
        self.servers[1 - self.master].start_again();
        self.replica().command(&["REPLICAOF", "127.0.0.1", &port]);
        until("the old master is a replica", || {
            self.replica().command(&["INFO", "replication"]).contains("master_link_status:up")
        });
    }

    /// Makes the replica master, while the old master lives on as a replica.
    pub fn fail_over(&mut self) {
        // A sentinel looks only so often whether a server has come back.
        until("a sentinel begins", || {
            self.sentinels[0].command(&["SENTINEL", "FAILOVER", NAME]) == "OK"
        });
        self.wait_for_failover();
    }

    fn wait_for_failover(&mut self) {
        let next = self.servers[1 - self.master].port().to_string();
        let names_it = |sentinel: &&RedisServer| {
            let named = sentinel.command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME]);
            named.lines().nth(1) == Some(&next)
        };
        until("the replica is made master", || {
            self.sentinels.iter().filter(names_it).count() >= 2
                && self.replica().command(&["ROLE"]).starts_with("master")
        });
        self.master = 1 - self.master;
    }
}
