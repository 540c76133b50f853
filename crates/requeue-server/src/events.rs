//! What happens, as it happens, for who wants to watch.
//!
//! - Events are of what **this node** was asked to do and the store has answered. What other nodes
//!   do is not told, nor what a store does by itself: that a job falls due, or a lease expires.
//! - Nothing is kept. Who listens hears what happens from then on, and who is too slow is told how
//!   many events were missed, and hears those that follow. It is for watching, not for working:
//!   whoever must not miss anything asks the store.
//! - While nobody listens, nothing is built.

mod stream;

use crate::metrics::{Counted, Metrics};
use requeue_http::times::show_time;
use requeue_jobs::{JobId, Kind, Timestamp, WorkerName};
use serde::{Serialize, Serializer};
use std::fmt;
use std::sync::Arc;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast};
use utoipa::ToSchema;

/// Events that wait for a slow listener: some batches of the largest size. Then they are missed.
pub(crate) const MAX_WAITING: usize = 4096;

/// Listeners at once: each is a connection, and everything is told to each.
pub(crate) const MAX_LISTENERS: usize = 100;

/// What happens, for who wants to watch.
///
/// ```
/// use requeue_jobs::{WallClock, Jobs, Kind, MemoryStore};
/// use requeue_server::{EventName, InstrumentedStore, Told};
/// use std::sync::Arc;
///
/// # requeue_testkit::block_on(async {
/// let store = Arc::new(InstrumentedStore::new(Arc::new(MemoryStore::new()), WallClock::system()));
/// let mut listener = store.events().listen(vec![Kind::new("order.close")?])?;
/// let jobs = Jobs::new(store);
/// jobs.put("order.remind", "order-42", "unpaid").await?;
/// jobs.put("order.close", "order-42", "unpaid").await?;
/// let Some(Told::Event(event)) = listener.next().await else { panic!("nothing was told") };
/// assert_eq!((event.event, event.kind.as_str()), (EventName::Put, "order.close"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
pub struct Events {
    sender: broadcast::Sender<Arc<Event>>,
    places: Arc<Semaphore>,
    metrics: Arc<Metrics>,
}

impl Events {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Self {
        let (sender, _) = broadcast::channel(MAX_WAITING);
        Events { sender, places: Arc::new(Semaphore::new(MAX_LISTENERS)), metrics }
    }

    /// Listens, from now on, to what happens to these kinds. To all, if there are none.
    pub fn listen(&self, kinds: Vec<Kind>) -> Result<Listener, TooManyListeners> {
        let place = self.places.clone().try_acquire_owned().map_err(|_| TooManyListeners)?;
        let receiver = self.sender.subscribe();
        Ok(Listener { receiver, kinds, _place: place, _counted: self.metrics.listener() })
    }

    /// Something happened. It is built only where somebody listens.
    pub(crate) fn tell(&self, event: impl FnOnce() -> Event) {
        if self.sender.receiver_count() > 0 {
            // Whoever listened may have left in between.
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

/// There is no room for another: try again later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{MAX_LISTENERS} clients listen to events already, and that is the limit")]
pub struct TooManyListeners;

/// Somebody who listens.
#[derive(Debug)]
pub struct Listener {
    receiver: broadcast::Receiver<Arc<Event>>,
    kinds: Vec<Kind>,
    _place: OwnedSemaphorePermit,
    _counted: Counted,
}

impl Listener {
    /// Waits for what happens next. `None`: nothing will. Nothing is lost if it is dropped.
    pub async fn next(&mut self) -> Option<Told> {
        loop {
            match self.receiver.recv().await {
                Ok(event) if self.kinds.is_empty() || self.kinds.contains(&event.kind) => {
                    return Some(Told::Event(event));
                }
                Ok(_) => {}
                Err(RecvError::Lagged(count)) => return Some(Told::Missed(Missed { count })),
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

/// What a listener is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// Something happened.
    Event(Arc<Event>),
    /// Too much happened.
    Missed(Missed),
}

/// Events that a listener was too slow to hear.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub struct Missed {
    /// How many, of any kind.
    pub count: u64,
}

/// What happened to a job, or to a kind. What is not known, or has no meaning, is left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Event {
    /// What happened.
    pub event: EventName,
    /// To which kind.
    #[serde(serialize_with = "text")]
    #[schema(value_type = String)]
    pub kind: Kind,
    /// To which job, or schedule.
    #[serde(serialize_with = "maybe_text", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub id: Option<JobId>,
    /// When: of a claim that said for how long, by the store's clock; otherwise by this node's.
    #[serde(serialize_with = "time")]
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// Of which put the job is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// Which attempt it is, or was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Who has, or had, the lease. Of a lease that another node gave out it is not known.
    #[serde(serialize_with = "maybe_text", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub worker: Option<WorkerName>,
    /// What it did: of a put, a cancel, and whatever else can do different things.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub outcome: Option<&'static str>,
    /// When the lease ends; of what was retried, when it is due again.
    #[serde(serialize_with = "maybe_time", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub until: Option<Timestamp>,
    /// Whether the kind is paused, where its settings were set.
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

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventName {
    /// A job was put: `outcome` is created, updated, kept, coalesced or revived. Also by a
    /// schedule.
    Put,
    /// A job was leased.
    Claimed,
    /// It was done.
    Acked,
    /// It was done, and is to be done again.
    Requeued,
    /// It failed, and comes back.
    Retried,
    /// It failed for the last time.
    Dead,
    /// It was given back.
    Released,
    /// It takes longer.
    Extended,
    /// It was cancelled: `outcome` is removed or ending. Without one: its lease ended, and with
    /// it the job.
    Cancelled,
    /// It was made due: `outcome` is ready or revived.
    RunNow,
    /// It was dead, and starts again.
    Revived,
    /// It was imported: `outcome` is created, kept or ended.
    Restored,
    /// The settings of a kind were set.
    Settings,
    /// A schedule: `outcome` is set or removed.
    Schedule,
}

impl EventName {
    /// As it is written.
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
    fn a_name_is_the_same_wherever_it_is_written() {
        for name in [
            Put, Claimed, Acked, Requeued, Retried, Dead, Released, Extended, Cancelled, RunNow,
            Revived, Restored, Settings, Schedule,
        ] {
            let written = serde_json::to_value(name).expect("a name can be written");
            assert_eq!(written, name.as_str());
        }
    }
}
