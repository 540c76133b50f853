//! How the server listens, on real sockets, with the bytes written by hand.

mod auth;
mod delivery;
mod harness;
mod limits;
mod shutdown;
mod tls;
