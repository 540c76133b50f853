//! The listener on real sockets, with the bytes of requests written by hand.

mod delivery;
pub(crate) mod harness;
mod later;
mod limits;
mod shutdown;
mod tls;
