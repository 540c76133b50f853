//! The HTTP API of requeue: its words.
//!
//! | module | what it is |
//! |---|---|
//! | [`wire`] | requests and answers, as JSON has them; from and to the types of `requeue-jobs` |
//! | [`Problem`] | what went wrong, as RFC 9457 has it |
//! | [`times`] | times and durations, as people write them |

mod problem;
pub mod times;
pub mod wire;

pub use problem::{Problem, Sort};
