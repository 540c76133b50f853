//! A connection in use.

use super::Settings;
use super::outcome::{Failure, text};
use super::stream::{Endpoint, Stream};
use crate::address::Login;
use crate::error::RedisConnectError;
use crate::script::Script;
use redis::aio::{MultiplexedConnection, PubSub};
use redis::{AsyncConnectionConfig, Cmd, ErrorKind, RedisConnectionInfo, RedisError, Value};
use std::fmt::Display;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// So often a script is loaded for one call: more means that somebody drops them all the time.
const LOADS: usize = 3;

/// A connection, and to whom. Cheap to clone; calls on clones do not wait for each other.
#[derive(Clone)]
pub(super) struct RedisConnection {
    pub(super) endpoint: Arc<Endpoint>,
    connection: MultiplexedConnection,
    driver: Arc<Driver>,
}

/// What moves the bytes. It ends when the connection does.
struct Driver {
    task: AbortHandle,
    /// Closed when the task has ended.
    open: watch::Receiver<()>,
}

impl Drop for Driver {
    fn drop(&mut self) {
        // The crate does not promise that it ends while answers are outstanding.
        self.task.abort();
    }
}

impl RedisConnection {
    /// Connects, and logs in.
    pub(super) async fn dial(
        settings: &Settings,
        endpoint: &Endpoint,
        login: &Login,
        database: u32,
    ) -> Result<RedisConnection, RedisConnectError> {
        let stream = open(settings, endpoint).await?;
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(Some(settings.options.answer_timeout));
        let info = info(login, database);
        let begun = MultiplexedConnection::new_with_config(&info, stream, config).await;
        let (connection, driver) = begun.map_err(|error| refusal(endpoint, login, &error))?;
        let (ends, open) = watch::channel(());
        let task = tokio::spawn(async move {
            let _ends = ends;
            driver.await;
        });
        let driver = Arc::new(Driver { task: task.abort_handle(), open });
        Ok(RedisConnection { endpoint: Arc::new(endpoint.clone()), connection, driver })
    }

    /// Sends a command. A script that is not there is loaded, and it is sent again.
    pub(super) async fn run(
        &mut self,
        cmd: &Cmd,
        asking: bool,
        script: Option<&'static Script>,
    ) -> Result<Value, Failure> {
        let mut answer = self.send(cmd, asking).await;
        for _ in 0..LOADS {
            match (&answer, script) {
                (Err(Failure::Answer(error)), Some(script)) if error.code() == "NOSCRIPT" => {
                    let mut load = redis::cmd("SCRIPT");
                    load.arg("LOAD").arg(&script.text);
                    let loaded = self.send(&load, false).await;
                    // Whatever became of this, the command itself was refused.
                    loaded.map_err(|failure| Failure::NotDone(failure.reason()))?;
                    answer = self.send(cmd, asking).await;
                }
                _ => break,
            }
        }
        answer
    }

    /// Sends a command once. To `ask` is to be let at a slot that is on its way.
    async fn send(&mut self, cmd: &Cmd, asking: bool) -> Result<Value, Failure> {
        let answer = if asking {
            let mut pair = redis::pipe();
            pair.cmd("ASKING").add_command(cmd.clone());
            let answers = self.connection.send_packed_commands(&pair, 1, 1).await;
            answers.map(|mut answers| answers.pop().unwrap_or(Value::Nil))
        } else {
            self.connection.send_packed_command(cmd).await
        };
        match answer {
            Ok(Value::ServerError(error)) => Err(Failure::Answer(error)),
            Ok(value) => Ok(value),
            // The crate does not tell what was written before the connection broke.
            Err(error) => Err(Failure::Cut(error.to_string().trim().replace('\n', ", "))),
        }
    }

    /// Asks for something before the connection is used.
    pub(super) async fn ask(&mut self, cmd: &Cmd) -> Result<Value, Failure> {
        self.send(cmd, false).await
    }

    /// Whether both are the same connection.
    pub(super) fn is(&self, other: &RedisConnection) -> bool {
        Arc::ptr_eq(&self.driver, &other.driver)
    }

    pub(super) fn close(&self) {
        self.driver.task.abort();
    }

    pub(super) fn has_ended(&self) -> bool {
        self.driver.open.has_changed().is_err()
    }

    /// Waits for the end of the connection.
    pub(super) async fn ended(&self) {
        let mut open = self.driver.open.clone();
        while open.changed().await.is_ok() {}
    }
}

/// Connects to be told of messages.
pub(super) async fn dial_pubsub(
    settings: &Settings,
    endpoint: &Endpoint,
) -> Result<PubSub, RedisConnectError> {
    let (login, database) = (&settings.address.login, settings.address.database);
    let stream = open(settings, endpoint).await?;
    let begun = PubSub::new(&info(login, database), stream).await;
    begun.map_err(|error| refusal(endpoint, login, &error))
}

async fn open(settings: &Settings, endpoint: &Endpoint) -> Result<Stream, RedisConnectError> {
    let opened = endpoint.open(settings.tls.as_ref()).await;
    opened.map_err(|error| unavailable(endpoint, error))
}

fn info(login: &Login, database: u32) -> RedisConnectionInfo {
    let info = RedisConnectionInfo::default()
        .set_db(database.into())
        .set_lib_name("requeue", env!("CARGO_PKG_VERSION"));
    let password = login.password.as_ref().map(|password| &*password.0);
    match &login.user {
        // A user without a password is let in with any.
        Some(user) => info.set_username(user).set_password(password.unwrap_or_default()),
        None => match password {
            Some(password) => info.set_password(password),
            None => info,
        },
    }
}

/// Why a server did not let us in.
fn refusal(endpoint: &Endpoint, login: &Login, error: &RedisError) -> RedisConnectError {
    let address = endpoint.to_string();
    match error.kind() {
        ErrorKind::AuthenticationFailed => {
            let user = login.user.as_deref().unwrap_or("default");
            let reason = format!("wrong password, or no user {user:?}");
            RedisConnectError::Refused { address, reason }
        }
        ErrorKind::Server(_) | ErrorKind::Extension => {
            RedisConnectError::Refused { address, reason: text(error) }
        }
        _ => unavailable(endpoint, error),
    }
}

pub(super) fn unavailable(address: impl Display, reason: impl Display) -> RedisConnectError {
    let (address, reason) = (address.to_string(), reason.to_string());
    RedisConnectError::Unavailable { address, reason }
}
