//! The connections to Redis: they reconnect automatically and report the outcome of each command.
//!
//! All connections run on one thread with its own tokio runtime, so they can be used from any
//! executor and from plain threads, unless the options choose the caller's runtime. All callers share
//! one connection per server; pub/sub messages use another one. A command is sent again only if the
//! server has said that it did not run it.

mod check;
mod cluster;
mod connection;
mod health;
mod outcome;
mod reply_limit;
mod sentinels;
mod server;
mod signals;
mod stream;
#[cfg(test)]
mod tests;

use crate::address::{Address, Topology};
use crate::error::RedisConnectError;
use crate::options::Options;
use crate::script::Script;
use cluster::Cluster;
use connection::RedisConnection;
use health::Health;
use outcome::{Failure, server_error_text};
use redis::{Arg, Cmd, Value};
use requeue_jobs::limits::MAX_KINDS;
use requeue_jobs::{StoreError, StoreStatus};
use server::{Server, ServerSource};
use std::collections::HashSet;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use stream::{Endpoint, Tls};
use tokio::runtime::{Builder, Handle};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

/// An event of the pub/sub connection.
pub(crate) enum Signal<'a> {
    Message {
        channel: &'a str,
        payload: &'a [u8],
    },
    /// (Re)subscribed: messages may have been missed.
    Resumed,
}

/// Why a command has no reply.
#[derive(Debug)]
pub(crate) enum CommandError {
    /// The command was not run: there is no connection, or the server rejected it.
    NotDone(String),
    /// The command may have been run.
    Unknown(String),
}

impl CommandError {
    /// Returns why, for people.
    pub(crate) fn reason(&self) -> &str {
        let (CommandError::NotDone(reason) | CommandError::Unknown(reason)) = self;
        reason
    }

    /// Adds to the reason.
    pub(crate) fn with(mut self, more: &str) -> Self {
        let (CommandError::NotDone(reason) | CommandError::Unknown(reason)) = &mut self;
        reason.push_str(more);
        self
    }

    /// The error for a call that changes something.
    pub(crate) fn for_write(self) -> StoreError {
        match self {
            CommandError::NotDone(reason) => StoreError::Unavailable { reason },
            CommandError::Unknown(reason) => StoreError::Unknown { reason },
        }
    }

    /// The error for a call that is read-only or idempotent.
    pub(crate) fn for_read(self) -> StoreError {
        let (CommandError::NotDone(reason) | CommandError::Unknown(reason)) = self;
        StoreError::Unavailable { reason }
    }
}

/// The connections of a store. Cheap to clone; dropping the last clone closes them.
#[derive(Clone)]
pub(crate) struct Connections {
    shared: Arc<Shared>,
}

