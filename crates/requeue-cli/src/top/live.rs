//! The events of a server, for the panel. The stream is open while the panel is shown, because a server allows a
//! limited number of streams.

use crate::error::{CliError, Exit};
use crate::events::{is_temporary, missed_line, short_line};
use crate::output::escape;
use requeue_http::HttpStore;
use requeue_http::client::StreamedEvent;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// The delay before a broken stream is opened again.
const REOPEN_DELAY: Duration = Duration::from_secs(2);

/// A task that sends lines while it exists.
pub(super) struct LiveEvents(JoinHandle<()>);

impl LiveEvents {
    pub(super) fn start(server: HttpStore, to: mpsc::Sender<String>) -> Self {
        LiveEvents(tokio::spawn(forward_all(server, to)))
    }
}

impl Drop for LiveEvents {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Sends events, and opens the stream again when it breaks. Each error is sent once, however often it occurs.
async fn forward_all(server: HttpStore, to: mpsc::Sender<String>) {
    let mut last_note = String::new();
    while let Some(error) = forward(&server, &to, &mut last_note).await {
        let is_final = !is_temporary(&error);
        let again = if is_final { "" } else { "; trying again" };
        let note = format!("error: {}{again}", escape(error.text()));
        if note != last_note && to.send(note.clone()).await.is_err() || is_final {
            return;
        }
        last_note = note;
        tokio::time::sleep(REOPEN_DELAY).await;
    }
}

/// Sends events until the stream breaks. Returns `None` if nobody receives them any more.
async fn forward(
    server: &HttpStore,
    to: &mpsc::Sender<String>,
    last_note: &mut String,
) -> Option<CliError> {
    let mut stream = match server.events(&[]).await {
        Ok(stream) => stream,
        Err(error) => return Some(error.into()),
    };
    last_note.clear();
    loop {
        let line = match stream.next().await {
            Ok(Some(StreamedEvent::Event(event))) => short_line(&event),
            Ok(Some(StreamedEvent::Missed { count })) => missed_line(count),
            Ok(Some(_)) => continue,
            Ok(None) => {
                let text = "the server has ended the stream";
                return Some(CliError::new(Exit::Unavailable, text));
            }
            Err(error) => return Some(error.into()),
        };
        to.send(line).await.ok()?;
    }
}
