//! The builder of a put.

use super::batcher::{Batcher, Call};
use crate::content::Envelope;
use crate::error::{Invalid, PutError};
use crate::job::Body;
use crate::names::{JobId, Kind};
use crate::priority::Priority;
use crate::put::{Condition, Mode, Placed, Put};
use crate::receipt::Generation;
use crate::time::{Due, Timestamp};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

type Puts = Arc<Batcher<Put, Placed, PutError>>;

/// A put that [`Jobs::put`](super::Jobs::put) returns: add options, then `.await` it. Nothing
/// happens before it is awaited.
///
/// An invalid name or body fails when it is awaited, too.
///
/// ```
/// use requeue_jobs::{Jobs, MemoryStore, Mode, PutOutcome};
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// # requeue_testkit::block_on(async {
/// let jobs = Jobs::new(Arc::new(MemoryStore::new()));
/// // Index a document five seconds after its last edit, or a minute after its first.
/// let max_wait = Duration::from_secs(60);
/// let first = jobs
///     .put("index", "doc-7", "draft")
///     .content_type("text/plain")
///     .after(Duration::from_secs(5))
///     .mode(Mode::Debounce { max_wait })
///     .await?;
/// let edited = jobs.put("index", "doc-7", "final").if_generation(first.generation).await?;
/// assert_eq!(edited.outcome, PutOutcome::Updated);
/// # Ok::<(), requeue_jobs::PutError>(())
/// # }).unwrap();
/// ```
#[must_use = "await it"]
pub struct PutJob {
    puts: Puts,
    put: Result<Put, Invalid>,
}

impl PutJob {
    pub(super) fn new(puts: &Puts, kind: &str, id: &str, body: &[u8]) -> Self {
        let put = || Ok(Put::new(Kind::new(kind)?, JobId::new(id)?, Body::octets(body)?));
        PutJob { puts: Arc::clone(puts), put: put() }
    }

    /// Makes the job due this long after the store receives the put. To move a job that exists, and keep its
    /// body, use [`Jobs::reschedule`](crate::Jobs::reschedule).
    pub fn after(self, delay: Duration) -> Self {
        self.with(|put| put.due = Due::After(delay))
    }

    /// Makes the job due at this time, or now if it has passed.
    pub fn at(self, time: impl Into<Timestamp>) -> Self {
        let time = time.into();
        self.with(|put| put.due = Due::At(time))
    }

    /// Sets the priority, 0 to 9: of ready jobs of a kind, those with a higher one are claimed first.
    pub fn priority(mut self, level: u8) -> Self {
        self.put = self.put.and_then(|mut put| {
            put.priority = Priority::new(level)?;
            Ok(put)
        });
        self
    }

    /// Sets how the put changes a job that is already pending. By default, the last write wins.
    pub fn mode(self, mode: Mode) -> Self {
        self.with(|put| put.mode = mode)
    }

    /// Puts the job only if there is no such job, not even a leased or a dead one. Otherwise the
    /// put fails with [`PutError::Exists`].
    pub fn if_absent(self) -> Self {
        self.with(|put| put.condition = Some(Condition::IfAbsent))
    }

    /// Puts the job only if there is no such job, and none that is done and kept either. Otherwise the
    /// put fails with [`PutError::Exists`].
    ///
    /// If the kind [keeps done jobs](crate::Settings::keep_done), such a put can be repeated at any time
    /// and runs its job once.
    pub fn if_new(self) -> Self {
        self.with(|put| put.condition = Some(Condition::IfNew))
    }

    /// Puts the job only if its newest generation is this one. Otherwise the put fails with
    /// [`PutError::Generation`].
    pub fn if_generation(self, generation: Generation) -> Self {
        self.with(|put| put.condition = Some(Condition::IfGeneration(generation)))
    }

    /// Sets the content type of the body (default `application/octet-stream`).
    pub fn content_type(mut self, content_type: &str) -> Self {
        self.put = self.put.and_then(|mut put| {
            put.content.body = put.content.body.of_type(content_type)?;
            Ok(put)
        });
        self
    }

    /// Attaches what a protocol needs to know of the message: bytes with a type. Handlers do not receive it.
    pub fn envelope(self, envelope: Envelope) -> Self {
        self.with(|put| put.content.head.change(|fields| fields.envelope = Some(envelope)))
    }

    /// Returns the put, for stores that can put it in another way. Fails if a name or the body is invalid.
    pub fn into_put(self) -> Result<Put, Invalid> {
        self.put
    }

    fn with(mut self, change: impl FnOnce(&mut Put)) -> Self {
        if let Ok(put) = &mut self.put {
            change(put);
        }
        self
    }

    #[cfg(feature = "serde")]
    pub(super) fn invalid(puts: &Puts, invalid: Invalid) -> Self {
        PutJob { puts: Arc::clone(puts), put: Err(invalid) }
    }
}

impl IntoFuture for PutJob {
    type Output = Result<Placed, PutError>;
    type IntoFuture = PutFuture;

    fn into_future(self) -> PutFuture {
        PutFuture(self.put.map(|put| self.puts.call(put)).map_err(Some))
    }
}

/// The future of a put. The put is sent when the future is first polled.
#[must_use = "await it"]
pub struct PutFuture(Result<Call<Put, Placed, PutError>, Option<Invalid>>);

impl PutFuture {
    pub(super) fn new(puts: &Puts, put: Put) -> Self {
        PutFuture(Ok(puts.call(put)))
    }
}

impl Future for PutFuture {
    type Output = Result<Placed, PutError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Ok(call) => Pin::new(call).poll(cx),
            Err(invalid) => {
                Poll::Ready(Err(invalid.take().expect("polled after completion").into()))
            }
        }
    }
}
