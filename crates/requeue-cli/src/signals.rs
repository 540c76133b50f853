//! Signals that stop the program.

use crate::error::{CliError, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM and SIGINT. Once this exists, they no longer end the process by themselves.
pub(crate) struct Signals {
    term: Signal,
    int: Signal,
    /// SIGHUP, for commands that it stops. `None` for the server, which reloads files instead.
    hangup: Option<Signal>,
}

impl Signals {
    pub(crate) fn new() -> Result<Self> {
        let (term, int) = (on(SignalKind::terminate())?, on(SignalKind::interrupt())?);
        Ok(Signals { term, int, hangup: None })
    }

    /// Also listens for SIGHUP, which is sent when the terminal closes.
    pub(crate) fn with_hangup() -> Result<Self> {
        Ok(Signals { hangup: Some(on(SignalKind::hangup())?), ..Signals::new()? })
    }

    /// Waits for the next signal.
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

/// Listens for a signal from now on.
pub(crate) fn on(kind: SignalKind) -> Result<Signal> {
    signal(kind).map_err(|error| CliError::io("listen for", "signals", &error))
}
