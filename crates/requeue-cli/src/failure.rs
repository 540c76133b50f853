//! What goes wrong, and with what code the program then ends.

use crate::out::note;
use requeue_disk::DiskError;
use requeue_http::ProblemType;
use requeue_http::client::CallError;
use requeue_jobs::transfer::TransferError;
use requeue_jobs::{ChangeError, Invalid, PutError, SettleError, StoreError};
use requeue_redis::ConnectError;
use std::error::Error;
use std::io;
use std::process::ExitCode;

/// How the program ends, for scripts. The numbers are a promise; [`EXIT_CODES`] tells of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// There is no such job, or nothing to claim.
    Nothing = 3,
    /// It was refused, or failed in a way that another try does not mend.
    Refused = 1,
    /// The command line says what cannot be.
    Usage = 2,
    /// Nothing was done, and later it may be.
    Unavailable = 4,
    /// It may have been done or not.
    Unknown = 5,
}

impl Exit {
    fn severity(self) -> u8 {
        match self {
            Exit::Nothing => 0,
            Exit::Refused => 1,
            Exit::Usage => 2,
            Exit::Unavailable => 3,
            Exit::Unknown => 4,
        }
    }

    /// Where several entries fail, this is answered.
    pub(crate) fn worse(self, other: Exit) -> Exit {
        if other.severity() > self.severity() { other } else { self }
    }
}

/// For `--help` and the manual.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  refused, or failed for good: a condition did not hold, the lease is lost, a file is damaged
  2  the command line says what cannot be
  3  there is no such job, or nothing to claim
  4  not available: nothing was done, try again later
  5  not known whether it was done: look, or do it again where twice equals once";

/// Why the program ends otherwise than well.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    /// What is told. `None`: all was told already.
    told: Option<String>,
    hint: Option<String>,
}

pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    pub(crate) fn new(exit: Exit, told: impl Into<String>) -> Self {
        Failure { exit, told: Some(told.into()), hint: None }
    }

    /// An error and all that caused it.
    pub(crate) fn of(exit: Exit, error: &(dyn Error + 'static)) -> Self {
        Failure::new(exit, chain(error))
    }

    pub(crate) fn usage(told: impl Into<String>) -> Self {
        Failure::new(Exit::Usage, told)
    }

    /// What is wrong was told where it happened.
    pub(crate) fn told_already(exit: Exit) -> Self {
        Failure { exit, told: None, hint: None }
    }

    /// A file could not be read or written.
    pub(crate) fn file(verb: &str, name: &str, error: &io::Error) -> Self {
        Failure::new(Exit::Refused, format!("could not {verb} {name}: {error}"))
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// A hint, where there is no better one.
    pub(crate) fn or_hint(mut self, hint: Option<String>) -> Self {
        self.hint = self.hint.or(hint);
        self
    }

    /// Something else failed, too.
    pub(crate) fn at_least(mut self, exit: Exit) -> Self {
        self.exit = self.exit.worse(exit);
        self
    }

    /// Whether it tells of this.
    pub(crate) fn tells(&self, text: &str) -> bool {
        self.told.as_ref().is_some_and(|told| told.contains(text))
    }

    /// Tells it on stderr, and answers the code to end with.
    pub(crate) fn report(&self, json: bool) -> ExitCode {
        if let Some(told) = &self.told {
            tell(json, told, self.hint.as_deref(), self.exit);
        }
        ExitCode::from(self.exit as u8)
    }

    /// Tells it now, for one of several entries.
    pub(crate) fn tell(self, json: bool) -> Exit {
        self.report(json);
        self.exit
    }
}

fn tell(json: bool, told: &str, hint: Option<&str>, exit: Exit) {
    if json {
        let told = serde_json::json!({ "error": told, "hint": hint, "exit": exit as u8 });
        return note(&told.to_string());
    }
    note(&format!("error: {told}"));
    if let Some(hint) = hint {
        note(&format!("hint: {hint}"));
    }
}

/// An error and what caused it, in one line. What an error repeats of its cause is told once.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let told = cause.to_string();
        if !text.ends_with(&told) {
            text = format!("{text}: {told}");
        }
        source = cause.source();
    }
    text
}

/// How `HttpStore` begins to tell of a token that the server does not take.
const TOKEN_REFUSED: &str = "the token was refused";

const TOKEN_HINT: &str = "put the server's token into REQUEUE_TOKEN, or into a --token-file";

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        let exit = match &error {
            CallError::Unavailable { .. } => Exit::Unavailable,
            CallError::Unknown { .. } => Exit::Unknown,
            CallError::Problem(problem) => match problem.problem_type() {
                ProblemType::Absent => Exit::Nothing,
                ProblemType::Malformed | ProblemType::Invalid => Exit::Usage,
                ProblemType::Busy | ProblemType::Stopping | ProblemType::Unavailable => {
                    Exit::Unavailable
                }
                ProblemType::Unknown | ProblemType::Bug => Exit::Unknown,
                ProblemType::Unauthorized | ProblemType::Forbidden => {
                    return Failure::of(Exit::Refused, &error).hint(TOKEN_HINT);
                }
                _ => Exit::Refused,
            },
            _ => Exit::Refused,
        };
        Failure::of(exit, &error)
    }
}

