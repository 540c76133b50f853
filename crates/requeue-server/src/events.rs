//! A live stream of events, for monitoring and debugging.
//!
//! - Events report operations that went through **this node** and that the store has completed.
//!   There are no events for what other nodes do, for jobs that become due, and for leases that
//!   expire.
//! - Events are not stored. A listener receives the events from now on. A listener that is too slow
//!   is notified how many events it missed, and receives the events after that. Programs that must
//!   not miss anything have to query the store instead.
//! - Without listeners, events are not built.

mod stream;

use crate::metrics::{GaugeGuard, ServerMetrics};
use requeue_http::times::show_time;
use requeue_jobs::{JobId, Kind, Timestamp, WorkerName};
use serde::{Serialize, Serializer};
use std::fmt;
use std::sync::Arc;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast};
use utoipa::ToSchema;

/// Number of events buffered for a slow listener, a few batches of the largest size. Older ones are
/// missed.
pub(crate) const BUFFER: usize = 4096;

/// Maximum number of listeners: each holds a connection and receives every event.
pub(crate) const MAX_LISTENERS: usize = 100;

/// The source of events of this node.
///
/// ```
/// use requeue_jobs::{WallClock, Jobs, Kind, MemoryStore};
/// use requeue_server::{EventName, InstrumentedStore, EventItem};
/// use std::sync::Arc;
///
/// # requeue_testkit::block_on(async {
/// let store = Arc::new(InstrumentedStore::new(Arc::new(MemoryStore::new()), WallClock::system()));
/// let mut listener = store.events().listen(vec![Kind::new("order.close")?])?;
/// let jobs = Jobs::new(store);
/// jobs.put("order.remind", "order-42", "unpaid").await?;
/// jobs.put("order.close", "order-42", "unpaid").await?;
/// let Some(EventItem::Event(event)) = listener.next().await else { panic!("no event was received") };
/// assert_eq!((event.event, event.kind.as_str()), (EventName::Put, "order.close"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
pub struct Events {
    sender: broadcast::Sender<Arc<Event>>,
    slots: Arc<Semaphore>,
    metrics: Arc<ServerMetrics>,
}

impl Events {
    pub(crate) fn new(metrics: Arc<ServerMetrics>) -> Self {
        let (sender, _) = broadcast::channel(BUFFER);
        Events { sender, slots: Arc::new(Semaphore::new(MAX_LISTENERS)), metrics }
    }

    /// Listens to the events of these kinds from now on; of all kinds if `kinds` is empty. Fails if
    /// there are too many listeners.
    pub fn listen(&self, kinds: Vec<Kind>) -> Result<EventListener, TooManyListeners> {
        let slot = self.slots.clone().try_acquire_owned().map_err(|_| TooManyListeners)?;
        let receiver = self.sender.subscribe();
        Ok(EventListener { receiver, kinds, _slot: slot, _counted: self.metrics.listener() })
    }

    /// Sends an event to all listeners. Without listeners, `event` is not called.
    pub(crate) fn send(&self, event: impl FnOnce() -> Event) {
        if self.sender.receiver_count() > 0 {
            // The last listener may be gone by now.
            let _ = self.sender.send(Arc::new(event()));
        }
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let listeners = self.sender.receiver_count();
        f.debug_struct("Events").field("listeners", &listeners).finish_non_exhaustive()
    }
}

/// The maximum number of listeners is reached. Try again later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{MAX_LISTENERS} clients already listen to events, which is the limit; try again later")]
pub struct TooManyListeners;

/// A listener to events. Created by [`Events::listen`].
#[derive(Debug)]
pub struct EventListener {
    receiver: broadcast::Receiver<Arc<Event>>,
    kinds: Vec<Kind>,
    _slot: OwnedSemaphorePermit,
    _counted: GaugeGuard,
}

