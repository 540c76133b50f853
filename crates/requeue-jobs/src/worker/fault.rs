//! Why an attempt failed.

use crate::job::kept_error;
use crate::panics::guarded;
use requeue::worker::{BoxError, Cause, RunEnd, RunResult};
use std::fmt::Write;

/// Why an attempt failed.
pub(super) enum Fault {
    Error(BoxError),
    TimedOut,
    Panicked(String),
    RetryRequested,
    GaveUp(String),
}

impl Fault {
    pub(super) fn cause(&self) -> Cause<'_> {
        match self {
            Fault::Error(error) => Cause::Error(&**error),
            Fault::TimedOut => Cause::TimedOut,
            Fault::Panicked(message) => Cause::Panicked(message),
            Fault::RetryRequested => Cause::RetryRequested,
            Fault::GaveUp(reason) => Cause::GaveUp(reason),
        }
    }

    /// Returns the error for the job's record: the cause and its sources, truncated.
    pub(super) fn text(&self) -> String {
        guarded(|| self.format())
            .unwrap_or_else(|message| format!("formatting the error panicked: {message}"))
    }

    fn format(&self) -> String {
        let mut text = self.cause().to_string();
        if let Fault::Error(error) = self {
            let mut source = error.source();
            while let Some(error) = source {
                // Writing to a string does not fail.
                let _ = write!(text, ": {error}");
                source = error.source();
            }
        }
        kept_error(&text).to_string()
    }

    /// Returns what metrics count: `died` is whether the job is dead now.
    pub(super) fn run_end(&self, died: bool) -> RunEnd {
        let mut end = RunEnd::of(match self {
            Fault::RetryRequested if !died => RunResult::Requeue,
            _ => RunResult::Error,
        });
        end.panicked = matches!(self, Fault::Panicked(_));
        end.timed_out = matches!(self, Fault::TimedOut);
        end.given_up = died;
        end
    }
}
