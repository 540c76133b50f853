//! One server: a background task connects to it, and reconnects when the connection ends.
//!
//! ```text
//!              checked                      broken, or closed
//!   connecting --------> connected ---------------------------> connecting
//!       | ^
//!       +-+ after a backoff
//! ```

use super::check::check;
use super::connection::{RedisConnection, unavailable};
use super::health::DISCONNECTED;
use super::sentinels;
use super::stream::Endpoint;
use super::{CommandError, Settings};
use crate::error::RedisConnectError;
use crate::script::Script;
use redis::{Cmd, Value};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// Where the address of the server comes from.
#[derive(Clone)]
pub(super) enum ServerSource {
    /// A fixed address.
    This(Endpoint),
    /// The current master, as the sentinels report it.
    Master,
}

impl ServerSource {
    fn name(&self, settings: &Settings) -> String {
        match self {
            ServerSource::This(endpoint) => endpoint.to_string(),
            ServerSource::Master => settings.address.to_string(),
        }
    }
}

/// A server, with a task that keeps a connection to it.
pub(super) struct Server {
    settings: Arc<Settings>,
    /// The address, for reports.
    name: String,
    state: Arc<watch::Sender<State>>,
    keeper: AbortHandle,
}

enum State {
    Connected(RedisConnection),
    /// There is no connection, for this reason.
    Lost(String),
}

impl Server {
    /// Waits for the first connection. Fails with the reason if there is none.
    pub(super) async fn open(
        settings: &Arc<Settings>,
        source: ServerSource,
    ) -> Result<Server, RedisConnectError> {
        let connection = connect(settings, &source).await?;
        Ok(Server::keep(settings, source, State::Connected(connection)))
    }

    /// Connects in the background.
    pub(super) fn start(settings: &Arc<Settings>, endpoint: Endpoint) -> Server {
        let state = State::Lost(format!("{endpoint}: not yet connected"));
        Server::keep(settings, ServerSource::This(endpoint), state)
    }

    fn keep(settings: &Arc<Settings>, source: ServerSource, state: State) -> Server {
        let name = source.name(settings);
        if let State::Lost(reason) = &state {
            settings.health.report(DISCONNECTED, &name, reason);
        }
        let state = Arc::new(watch::Sender::new(state));
        let keeper = tokio::spawn(keep(settings.clone(), source, state.clone())).abort_handle();
        Server { settings: settings.clone(), name, state, keeper }
    }

    /// Waits for a connection and sends a command.
    pub(super) async fn call(
        &self,
        cmd: &Cmd,
        script: Option<&'static Script>,
    ) -> Result<Value, CommandError> {
        let mut connection =
            self.connection_until(self.connect_deadline()).await.map_err(CommandError::NotDone)?;
        let reply = connection.run(cmd, false, script).await;
        self.settings.note(&connection, script, reply.as_ref().err());
        reply.map_err(|failure| {
            if failure.ends_connection() {
                self.leave(&connection, &failure.reason());
            }
            failure.command_error(&connection.endpoint)
        })
    }

    /// Returns until when a call that begins now waits for a connection.
    pub(super) fn connect_deadline(&self) -> Instant {
        Instant::now() + self.settings.options.connect_timeout
    }

    /// Returns the connection, if there is one now.
    pub(super) fn connection(&self) -> Option<RedisConnection> {
        match &*self.state.borrow() {
            State::Connected(connection) if !connection.has_ended() => Some(connection.clone()),
            _ => None,
        }
    }

    /// Waits for a connection. Fails with the reason if there is none by `end`.
    pub(super) async fn connection_until(&self, end: Instant) -> Result<RedisConnection, String> {
        if let Some(connection) = self.connection() {
            return Ok(connection);
        }
        let mut state = self.state.subscribe();
        loop {
            if let Some(connection) = self.connection() {
                return Ok(connection);
            }
            let is_connected =
                |state: &State| matches!(state, State::Connected(it) if !it.has_ended());
            if timeout_at(end, state.wait_for(is_connected)).await.is_err() {
                return Err(self.lost_reason());
            }
        }
    }

    /// Returns why there is no connection.
    pub(super) fn lost_reason(&self) -> String {
        match &*self.state.borrow() {
            State::Connected(connection) => {
                format!("{}: the connection was closed", connection.endpoint)
            }
            State::Lost(reason) => reason.clone(),
        }
    }

