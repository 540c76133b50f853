//! Durable jobs on Redis: the contract of `requeue-jobs` across machines.
//!
//! A [`RedisStore`] is a [`Store`](requeue_jobs::Store) that any number of processes share, on
//! one Redis (7.0 or later), under Sentinel, or on a Cluster. The contract is
//! `docs/jobs.md`, the same as of every store; `docs/redis-keys.md` draws what is kept, and how.
//!
//! ```no_run
//! use requeue_jobs::Jobs;
//! use requeue_redis::RedisStore;
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! # async fn doc() -> Result<(), Box<dyn std::error::Error>> {
//! let store = RedisStore::connect("redis://127.0.0.1:6379/").await?;
//! let jobs = Jobs::new(Arc::new(store));
//! jobs.put("order.close", "order-42", "unpaid").after(Duration::from_secs(86_400)).await?;
//! # Ok(())
//! # }
//! ```
//!
//! | type | what it is |
//! |---|---|
//! | [`RedisStore`] | the store: connect it, use it as a [`Store`](requeue_jobs::Store) |
//! | [`Address`] | the URLs it takes: one server, Sentinel, Cluster, TLS, a socket |
//! | [`Options`] | the prefix of a deployment, timeouts, certificates |
//! | [`ConnectError`] | why it could not be connected |
//!
//! # How it works
//!
//! Whatever changes a job is one Lua script, so it happens as a whole or not at all. Per kind there
//! is a sorted set of pending jobs by due time, one of leased jobs by the end of their leases, and one
//! of the dead. Time is the server's. Calls that are made at the same time through one
//! [`Jobs`](requeue_jobs::Jobs) are joined: fifty puts are one script.
//!
//! Nobody polls. Who waits knows from its last claim when there will be something, and sleeps until
//! then; what is put sooner is told by a message. A message that is lost costs a second.
//!
//! # What it promises
//!
//! As much as the Redis does that keeps it:
//!
//! | Redis | what was answered |
//! |---|---|
//! | `appendonly yes`, `appendfsync always` | stays, whatever happens to the process |
//! | `appendonly yes`, `appendfsync everysec` | stays, but for about the last two seconds before a crash |
//! | a replica takes over (Sentinel, Cluster) | stays, but for what had not reached the replica: jobs may be missing, and done jobs may come back |
//! | no persistence | is gone with the process |
//!
//! Whatever is lost, nothing is half there, and fences go on rising as long as the servers' clocks
//! agree: an ack by a receipt of before is refused where its lease is not known any more.
//! Generations of puts that were lost are given out again.
//!
//! # When something fails
//!
//! | | |
//! |---|---|
//! | no connection can be had | [unavailable](requeue_jobs::StoreError::Unavailable): nothing was done. It is tried again, with backoff |
//! | a connection breaks, or no answer comes in time | [unknown](requeue_jobs::StoreError::Unknown): it may have been done. Nothing is ever sent a second time by itself |
//! | the server's memory is full | new jobs are refused, as unavailable; claiming and settling go on, so that it drains |
//! | it evicts keys | [`connect`](RedisStore::connect) refuses it: jobs would vanish |
//! | a slot of a Cluster is moved | calls of its kinds wait until it is over; where that takes too long, unavailable |
//! | the server's clock jumps | what is due, and when leases end, follows it. Fences rise all the same |
//! | a newer program wrote it | [`connect`](RedisStore::connect) refuses it, and touches nothing |

mod address;
mod batch;
mod change;
mod check;
mod claim;
mod codec;
mod connections;
mod error;
mod keys;
mod kinds;
mod list;
mod options;
mod put;
mod reply;
mod restore;
mod schedules;
mod script;
mod settle;
mod store;
mod view;
mod watch;

pub use address::{Address, Secret};
pub use error::ConnectError;
pub use options::Options;
pub use store::RedisStore;
