//! Events over HTTP: `text/event-stream`.

use super::{Listener, Told};
use crate::listen::Shutdown;
use axum::response::sse::{Event as Sent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;
use std::convert::Infallible;
use std::time::Duration;

/// After so long a silence a comment is sent: proxies give up connections that are still.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

impl Listener {
    /// Answers a request with what is told, until the client leaves or the server stops.
    ///
    /// `event:` is the name of the event, or `missed`; `data:` is it in JSON. There is no `id:`,
    /// for nothing is kept that could be sent again: a client that comes back hears what happens
    /// from then on.
    pub fn stream(self, stop: Shutdown) -> Response {
        let events = unfold((self, stop), async |(mut listener, stop)| {
            let told = tokio::select! {
                biased;
                () = stop.ordered() => None,
                told = listener.next() => told,
            }?;
            Some((Ok::<_, Infallible>(sent(&told)), (listener, stop)))
        });
        let keep_alive = KeepAlive::new().interval(KEEP_ALIVE).text("still here");
        // nginx would keep events back until it has many.
        let unbuffered = [("x-accel-buffering", "no")];
        (unbuffered, Sse::new(events).keep_alive(keep_alive)).into_response()
    }
}

fn sent(told: &Told) -> Sent {
    let written = match told {
        Told::Event(event) => Sent::default().event(event.event.as_str()).json_data(&**event),
        Told::Missed(missed) => Sent::default().event("missed").json_data(missed),
    };
    written.expect("texts, numbers and times can be written as JSON")
}
