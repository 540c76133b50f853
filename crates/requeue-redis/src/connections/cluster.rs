//! A Redis Cluster: the map of slots to masters, and calls that follow redirections.
//!
//! The Cluster client of the `redis` crate sends a command again when a connection breaks. A claim
//! must not be sent twice. Here a command is sent again only after a node has replied that it does
//! not own the slot, or cannot serve it now.

use super::check::refusal;
use super::connection::{RedisConnection, unavailable};
use super::outcome::Failure;
use super::server::{Server, ServerSource};
use super::stream::Endpoint;
use super::{CommandError, Settings};
use crate::address::{Host, Topology};
use crate::error::RedisConnectError;
use crate::script::Script;
use redis::{Cmd, Value};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, timeout};

const SLOTS: u16 = 16384;

/// How long a call waits before it tries again.
const PAUSE: Duration = Duration::from_millis(50);

/// How many redirections a call follows without a pause. More than that means that the nodes do not
/// agree.
const MAX_REDIRECTS: usize = 5;

/// A range of slots, both ends included, and its master.
type Range = (u16, u16, Host);

/// All masters of a Cluster.
pub(super) struct Cluster {
    settings: Arc<Settings>,
    map: Mutex<Map>,
    /// Held while the map is read from a node, so that only one task reads it at a time.
    reading: tokio::sync::Mutex<()>,
}

struct Map {
    /// How often the map was read from a node.
    version: u64,
    /// The master of each slot; `None` if the slot has no master.
    owners: Vec<Option<Arc<Server>>>,
    /// All masters, and the nodes that redirections have named since the map was read.
    servers: HashMap<Host, Arc<Server>>,
}

/// What to do with a command after a node has rejected it.
enum Resend {
    /// Send it to this node, which owns the slot now.
    Moved(Host),
    /// Send it to this node once, with ASKING: the slot is being migrated there.
    Ask(Host),
    /// Send it again after a pause.
    Later,
    /// Return the error to the caller.
    Never,
}

impl Cluster {
    /// Connects to all masters.
    pub(super) async fn open(settings: &Arc<Settings>) -> Result<Cluster, RedisConnectError> {
        let mut found = Err(unavailable(&settings.address, "the address contains no node"));
        for host in seeds(settings) {
            found = read_from(settings, host).await;
            if found.is_ok() {
                break;
            }
        }
        let ranges = found?;
        if ranges.is_empty() {
            let reason = "no node owns any slots: the Cluster is not set up".to_owned();
            return Err(RedisConnectError::Unfit { address: settings.address.to_string(), reason });
        }
        let mut servers = HashMap::new();
        for (_, _, host) in &ranges {
            if !servers.contains_key(host) {
                let source = ServerSource::This(Endpoint::Host(host.clone()));
                let server = Server::open(settings, source).await?;
                servers.insert(host.clone(), Arc::new(server));
            }
        }
        let mut map = Map { version: 0, owners: Vec::new(), servers };
        map.set(settings, &ranges);
        let reading = tokio::sync::Mutex::new(());
        Ok(Cluster { settings: settings.clone(), map: Mutex::new(map), reading })
    }

    /// Sends a command to the master of a slot.
    pub(super) async fn call(
        self: &Arc<Self>,
        slot: u16,
        cmd: &Cmd,
        script: Option<&'static Script>,
    ) -> Result<Value, CommandError> {
        let begun = Instant::now();
        let mut redirects = 0;
        let mut redirected = None;
        loop {
            let (version, owner) = self.owner(slot);
            let target = redirected.take().or(owner.map(|server| (server, false)));
            let Some((server, asking)) = target else {
                let why = CommandError::NotDone(format!("slot {slot} has no master"));
                self.pause(version, None, begun, self.settings.options.response_timeout, why)
                    .await?;
                continue;
            };
            let Some(mut connection) = server.connection() else {
                // If the server does not come back, another node may own its slots by now.
                let why = CommandError::NotDone(server.lost_reason());
                let limit = self.settings.options.connect_timeout;
                self.pause(version, Some(&server), begun, limit, why).await?;
                redirected = server.connection().map(|_| (server, asking));
                continue;
            };
            let reply = connection.run(cmd, asking, script).await;
            self.settings.note(&connection, script, reply.as_ref().err());
            let failure = match reply {
                Ok(value) => return Ok(value),
                Err(failure) => failure,
            };
            if failure.ends_connection() {
                server.leave(&connection, &failure.reason());
            }
            let why = failure.command_error(&connection.endpoint);
            redirects += 1;
            match resend(&failure, &connection.endpoint) {
                Resend::Moved(host) => {
                    redirected = Some((self.server(host), false));
                    // Other slots have probably moved too.
                    self.read_soon(version);
                }
                Resend::Ask(host) => redirected = Some((self.server(host), true)),
                Resend::Later => redirects = MAX_REDIRECTS,
                Resend::Never => {
                    if failure.ends_connection() {
                        self.read_soon(version);
                    }
                    return Err(why);
                }
            }
            if redirects >= MAX_REDIRECTS {
                let limit = self.settings.options.response_timeout;
                self.pause(version, None, begun, limit, why).await?;
                redirects = 0;
            }
        }
    }

