//! Signals that tell the program to end.

use crate::failure::{Failure, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM and SIGINT. From when this is made they do not end the process by themselves.
pub(crate) struct Signals {
    term: Signal,
    int: Signal,
    /// Where it means to end, and not to read files again.
    hangup: Option<Signal>,
}

impl Signals {
    pub(crate) fn new() -> Result<Self> {
        let (term, int) = (on(SignalKind::terminate())?, on(SignalKind::interrupt())?);
        Ok(Signals { term, int, hangup: None })
    }

    /// Also SIGHUP: the terminal was closed.
    pub(crate) fn with_hangup() -> Result<Self> {
        Ok(Signals { hangup: Some(on(SignalKind::hangup())?), ..Signals::new()? })
    }

    pub(crate) async fn next(&mut self) {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.int.recv() => {}
            _ = hangup => {}
        }
    }
}

/// A signal that is listened for from now on.
pub(crate) fn on(kind: SignalKind) -> Result<Signal> {
    signal(kind).map_err(|error| Failure::file("listen for", "signals", &error))
}
