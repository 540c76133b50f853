//! Answers that are written by a thread, piece by piece, as fast as the client reads them.

use axum::body::{Body, Bytes};
use serde::Serialize;
use std::io::{self, Write};
use tokio::sync::mpsc;

/// Pieces that are on their way at a time.
const PIECES: usize = 16;

/// Where a thread writes an answer. Writing blocks where the client is slow.
pub(super) struct BodyWriter(mpsc::Sender<io::Result<Bytes>>);

impl BodyWriter {
    /// And the answer that it is written to.
    pub(super) fn new() -> (Self, Body) {
        let (sender, mut receiver) = mpsc::channel(PIECES);
        let pieces = futures_util::stream::poll_fn(move |context| receiver.poll_recv(context));
        (BodyWriter(sender), Body::from_stream(pieces))
    }

    /// A line of JSON. Where the client is gone, nothing happens.
    pub(super) fn line(&self, line: &impl Serialize) {
        let _ = self.0.blocking_send(Ok(written(line)));
    }

    /// The same, but left out where the client is slow: it is not waited for.
    pub(super) fn maybe_line(&self, line: &impl Serialize) {
        let _ = self.0.try_send(Ok(written(line)));
    }

    /// Cuts the answer, so that the client sees that it is not whole.
    pub(super) fn cut(&self, error: io::Error) {
        let _ = self.0.blocking_send(Err(error));
    }
}

fn written(line: &impl Serialize) -> Bytes {
    let mut text = serde_json::to_vec(line).expect("our own types can be written");
    text.push(b'\n');
    text.into()
}

impl Clone for BodyWriter {
    fn clone(&self) -> Self {
        BodyWriter(self.0.clone())
    }
}

impl Write for BodyWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.0.blocking_send(Ok(Bytes::copy_from_slice(bytes)));
        sent.map_err(|_| io::Error::new(io::ErrorKind::BrokenPipe, "the client is gone"))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
