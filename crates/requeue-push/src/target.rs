//! [`Target`]: where jobs are delivered to.

use crate::encode::{header_text, id_part};
use requeue_http::times::show_time;
use requeue_jobs::{Body, ClaimedJob};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// A place that jobs are delivered to: a [`Webhook`](crate::Webhook), or for example a message broker.
///
/// A [`Pusher`](crate::Pusher) claims jobs, calls [`deliver`](Self::deliver) for each, and settles it by the
/// outcome. It drops the future after the timeout of the [`PushTarget`](crate::PushTarget) and a second
/// more, and when it is shut down.
///
/// ```
/// use requeue_push::{Delivery, DeliveryFuture, DeliveryOutcome, Target};
///
/// struct Log;
///
/// impl Target for Log {
///     fn name(&self) -> String {
///         "log".to_owned()
///     }
///
///     fn deliver<'a>(&'a self, delivery: &'a Delivery) -> DeliveryFuture<'a> {
///         println!("{}", delivery.job.id());
///         Box::pin(async { DeliveryOutcome::Done { result: None } })
///     }
/// }
/// ```
pub trait Target: Send + Sync + 'static {
    /// Returns the name of what is overloaded or unreachable if a delivery fails: for HTTP the origin, such
    /// as `https://example.com:443`. Targets with the same name are slowed down together.
    fn name(&self) -> String;

    /// Whether jobs that are claimed together are delivered in their order: the future of each is polled before
    /// the next one is made. For targets that pass a job on when their future is first polled, such as
    /// message brokers. Default: `false`, which distributes deliveries over the threads of the runtime.
    fn keeps_order(&self) -> bool {
        false
    }

    /// Delivers a job. A delivery that fails may have reached the target: it receives a job at least once.
    fn deliver<'a>(&'a self, delivery: &'a Delivery) -> DeliveryFuture<'a>;
}

/// The future that [`Target::deliver`] returns.
pub type DeliveryFuture<'a> = Pin<Box<dyn Future<Output = DeliveryOutcome> + Send + 'a>>;

/// One attempt to deliver a job: the argument of [`Target::deliver`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Delivery {
    /// The job, as it was claimed.
    pub job: ClaimedJob,
    /// Why the previous attempt failed. `None` if there was none, or if the store did not return it.
    pub previous_failure: Option<Arc<str>>,
}

impl Delivery {
    /// Returns the first attempt to deliver a job.
    pub fn new(job: ClaimedJob) -> Self {
        Delivery { job, previous_failure: None }
    }

    /// Returns what identifies the job over all attempts to deliver it: kind, id and generation, such as
    /// `order%2Eclose/order-7/3`. Receivers recognize duplicates by it.
    ///
    /// It contains no full stop, which Standard Webhooks requires of ids that users choose.
    pub fn message_id(&self) -> String {
        let (kind, id) = (id_part(self.job.kind().as_str()), id_part(self.job.id().as_str()));
        format!("{kind}/{id}/{}", self.job.version.generation)
    }

    /// Returns the headers that describe the job to every target. Their values are visible ASCII.
    pub fn headers(&self) -> [(&'static str, String); 5] {
        let job = &self.job;
        [
            ("requeue-kind", job.kind().to_string()),
            ("requeue-id", header_text(job.id().as_str())),
            ("requeue-attempt", job.attempt.to_string()),
            ("requeue-due", show_time(job.version.due)),
            ("requeue-fence", job.receipt.fence().0.to_string()),
        ]
    }
}

/// How an attempt to deliver a job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeliveryOutcome {
    /// The target accepted the job: it is acked.
    Done {
        /// The result, of at most [`MAX_ACK_RESULT_LEN`](requeue_jobs::limits::MAX_ACK_RESULT_LEN) bytes. It
        /// is kept if the kind keeps done jobs.
        result: Option<Body>,
    },
    /// The target did not accept the job: the attempt failed, and the job is tried again.
    Retry {
        /// Why, for people.
        error: String,
        /// When to try again. `None` uses the backoff of the kind.
        after: Option<Duration>,
    },
    /// The target is overloaded: the job is tried again, and the target gets fewer requests.
    SlowDown {
        /// Why, for people.
        error: String,
        /// How long the target gets no requests at all. `None` uses a second, and the backoff of the kind
        /// for the job.
        after: Option<Duration>,
    },
    /// The target could not be reached or did not respond in time: the job is tried again, and after
    /// several such outcomes in a row the target gets no requests for a while.
    Unreachable {
        /// Why, for people.
        error: String,
    },
    /// As [`Unreachable`](Self::Unreachable), but no attempt is counted: the job returns to its position.
    /// For targets whose outages say nothing about the job, such as message brokers.
    Unavailable {
        /// Why, for people.
        error: String,
    },
    /// As [`SlowDown`](Self::SlowDown) without a time, but no attempt is counted: the job returns to its
    /// position.
    Overloaded {
        /// Why, for people.
        error: String,
    },
    /// The target never accepts the job: it becomes dead.
    Bury {
        /// Why, for people.
        error: String,
    },
}
