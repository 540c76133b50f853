//! The builder of a reschedule.

use super::Jobs;
use crate::claim::Reschedule;
use crate::error::{ChangeError, Invalid};
use crate::job::Body;
use crate::names::{JobId, Kind};
use crate::priority::Priority;
use crate::put::Placed;
use crate::receipt::Generation;
use crate::time::{Due, Timestamp};
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// A reschedule that [`Jobs::reschedule`] returns: say what changes, then `.await` it. Nothing happens
/// before it is awaited.
///
/// An invalid name or body fails when it is awaited, too, and so does a reschedule that changes
/// nothing.
///
/// ```
/// use requeue_jobs::{Invalid, Jobs, MemoryStore, PutOutcome, StoreError};
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// # requeue_testkit::block_on(async {
/// let jobs = Jobs::new(Arc::new(MemoryStore::new()));
/// let placed = jobs.put("index", "doc-7", "draft").content_type("text/plain").await?;
/// let moved = jobs
///     .reschedule("index", "doc-7")
///     .after(Duration::from_secs(60))
///     .priority(5)
///     .if_generation(placed.generation)
///     .await?;
/// assert_eq!(moved.outcome, PutOutcome::Updated);
/// let nothing = jobs.reschedule("index", "doc-7").await;
/// assert_eq!(nothing.unwrap_err().to_string(), Invalid::NothingToChange.to_string());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[must_use = "await it"]
pub struct RescheduleJob {
    jobs: Jobs,
    change: Result<(Kind, JobId, Reschedule), Invalid>,
}

impl RescheduleJob {
    pub(super) fn new(jobs: &Jobs, kind: &str, id: &str) -> Self {
        let change = || Ok((Kind::new(kind)?, JobId::new(id)?, Reschedule::default()));
        RescheduleJob { jobs: jobs.clone(), change: change() }
    }

    /// Makes the job due this long after the store receives the reschedule.
    pub fn after(self, delay: Duration) -> Self {
        self.due(Due::After(delay))
    }

    /// Makes the job due at this time, or now if it has passed.
    pub fn at(self, time: impl Into<Timestamp>) -> Self {
        self.due(Due::At(time.into()))
    }

    /// Sets the priority, 0 to 9.
    pub fn priority(self, level: u8) -> Self {
        self.with(|set| {
            set.priority = Some(Priority::new(level)?);
            Ok(())
        })
    }

    /// Replaces the body. Its content type is `application/octet-stream`, unless
    /// [`content_type`](Self::content_type) follows.
    pub fn body(self, body: impl AsRef<[u8]>) -> Self {
        self.with(|set| {
            set.body = Some(Body::octets(body.as_ref())?);
            Ok(())
        })
    }

    /// Sets the content type of the new body. Without a new body, it has no effect.
    pub fn content_type(self, content_type: &str) -> Self {
        self.with(|set| {
            set.body = set.body.take().map(|body| body.of_type(content_type)).transpose()?;
            Ok(())
        })
    }

    /// Changes the job only if its newest generation is this one. Otherwise the reschedule fails with
    /// [`ChangeError::Generation`].
    pub fn if_generation(self, generation: Generation) -> Self {
        self.with(|set| {
            set.if_generation = Some(generation);
            Ok(())
        })
    }

    fn due(self, due: Due) -> Self {
        self.with(|set| {
            set.due = Some(due);
            Ok(())
        })
    }

    fn with(mut self, change: impl FnOnce(&mut Reschedule) -> Result<(), Invalid>) -> Self {
        self.change = self.change.and_then(|(kind, id, mut set)| {
            change(&mut set)?;
            Ok((kind, id, set))
        });
        self
    }

    async fn send(self) -> Result<Placed, ChangeError> {
        let (kind, id, set) = self.change?;
        self.jobs.reschedule_as(kind, id, set).await
    }
}

impl IntoFuture for RescheduleJob {
    type Output = Result<Placed, ChangeError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}
