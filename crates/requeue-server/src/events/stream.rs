//! Events over HTTP, as server-sent events (`text/event-stream`).

use super::{EventItem, EventListener};
use crate::auth::Caller;
use crate::listen::Shutdown;
use crate::shares::Slot;
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;
use requeue_http::Problem;
use std::convert::Infallible;
use std::time::Duration;

/// After this long without an event a comment is sent, because proxies close idle connections.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

impl EventListener {
    /// Returns the response that streams events until the client disconnects, the server stops, or the
    /// token of the caller is revoked. Holds `slot` meanwhile.
    ///
    /// `event:` is the name of the event, `missed`, or `problem` if the token is revoked; `data:` is the
    /// event or the problem as JSON. There is no
    /// `id:`, because events are not stored: a client that reconnects receives the events from then
    /// on.
    pub(crate) fn stream(self, stop: Shutdown, caller: Caller, slot: Slot) -> Response {
        let events = unfold(Some((self, stop, caller, slot)), async |state| {
            let (mut listener, stop, caller, slot) = state?;
            let item = tokio::select! {
                biased;
                () = stop.requested() => None,
                problem = caller.revoked() => return Some((Ok(problem_event(&problem)), None)),
                item = listener.next() => item,
            }?;
            Some((Ok::<_, Infallible>(sse_event(&item)), Some((listener, stop, caller, slot))))
        });
        let keep_alive = KeepAlive::new().interval(KEEP_ALIVE).text("still here");
        // Without this, nginx would buffer events.
        let unbuffered = [("x-accel-buffering", "no")];
        (unbuffered, Sse::new(events).keep_alive(keep_alive)).into_response()
    }
}

fn problem_event(problem: &Problem) -> SseEvent {
    let event = SseEvent::default().event("problem").json_data(problem);
    event.expect("a problem can be serialized")
}

fn sse_event(item: &EventItem) -> SseEvent {
    let event = match item {
        EventItem::Event(event) => {
            SseEvent::default().event(event.event.as_str()).json_data(&**event)
        }
        EventItem::Missed(missed) => SseEvent::default().event("missed").json_data(missed),
    };
    event.expect("an event can be serialized")
}

#[cfg(test)]
mod tests {
    use crate::InstrumentedStore;
    use crate::auth::{Caller, Right};
    use crate::listen::Shutdown;
    use crate::shares::SharedLimit;
    use http_body_util::BodyExt;
    use requeue::ManualClock;
    use requeue_jobs::{Body, JobId, Kind, MemoryStore, Put, Store, Timestamp, WallClock};
    use std::sync::Arc;

    fn job(id: &str) -> Put {
        let (kind, id) = (Kind::new("mail").unwrap(), JobId::new(id).unwrap());
        Put::new(kind, id, Body::default())
    }

    #[tokio::test]
    async fn events_are_sent_as_they_happen_until_the_server_stops() {
        let start = Timestamp::from_millis(1_700_000_000_000);
        let wall_clock = WallClock::manual(&ManualClock::new(), start);
        let store = MemoryStore::with(wall_clock.clone());
        let store = InstrumentedStore::new(Arc::new(store), wall_clock);
        let stop = Shutdown::new();
        let caller = Caller::of_test();
        let slot = SharedLimit::new("streams", 1, Right::Read).take(&caller, 1).ok().unwrap();
        let listener = store.events().listen(vec![]).unwrap();
        let response = listener.stream(stop.clone(), caller, slot);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let mut body = response.into_body();
        store.put(vec![job("a\n\nb")]).await.unwrap().remove(0).unwrap();
        let sent = body.frame().await.unwrap().unwrap().into_data().unwrap();
        let expected = "event: put\ndata: {\"event\":\"put\",\"kind\":\"mail\",\"id\":\"a\\n\\nb\",\"at\":\"2023-11-14T22:13:20.000Z\",\"generation\":1,\"outcome\":\"created\"}\n\n";
        assert_eq!(std::str::from_utf8(&sent).unwrap(), expected);

        for _ in 0..5 {
            store.put((0..1000).map(|n| job(&n.to_string())).collect()).await.unwrap();
        }
        let sent = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(sent, "event: missed\ndata: {\"count\":904}\n\n");

        stop.request();
        assert!(body.frame().await.is_none(), "the stream ends although events are left");
    }
}
