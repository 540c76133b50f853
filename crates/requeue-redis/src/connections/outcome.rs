//! Classifies failed commands: not run, or unknown.

use super::CommandError;
use super::stream::Endpoint;
use redis::{RedisError, ServerError};

/// Error codes that a server returns before it runs a command. Other errors may come from the middle
/// of a script.
const BEFORE: &[&str] = &[
    "ASK",
    "BUSY",
    "CLUSTERDOWN",
    "CROSSSLOT",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "MOVED",
    "NOAUTH",
    "NOPERM",
    "NOREPLICAS",
    "NOSCRIPT",
    "OOM",
    "READONLY",
    "TRYAGAIN",
    "WRONGPASS",
];

/// Error codes of a server that is the wrong one, or cannot serve requests now.
const ELSEWHERE: &[&str] = &["LOADING", "MASTERDOWN", "READONLY"];

/// Servers add this to errors raised inside a script.
const INSIDE: &str = "@user_script";

/// Why a command failed.
pub(super) enum Failure {
    /// The server replied with an error.
    Reply(ServerError),
    /// The command was not run.
    NotDone(String),
    /// The connection broke, or the reply timed out.
    NoReply(String),
}

impl Failure {
    pub(super) fn reason(&self) -> String {
        match self {
            Failure::Reply(error) => server_error_text(error),
            Failure::NotDone(reason) | Failure::NoReply(reason) => reason.clone(),
        }
    }

    /// Whether the connection should be closed, because it is broken or leads to the wrong server.
    pub(super) fn ends_connection(&self) -> bool {
        match self {
            Failure::Reply(error) => ELSEWHERE.contains(&error.code()),
            Failure::NoReply(_) => true,
            Failure::NotDone(_) => false,
        }
    }

    /// Converts it into the error for the caller.
    pub(super) fn command_error(&self, endpoint: &Endpoint) -> CommandError {
        let reason = format!("{endpoint}: {}", self.reason());
        match self {
            Failure::Reply(error) if was_before(error) => CommandError::NotDone(reason),
            Failure::Reply(_) | Failure::NoReply(_) => CommandError::Unknown(reason),
            Failure::NotDone(_) => CommandError::NotDone(reason),
        }
    }
}

/// Whether the server returned this error before it ran the command.
fn was_before(error: &ServerError) -> bool {
    let inside = error.details().is_some_and(|details| details.contains(INSIDE));
    BEFORE.contains(&error.code()) && !inside
}

/// The text of a server's error.
pub(super) fn server_error_text(error: &ServerError) -> String {
    format!("{} {}", error.code(), error.details().unwrap_or_default()).trim_end().to_owned()
}

/// The text of an error; the server's own text if it came from the server.
pub(super) fn text(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        _ => error.to_string(),
    }
}
