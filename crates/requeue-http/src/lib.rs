//! The HTTP API of requeue: its words, and a client that is a store.
//!
//! | module | what it is |
//! |---|---|
//! | [`wire`] | requests and answers, as JSON has them; from and to the types of `requeue-jobs` |
//! | [`Problem`] | what went wrong, as RFC 9457 has it |
//! | [`times`] | times and durations, as people write them |
//! | `client` | `HttpStore`: the jobs behind a server, as a store (feature `client`, on by default) |
//!
//! `docs/http-api.md` is the API, in words.

#[cfg(feature = "client")]
pub mod client;
mod problem;
pub mod times;
pub mod wire;

#[cfg(feature = "client")]
pub use client::HttpStore;
pub use problem::{Problem, Sort};
