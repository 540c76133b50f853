//! JSON bodies.

use super::{Jobs, PutJob};
use crate::claim::ClaimedJob;
use crate::error::Invalid;
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
        serde_json::from_slice(self.body.bytes()).map_err(|error| not_json(&error))
    }
}

fn not_json(error: &serde_json::Error) -> Invalid {
    Invalid::NotJson { reason: error.to_string() }
}
