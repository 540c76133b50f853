//! A master, a replica and their sentinels.

use super::{RedisServer, folder, until};
use std::fs;

/// The name of the master in the sentinels.
const NAME: &str = "main";

/// A master, a replica and three sentinels, which promote the replica when the master is down.
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
    /// Starts all servers.
    ///
    /// # Panics
    ///
    /// If they do not start.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// Starts all servers, with these arguments for master and replica.
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
            let dir = folder("redis");
            // A sentinel writes to its configuration file.
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

    /// Returns their URL for clients.
    pub fn url(&self) -> String {
        let addresses: Vec<_> = self.sentinels.iter().map(|server| server.address()).collect();
        format!("redis+sentinel://{}/{NAME}", addresses.join(","))
    }

    /// Returns the current master.
    pub fn master(&self) -> &RedisServer {
        &self.servers[self.master]
    }

    /// Returns the current replica.
    pub fn replica(&self) -> &RedisServer {
        &self.servers[1 - self.master]
    }

    /// Returns the sentinels.
    pub fn sentinels(&self) -> &[RedisServer] {
        &self.sentinels
    }

    /// Kills the master, and waits until most sentinels report the other server as the master.
    pub fn kill_master(&mut self) {
        self.set_down_after("500");
        self.servers[self.master].kill();
        self.wait_for_failover();
    }

    /// Starts the killed server again as a replica. The sentinels would also do this, but only after
    /// a while.
    pub fn start_again(&mut self) {
        // On a busy machine, the sentinels would take a slow master for a dead one.
        self.set_down_after("60000");
        let port = self.master().port().to_string();
        self.servers[1 - self.master].start_again();
        self.replica().command(&["REPLICAOF", "127.0.0.1", &port]);
        until("the old master is a replica", || {
            self.replica().command(&["INFO", "replication"]).contains("master_link_status:up")
        });
    }

    /// Sets for how many milliseconds a server may not respond before a sentinel takes it for dead.
    fn set_down_after(&self, millis: &str) {
        for sentinel in &self.sentinels {
            let set = ["SENTINEL", "SET", NAME, "down-after-milliseconds", millis];
            assert_eq!(sentinel.command(&set), "OK");
        }
    }

    /// Promotes the replica. The old master continues as a replica.
    pub fn fail_over(&mut self) {
        // A sentinel checks only from time to time whether a server is back.
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
