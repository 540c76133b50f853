//! The HTTP API of requeue: its requests and responses, and a client.
//!
//! | module | content |
//! |---|---|
//! | [`wire`] | the JSON of requests and responses, converted from and to the types of `requeue-jobs` |
//! | [`Problem`] | error responses: problem details (RFC 9457) |
//! | [`error_group`] | which errors belong together |
//! | [`times`] | parsing and formatting of times and durations |
//! | `client` | `HttpStore`: a [`Store`](requeue_jobs::Store) that sends every operation to a server (feature `client`, on by default) |
//!
//! `docs/http-api.md` describes the API. The feature `openapi` adds OpenAPI schemas to the types of
//! [`wire`].

#[cfg(feature = "client")]
pub mod client;
mod error_group;
mod problem;
pub mod times;
pub mod wire;

#[cfg(feature = "client")]
pub use client::HttpStore;
pub use error_group::error_group;
pub use problem::{AtField, Problem, ProblemType};
