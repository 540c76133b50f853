//! The service as real processes, which are killed and stopped, and whose clients disconnect.

mod attack;
mod disconnects;
mod kills;
mod load;
mod node;
mod nodes;
mod reload;
mod shared_store;
mod stops;
mod workers;