/// Invariant: no task of the runtime holds this, or the connections would never be closed.
struct Shared {
    handle: Handle,
    target: Arc<Target>,
    health: Arc<Health>,
    /// All channels that were ever subscribed to.
    wanted: Mutex<HashSet<String>>,
    subscribe: mpsc::UnboundedSender<String>,
    /// The task that receives messages. It holds the target, which closes the connections.
    listener: AbortHandle,
    /// Dropping it ends the thread, if the connections have their own.
    _end: Option<oneshot::Sender<()>>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

/// Address, options and TLS configuration.
struct Settings {
    address: Address,
    options: Options,
    tls: Option<Tls>,
    health: Arc<Health>,
}

/// Where commands are sent.
enum Target {
    /// A single server, or the master behind sentinels.
    One(Server),
    Cluster(Arc<Cluster>),
}

impl Connections {
    /// Connects. `signals` is called on the thread of the connections and must not block.
    pub(crate) async fn open(
        address: Address,
        options: &Options,
        signals: Box<dyn Fn(Signal<'_>) + Send + Sync>,
    ) -> Result<Connections, RedisConnectError> {
        options.check()?;
        let tls = address.tls.then(|| Tls::new(options)).transpose()?;
        let settings = {
            let health = Arc::new(Health::default());
            Arc::new(Settings { address, options: options.clone(), tls, health })
        };
        let health = settings.health.clone();
        let (handle, end) = if options.use_current_runtime {
            let handle = Handle::try_current().map_err(|error| no_runtime(&error.to_string()))?;
            (handle, None)
        } else {
            let (handle, end) = start().map_err(|error| {
                let reason = format!("cannot start the connection thread: {error}");
                connection::unavailable(&settings.address, reason)
            })?;
            (handle, Some(end))
        };
        let (subscribe, wanted) = mpsc::unbounded_channel();
        let opening = handle.spawn(async move {
            let target = Arc::new(Target::open(&settings).await?);
            let listener = signals::listen(settings, target.clone(), wanted, signals);
            Ok((target, tokio::spawn(listener).abort_handle()))
        });
        // On a thread of its own, the task neither panics nor is aborted. Tokio panics if a runtime
        // lacks a driver.
        let opened = opening.await.map_err(|_| no_runtime("it has ended or lacks a driver"))?;
        let ((target, listener), wanted) = (opened?, Mutex::default());
        let _end = end;
        Ok(Connections {
            shared: Arc::new(Shared { handle, target, health, wanted, subscribe, listener, _end }),
        })
    }

    /// Sends a command to the master that owns the slot of `tag` (the text in braces). If the server
    /// replies NOSCRIPT, loads `script` and sends the command again. Dropping the future does not
    /// cancel the command.
    pub(crate) async fn call(
        &self,
        tag: &str,
        cmd: Cmd,
        script: Option<&'static Script>,
    ) -> Result<Value, CommandError> {
        let target = self.shared.target.clone();
        let slot = target.slot(tag);
        let waiting = self.shared.health.begin(bytes(&cmd)).map_err(CommandError::NotDone)?;
        let call = self.shared.handle.spawn(async move {
            let _waiting = waiting;
            target.call(slot, &cmd, script).await
        });
        call.await.unwrap_or_else(|error| Err(CommandError::Unknown(error.to_string())))
    }

    /// Returns the current problems and counts.
    pub(crate) fn status(&self) -> StoreStatus {
        self.shared.health.status()
    }

    /// Subscribes to a channel in the background, across reconnects; its messages go to `signals`.
    /// Does nothing if the channel is subscribed already, or if there are [`MAX_KINDS`] channels.
    pub(crate) fn subscribe(&self, channel: &str) {
        let mut wanted = self.shared.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        // Waiting for ever new kinds must not exhaust memory, here or on the server.
        if wanted.len() < MAX_KINDS && !wanted.contains(channel) {
            wanted.insert(channel.to_owned());
            drop(self.shared.subscribe.send(channel.to_owned()));
        }
    }
}

fn no_runtime(why: &str) -> RedisConnectError {
    let reason = format!("use_current_runtime needs a tokio runtime with I/O and time: {why}");
    RedisConnectError::Options { reason }
}

/// The number of bytes in the arguments of a command.
fn bytes(cmd: &Cmd) -> usize {
    let length = |argument: Arg<&[u8]>| match argument {
        Arg::Simple(bytes) => bytes.len(),
        _ => 0,
    };
    cmd.args_iter().map(length).sum()
}

/// Starts a thread with a runtime. The thread ends when the returned sender is dropped. Nobody waits
/// for its end: waiting inside another runtime could block that runtime forever.
fn start() -> io::Result<(Handle, oneshot::Sender<()>)> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let (handle, (end, ended)) = (runtime.handle().clone(), oneshot::channel::<()>());
    let run = move || {
        drop(runtime.block_on(ended));
        // Does not wait for a DNS lookup in progress.
        runtime.shutdown_background();
    };
    thread::Builder::new().name("requeue-redis".to_owned()).spawn(run)?;
    Ok((handle, end))
}

impl Settings {
    /// How often an idle connection is checked. Otherwise only the next command would notice that the
    /// server has disappeared or is no longer master.
    fn probe(&self) -> Duration {
        self.options.response_timeout * 3
    }

    /// Records whether a server rejects writes.
    fn note(
        &self,
        connection: &RedisConnection,
        script: Option<&'static Script>,
        failure: Option<&Failure>,
    ) {
        match failure {
            Some(Failure::Reply(error)) => {
                let (server, text) = (connection.endpoint.to_string(), server_error_text(error));
                self.health.rejected(&server, error.code(), &text);
            }
            Some(_) => {}
            None if script.is_some_and(|script| script.adds) => {
                self.health.accepted(&*connection.endpoint);
            }
            None => {}
        }
    }
}

impl Target {
    async fn open(settings: &Arc<Settings>) -> Result<Target, RedisConnectError> {
        let source = match &settings.address.topology {
            Topology::Server(host) => ServerSource::This(Endpoint::Host(host.clone())),
            Topology::Socket(path) => ServerSource::This(Endpoint::Socket(path.clone())),
            Topology::Sentinels(..) => ServerSource::Master,
            Topology::Cluster(_) => {
                return Ok(Target::Cluster(Arc::new(Cluster::open(settings).await?)));
            }
        };
        Ok(Target::One(Server::open(settings, source).await?))
    }

    /// Returns the slot of the keys with this tag.
    fn slot(&self, tag: &str) -> u16 {
        match self {
            Target::One(_) => 0,
            Target::Cluster(_) => cluster::slot_of(tag),
        }
    }

    async fn call(
        &self,
        slot: u16,
        cmd: &Cmd,
        script: Option<&'static Script>,
    ) -> Result<Value, CommandError> {
        match self {
            Target::One(server) => server.call(cmd, script).await,
            Target::Cluster(cluster) => cluster.call(slot, cmd, script).await,
        }
    }

    /// Waits a short time for a connection to a server that publishes the messages. On a Cluster that
    /// is any node.
    async fn connection(&self) -> Option<RedisConnection> {
        match self {
            Target::One(server) => server.connection_until(server.connect_deadline()).await.ok(),
            Target::Cluster(cluster) => cluster.connection().await,
        }
    }
}
