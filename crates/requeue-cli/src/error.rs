//! Errors of commands, with a hint and an exit code.

use crate::output::{print_json_note, print_labelled};
use crate::transfer::SALVAGE_HINT;
use requeue_disk::DiskError;
use requeue_http::client::CallError;
use requeue_http::{Problem, ProblemType};
use requeue_jobs::transfer::TransferError;
use requeue_jobs::{ChangeError, Invalid, PutError, ScheduleError, SettleError, StoreError};
use requeue_postgres::PostgresConnectError;
use requeue_redis::RedisConnectError;
use std::error::Error;
use std::io;
use std::process::ExitCode;

/// The exit code of a failed command. The numbers are stable; [`EXIT_CODES`] documents them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The job, schedule or kind does not exist, or there is no job to claim.
    NotFound = 3,
    /// The operation was rejected, or it failed and trying again would not help.
    Failed = 1,
    /// The command line is invalid.
    Usage = 2,
    /// Nothing was done, and trying again later may succeed.
    Unavailable = 4,
    /// It is not known whether the operation was done.
    Unknown = 5,
    /// It was done as far as possible: a part of the data is lost.
    Incomplete = 6,
}

impl Exit {
    fn severity(self) -> u8 {
        match self {
            Exit::NotFound => 0,
            Exit::Failed | Exit::Incomplete => 1,
            Exit::Usage => 2,
            Exit::Unavailable => 3,
            Exit::Unknown => 4,
        }
    }

    /// The more severe of two codes. It is the exit code if several entries fail.
    pub(crate) fn worse(self, other: Exit) -> Exit {
        if other.severity() > self.severity() { other } else { self }
    }
}

/// The exit codes, for `--help` and the manual page.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  Success
  1  Failed: a condition did not hold, the lease is lost, a file is damaged
  2  Invalid command line
  3  The job, schedule or kind does not exist, or there is no job to claim
  4  Unavailable: nothing was done; try again later
  5  Unknown: it may or may not have been done; check before you try again
  6  Incomplete: everything that can be read was exported, the rest is lost";

/// The error of a command.
#[derive(Debug)]
pub(crate) struct CliError {
    pub(crate) exit: Exit,
    /// `None` if everything was already printed.
    message: Option<String>,
    hint: Option<String>,
}

pub(crate) type Result<T, E = CliError> = std::result::Result<T, E>;

impl CliError {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        CliError { exit, message: Some(message.into()), hint: None }
    }

    /// An error and its causes.
    pub(crate) fn from_error(exit: Exit, error: &(dyn Error + 'static)) -> Self {
        CliError::new(exit, chain(error))
    }

    /// The error of a request of the HTTP API that the arguments fill: its fields have the names of options.
    pub(crate) fn of_request(problem: Problem) -> Self {
        let Problem { field, detail, .. } = problem;
        let option = field.map(|field| (format!("{field}: "), field.replace('_', "-")));
        CliError::usage(match &option {
            Some((prefix, option)) => {
                format!("--{option}: {}", detail.strip_prefix(prefix).unwrap_or(&detail))
            }
            None => detail,
        })
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        CliError::new(Exit::Usage, message)
    }

    /// An error that was already printed: only the exit code is left to return.
    pub(crate) fn already_reported(exit: Exit) -> Self {
        CliError { exit, message: None, hint: None }
    }

    /// The error of an operation on a file: "could not VERB NAME: ERROR".
    pub(crate) fn io(verb: &str, name: &str, error: &io::Error) -> Self {
        CliError::new(Exit::Failed, format!("could not {verb} {name}: {error}"))
    }

    /// Adds what the user can do next.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds a hint if there is none yet.
    pub(crate) fn or_hint(mut self, hint: Option<String>) -> Self {
        self.hint = self.hint.or(hint);
        self
    }

    /// Raises the exit code to that of an earlier error, if that is more severe.
    pub(crate) fn at_least(mut self, exit: Exit) -> Self {
        self.exit = self.exit.worse(exit);
        self
    }

    /// The message; empty if it was already printed.
    pub(crate) fn text(&self) -> &str {
        self.message.as_deref().unwrap_or_default()
    }

    /// Whether the message contains this text.
    pub(crate) fn mentions(&self, text: &str) -> bool {
        self.message.as_ref().is_some_and(|message| message.contains(text))
    }

    /// Prints the error to stderr. Returns the exit code of the program.
    pub(crate) fn report(&self, json: bool) -> ExitCode {
        if let Some(message) = &self.message {
            print(json, message, self.hint.as_deref(), self.exit);
        }
        ExitCode::from(self.exit as u8)
    }
}