    /// Waits up to the connect timeout for a connection to any master.
    pub(super) async fn connection(&self) -> Option<RedisConnection> {
        let begun = Instant::now();
        loop {
            let (version, connection) = {
                let map = self.map();
                // The order of a `HashMap` is random, which spreads the callers over the nodes.
                (map.version, map.servers.values().find_map(|server| server.connection()))
            };
            if connection.is_some() {
                return connection;
            }
            let why = CommandError::NotDone(String::new());
            let limit = self.settings.options.connect_timeout;
            self.pause(version, None, begun, limit, why).await.ok()?;
        }
    }

    /// Waits a short time, or until `server` is connected, and reads the map again. Fails with `why`
    /// if the call has taken longer than `limit`.
    async fn pause(
        &self,
        version: u64,
        server: Option<&Server>,
        begun: Instant,
        limit: Duration,
        why: CommandError,
    ) -> Result<(), CommandError> {
        if begun.elapsed() >= limit {
            return Err(why);
        }
        let end = Instant::now() + PAUSE;
        match server {
            Some(server) => drop(server.connection_until(end).await),
            None => tokio::time::sleep_until(end).await,
        }
        if server.is_none_or(|server| server.connection().is_none()) {
            self.read(version).await;
        }
        Ok(())
    }

    fn read_soon(self: &Arc<Self>, version: u64) {
        let cluster = self.clone();
        tokio::spawn(async move { cluster.read(version).await });
    }

    /// Reads the map from the first node that replies, unless it was read since `version`.
    async fn read(&self, version: u64) {
        let _one = self.reading.lock().await;
        let servers = {
            let map = self.map();
            if map.version != version {
                return;
            }
            map.servers.clone()
        };
        let limit = self.settings.options.connect_timeout;
        for mut connection in servers.values().filter_map(|server| server.connection()) {
            if let Ok(Ok(ranges)) = timeout(limit, read_ranges(&mut connection)).await {
                return self.map().set(&self.settings, &ranges);
            }
        }
        for host in seeds(&self.settings).iter().chain(servers.keys()) {
            if let Ok(ranges) = read_from(&self.settings, host).await {
                return self.map().set(&self.settings, &ranges);
            }
        }
    }

    fn owner(&self, slot: u16) -> (u64, Option<Arc<Server>>) {
        let map = self.map();
        (map.version, map.owners[usize::from(slot)].clone())
    }

    fn server(&self, host: Host) -> Arc<Server> {
        self.map().server(&self.settings, &host)
    }

    fn map(&self) -> MutexGuard<'_, Map> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Map {
    fn server(&mut self, settings: &Arc<Settings>, host: &Host) -> Arc<Server> {
        let start = || Arc::new(Server::start(settings, Endpoint::Host(host.clone())));
        self.servers.entry(host.clone()).or_insert_with(start).clone()
    }

    /// Replaces the map, and closes the connections to nodes that are no longer masters.
    fn set(&mut self, settings: &Arc<Settings>, ranges: &[Range]) {
        self.version += 1;
        self.owners = vec![None; usize::from(SLOTS)];
        for (from, to, host) in ranges {
            let server = self.server(settings, host);
            for slot in *from..=(*to).min(SLOTS - 1) {
                self.owners[usize::from(slot)] = Some(server.clone());
            }
        }
        self.servers.retain(|host, _| ranges.iter().any(|(_, _, master)| master == host));
    }
}

fn seeds(settings: &Settings) -> &[Host] {
    match &settings.address.topology {
        Topology::Cluster(hosts) => hosts,
        _ => &[],
    }
}

