//! The service as it is run: real processes, which are killed, stopped, and left by their clients.

mod gone;
mod kills;
mod load;
mod node;
mod nodes;
mod secrets;
mod stops;
mod workers;