fn print(json: bool, message: &str, hint: Option<&str>, exit: Exit) {
    if json {
        let error = serde_json::json!({ "error": message, "hint": hint, "exit": exit as u8 });
        return print_json_note(&error);
    }
    // On one line each: what a server reports cannot look like a hint of ours.
    print_labelled("error", message);
    if let Some(hint) = hint {
        print_labelled("hint", hint);
    }
}

/// An error and its causes in one line. A cause that the error already ends with is left out.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

/// The beginning of the reason that `HttpStore` reports if the server rejects the token.
const TOKEN_REFUSED: &str = "the token was refused";

/// What to do about an export or import that failed.
pub(crate) const AGAIN: &str = "finished parts are kept; run the command again";

const TOKEN_HINT: &str = "set REQUEUE_TOKEN to the server's token, or use --token-file FILE";

impl From<CallError> for CliError {
    fn from(error: CallError) -> Self {
        let exit = match &error {
            CallError::Unavailable { .. } => Exit::Unavailable,
            CallError::Unknown { .. } => Exit::Unknown,
            CallError::Problem(problem) => match problem.problem_type() {
                ProblemType::Absent => Exit::NotFound,
                ProblemType::Malformed | ProblemType::Invalid => Exit::Usage,
                ProblemType::Busy | ProblemType::Stopping | ProblemType::Unavailable => {
                    Exit::Unavailable
                }
                ProblemType::Unknown | ProblemType::Bug => Exit::Unknown,
                ProblemType::Unauthorized | ProblemType::Forbidden => {
                    return CliError::from_error(Exit::Failed, &error).hint(TOKEN_HINT);
                }
                _ => Exit::Failed,
            },
            _ => Exit::Failed,
        };
        CliError::from_error(exit, &error)
    }
}

impl From<requeue_http::client::HttpConnectError> for CliError {
    fn from(error: requeue_http::client::HttpConnectError) -> Self {
        CliError::from_error(Exit::Usage, &error)
    }
}

impl From<Invalid> for CliError {
    fn from(error: Invalid) -> Self {
        CliError::from_error(Exit::Usage, &error)
    }
}

impl From<StoreError> for CliError {
    fn from(error: StoreError) -> Self {
        let unknown = "check with `requeue get`; do not undo finished work because of this error";
        match &error {
            StoreError::Invalid(_) => CliError::from_error(Exit::Usage, &error),
            StoreError::Unavailable { reason } if reason.starts_with(TOKEN_REFUSED) => {
                CliError::new(Exit::Failed, reason.clone()).hint(TOKEN_HINT)
            }
            StoreError::Unavailable { .. } => CliError::from_error(Exit::Unavailable, &error),
            StoreError::Unknown { .. } => CliError::from_error(Exit::Unknown, &error).hint(unknown),
            _ => CliError::from_error(Exit::Failed, &error),
        }
    }
}

impl From<PutError> for CliError {
    fn from(error: PutError) -> Self {
        match error {
            PutError::Store(error) => error.into(),
            PutError::Exists { .. } => CliError::from_error(Exit::Failed, &error)
                .hint("without --if-absent or --if-new, the existing job is replaced"),
            _ => CliError::from_error(Exit::Failed, &error),
        }
    }
}

impl From<SettleError> for CliError {
    fn from(error: SettleError) -> Self {
        match error {
            SettleError::Store(error) => error.into(),
            SettleError::LeaseLost { .. } => CliError::from_error(Exit::Failed, &error).hint(
                "the job was already settled, or the lease expired and another worker took over",
            ),
            _ => CliError::from_error(Exit::Failed, &error),
        }
    }
}

impl From<ChangeError> for CliError {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::Store(error) => error.into(),
            ChangeError::Absent { .. } => CliError::from_error(Exit::NotFound, &error),
            ChangeError::NotDead { .. } => CliError::from_error(Exit::Failed, &error)
                .hint("to make a waiting job due now: requeue run-now"),
            ChangeError::Generation { .. } => CliError::from_error(Exit::Failed, &error)
                .hint("it was put or rescheduled meanwhile; look at it again: requeue get"),
            ChangeError::Done { .. } => CliError::from_error(Exit::Failed, &error)
                .hint("to run it again, put it again: requeue put"),
            _ => CliError::from_error(Exit::Failed, &error),
        }
    }
}

