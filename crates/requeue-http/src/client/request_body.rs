//! The body of a request.

use hyper::body::{Body, Bytes, Frame, SizeHint};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// The body of a request.
pub(super) enum RequestBody {
    /// The whole body; `None` if there is none, or if it was sent.
    Whole(Option<Bytes>),
    /// A body that arrives in chunks. `None` marks the end. If the channel closes without it, the
    /// request is aborted, so that the server does not take an incomplete body for a complete one.
    Chunks(mpsc::Receiver<Option<Bytes>>),
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            RequestBody::Whole(bytes) => {
                Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes))))
            }
            RequestBody::Chunks(chunks) => chunks.poll_recv(cx).map(|chunk| match chunk {
                Some(Some(bytes)) => Some(Ok(Frame::data(bytes))),
                Some(None) => None,
                None => Some(Err(io::Error::other("the request body ended too early"))),
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, RequestBody::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            RequestBody::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64)
            }
            RequestBody::Chunks(_) => SizeHint::default(),
        }
    }
}
