//! The operations of the store on the keys of a deployment.

use crate::connections::{CommandError, Connections};
use crate::keys::{self, Keys};
use crate::list::ScanCache;
use crate::reply::Reply;
use crate::script::Script;
use crate::watch::Watch;
use redis::{Cmd, Value};
use requeue_jobs::limits::MAX_KINDS;
use requeue_jobs::rules::Turns;
use requeue_jobs::{Kind, StoreError, Timestamp, WallClock};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The keys with one prefix, and the connections to their servers. The methods that are named as those of
/// [`Store`](requeue_jobs::Store) implement them.
pub(crate) struct Deployment {
    pub(crate) connections: Connections,
    pub(crate) prefix: String,
    pub(crate) watch: Arc<Watch>,
    pub(crate) scans: ScanCache,
    pub(crate) turns: Mutex<Turns>,
    /// The kind that the last reap ended with. The next reap continues after it.
    pub(crate) reaped: Mutex<Option<String>>,
    /// Kinds that keep done jobs, as far as this process knows: `ack` cannot ack their jobs. What is outdated only
    /// costs time.
    pub(crate) keep_done: Mutex<HashSet<Kind>>,
    /// Replaces the server's clock in tests.
    pub(crate) wall_clock: Option<WallClock>,
}

/// An argument of a command, for an error message.
fn text_of(argument: redis::Arg<&[u8]>) -> String {
    match argument {
        redis::Arg::Simple(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        _ => String::new(),
    }
}

/// Locks a mutex and ignores poisoning: no code that holds one of these locks leaves partial changes
/// behind when it panics.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Deployment {
    pub(crate) fn keys(&self, kind: &Kind) -> Keys {
        Keys::of(&self.prefix, kind)
    }

    pub(crate) fn keeps_done(&self, kind: &Kind) -> bool {
        lock(&self.keep_done).contains(kind)
    }

    pub(crate) fn learn_keeps_done(&self, kind: &Kind) {
        let mut kinds = lock(&self.keep_done);
        if kinds.len() >= MAX_KINDS {
            kinds.clear();
        }
        kinds.insert(kind.clone());
    }

    /// Calls a script on a kind, and returns the reply. `add` adds the arguments that follow the time.
    pub(crate) async fn run(
        &self,
        script: &'static Script,
        kind: &Kind,
        add: impl FnOnce(&mut Cmd),
    ) -> Result<Value, StoreError> {
        let keys = self.keys(kind);
        let mut cmd = script.begin(&keys.all);
        match &self.wall_clock {
            None => cmd.arg(""),
            Some(wall_clock) => cmd.arg(wall_clock.now().as_millis()),
        };
        add(&mut cmd);
        let error = match self.connections.call(&keys.tag, cmd, Some(script)).await {
            Ok(value) => return Ok(value),
            Err(error) => self.explain(&keys, error).await,
        };
        Err(if script.only_reads { error.for_read() } else { error.for_write() })
    }

    /// Adds to an error that a script raised which keys it was about, and which of them have another
    /// type than ours: someone else has written them.
    async fn explain(&self, keys: &Keys, error: CommandError) -> CommandError {
        let reason = error.reason();
        if !reason.contains("user_script") && !reason.contains("WRONGTYPE") {
            return error;
        }
        let mut what = format!("; the script was for the keys {{{}}}:*", keys.tag);
        if reason.contains("WRONGTYPE") {
            for (key, expected) in keys.typed() {
                // The command TYPE may not be allowed. These are.
                let mut cmd = redis::cmd(if expected == "hash" { "HLEN" } else { "ZCARD" });
                cmd.arg(key);
                let counted = self.connections.call(&keys.tag, cmd, None).await;
                if counted.is_err_and(|error| error.reason().contains("WRONGTYPE")) {
                    what += &format!("; {key} is not a {expected}");
                }
            }
        }
        error.with(&what)
    }

    /// Sends a read-only command to the server that owns the slot of `tag`.
    pub(crate) async fn read(&self, tag: &str, cmd: Cmd) -> Result<Value, StoreError> {
        let key = cmd.args_iter().nth(1).map(text_of).unwrap_or_default();
        let reply = self.connections.call(tag, cmd, None).await;
        let named = |error: CommandError| match error.reason().contains("WRONGTYPE") {
            true => error.with(&format!("; the key is {key}")),
            false => error,
        };
        reply.map_err(named).map_err(CommandError::for_read)
    }

    /// Sends a command that changes something and is not a script.
    pub(crate) async fn write(&self, tag: &str, cmd: Cmd) -> Result<Value, StoreError> {
        self.connections.call(tag, cmd, None).await.map_err(CommandError::for_write)
    }

    /// Calls a script on keys of the deployment.
    pub(crate) async fn of_deployment(
        &self,
        script: &'static Script,
        keys: &[String],
        add: impl FnOnce(&mut Cmd),
    ) -> Result<Value, StoreError> {
        let mut cmd = script.begin(keys);
        add(&mut cmd);
        let reply = self.connections.call(&self.prefix, cmd, Some(script)).await;
        reply.map_err(CommandError::for_read)
    }

    /// Returns the server's time.
    pub(crate) async fn now(&self, keys: &Keys) -> Result<Timestamp, StoreError> {
        if let Some(wall_clock) = &self.wall_clock {
            return Ok(wall_clock.now());
        }
        let mut time = Reply::of(self.read(&keys.tag, redis::cmd("TIME")).await?)?;
        let (seconds, micros) = (time.number()?, time.number()?);
        Ok(Timestamp::from_millis(seconds * 1000 + micros / 1000))
    }

    pub(crate) fn subscribe(&self, kind: &Kind) {
        self.connections.subscribe(&keys::channel(&self.prefix, kind));
    }
}
