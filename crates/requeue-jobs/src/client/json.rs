//! JSON bodies.

use super::{Jobs, PutJob};
use crate::claim::ClaimedJob;
use crate::error::Invalid;
use crate::job::{Body, DoneView};
use crate::worker::JobOutcome;
use serde::Serialize;
use serde::de::DeserializeOwned;

const CONTENT_TYPE: &str = "application/json";

impl Jobs {
    /// Puts a job whose body is `value` as JSON. Requires the feature `serde`.
    ///
    /// Fails with [`Invalid::NotJson`] if `value` cannot be serialized.
    ///
    /// ```
    /// use requeue_jobs::{Jobs, MemoryStore};
    /// use std::sync::Arc;
    ///
    /// #[derive(serde::Serialize, serde::Deserialize)]
    /// struct Order {
    ///     number: u32,
    /// }
    ///
    /// # requeue_testkit::block_on(async {
    /// let jobs = Jobs::new(Arc::new(MemoryStore::new()));
    /// jobs.put_json("order.close", "order-42", &Order { number: 42 }).await?;
    /// let claimed = jobs.claim(["order.close"], "worker-1").await?;
    /// assert_eq!(claimed.jobs[0].json::<Order>()?.number, 42);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub fn put_json(&self, kind: &str, id: &str, value: &(impl Serialize + ?Sized)) -> PutJob {
        match serde_json::to_vec(value) {
            Ok(body) => self.put(kind, id, body).content_type(CONTENT_TYPE),
            Err(error) => PutJob::invalid(&self.shared.puts, not_json(&error)),
        }
    }
}

impl ClaimedJob {
    /// Returns the body, parsed as JSON. Requires the feature `serde`. Fails with
    /// [`Invalid::NotJson`] if the body is not JSON of this type.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Invalid> {
        serde_json::from_slice(self.body().bytes()).map_err(|error| not_json(&error))
    }
}

impl JobOutcome {
    /// Returns [`JobOutcome::DoneWith`] with `value` as JSON. Requires the feature `serde`. Fails with
    /// [`Invalid::NotJson`] if `value` cannot be serialized.
    ///
    /// ```
    /// use requeue_jobs::{BoxError, JobOutcome, JobRun};
    ///
    /// #[derive(serde::Serialize)]
    /// struct Sent {
    ///     parts: u32,
    /// }
    ///
    /// async fn remind(_run: JobRun) -> Result<JobOutcome, BoxError> {
    ///     Ok(JobOutcome::done_with_json(&Sent { parts: 2 })?)
    /// }
    /// # let outcome = JobOutcome::done_with_json(&Sent { parts: 2 })?;
    /// # let JobOutcome::DoneWith(result) = outcome else { panic!("{outcome:?}") };
    /// # assert_eq!(result.bytes(), br#"{"parts":2}"#);
    /// # Ok::<(), BoxError>(())
    /// ```
    pub fn done_with_json(value: &(impl Serialize + ?Sized)) -> Result<Self, Invalid> {
        let json = serde_json::to_vec(value).map_err(|error| not_json(&error))?;
        Ok(JobOutcome::DoneWith(Body::new(json, CONTENT_TYPE)?))
    }
}

impl DoneView {
    /// Returns the result, parsed as JSON, or `None` if there is none. Requires the feature `serde`.
    /// Fails with [`Invalid::NotJson`] if the result is not JSON of this type.
    pub fn result_json<T: DeserializeOwned>(&self) -> Result<Option<T>, Invalid> {
        let parse = |result: &Body| serde_json::from_slice(result.bytes());
        self.result.as_ref().map(parse).transpose().map_err(|error| not_json(&error))
    }
}

fn not_json(error: &serde_json::Error) -> Invalid {
    Invalid::NotJson { reason: error.to_string() }
}
