//! One server: connected whenever it can be.
//!
//! ```text
//!              checked                        broken, or left
//!   connecting --------> connected ---------------------------> connecting
//!       | ^
//!       +-+ after a while
//! ```

use super::check::check;
use super::connection::{RedisConnection, unavailable};
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

/// Which server.
#[derive(Clone)]
pub(super) enum ServerSource {
    This(Endpoint),
    /// Whichever the sentinels call their master.
    Master,
}

/// A server that is connected, or will be.
pub(super) struct Server {
    settings: Arc<Settings>,
    state: Arc<watch::Sender<State>>,
    keeper: AbortHandle,
}

enum State {
    Connected(RedisConnection),
    /// Why it is not.
    Lost(String),
}

impl Server {
    /// Waits for the first connection, and answers why there is none.
    pub(super) async fn open(
        settings: &Arc<Settings>,
        source: ServerSource,
    ) -> Result<Server, RedisConnectError> {
        let connection = connect(settings, &source).await?;
        Ok(Server::keep(settings, source, State::Connected(connection)))
    }

    /// Does not wait.
    pub(super) fn start(settings: &Arc<Settings>, endpoint: Endpoint) -> Server {
        let state = State::Lost(format!("{endpoint}: not yet connected"));
        Server::keep(settings, ServerSource::This(endpoint), state)
    }

    fn keep(settings: &Arc<Settings>, source: ServerSource, state: State) -> Server {
        let state = Arc::new(watch::Sender::new(state));
        let keeper = tokio::spawn(keep(settings.clone(), source, state.clone())).abort_handle();
        Server { settings: settings.clone(), state, keeper }
    }

    /// Sends a command, when there is a connection.
    pub(super) async fn call(
        &self,
        cmd: &Cmd,
        script: Option<&'static Script>,
    ) -> Result<Value, CommandError> {
        let mut connection =
            self.connection_until(self.patience()).await.map_err(CommandError::NotDone)?;
        connection.run(cmd, false, script).await.map_err(|failure| {
            if failure.leaves() {
                self.leave(&connection, &failure.reason());
            }
            failure.command_error(&connection.endpoint)
        })
    }

    /// How long a call waits for a connection.
    pub(super) fn patience(&self) -> Instant {
        Instant::now() + self.settings.options.connect_timeout
    }

    /// The connection, if there is one.
    pub(super) fn connection(&self) -> Option<RedisConnection> {
        match &*self.state.borrow() {
            State::Connected(connection) if !connection.has_ended() => Some(connection.clone()),
            _ => None,
        }
    }

    /// Waits for a connection; answers why there is none.
    pub(super) async fn connection_until(&self, end: Instant) -> Result<RedisConnection, String> {
        if let Some(connection) = self.connection() {
            return Ok(connection);
        }
        let mut state = self.state.subscribe();
        loop {
            if let Some(connection) = self.connection() {
                return Ok(connection);
            }
            let is_there = |state: &State| matches!(state, State::Connected(l) if !l.has_ended());
            if timeout_at(end, state.wait_for(is_there)).await.is_err() {
                return Err(self.why_not());
            }
        }
    }

    /// Why there is no connection.
    pub(super) fn why_not(&self) -> String {
        match &*self.state.borrow() {
            State::Connected(connection) => {
                format!("{}: the connection was closed", connection.endpoint)
            }
            State::Lost(reason) => reason.clone(),
        }
    }

    /// Leaves a connection that is of no use any more.
    pub(super) fn leave(&self, left: &RedisConnection, reason: &str) {
        left.close();
        lose(&self.state, left, reason);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.keeper.abort();
        if let State::Connected(connection) = &*self.state.borrow() {
            connection.close();
        }
    }
}

/// Notes that a connection is over, unless there is another one already.
fn lose(state: &watch::Sender<State>, lost: &RedisConnection, reason: &str) {
    state.send_if_modified(|state| {
        let is_it = matches!(state, State::Connected(connection) if connection.is(lost));
        if is_it {
            *state = State::Lost(format!("{}: {reason}", lost.endpoint));
        }
        is_it
    });
}

/// Connects whenever there is no connection.
async fn keep(settings: Arc<Settings>, source: ServerSource, state: Arc<watch::Sender<State>>) {
    let mut backoff = Backoff::new(&settings);
    loop {
        let connection = match &*state.borrow() {
            State::Connected(connection) => Some(connection.clone()),
            State::Lost(_) => None,
        };
        if let Some(connection) = connection {
            let since = Instant::now();
            let reason = watch_over(&settings, connection.clone()).await;
            connection.close();
            lose(&state, &connection, &reason);
            // One that breaks at once each time must not be tried at once each time.
            if since.elapsed() > settings.options.longest_backoff {
                backoff = Backoff::new(&settings);
            } else {
                sleep(backoff.next()).await;
            }
        }
        match connect(&settings, &source).await {
            Ok(connection) => drop(state.send_replace(State::Connected(connection))),
            Err(error) => {
                state.send_replace(State::Lost(error.to_string()));
                sleep(backoff.next()).await;
            }
        }
    }
}

/// Waits for the end of a connection, and answers why. It ends, too, when the server does not
/// fit any more.
async fn watch_over(settings: &Settings, mut connection: RedisConnection) -> String {
    while timeout(settings.probe(), connection.ended()).await.is_err() {
        if let Err(error) = check(&mut connection, settings).await {
            return error.to_string();
        }
    }
    "the connection was closed".to_owned()
}

/// Finds a server, connects and checks it.
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
        Ok(connection)
    };
    let limit = settings.options.connect_timeout;
    timeout(limit, connecting).await.unwrap_or_else(|_| {
        let reason = format!("no answer within {limit:?}");
        match source {
            ServerSource::This(endpoint) => Err(unavailable(endpoint, reason)),
            ServerSource::Master => Err(unavailable(&settings.address, reason)),
        }
    })
}

/// How long to wait before the next attempt.
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
        // Hashers are seeded at random, which is random enough here.
        let random = RandomState::new().hash_one(()) as u32;
        full - full / 2 * (random >> 16) / (1 << 16)
    }
}