impl From<requeue_http::client::ConnectError> for Failure {
    fn from(error: requeue_http::client::ConnectError) -> Self {
        Failure::of(Exit::Usage, &error)
    }
}

impl From<Invalid> for Failure {
    fn from(error: Invalid) -> Self {
        Failure::of(Exit::Usage, &error)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let unknown = "look with `requeue get`; never undo finished work because of this";
        match &error {
            StoreError::Invalid(_) => Failure::of(Exit::Usage, &error),
            StoreError::Unavailable { reason } if reason.starts_with(TOKEN_REFUSED) => {
                Failure::new(Exit::Refused, reason.clone()).hint(TOKEN_HINT)
            }
            StoreError::Unavailable { .. } => Failure::of(Exit::Unavailable, &error),
            StoreError::Unknown { .. } => Failure::of(Exit::Unknown, &error).hint(unknown),
            _ => Failure::of(Exit::Refused, &error),
        }
    }
}

impl From<PutError> for Failure {
    fn from(error: PutError) -> Self {
        match error {
            PutError::Store(error) => error.into(),
            PutError::Exists { .. } => Failure::of(Exit::Refused, &error)
                .hint("without --if-absent, what is there is replaced"),
            _ => Failure::of(Exit::Refused, &error),
        }
    }
}

impl From<SettleError> for Failure {
    fn from(error: SettleError) -> Self {
        match error {
            SettleError::Store(error) => error.into(),
            SettleError::LeaseLost { .. } => Failure::of(Exit::Refused, &error)
                .hint("it was settled before, or has expired and another took over"),
            _ => Failure::of(Exit::Refused, &error),
        }
    }
}

impl From<ChangeError> for Failure {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::Store(error) => error.into(),
            ChangeError::Absent { .. } => Failure::of(Exit::Nothing, &error),
            ChangeError::NotDead { .. } => Failure::of(Exit::Refused, &error)
                .hint("to make a job that waits due now: requeue run-now"),
            _ => Failure::of(Exit::Refused, &error),
        }
    }
}

impl From<TransferError> for Failure {
    fn from(error: TransferError) -> Self {
        let exit = match &error {
            TransferError::Store(StoreError::Unavailable { .. }) => Exit::Unavailable,
            TransferError::Store(StoreError::Unknown { .. }) => Exit::Unknown,
            _ => Exit::Refused,
        };
        let failure = Failure::of(exit, &error);
        match error {
            TransferError::Store(_) => failure.hint("what was done stays done; begin again"),
            _ => failure,
        }
    }
}

impl From<DiskError> for Failure {
    fn from(error: DiskError) -> Self {
        match &error {
            DiskError::InUse { pid, .. } => {
                let hint = format!(
                    "ask that process, with --server instead of --data, or end it: kill {pid}"
                );
                Failure::of(Exit::Unavailable, &error).hint(hint)
            }
            DiskError::Corrupt(_) => Failure::of(Exit::Refused, &error)
                .hint("see all that is wrong: requeue verify DIR; then go back to a copy"),
            DiskError::NotEmpty { .. } => {
                Failure::of(Exit::Refused, &error).hint("name a directory that is not there yet")
            }
            DiskError::Newer { .. } => {
                Failure::of(Exit::Refused, &error).hint("use the newer requeue")
            }
            DiskError::Full { .. } => {
                Failure::of(Exit::Unavailable, &error).hint("make space on that disk")
            }
            _ => Failure::of(Exit::Refused, &error),
        }
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        match &error {
            ConnectError::Address { .. } | ConnectError::Options { .. } => {
                Failure::of(Exit::Usage, &error)
            }
            ConnectError::Unavailable { .. } => Failure::of(Exit::Unavailable, &error)
                .hint("is that Redis running? try: redis-cli -u URL ping"),
            _ => Failure::of(Exit::Refused, &error),
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
    fn what_an_error_repeats_of_its_cause_is_told_once() {
        assert_eq!(chain(&Repeats(Inner)), "outer: inner");
    }

    #[test]
    fn of_several_ends_the_worst_is_answered() {
        let mut exits = [Exit::Unknown, Exit::Nothing, Exit::Unavailable, Exit::Refused];
        for turn in 0..exits.len() {
            exits.rotate_left(turn);
            let worst = exits.into_iter().reduce(Exit::worse);
            assert_eq!(worst, Some(Exit::Unknown));
        }
        assert_eq!(Exit::Nothing.worse(Exit::Refused), Exit::Refused);
    }

    #[test]
    fn errors_end_with_the_code_that_is_documented() {
        let unavailable = StoreError::Unavailable { reason: "gone".to_owned() };
        let unknown = StoreError::Unknown { reason: "cut".to_owned() };
        for (failure, code) in [
            (Failure::from(unavailable), 4),
            (Failure::from(unknown), 5),
            (Failure::from(Invalid::Empty { field: "the id" }), 2),
        ] {
            assert_eq!(failure.exit as u8, code, "{failure:?}");
            assert!(EXIT_CODES.contains(&format!("  {code}  ")));
        }
    }
}
