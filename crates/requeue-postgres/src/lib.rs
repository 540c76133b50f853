//! Durable jobs on Postgres, put in the same transaction as your data.
//!
//! A [`PostgresStore`] implements the [`Store`](requeue_jobs::Store) trait of `requeue-jobs` on Postgres
//! 14 or later. It has the same contract as every store, which `docs/jobs.md` describes, and is shared
//! by any number of processes and machines. `docs/postgres.md` describes its tables, the privileges
//! that it needs, and how to operate it.
//!
//! ```no_run
//! use requeue_jobs::Jobs;
//! use requeue_postgres::PostgresStore;
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! # async fn doc() -> Result<(), Box<dyn std::error::Error>> {
//! let store = PostgresStore::connect("postgres://app@db.example/shop").await?;
//! let jobs = Jobs::new(Arc::new(store));
//! jobs.put("order.close", "order-42", "unpaid").after(Duration::from_secs(300)).await?;
//! # Ok(())
//! # }
//! ```
//!
//! With [`PutInTransaction`], a job is put in a transaction of the application: the job exists if and
//! only if the transaction commits. From other languages, call the SQL function `requeue.put`.

mod acks;
mod by_kind;
mod change;
mod check;
mod claim;
mod columns;
mod connector;
mod database;
mod error;
mod head;
mod in_transaction;
mod jobs_table;
mod kinds;
mod list;
mod locked;
mod marks;
mod options;
mod put;
mod restore;
mod rows;
mod rules_call;
mod schedules;
mod schema;
mod settings;
mod settle;
mod shares;
mod statements;
mod store;
mod text;
#[cfg(feature = "tls")]
mod tls;
mod trust;
mod url;
mod watch;

pub use error::PostgresConnectError;
pub use in_transaction::PutInTransaction;
pub use options::Options;
pub use schema::Migrated;
pub use store::PostgresStore;
