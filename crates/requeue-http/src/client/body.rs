//! What is sent with a request.

use hyper::body::{Body, Bytes, Frame, SizeHint};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// What is sent with a request.
pub(super) enum Sent {
    /// All of it, or nothing more.
    Whole(Option<Bytes>),
    /// Part by part. `None` is the end: where there is none the request is cut, so that no part is
    /// taken for the whole.
    Parts(mpsc::Receiver<Option<Bytes>>),
}

impl Body for Sent {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            Sent::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Sent::Parts(parts) => parts.poll_recv(cx).map(|part| match part {
                Some(Some(bytes)) => Some(Ok(Frame::data(bytes))),
                Some(None) => None,
                None => Some(Err(io::Error::other("there is no more to send, and no end"))),
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Sent::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Sent::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Sent::Parts(_) => SizeHint::default(),
        }
    }
}
