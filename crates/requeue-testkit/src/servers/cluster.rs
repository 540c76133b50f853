//! A Redis Cluster.

use super::{RedisServer, cli, folder, until};

/// The time in milliseconds after which a node that does not respond is considered lost. It is
/// short, because tests wait for it.
const NODE_TIMEOUT: &str = "1000";

/// Several `redis-server` processes that share the keys.
///
/// ```no_run
/// use requeue_testkit::servers::RedisCluster;
///
/// let cluster = RedisCluster::start(3, 0);
/// let slot = cluster.slot("sms");
/// let (from, to) = (cluster.owner(slot), (cluster.owner(slot) + 1) % 3);
/// cluster.move_slot(slot, to);
/// assert_ne!(cluster.owner(slot), from);
/// ```
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<RedisServer>,
}

impl RedisCluster {
    /// Starts this many masters, each with this many replicas. The masters come first.
    ///
    /// # Panics
    ///
    /// If they do not start.
    pub fn start(masters: usize, replicas: usize) -> Self {
        Self::with(masters, replicas, &[])
    }

    /// Starts the nodes with these arguments.
    pub fn with(masters: usize, replicas: usize, arguments: &[&str]) -> Self {
        let own =
            ["--cluster-enabled", "yes", "--cluster-node-timeout", NODE_TIMEOUT, "--save", ""];
        let arguments = [&own[..], arguments].concat();
        // The default port for the cluster bus may be above the highest port.
        let ports = ["--cluster-port"];
        let start = |_| RedisServer::in_folder(folder("redis"), &arguments, &ports, Vec::new());
        let nodes: Vec<_> = (0..masters * (1 + replicas)).map(start).collect();
        let addresses: Vec<_> = nodes.iter().map(|server| server.address()).collect();
        let addresses: Vec<_> = addresses.iter().map(String::as_str).collect();
        let replicas = replicas.to_string();
        let with = ["--cluster-replicas", &replicas, "--cluster-yes"];
        let made = cli(&[&["--cluster", "create"], &addresses[..], &with[..]].concat());
        assert!(made.contains("All 16384 slots covered"), "no Cluster: {made}");
        let cluster = RedisCluster { nodes };
        until("the Cluster comes up", || cluster.nodes.iter().all(|node| cluster.knows_all(node)));
        cluster
    }

    /// Returns its URL for clients.
    pub fn url(&self) -> String {
        let addresses: Vec<_> = self.nodes.iter().map(|server| server.address()).collect();
        format!("redis+cluster://{}", addresses.join(","))
    }

    /// Returns all servers.
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// Returns one of the servers, to kill it and start it again.
    pub fn node_mut(&mut self, node: usize) -> &mut RedisServer {
        &mut self.nodes[node]
    }

    /// Returns the slot of the keys with this tag.
    pub fn slot(&self, tag: &str) -> u16 {
        self.nodes[0].command(&["CLUSTER", "KEYSLOT", tag]).parse().expect("it is a number")
    }

    /// Returns the master of a slot, as a running node reports it.
    ///
    /// # Panics
    ///
    /// If it has none.
    pub fn owner(&self, slot: u16) -> usize {
        let alive = self.nodes.iter().find(|node| node.process.is_some()).expect("one runs");
        let known = alive.command(&["CLUSTER", "NODES"]);
        let masters = known.lines().filter(|line| line.contains("master"));
        let mut masters = masters.filter(|line| !line.contains("fail"));
        let has = |range: &str| {
            let (from, to) = range.split_once('-').unwrap_or((range, range));
            let (from, to) = (from.parse::<u16>(), to.parse::<u16>());
            from.is_ok_and(|from| from <= slot) && to.is_ok_and(|to| slot <= to)
        };
        let line = masters.find(|line| line.split(' ').skip(8).any(has));
        let line = line.unwrap_or_else(|| panic!("slot {slot} has no master: {known}"));
        let is_it = |node: &RedisServer| line.contains(&format!("{}@", node.address()));
        self.nodes.iter().position(is_it).expect("it is a node of this cluster")
    }

    /// Moves a slot to another master, with all its keys.
    pub fn move_slot(&self, slot: u16, to: usize) {
        self.begin_move(slot, to);
        self.move_keys(slot, to);
        self.end_move(slot, to);
    }

    /// The first step of a move: tells both masters.
    pub fn begin_move(&self, slot: u16, to: usize) {
        let from = self.owner(slot);
        let (slot, source, target) = (slot.to_string(), self.id(from), self.id(to));
        let set = |node: usize, state, other: &str| {
            let done = self.nodes[node].command(&["CLUSTER", "SETSLOT", &slot, state, other]);
            assert_eq!(done, "OK");
        };
        set(to, "IMPORTING", &source);
        set(from, "MIGRATING", &target);
    }

    /// The second step: moves the keys.
    pub fn move_keys(&self, slot: u16, to: usize) {
        let (from, slot) = (self.owner(slot), slot.to_string());
        let port = self.nodes[to].port().to_string();
        loop {
            let keys = self.nodes[from].command(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]);
            if keys.is_empty() {
                break;
            }
            let keys: Vec<_> = keys.lines().collect();
            let migrate = ["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
            self.nodes[from].command(&[&migrate[..], &keys].concat());
        }
    }

    /// The last step: assigns the slot to its new master.
    pub fn end_move(&self, slot: u16, to: usize) {
        let (from, target, text) = (self.owner(slot), self.id(to), slot.to_string());
        for node in [to, from] {
            let done = self.nodes[node].command(&["CLUSTER", "SETSLOT", &text, "NODE", &target]);
            assert_eq!(done, "OK");
        }
        until("the slot has moved", || self.owner(slot) == to);
    }

    fn id(&self, node: usize) -> String {
        self.nodes[node].command(&["CLUSTER", "MYID"])
    }

    /// Returns whether a node reports that the cluster is healthy, and knows all other nodes.
    fn knows_all(&self, node: &RedisServer) -> bool {
        let info = node.command(&["CLUSTER", "INFO"]);
        let known = format!("cluster_known_nodes:{}", self.nodes.len());
        let nodes = node.command(&["CLUSTER", "NODES"]);
        let linked = node.command(&["INFO", "replication"]);
        info.contains("cluster_state:ok")
            && info.contains(&known)
            && !nodes.contains("handshake")
            && !linked.contains("master_link_status:down")
    }
}
