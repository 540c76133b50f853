//! Durable jobs on Redis, shared by any number of processes and machines.
//!
//! A [`RedisStore`] implements the [`Store`](requeue_jobs::Store) trait of `requeue-jobs` on a
//! single Redis server (7.0 or later), a Sentinel deployment, or a Redis Cluster. It has the same
//! contract as every store, which `docs/jobs.md` describes. `docs/redis-keys.md` documents every
//! key and its contents.
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
//! | [`RedisStore`] | the store; connect it and use it as a [`Store`](requeue_jobs::Store) |
//! | [`Address`] | the supported URLs: single server, Unix socket, Sentinel, Cluster, with or without TLS |
//! | [`Options`] | key prefix, timeouts, certificates |
//! | [`RedisConnectError`] | why connecting failed |
//!
//! # How it works
//!
//! Every change of a job is one Lua script, so it is applied completely or not at all. Each kind
//! has three sorted sets: pending jobs by due time, leased jobs by the end of their lease, and dead
//! jobs by time of death. All times come from the Redis server's clock. Concurrent calls through
//! one [`Jobs`](requeue_jobs::Jobs) are batched: fifty puts run as one script.
//!
//! Waiting does not poll for each job. A claim that finds too little also returns when the next job
//! is due, and the waiting worker sleeps until then. If a job is put with an earlier due time, a
//! pub/sub message wakes it. If that message is lost, the worker notices the job up to a second
//! late.
//!
//! # Durability
//!
//! A call that returned successfully is as durable as the Redis configuration makes it:
//!
//! | Redis configuration | confirmed calls |
//! |---|---|
//! | `appendonly yes`, `appendfsync always` | survive a crash of the Redis process |
//! | `appendonly yes`, `appendfsync everysec` | survive, except about the last two seconds before a crash |
//! | failover to a replica (Sentinel, Cluster) | survive, except those that the replica had not received: jobs may be missing, and acked jobs may run again |
//! | no persistence | are lost when the process ends |
//!
//! Scripts are never lost in part. After a loss, fences still rise as long as the servers' clocks
//! agree, and an ack with a receipt whose lease was lost is rejected. Generations of lost puts are
//! used again.
//!
//! # Failures
//!
//! | situation | result |
//! |---|---|
//! | no connection | calls fail with [`Unavailable`](requeue_jobs::StoreError::Unavailable): nothing was done. The store reconnects with backoff |
//! | the connection breaks, or the response times out | the call fails with [`Unknown`](requeue_jobs::StoreError::Unknown): it may have been done. The store never repeats a command whose outcome is unknown |
//! | the server hangs | calls in flight fail with `Unknown` after [`Options::response_timeout`], later ones with `Unavailable`. At most 50,000 calls with 128 MiB wait for Redis; more fail with `Unavailable` |
//! | a reply has more than 128 MiB | the connection is closed before the reply is in memory, and the call fails |
//! | someone else has written our keys | the error names the key, and other jobs are not affected |
//! | the server's memory is full | puts fail with `Unavailable`; claims and settlements still work, so the backlog can drain |
//! | the server evicts keys | [`connect`](RedisStore::connect) rejects it, because jobs would disappear |
//! | a Cluster slot is being moved | calls for its kinds wait; if the move takes too long, they fail with `Unavailable` |
//! | the server's clock jumps | due times and lease ends follow the clock. Fences still rise |
//! | the keys have another format | [`connect`](RedisStore::connect) rejects the server and changes nothing |
//!
//! [`Store::status`](requeue_jobs::Store::status) reports servers that are not connected, are full or
//! reject writes, each with its address.

mod address;
mod batch;
mod change;
mod check;
mod claim;
mod codec;
mod connections;
mod deployment;
mod error;
mod keys;
mod kinds;
mod list;
mod list_by_time;
mod options;
mod put;
mod registration;
mod reply;
mod restore;
mod schedules;
mod script;
mod settings;
mod settle;
mod store;
mod view;
mod watch;

pub use address::{Address, Secret};
pub use error::RedisConnectError;
pub use options::Options;
pub use store::RedisStore;
