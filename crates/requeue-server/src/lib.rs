//! Durable jobs over HTTP, on any store.
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
//! let store = Arc::new(MemoryStore::new()); // or on disk, or on Redis
//! let app = App::new(store, WallClock::system(), Limits::default());
//! let listener = Listener::new(TcpListener::bind("127.0.0.1:0").await?, Options::default());
//! let access = Access::new([], None)?; // everybody who can reach it
//! # app.shutdown().order();
//! app.serve(listener, &access, Duration::from_secs(30)).await;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | `routes` | what is answered at which path; the OpenAPI document is made of it |
//! | `claims`, `line` | claims that wait, and are not lost on the way |
//! | [`listen`] | sockets, connections, limits, TLS, shutdown |
//! | [`auth`] | tokens |
//! | `instrumented` | all that the store is asked passes here: metrics, events, workers |

mod answer;
mod app;
pub mod auth;
mod background;
mod claim_queue;
mod claims;
mod events;
mod extract;
mod instrumented;
mod jobs_of_kind;
pub mod listen;
mod metrics;
mod requests;
mod routes;
mod site;
mod workers;

pub use app::{App, Limits};
pub use background::Reaper;
pub use events::{Event, EventName, Events, Listener, Missed, Told, TooManyListeners};
pub use instrumented::{InstrumentedStore, WaitingClaim};
pub use metrics::{CONTENT_TYPE, Counted, Metrics};
pub use routes::{BackedUp, Backup};
pub use workers::{Worker, Workers};
