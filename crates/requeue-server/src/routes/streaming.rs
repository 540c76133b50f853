//! Response bodies that a blocking thread writes, with backpressure from the client.

use axum::body::{Body, Bytes};
use serde::Serialize;
use std::io::{self, Write};
use tokio::sync::mpsc;

/// Maximum number of pieces in flight.
const PIECES: usize = 16;

/// Maximum size of a piece in bytes. A line with a large job would otherwise be one piece.
const MAX_PIECE: usize = 64 << 10;

/// Writes a response body from a blocking thread. Writes block while the client is slow.
pub(super) struct BodyWriter(mpsc::Sender<io::Result<Bytes>>);

impl BodyWriter {
    /// Returns a writer and the body that it writes to.
    pub(super) fn new() -> (Self, Body) {
        let (sender, mut receiver) = mpsc::channel(PIECES);
        let pieces = futures_util::stream::poll_fn(move |context| receiver.poll_recv(context));
        (BodyWriter(sender), Body::from_stream(pieces))
    }

    /// Writes a line of JSON. Does nothing if the client is gone.
    pub(super) fn line(&self, line: &impl Serialize) {
        let _ = self.0.blocking_send(Ok(json_line(line)));
    }

    /// Writes a line of JSON, or skips it if the client is slow.
    pub(super) fn maybe_line(&self, line: &impl Serialize) {
        let _ = self.0.try_send(Ok(json_line(line)));
    }

    /// Aborts the response, so that the client notices that it is incomplete.
    pub(super) fn cut(&self, error: io::Error) {
        let _ = self.0.blocking_send(Err(error));
    }
}

fn json_line(line: &impl Serialize) -> Bytes {
    let mut text = serde_json::to_vec(line).expect("our own types can be serialized");
    text.push(b'\n');
    text.into()
}

impl Clone for BodyWriter {
    fn clone(&self) -> Self {
        BodyWriter(self.0.clone())
    }
}

/// A writer of a response body that fails if the check before a write does.
pub(super) struct CheckedWriter<C>(pub(super) BodyWriter, pub(super) C);

impl<C: Fn() -> io::Result<()>> Write for CheckedWriter<C> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (self.1)()?;
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Write for BodyWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = &bytes[..bytes.len().min(MAX_PIECE)];
        let sent = self.0.blocking_send(Ok(Bytes::copy_from_slice(piece)));
        sent.map_err(|_| io::Error::new(io::ErrorKind::BrokenPipe, "the client is gone"))?;
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