impl From<ScheduleError> for CliError {
    fn from(error: ScheduleError) -> Self {
        match error {
            ScheduleError::Store(error) => error.into(),
            ScheduleError::Put(error) => error.into(),
            ScheduleError::Absent { .. } => CliError::from_error(Exit::NotFound, &error),
            ScheduleError::Rule(_) => CliError::from_error(Exit::Failed, &error)
                .hint("set the schedule again: requeue schedule set"),
            _ => CliError::from_error(Exit::Usage, &error),
        }
    }
}

impl From<TransferError> for CliError {
    fn from(error: TransferError) -> Self {
        let exit = match &error {
            TransferError::Store(StoreError::Unavailable { .. }) => Exit::Unavailable,
            TransferError::Store(StoreError::Unknown { .. }) => Exit::Unknown,
            _ => Exit::Failed,
        };
        let failure = CliError::from_error(exit, &error);
        match error {
            TransferError::Store(_) => failure.hint(AGAIN),
            _ => failure,
        }
    }
}

impl From<DiskError> for CliError {
    fn from(error: DiskError) -> Self {
        match &error {
            DiskError::InUse { pid, .. } => {
                let hint = format!(
                    "if it is a server, use --server instead of --data; or stop it: kill {pid}"
                );
                CliError::from_error(Exit::Unavailable, &error).hint(hint)
            }
            DiskError::Corrupt(_) => CliError::from_error(Exit::Failed, &error)
                .hint(format!("to list all damage: requeue verify DIR; then {SALVAGE_HINT}")),
            DiskError::NotEmpty { .. } => CliError::from_error(Exit::Failed, &error)
                .hint("use a directory that does not exist yet"),
            DiskError::Full { .. } => {
                CliError::from_error(Exit::Unavailable, &error).hint("free some space on that disk")
            }
            _ => CliError::from_error(Exit::Failed, &error),
        }
    }
}

impl From<RedisConnectError> for CliError {
    fn from(error: RedisConnectError) -> Self {
        match &error {
            RedisConnectError::Address { .. } | RedisConnectError::Options { .. } => {
                CliError::from_error(Exit::Usage, &error)
            }
            RedisConnectError::Unavailable { .. } => {
                CliError::from_error(Exit::Unavailable, &error)
                    .hint("is Redis running there? To check: redis-cli -u URL ping")
            }
            _ => CliError::from_error(Exit::Failed, &error),
        }
    }
}

impl From<PostgresConnectError> for CliError {
    fn from(error: PostgresConnectError) -> Self {
        let privileges = "create the tables with a role that may do so: requeue postgres migrate; \
                          docs/postgres.md lists the privileges of the others";
        match &error {
            PostgresConnectError::Url { .. } | PostgresConnectError::Options { .. } => {
                CliError::from_error(Exit::Usage, &error)
            }
            PostgresConnectError::Unavailable { .. } => {
                CliError::from_error(Exit::Unavailable, &error)
                    .hint("is Postgres running there? To check: pg_isready -d URL")
            }
            PostgresConnectError::Refused { reason, .. }
                if reason.contains("permission denied") =>
            {
                CliError::from_error(Exit::Failed, &error).hint(privileges)
            }
            _ => CliError::from_error(Exit::Failed, &error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer: inner")]
    struct Repeats(#[source] Inner);

    #[derive(Debug, thiserror::Error)]
    #[error("inner")]
    struct Inner;

    #[test]
    fn a_cause_that_the_error_repeats_is_printed_once() {
        assert_eq!(chain(&Repeats(Inner)), "outer: inner");
    }

    #[test]
    fn the_most_severe_of_several_exit_codes_is_returned() {
        let mut exits = [Exit::Unknown, Exit::NotFound, Exit::Unavailable, Exit::Failed];
        for turn in 0..exits.len() {
            exits.rotate_left(turn);
            let worst = exits.into_iter().reduce(Exit::worse);
            assert_eq!(worst, Some(Exit::Unknown));
        }
        assert_eq!(Exit::NotFound.worse(Exit::Failed), Exit::Failed);
    }

    #[test]
    fn errors_have_the_documented_exit_code() {
        let unavailable = StoreError::Unavailable { reason: "gone".to_owned() };
        let unknown = StoreError::Unknown { reason: "cut".to_owned() };
        for (failure, code) in [
            (CliError::from(unavailable), 4),
            (CliError::from(unknown), 5),
            (CliError::from(Invalid::Empty { field: "the id" }), 2),
        ] {
            assert_eq!(failure.exit as u8, code, "{failure:?}");
            assert!(EXIT_CODES.contains(&format!("  {code}  ")));
        }
    }
}
