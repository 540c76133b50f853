//! The HTTP server of requeue: durable jobs over HTTP, on any [`Store`](requeue_jobs::Store).
//!
//! ```
//! use requeue_jobs::{WallClock, MemoryStore};
//! use requeue_server::auth::Access;
//! use requeue_server::listen::{Listener, Options};
//! use requeue_server::{App, Limits};
//! use std::sync::Arc;
//! use std::time::Duration;
//! use tokio::net::TcpListener;
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let store = Arc::new(MemoryStore::new()); // or on disk, Redis or Postgres
//! let app = App::new(store, WallClock::system(), Limits::default());
//! let listener = Listener::new(TcpListener::bind("127.0.0.1:0").await?, Options::default());
//! let access = Access::new([], None)?; // no tokens: anyone who can connect has full access
//! # app.shutdown().request();
//! app.serve(listener, &access, Duration::from_secs(30)).await;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `routes` | the handlers of all paths; the OpenAPI document is generated from them |
//! | `claims`, `claim_queue` | long-polling claims; jobs whose response is lost are released |
//! | [`bulk`], `scans` | listing, changing and deleting jobs of a kind by filter, beside other requests |
//! | [`listen`] | sockets, connections, limits, TLS, shutdown |
//! | [`auth`], `shares` | access tokens, sessions of browsers; what each token may use of a limit |
//! | `dashboard` | the web pages, which use only the HTTP API |
//! | `cross_site` | protection against requests from web pages of other sites |
//! | `instrumented` | the store wrapper that feeds `metrics`, `events` and `workers` |
//! | `kind_views` | the views of all kinds, which concurrent requests share |
//! | `series`, `forecast` | what this node did in the last hour and day; what falls due next |
//! | `health`, `failure_log` | problems of the node: in the log, `/readyz`, `/v1/stats` and `/metrics` |
//! | `reaper` | the background task that ends expired leases and drops old dead jobs |
//! | `push` | the background task that delivers the jobs of kinds with a push setting |
//! | `schedules` | the background task that starts the runs of schedules |

mod app;
pub mod auth;
pub mod bulk;
mod claim_queue;
mod claims;
mod cross_site;
mod dashboard;
mod events;
mod extract;
mod failure_log;
mod forecast;
mod health;
mod instrumented;
mod json_text;
mod kind_views;
mod listed_job;
pub mod listen;
mod metrics;
mod push;
mod reaper;
mod requests;
mod response;
mod response_memory;
mod routes;
mod scans;
mod schedules;
mod series;
mod shares;
mod trouble;
mod workers;

pub use app::{App, Limits};
pub use events::{
    Event, EventItem, EventListener, EventName, Events, MissedEvents, TooManyListeners,
};
pub use instrumented::{InstrumentedStore, WaitingClaim};
pub use metrics::{CONTENT_TYPE, GaugeGuard, ServerMetrics};
pub use push::PushOptions;
pub use reaper::Reaper;
pub use requeue_push::{AllowedTargets, InvalidAllowedTarget};
pub use routes::{BackedUp, BackupFn};
pub use workers::{WorkerInfo, Workers};

/// The programs of the guide for Rust are compiled, and some run, as doc tests: this crate has all that they need.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/rust.md")]
struct RustGuide;
