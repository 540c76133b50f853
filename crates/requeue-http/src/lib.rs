//! The HTTP API of requeue: its words.

pub mod times;
