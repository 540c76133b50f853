//! [`Task`]: jobs with a type.

use crate::client::{Jobs, PutJob};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The type of the jobs of one kind: what their bodies contain, and which id they have. Requires the
/// feature `serde`.
///
/// [`Jobs::put_task`] puts a task, and a [`Router`](crate::Router) calls a handler with it. The body is
/// JSON, so programs in other languages can put and process the same jobs.
///
/// Use [`KIND`](Self::KIND) with the other methods of [`Jobs`]:
///
/// ```
/// use requeue_jobs::{Jobs, MemoryStore, Task};
/// use serde::{Deserialize, Serialize};
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// #[derive(Serialize, Deserialize)]
/// struct Remind {
///     order: u64,
///     amount: String,
/// }
///
/// impl Task for Remind {
///     const KIND: &'static str = "order.remind";
///
///     fn id(&self) -> String {
///         format!("order-{}", self.order)
///     }
/// }
///
/// # requeue_testkit::block_on(async {
/// let jobs = Jobs::new(Arc::new(MemoryStore::new()));
/// let remind = Remind { order: 7, amount: "20 €".to_owned() };
/// jobs.put_task(&remind).after(Duration::from_secs(300)).await?;
/// assert!(jobs.get(Remind::KIND, "order-7").await?.is_some());
/// jobs.cancel(Remind::KIND, &remind.id()).await?; // the customer has paid
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
pub trait Task: Serialize + DeserializeOwned {
    /// The kind of the jobs. See [`Kind`](crate::Kind) for which names are valid.
    const KIND: &'static str;

    /// Returns the id of the job. There is at most one job per kind and id: putting a task with the
    /// same id again changes the job.
    fn id(&self) -> String;
}

impl Jobs {
    /// Puts a job of the task's kind and id, whose body is the task as JSON. Returns a [`PutJob`], to
    /// add options and to `.await` it, as [`put`](Self::put) does. Requires the feature `serde`.
    ///
    /// Fails with [`Invalid`](crate::Invalid) if the task cannot be serialized, or if its kind or id is
    /// invalid.
    ///
    /// ```
    /// use requeue_jobs::{Jobs, MemoryStore, Task};
    /// use std::sync::Arc;
    ///
    /// #[derive(serde::Serialize, serde::Deserialize)]
    /// struct Close {
    ///     order: u64,
    /// }
    ///
    /// impl Task for Close {
    ///     const KIND: &'static str = "order.close";
    ///
    ///     fn id(&self) -> String {
    ///         format!("order-{}", self.order)
    ///     }
    /// }
    ///
    /// # requeue_testkit::block_on(async {
    /// let jobs = Jobs::new(Arc::new(MemoryStore::new()));
    /// jobs.put_task(&Close { order: 7 }).priority(9).if_absent().await?;
    /// let job = jobs.get(Close::KIND, "order-7").await?.expect("it was put");
    /// assert_eq!(job.body().bytes(), br#"{"order":7}"#);
    /// assert_eq!(job.body().content_type(), "application/json");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    ///
    /// A type that is not a [`Task`] is rejected by the compiler:
    ///
    /// ```compile_fail,E0277
    /// # use requeue_jobs::{Jobs, MemoryStore};
    /// # let jobs = Jobs::new(std::sync::Arc::new(MemoryStore::new()));
    /// jobs.put_task(&"order-7".to_owned());
    /// ```
    pub fn put_task<T: Task>(&self, task: &T) -> PutJob {
        self.put_json(T::KIND, &task.id(), task)
    }
}
