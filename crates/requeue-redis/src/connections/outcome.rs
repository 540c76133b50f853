//! What became of a call.

use super::CommandError;
use super::stream::Endpoint;
use redis::{RedisError, ServerError};

/// What a server answers before it does anything. All else may come from the middle of a
/// script.
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

/// What a server answers that is not the one to ask, or not now.
const ELSEWHERE: &[&str] = &["LOADING", "MASTERDOWN", "READONLY"];

/// Servers add this to what was raised inside a script.
const INSIDE: &str = "@user_script";

/// Why there is no answer to a command.
pub(super) enum Failure {
    /// There is one: an error.
    Answer(ServerError),
    /// It was not done.
    NotDone(String),
    /// The connection broke, or nothing came over it in time.
    Cut(String),
}

impl Failure {
    pub(super) fn reason(&self) -> String {
        match self {
            Failure::Answer(error) => server_error_text(error),
            Failure::NotDone(reason) | Failure::Cut(reason) => reason.clone(),
        }
    }

    /// Whether the connection should be left: broken, or to the wrong server.
    pub(super) fn leaves(&self) -> bool {
        match self {
            Failure::Answer(error) => ELSEWHERE.contains(&error.code()),
            Failure::Cut(_) => true,
            Failure::NotDone(_) => false,
        }
    }

    /// What the caller is told.
    pub(super) fn command_error(&self, endpoint: &Endpoint) -> CommandError {
        let reason = format!("{endpoint}: {}", self.reason());
        match self {
            Failure::Answer(error) if was_before(error) => CommandError::NotDone(reason),
            Failure::Answer(_) | Failure::Cut(_) => CommandError::Unknown(reason),
            Failure::NotDone(_) => CommandError::NotDone(reason),
        }
    }
}

/// Whether a server said this before it did anything.
fn was_before(error: &ServerError) -> bool {
    let inside = error.details().is_some_and(|details| details.contains(INSIDE));
    BEFORE.contains(&error.code()) && !inside
}

/// An error as the server told it.
pub(super) fn server_error_text(error: &ServerError) -> String {
    format!("{} {}", error.code(), error.details().unwrap_or_default()).trim_end().to_owned()
}

/// An error as the server told it, if it was the server.
pub(super) fn text(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        _ => error.to_string(),
    }
}
