//! A connection to one server: sends commands and loads missing scripts.

use super::Settings;
use super::outcome::{Failure, text};
use super::reply_limit::LimitedReplies;
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

/// How often a script is loaded for one call. If it is still missing then, another client keeps
/// flushing the scripts.
const MAX_LOADS: usize = 3;

/// A connection and its address. Cheap to clone; calls on clones do not wait for each other.
#[derive(Clone)]
pub(super) struct RedisConnection {
    pub(super) endpoint: Arc<Endpoint>,
    connection: MultiplexedConnection,
    driver: Arc<Driver>,
}

/// The task that reads and writes the stream. It ends when the connection ends.
struct Driver {
    task: AbortHandle,
    /// Closed when the task has ended.
    open: watch::Receiver<()>,
}

impl Drop for Driver {
    fn drop(&mut self) {
        // The `redis` crate does not guarantee that the task ends while replies are outstanding.
        self.task.abort();
    }
}

impl RedisConnection {
    /// Connects and authenticates.
    pub(super) async fn dial(
        settings: &Settings,
        endpoint: &Endpoint,
        login: &Login,
        database: u32,
    ) -> Result<RedisConnection, RedisConnectError> {
        let stream = open(settings, endpoint).await?;
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(Some(settings.options.response_timeout));
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

    /// Sends a command. If the server replies NOSCRIPT, loads `script` and sends the command again.
    pub(super) async fn run(
        &mut self,
        cmd: &Cmd,
        asking: bool,
        script: Option<&'static Script>,
    ) -> Result<Value, Failure> {
        let mut reply = self.send(cmd, asking).await;
        for _ in 0..MAX_LOADS {
            match (&reply, script) {
                (Err(Failure::Reply(error)), Some(script)) if error.code() == "NOSCRIPT" => {
                    let mut load = redis::cmd("SCRIPT");
                    load.arg("LOAD").arg(&script.text);
                    let loaded = self.send(&load, false).await;
                    // Even if the load fails, the command itself was rejected and did not run.
                    loaded.map_err(|failure| Failure::NotDone(failure.reason()))?;
                    reply = self.send(cmd, asking).await;
                }
                _ => break,
            }
        }
        reply
    }

    /// Sends a command once; after ASKING if it is for a slot that is being migrated.
    async fn send(&mut self, cmd: &Cmd, asking: bool) -> Result<Value, Failure> {
        let reply = if asking {
            let mut pair = redis::pipe();
            pair.cmd("ASKING").add_command(cmd.clone());
            let replies = self.connection.send_packed_commands(&pair, 1, 1).await;
            replies.map(|mut replies| replies.pop().unwrap_or(Value::Nil))
        } else {
            self.connection.send_packed_command(cmd).await
        };
        match reply {
            Ok(Value::ServerError(error)) => Err(Failure::Reply(error)),
            Ok(value) => Ok(value),
            // The `redis` crate does not report what was written before the connection broke.
            Err(error) => Err(Failure::NoReply(error.to_string().trim().replace('\n', ", "))),
        }
    }

    /// Sends a command that needs no script.
    pub(super) async fn ask(&mut self, cmd: &Cmd) -> Result<Value, Failure> {
        self.send(cmd, false).await
    }

    /// Returns whether both are the same connection.
    pub(super) fn is(&self, other: &RedisConnection) -> bool {
        Arc::ptr_eq(&self.driver, &other.driver)
    }

    pub(super) fn close(&self) {
        self.driver.task.abort();
    }

    pub(super) fn has_ended(&self) -> bool {
        self.driver.open.has_changed().is_err()
    }

    /// Waits until the connection has ended.
    pub(super) async fn ended(&self) {
        let mut open = self.driver.open.clone();
        while open.changed().await.is_ok() {}
    }
}

/// Opens a connection for pub/sub messages.
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
    let stream = opened.map_err(|error| unavailable(endpoint, error))?;
    Ok(Box::pin(LimitedReplies::new(stream)))
}

fn info(login: &Login, database: u32) -> RedisConnectionInfo {
    let info = RedisConnectionInfo::default()
        .set_db(database.into())
        .set_lib_name("requeue", env!("CARGO_PKG_VERSION"));
    let password = login.password.as_ref().map(|password| &*password.0);
    match &login.user {
        // Redis accepts any password for a user without one.
        Some(user) => info.set_username(user).set_password(password.unwrap_or_default()),
        None => match password {
            Some(password) => info.set_password(password),
            None => info,
        },
    }
}

/// Converts the failure of a login into an error.
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
