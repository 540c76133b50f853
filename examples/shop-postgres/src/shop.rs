//! What all parts of the shop use: the database, the job store, and the delays.

use deadpool_postgres::{Manager, Pool};
use requeue_jobs::{BoxError, Jobs};
use requeue_postgres::PostgresStore;
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::NoTls;

/// The kind of the jobs that remind a customer of an unpaid order.
pub(crate) const REMIND: &str = "order.remind";

/// The kind of the jobs that close an unpaid order.
pub(crate) const CLOSE: &str = "order.close";

/// When the jobs of an order are due.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Delays {
    pub(crate) remind: Duration,
    pub(crate) close: Duration,
}

impl Default for Delays {
    fn default() -> Self {
        Delays { remind: Duration::from_secs(5 * 60), close: Duration::from_secs(24 * 60 * 60) }
    }
}

/// Cloning is cheap: clones share their connections.
#[derive(Clone)]
pub(crate) struct Shop {
    /// Connections of the shop itself. The store has its own.
    pub(crate) pool: Pool,
    pub(crate) store: PostgresStore,
    pub(crate) jobs: Jobs,
    pub(crate) delays: Delays,
}

impl Shop {
    /// Connects to the database, and creates the tables of the shop and of the queue.
    pub(crate) async fn open(url: &str, delays: Delays) -> Result<Self, BoxError> {
        let store = PostgresStore::connect(url).await?;
        let jobs = Jobs::new(Arc::new(store.clone()));
        let pool = Pool::builder(Manager::new(url.parse()?, NoTls)).max_size(10).build()?;
        pool.get().await?.batch_execute(include_str!("tables.sql")).await?;
        Ok(Shop { pool, store, jobs, delays })
    }
}

/// The id of both jobs of an order. They differ in their kind.
pub(crate) fn job_id(order: i64) -> String {
    format!("order-{order}")
}