/// Reads the ranges of slots from a node, which need not be a master, over a new connection.
async fn read_from(settings: &Settings, host: &Host) -> Result<Vec<Range>, RedisConnectError> {
    let endpoint = Endpoint::Host(host.clone());
    let reading = async {
        let login = &settings.address.login;
        read_ranges(&mut RedisConnection::dial(settings, &endpoint, login, 0).await?).await
    };
    let limit = settings.options.connect_timeout;
    let late = || Err(unavailable(&endpoint, format!("no reply within {limit:?}")));
    timeout(limit, reading).await.unwrap_or_else(|_| late())
}

/// Reads the ranges of slots with CLUSTER SLOTS.
async fn read_ranges(connection: &mut RedisConnection) -> Result<Vec<Range>, RedisConnectError> {
    let mut cmd = redis::cmd("CLUSTER");
    cmd.arg("SLOTS");
    match connection.ask(&cmd).await {
        Ok(Value::Array(ranges)) => Ok(ranges
            .into_iter()
            .filter_map(|range| range_of(range, &connection.endpoint))
            .collect()),
        Ok(_) => Err(unavailable(
            &connection.endpoint,
            "it returned an unexpected reply to CLUSTER SLOTS",
        )),
        Err(failure) => Err(refusal(connection, failure)),
    }
}

/// Reads an entry of CLUSTER SLOTS: first slot, last slot, master, and replicas, which are ignored.
fn range_of(range: Value, asked: &Endpoint) -> Option<Range> {
    let Value::Array(range) = range else { return None };
    let mut range = range.into_iter();
    let from = redis::from_redis_value(range.next()?).ok()?;
    let to = redis::from_redis_value(range.next()?).ok()?;
    let Value::Array(master) = range.next()? else { return None };
    let mut master = master.into_iter();
    let name = redis::from_redis_value::<Option<String>>(master.next()?).ok()?;
    let port = redis::from_redis_value(master.next()?).ok()?;
    Some((from, to, host(name.as_deref().unwrap_or_default(), port, asked)?))
}

/// Returns the address of a node. If the node does not know its own name, it has that of the node
/// that was `asked`.
fn host(name: &str, port: u16, asked: &Endpoint) -> Option<Host> {
    match (name, asked) {
        ("" | "?", Endpoint::Host(host)) => Some(Host { name: host.name.clone(), port }),
        ("" | "?", Endpoint::Socket(_)) => None,
        _ => Some(Host { name: name.to_owned(), port }),
    }
}

fn resend(failure: &Failure, asked: &Endpoint) -> Resend {
    let error = match failure {
        Failure::Reply(error) => error,
        Failure::NotDone(_) | Failure::NoReply(_) => return Resend::Never,
    };
    // `MOVED 3999 127.0.0.1:6381`
    let target = || {
        let (name, port) = error.details()?.split_ascii_whitespace().nth(1)?.rsplit_once(':')?;
        host(name, port.parse().ok()?, asked)
    };
    match error.code() {
        "MOVED" => target().map_or(Resend::Never, Resend::Moved),
        "ASK" => target().map_or(Resend::Never, Resend::Ask),
        "TRYAGAIN" | "CLUSTERDOWN" | "LOADING" | "MASTERDOWN" | "READONLY" => Resend::Later,
        _ => Resend::Never,
    }
}

/// Returns the slot of the keys with this tag. By the Redis Cluster specification, that is the CRC-16
/// (XMODEM) of the tag, modulo the number of slots.
pub(super) fn slot_of(tag: &str) -> u16 {
    let add = |crc: u16, byte: &u8| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| match crc & 0x8000 {
            0 => crc << 1,
            _ => (crc << 1) ^ 0x1021,
        })
    };
    tag.as_bytes().iter().fold(0, add) % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_match_the_specification() {
        // "123456789" has the CRC 0x31C3.
        assert_eq!(slot_of("123456789"), 0x31C3 % SLOTS);
        assert_eq!(slot_of("foo"), 12182);
        assert_eq!(slot_of(""), 0);
    }

    #[test]
    fn a_node_without_a_name_has_the_name_of_the_node_that_was_asked() {
        let asked = Endpoint::Host(Host { name: "h".to_owned(), port: 1 });
        let at = |name: &str| host(name, 7, &asked).map(|host| host.to_string());
        assert_eq!(at("").as_deref(), Some("h:7"));
        assert_eq!(at("?").as_deref(), Some("h:7"));
        assert_eq!(at("::1").as_deref(), Some("[::1]:7"));
    }
}