    /// Closes a connection that is no longer usable; the task opens another one.
    pub(super) fn leave(&self, left: &RedisConnection, reason: &str) {
        left.close();
        lose(&self.settings, &self.name, &self.state, left, reason);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.keeper.abort();
        self.settings.health.resolve(DISCONNECTED, &self.name);
        if let State::Connected(connection) = &*self.state.borrow() {
            connection.close();
        }
    }
}

/// Records that a connection has ended, unless it was replaced already.
fn lose(
    settings: &Settings,
    name: &str,
    state: &watch::Sender<State>,
    lost: &RedisConnection,
    reason: &str,
) {
    state.send_if_modified(|state| {
        let is_current = matches!(state, State::Connected(connection) if connection.is(lost));
        if is_current {
            let reason = format!("{}: {reason}", lost.endpoint);
            settings.health.report(DISCONNECTED, name, &reason);
            *state = State::Lost(reason);
        }
        is_current
    });
}

/// Reconnects, with a backoff, whenever there is no connection.
async fn keep(settings: Arc<Settings>, source: ServerSource, state: Arc<watch::Sender<State>>) {
    let mut backoff = Backoff::new(&settings);
    let name = source.name(&settings);
    loop {
        let connection = match &*state.borrow() {
            State::Connected(connection) => Some(connection.clone()),
            State::Lost(_) => None,
        };
        if let Some(connection) = connection {
            let since = Instant::now();
            let reason = until_lost(&settings, connection.clone()).await;
            connection.close();
            lose(&settings, &name, &state, &connection, &reason);
            // If each connection breaks soon after it was opened, attempts need a backoff too.
            if since.elapsed() > settings.options.longest_backoff {
                backoff = Backoff::new(&settings);
            } else {
                sleep(backoff.next()).await;
            }
        }
        match connect(&settings, &source).await {
            Ok(connection) => {
                settings.health.resolve(DISCONNECTED, &name);
                drop(state.send_replace(State::Connected(connection)));
            }
            Err(error) => {
                settings.health.report(DISCONNECTED, &name, &error.to_string());
                state.send_replace(State::Lost(error.to_string()));
                sleep(backoff.next()).await;
            }
        }
    }
}

/// Waits until a connection ends, or until the server no longer passes the checks. Returns the
/// reason.
async fn until_lost(settings: &Settings, mut connection: RedisConnection) -> String {
    while timeout(settings.probe(), connection.ended()).await.is_err() {
        if let Err(error) = check(&mut connection, settings).await {
            return error.to_string();
        }
    }
    "the connection was closed".to_owned()
}

/// Looks up the address, connects, and checks the server.
async fn connect(
    settings: &Arc<Settings>,
    source: &ServerSource,
) -> Result<RedisConnection, RedisConnectError> {
    let connecting = async {
        let endpoint = match source {
            ServerSource::This(endpoint) => endpoint.clone(),
            ServerSource::Master => sentinels::find_master(settings).await?,
        };
        let (login, database) = (&settings.address.login, settings.address.database);
        let mut connection = RedisConnection::dial(settings, &endpoint, login, database).await?;
        check(&mut connection, settings).await?;
        settings.health.connected();
        Ok(connection)
    };
    let limit = settings.options.connect_timeout;
    timeout(limit, connecting).await.unwrap_or_else(|_| {
        let reason = format!("no reply within {limit:?}");
        match source {
            ServerSource::This(endpoint) => Err(unavailable(endpoint, reason)),
            ServerSource::Master => Err(unavailable(&settings.address, reason)),
        }
    })
}

/// The wait before the next attempt: it doubles each time, and is reduced by up to half at random.
pub(super) struct Backoff {
    next: Duration,
    longest: Duration,
}

impl Backoff {
    pub(super) fn new(settings: &Settings) -> Backoff {
        let options = &settings.options;
        Backoff { next: options.first_backoff, longest: options.longest_backoff }
    }

    pub(super) fn next(&mut self) -> Duration {
        let full = self.next;
        self.next = (full * 2).min(self.longest);
        // A new `RandomState` has a random seed, which is random enough here.
        let random = RandomState::new().hash_one(()) as u32;
        full - full / 2 * (random >> 16) / (1 << 16)
    }
}