impl EventListener {
    /// Waits for the next event. Returns `None` when no more events can come, because the store was
    /// dropped. If this future is dropped, no event is lost.
    pub async fn next(&mut self) -> Option<EventItem> {
        loop {
            match self.receiver.recv().await {
                Ok(event) if self.kinds.is_empty() || self.kinds.contains(&event.kind) => {
                    return Some(EventItem::Event(event));
                }
                Ok(_) => {}
                Err(RecvError::Lagged(count)) => {
                    return Some(EventItem::Missed(MissedEvents { count }));
                }
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

/// What a listener receives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventItem {
    /// An event.
    Event(Arc<Event>),
    /// The listener was too slow and missed events.
    Missed(MissedEvents),
}

/// Reports that a listener was too slow and missed events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub struct MissedEvents {
    /// The number of missed events, of all kinds.
    pub count: u64,
}

/// Something that happened to a job or a kind. Fields that are unknown or do not apply are omitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Event {
    /// The type of the event.
    pub event: EventName,
    /// The kind.
    #[serde(serialize_with = "text")]
    #[schema(value_type = String)]
    pub kind: Kind,
    /// The id of the job or schedule.
    #[serde(serialize_with = "maybe_text", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub id: Option<JobId>,
    /// When it happened: by the store's clock for a claim that specified its lease, otherwise by
    /// this node's clock.
    #[serde(serialize_with = "time")]
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// The generation of the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// The number of the attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The worker that holds or held the lease. Unknown if the job was claimed through another
    /// node.
    #[serde(serialize_with = "maybe_text", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub worker: Option<WorkerName>,
    /// The outcome, for events that have several: see [`EventName`].
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub outcome: Option<&'static str>,
    /// When the lease ends; for `retried`, when the job is due again.
    #[serde(serialize_with = "maybe_time", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub until: Option<Timestamp>,
    /// Whether the kind is paused. Only for `settings`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
}

impl Event {
    pub(crate) fn new(event: EventName, kind: Kind, id: Option<JobId>, at: Timestamp) -> Self {
        Event {
            event,
            kind,
            id,
            at,
            generation: None,
            attempt: None,
            worker: None,
            outcome: None,
            until: None,
            paused: None,
        }
    }
}

/// The type of an [`Event`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventName {
    /// A client or a schedule put a job. `outcome` is created, updated, kept, coalesced or revived.
    Put,
    /// A worker claimed a job.
    Claimed,
    /// A worker acked a job.
    Acked,
    /// A worker requeued a job.
    Requeued,
    /// An attempt failed, and the job will be retried.
    Retried,
    /// The job is dead: its last attempt failed, or it was buried.
    Dead,
    /// A worker released a job.
    Released,
    /// A worker extended its lease.
    Extended,
    /// A job was cancelled: `outcome` is removed or ending. Without `outcome`: the lease of a
    /// cancelled job ended, and the job is removed.
    Cancelled,
    /// A job was made due now: `outcome` is ready or revived.
    RunNow,
    /// A dead job was revived.
    Revived,
    /// The due time, the priority or the body of a job was changed: `outcome` is updated, coalesced or
    /// revived.
    Rescheduled,
    /// A job was imported: `outcome` is created, kept or ended.
    Restored,
    /// The settings of a kind were changed.
    Settings,
    /// A schedule was changed: `outcome` is set or removed.
    Schedule,
}

impl EventName {
    /// Returns the name, as used in JSON and in the `event:` field of the stream.
    pub fn as_str(self) -> &'static str {
        match self {
            EventName::Put => "put",
            EventName::Claimed => "claimed",
            EventName::Acked => "acked",
            EventName::Requeued => "requeued",
            EventName::Retried => "retried",
            EventName::Dead => "dead",
            EventName::Released => "released",
            EventName::Extended => "extended",
            EventName::Cancelled => "cancelled",
            EventName::RunNow => "run_now",
            EventName::Revived => "revived",
            EventName::Rescheduled => "rescheduled",
            EventName::Restored => "restored",
            EventName::Settings => "settings",
            EventName::Schedule => "schedule",
        }
    }
}

pub(crate) fn text<S: Serializer>(text: &impl fmt::Display, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(text)
}

fn maybe_text<S: Serializer>(text: &Option<impl fmt::Display>, to: S) -> Result<S::Ok, S::Error> {
    match text {
        Some(text) => to.collect_str(text),
        None => to.serialize_none(),
    }
}

pub(crate) fn time<S: Serializer>(time: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&show_time(*time))
}

fn maybe_time<S: Serializer>(time: &Option<Timestamp>, to: S) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => to.serialize_str(&show_time(*time)),
        None => to.serialize_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use EventName::*;

    #[test]
    fn as_str_equals_the_serialized_name() {
        for name in [
            Put,
            Claimed,
            Acked,
            Requeued,
            Retried,
            Dead,
            Released,
            Extended,
            Cancelled,
            RunNow,
            Revived,
            Rescheduled,
            Restored,
            Settings,
            Schedule,
        ] {
            let written = serde_json::to_value(name).expect("a name can be serialized");
            assert_eq!(written, name.as_str());
        }
    }
}
